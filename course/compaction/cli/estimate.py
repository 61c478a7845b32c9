"""``estimate``: how large a history is."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from compaction.cli.options import (
    add_history,
    add_tools,
    counted_as,
    named,
    opened,
    problem_lines,
    schemas_of,
    token_count,
    verdict,
)
from compaction.console import OK, counted, print_json

if TYPE_CHECKING:
    from compaction.calibration import FeatureMeter
    from compaction.messages import Message


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    add_history(parser)
    add_tools(parser)
    parser.add_argument(
        "--window", metavar="N", type=token_count, help="show the share of a window of N tokens"
    )


def run(options: argparse.Namespace) -> int:
    """Print the estimate of each conversation."""
    from compaction.calibration import FeatureMeter
    from compaction.tokens import about

    meter = FeatureMeter()
    source = opened(options)
    schemas = schemas_of(options)
    number = total = 0
    for number, (name, conversation) in enumerate(named(source), 1):  # noqa: B007
        tools = schemas or conversation.tools
        report = measured(meter, name, conversation.messages, tools, options.window)
        total += report["tokens"]
        if options.json:
            print_json(report)
        else:
            print("\n".join(_lines(report, len(tools or ()))))
    if number > 1 and not options.json:
        print(f"{counted(number, 'conversation')}: {about(total)} in all")
    return OK


def measured(
    meter: FeatureMeter,
    name: str,
    messages: list[Message],
    tools: list[dict[str, Any]] | None = None,
    window: int | None = None,
) -> dict[str, Any]:
    """Return what is printed about a conversation, as plain data."""
    from compaction.calibration import size_of
    from compaction.messages import problems
    from compaction.tokens import heuristic

    sizes = [size_of(message) for message in messages]
    count = counted_as(meter, messages, tools)
    report: dict[str, Any] = {
        "source": name,
        **count,
        "messages": len(messages),
        "cjk_characters": sum(size.cjk for size in sizes),
        "other_characters": sum(size.other for size in sizes),
        "images": sum(size.images for size in sizes),
        "tool_schema_tokens": count["tokens"] - meter.count(messages),
        "heuristic_tokens": sum(map(heuristic, messages)),
        "problems": problems(messages),
    }
    return report | ({"window": window, "used": count["tokens"] / window} if window else {})


def _lines(report: dict[str, Any], schemas: int) -> list[str]:
    from compaction.tokens import about

    tokens, at_most, window = report["tokens"], report["at_most"], report.get("window")
    lines = [
        f"{report['source']}: {about(tokens, at_most)} ({report['basis']})",
        (
            f"  {counted(report['messages'], 'message')}, {report['cjk_characters']} CJK and "
            f"{report['other_characters']} other characters, {counted(report['images'], 'image')}"
        ),
    ]
    if schemas:
        size = report["tool_schema_tokens"]
        lines.append(f"  {counted(schemas, 'tool schema')} of {size} tokens")
    lines.append(
        "  by the cruder heuristic, (characters + 20) / 4 a message: "
        f"{report['heuristic_tokens']} tokens"
    )
    if window:
        lines.append(f"  {verdict(tokens, at_most, window)}")
    return lines + problem_lines(report["problems"])
