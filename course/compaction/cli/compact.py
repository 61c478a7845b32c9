"""``compact``: replace old stretches of a history by summaries, and report what was done."""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from compaction.cli.options import (
    FAILED,
    OK,
    add_facts,
    add_history,
    add_keep_recent,
    add_tools,
    counted,
    file_name,
    named,
    of_window,
    one_line,
    percent,
    print_json,
    print_problems,
    schemas_of,
    token_count,
    verdict,
    whole,
)
from compaction.files import InputError, write_whole
from compaction.history import read_histories, render_histories

if TYPE_CHECKING:
    from compaction.messages import Message
    from compaction.probes import Probe
    from compaction.summary import Compaction


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_history(parser)
    add_tools(parser)
    add_keep_recent(parser)
    add_facts(parser)
    parser.add_argument(
        "--out",
        metavar="FILE",
        type=file_name,
        help="write the compacted history here, in the form of the input; may be the input "
        'itself; "-" is standard output (the report then goes to standard error)',
    )
    parser.add_argument(
        "--window", metavar="N", type=token_count, help="show the shares of a window of N tokens"
    )
    parser.add_argument(
        "--min-segment-tokens",
        metavar="N",
        type=whole(0, "a number of tokens, 0 or more"),
        default=100,
        help="leave a stretch below N tokens as it is (default: 100)",
    )
    parser.add_argument(
        "--model",
        metavar="NAME",
        help="ask this model for the summaries, through OPENAI_BASE_URL and OPENAI_API_KEY "
        "(default: no model, sentences copied from the history)",
    )
    parser.add_argument("--base-url", metavar="URL", help="the gateway to ask, with --model")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Compact each conversation, report, and write the result when asked to."""
    from compaction import summary
    from compaction.probes import Probe, pinned_probes

    source = read_histories(options.history)
    schemas = schemas_of(options)
    summarize = _summarizer(options)
    results: list[list[Message]] = []
    abandoned = 0
    for name, conversation in named(source):
        messages, tools = conversation.messages, schemas or conversation.tools
        looked_for = pinned_probes(messages) + [Probe(fact) for fact in options.fact]
        done = summary.compact(
            messages,
            summarize,
            keep_recent=options.keep_recent,
            min_segment_tokens=options.min_segment_tokens,
            probes=looked_for,
        )
        results.append(done.messages)
        abandoned += done.abandoned is not None
        report = _compaction_report(name, messages, done, looked_for, tools, options)
        to_stderr = options.out == "-" or (done.abandoned is not None and not options.json)
        report_to = sys.stderr if to_stderr else sys.stdout
        if options.json:
            print_json(report, report_to)
        else:
            _print_compaction(report, options, report_to)
    # One conversation among many that is too short must not hold up the others: it stays as
    # it is, and the exit code tells.
    if options.out and abandoned < len(results):
        text = render_histories(source, results)
        if options.out == "-":
            _print_history(text)
        else:
            write_whole(options.out, text)
            if not options.json:
                left = f", {abandoned} of them unchanged" if abandoned else ""
                count = f"{len(results)} conversations{left} " if len(results) > 1 else ""
                print(f"wrote {count}to {options.out}" if count else f"wrote {options.out}")
    return FAILED if abandoned else OK


def _print_history(text: str) -> None:
    """Write a history to standard output as UTF-8, whatever the terminal's encoding is."""
    sys.stdout.flush()
    sys.stdout.buffer.write(text.encode())
    sys.stdout.buffer.flush()


def _summarizer(options: argparse.Namespace) -> Callable[[list[Message]], str]:
    if options.model is None:
        if options.base_url is not None:
            raise InputError("--base-url needs --model, the model to ask for the summaries")
        from compaction.summary import extract

        return extract
    from compaction.gateway import summarize_with

    try:
        import openai

        client = openai.OpenAI(base_url=options.base_url)
    except ImportError as error:
        raise InputError("--model needs the package openai, which is not installed") from error
    except openai.OpenAIError as error:
        reason = str(error).splitlines()[0]
        raise InputError(f"--model: {reason}") from error
    return summarize_with(client, options.model)


def _compaction_report(
    name: str,
    messages: list[Message],
    done: Compaction,
    looked_for: Sequence[Probe],
    tools: list[dict[str, Any]] | None,
    options: argparse.Namespace,
) -> dict[str, Any]:
    from compaction.calibration import meter
    from compaction.messages import problems
    from compaction.probes import verify

    before = meter.count(messages, tools)
    kept = verify(looked_for, done.messages).kept
    report: dict[str, Any] = {
        "source": name,
        "abandoned": done.abandoned,
        "messages_before": len(messages),
        "messages_after": len(done.messages),
        "before": before,
        "after": meter.count(done.messages, tools),
        "tool_schema_tokens": before - done.before,
        "summaries": [],
        "kept": [probe.fact for probe in kept if probe not in done.carried],
        "carried": [probe.fact for probe in done.carried],
        "absent": [probe.fact for probe in looked_for if probe not in kept],
        "problems": problems(messages),
        "new_problems": _new(problems(messages), problems(done.messages)),
        "messages": done.messages,
    }
    if options.window:
        report["window"] = options.window
    if done.abandoned is None:
        report["summaries"] = [
            {
                "from_message": start + 1,
                "to_message": end,
                "replaced": _kinds(messages[start:end]),
                "tokens_before": meter.count(messages[start:end]),
                "tokens_after": meter.count([_summary_message(text)]),
                "text": text,
            }
            for (start, end), text in zip(
                _stretches(messages, options), done.summaries, strict=True
            )
        ]
    return report


def _stretches(messages: list[Message], options: argparse.Namespace) -> list[tuple[int, int]]:
    """Return the stretches that ``summary.compact`` replaces, by the same rules."""
    from compaction.calibration import meter
    from compaction.grouping import group_messages, segments

    return [
        (start, end)
        for start, end in segments(messages, group_messages(messages, options.keep_recent))
        if meter.count(messages[start:end]) >= options.min_segment_tokens
    ]


def _summary_message(text: str) -> Message:
    from compaction.messages import SUMMARY_PREFIX

    return {"role": "user", "content": f"{SUMMARY_PREFIX}\n{text}"}


def _kinds(messages: Iterable[Message]) -> dict[str, int]:
    """Count the messages of a stretch by what they are, in words for a person.

    >>> _kinds([{"role": "user", "content": "hi"}, {"role": "tool", "content": "ok"}])
    {'user message': 1, 'tool result': 1}
    """
    from compaction.messages import calls_of, is_summary

    def kind(message: Message) -> str:
        if is_summary(message):
            return "earlier summary"
        if message.get("role") == "tool":
            return "tool result"
        return f"{message.get('role')} message" + (" with calls" if calls_of(message) else "")

    return dict(Counter(map(kind, messages)))


def _new(before: Iterable[str], after: Iterable[str]) -> list[str]:
    return sorted((Counter(after) - Counter(before)).elements())


def _print_compaction(report: dict[str, Any], options: argparse.Namespace, file: Any) -> None:
    def say(line: str) -> None:
        print(line, file=file)

    before, after = report["before"], report["after"]
    if report["abandoned"] is not None:
        say(f"{report['source']}: not compacted: {' '.join(report['abandoned'].split())}")
        say(f"  {counted(report['messages_before'], 'message')}, {before} tokens, left as it is")
    else:
        say(
            f"{report['source']}: compacted {report['messages_before']} -> "
            f"{report['messages_after']} messages, {before} -> {after} tokens "
            f"({percent(after / before)} of before)"
        )
    if options.window:
        say(f"  before: {of_window(before, options.window)}: {verdict(before, options.window)}")
        if report["abandoned"] is None:
            say(f"  after: {of_window(after, options.window)}: {verdict(after, options.window)}")
    for number, item in enumerate(report["summaries"], 1):
        replaced = ", ".join(counted(n, kind) for kind, n in item["replaced"].items())
        say(
            f"  summary {number} replaces messages {item['from_message']} to {item['to_message']}, "
            f"{item['tokens_before']} -> {item['tokens_after']} tokens"
        )
        say(f"    {replaced}")
    for state in ("kept", "carried", "absent"):
        for fact in report[state]:
            say(f"  {_FACT_STATES[state]}: {one_line(fact)}")
    print_problems(report["problems"], file)
    if report["abandoned"] is None and not options.out:
        say("  nothing was written; --out FILE writes the compacted history")


_FACT_STATES = {
    "kept": "fact kept",
    "carried": "fact carried over word for word, since the summary lost it",
    "absent": "fact not in this history",
}
