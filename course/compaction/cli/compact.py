"""``compact``: replace old stretches of a history by summaries, and report what was done."""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from compaction.cli.options import (
    add_facts,
    add_history,
    add_keep_recent,
    add_tools,
    file_name,
    named,
    of_window,
    opened,
    problem_lines,
    schemas_of,
    token_count,
    verdict,
)
from compaction.cli.output import Output
from compaction.console import FAILED, OK, counted, one_line, percent, print_json, whole
from compaction.files import InputError

if TYPE_CHECKING:
    from compaction.messages import Message


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    add_history(parser)
    add_tools(parser)
    add_keep_recent(parser)
    add_facts(parser)
    parser.add_argument(
        "--out",
        metavar="FILE",
        type=file_name,
        help="write the compacted history here, in the form of the input (another program's: as "
        "Chat Completions); may be the input itself, unless another program wrote it; "
        '"-" is standard output (the report then goes to standard error)',
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


def run(options: argparse.Namespace) -> int:
    """Compact each conversation, report, and write the result when asked to."""
    source = opened(options)
    schemas = schemas_of(options)
    summarize = _summarizer(options)
    number = abandoned = 0
    with Output(options.out, options.history, source) as output:
        for number, (name, conversation) in enumerate(named(source), 1):  # noqa: B007
            tools = schemas or conversation.tools
            report = _compacted(name, conversation.messages, summarize, tools, options)
            output.add(conversation, report["messages"])
            is_abandoned = report["abandoned"] is not None
            abandoned += is_abandoned
            to_stderr = options.out == "-" or (is_abandoned and not options.json)
            report_to = sys.stderr if to_stderr else sys.stdout
            if options.json:
                print_json(report, report_to)
            else:
                print("\n".join(_lines(report, bool(options.out))), file=report_to)
        # One conversation among many that is too short must not hold up the others: it stays
        # as it is, and the exit code tells.
        if abandoned < number:
            output.keep()
    if options.out not in (None, "-") and abandoned < number and not options.json:
        left = f", {abandoned} of them unchanged" if abandoned else ""
        count = f"{number} conversations{left} to " if number > 1 else ""
        print(f"wrote {count}{options.out}")
    return FAILED if abandoned else OK


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


def _compacted(
    name: str,
    messages: list[Message],
    summarize: Callable[[list[Message]], str],
    tools: list[dict[str, Any]] | None,
    options: argparse.Namespace,
) -> dict[str, Any]:
    """Compact one conversation; return what is printed about it, as plain data."""
    from compaction import summary
    from compaction.calibration import meter
    from compaction.messages import problems
    from compaction.probes import Probe, pinned_probes, verify

    looked_for = pinned_probes(messages) + [Probe(fact) for fact in options.fact]
    done = summary.compact(
        messages,
        summarize,
        keep_recent=options.keep_recent,
        min_segment_tokens=options.min_segment_tokens,
        probes=looked_for,
    )
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


def _lines(report: dict[str, Any], is_written: bool) -> list[str]:
    before, after, window = report["before"], report["after"], report.get("window")
    is_done = report["abandoned"] is None
    count = report["messages_before"]
    if is_done:
        lines = [
            (
                f"{report['source']}: compacted {count} -> {report['messages_after']} messages, "
                f"{before} -> {after} tokens ({percent(after / before)} of before)"
            )
        ]
    else:
        lines = [
            f"{report['source']}: not compacted: {' '.join(report['abandoned'].split())}",
            f"  {counted(count, 'message')}, {before} tokens, left as it is",
        ]
    if window:
        lines.append(f"  before: {of_window(before, window)}: {verdict(before, window)}")
    if window and is_done:
        lines.append(f"  after: {of_window(after, window)}: {verdict(after, window)}")
    for number, item in enumerate(report["summaries"], 1):
        lines += [
            (
                f"  summary {number} replaces messages {item['from_message']} to "
                f"{item['to_message']}, {item['tokens_before']} -> {item['tokens_after']} tokens"
            ),
            "    " + ", ".join(counted(n, kind) for kind, n in item["replaced"].items()),
        ]
    for state, said in _FACT_STATES.items():
        lines += [f"  {said}: {one_line(fact)}" for fact in report[state]]
    lines += problem_lines(report["problems"])
    if is_done and not is_written:
        lines.append("  nothing was written; --out FILE writes the compacted history")
    return lines


_FACT_STATES = {
    "kept": "fact kept",
    "carried": "fact carried over word for word, since the summary lost it",
    "absent": "fact not in this history",
}
