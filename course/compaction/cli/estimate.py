"""``estimate``: how large a history is."""

from __future__ import annotations

import argparse
from typing import Any

from compaction.cli.options import (
    OK,
    add_history,
    add_tools,
    counted,
    named,
    of_window,
    print_json,
    print_problems,
    schemas_of,
    token_count,
    verdict,
)
from compaction.history import read_histories


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_history(parser)
    add_tools(parser)
    parser.add_argument(
        "--window", metavar="N", type=token_count, help="show the share of a window of N tokens"
    )
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Print the estimate of each conversation."""
    from compaction.calibration import meter, size_of
    from compaction.messages import problems
    from compaction.tokens import about, heuristic

    source = read_histories(options.history)
    schemas = schemas_of(options)
    total = 0
    for name, conversation in named(source):
        messages, tools = conversation.messages, schemas or conversation.tools
        sizes = [size_of(message) for message in messages]
        tokens = meter.count(messages, tools)
        total += tokens
        report: dict[str, Any] = {
            "source": name,
            "tokens": tokens,
            "messages": len(messages),
            "cjk_characters": sum(size.cjk for size in sizes),
            "other_characters": sum(size.other for size in sizes),
            "images": sum(size.images for size in sizes),
            "tool_schema_tokens": tokens - meter.count(messages),
            "heuristic_tokens": sum(map(heuristic, messages)),
            "problems": problems(messages),
        }
        if options.window:
            report |= {"window": options.window, "used": tokens / options.window}
        if options.json:
            print_json(report)
            continue
        print(f"{name}: {about(tokens)}")
        print(
            f"  {counted(len(messages), 'message')}, {report['cjk_characters']} CJK and "
            f"{report['other_characters']} other characters, {counted(report['images'], 'image')}"
        )
        if tools:
            print(
                f"  {counted(len(tools), 'tool schema')} of {report['tool_schema_tokens']} tokens"
            )
        print(
            "  by the cruder heuristic, (characters + 20) / 4 a message: "
            f"{report['heuristic_tokens']} tokens"
        )
        if options.window:
            print(f"  {of_window(tokens, options.window)}: {verdict(tokens, options.window)}")
        print_problems(report["problems"])
    if len(source.conversations) > 1 and not options.json:
        print(f"{counted(len(source.conversations), 'conversation')}: {about(total)} in all")
    return OK
