"""``compact``: replace old stretches of a history by summaries, and report what was done."""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Iterable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from compaction.cli.options import (
    Tools,
    add_facts,
    add_history,
    add_keep_recent,
    add_tools,
    counted_as,
    file_name,
    named,
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
    from compaction.calibration import FeatureMeter
    from compaction.messages import Message
    from compaction.summary import Summarizer


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
        "--target",
        metavar="N",
        type=token_count,
        help="compact to at most N tokens, tool schemas not counted, or not at all",
    )
    parser.add_argument(
        "--min-gain",
        metavar="SHARE",
        type=_share,
        default=0.0,
        help="leave a history as it is when less than this share of it would go, as 0.1",
    )
    parser.add_argument(
        "--alternate",
        action="store_true",
        help="let user and assistant take turns, for chat templates that insist on it",
    )
    parser.add_argument(
        "--no-mask",
        dest="masks",
        action="store_false",
        help="let secrets of known shapes (keys, tokens, passwords) into the summaries",
    )
    parser.add_argument(
        "--model",
        metavar="NAME",
        help="ask this model for the summaries, through OPENAI_BASE_URL and OPENAI_API_KEY "
        "(default: no model, sentences copied from the history)",
    )
    parser.add_argument("--base-url", metavar="URL", help="the gateway to ask, with --model")


def _share(text: str) -> float:
    with suppress(ValueError):
        if 0 <= (share := float(text)) < 1:
            return share
    raise argparse.ArgumentTypeError(f"expected a share from 0 to below 1, as 0.1, got {text!r}")


def run(options: argparse.Namespace) -> int:
    """Compact each conversation, report, and write the result when asked to."""
    from compaction.calibration import FeatureMeter

    meter = FeatureMeter()
    source = opened(options)
    schemas = schemas_of(options)
    summarize = _summarizer(options)
    number = abandoned = 0
    with Output(options.out, options.history, source) as output:
        for number, (name, conversation) in enumerate(named(source), 1):  # noqa: B007
            tools = schemas or conversation.tools
            report = _compacted(meter, name, conversation.messages, summarize, tools, options)
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


def _summarizer(options: argparse.Namespace) -> Summarizer:
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
    meter: FeatureMeter,
    name: str,
    messages: list[Message],
    summarize: Summarizer,
    tools: Tools,
    options: argparse.Namespace,
) -> dict[str, Any]:
    """Compact one conversation; return what is printed about it, as plain data."""
    from compaction.compactor import compact_history, mask_secrets
    from compaction.messages import problems
    from compaction.probes import Probe, pinned_probes, verify

    looked_for = pinned_probes(messages) + [Probe(fact) for fact in options.fact]
    done = compact_history(
        messages,
        summarize,
        target_tokens=options.target,
        min_gain=options.min_gain,
        alternate=options.alternate,
        mask=mask_secrets if options.masks else None,
        keep_recent=options.keep_recent,
        min_segment_tokens=options.min_segment_tokens,
        meter=meter,
        probes=looked_for,
    )
    before, after = (counted_as(meter, held, tools) for held in (messages, done.messages))
    kept = verify(looked_for, done.messages).kept
    report: dict[str, Any] = {
        "source": name,
        "abandoned": done.abandoned,
        "messages_before": len(messages),
        "messages_after": len(done.messages),
        "before": before["tokens"],
        "after": after["tokens"],
        "before_at_most": before["at_most"],
        "after_at_most": after["at_most"],
        "basis": before["basis"],
        "tool_schema_tokens": before["tokens"] - done.before,
        "summaries": [
            {
                "from_message": stretch.start + 1,
                "to_message": stretch.end,
                "replaced": _kinds(messages[stretch.start : stretch.end]),
                "tokens_before": stretch.before,
                "tokens_after": stretch.after,
                "values_kept": list(stretch.kept),
                "values_left": list(stretch.left),
                "text": text,
            }
            for stretch, text in zip(done.stretches, done.summaries, strict=True)
        ],
        "dropped": list(done.dropped),
        "kept": [probe.fact for probe in kept if probe not in done.carried],
        "carried": [probe.fact for probe in done.carried],
        "absent": [probe.fact for probe in looked_for if probe not in kept],
        "problems": problems(messages, alternate=options.alternate),
        "new_problems": _new(problems(messages), problems(done.messages)),
        "messages": done.messages,
    }
    return report | ({"window": options.window} if options.window else {})


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
            ),
            (
                f"  at most {report['before_at_most']} -> {report['after_at_most']} tokens "
                f"({report['basis']})"
            ),
        ]
    else:
        lines = [
            f"{report['source']}: not compacted: {' '.join(report['abandoned'].split())}",
            f"  {counted(count, 'message')}, {before} tokens, left as it is",
        ]
    if window:
        lines.append(f"  before: {verdict(before, report['before_at_most'], window)}")
    if window and is_done:
        lines.append(f"  after: {verdict(after, report['after_at_most'], window)}")
    for number, item in enumerate(report["summaries"], 1):
        lines += _summary_lines(number, item)
    lines += [f"  given up: {one_line(line)}" for line in report["dropped"][:_SHOWN]]
    if len(report["dropped"]) > _SHOWN:
        lines.append(f"  given up: {len(report['dropped']) - _SHOWN} more; --json lists them")
    for state, said in _FACT_STATES.items():
        lines += [f"  {said}: {one_line(fact)}" for fact in report[state]]
    lines += problem_lines(report["problems"])
    if is_done and not is_written:
        lines.append("  nothing was written; --out FILE writes the compacted history")
    return lines


_SHOWN = 6  # lines of what was given up, and values of a summary, that are shown


def _summary_lines(number: int, item: dict[str, Any]) -> list[str]:
    kept, left = item["values_kept"], item["values_left"]
    lines = [
        (
            f"  summary {number} replaces messages {item['from_message']} to "
            f"{item['to_message']}, {item['tokens_before']} -> {item['tokens_after']} tokens"
        ),
        "    " + ", ".join(counted(n, kind) for kind, n in item["replaced"].items()),
    ]
    if kept or left:
        shown = ", ".join(one_line(value) for value in kept[:_SHOWN])
        of = f"{len(kept)} of {counted(len(kept) + len(left), 'value')}"
        lines.append(f"    holds {of}" + (f": {shown}" if kept else ""))
        lines[-1] += ", ..." if len(kept) > _SHOWN else ""
    return lines


_FACT_STATES = {
    "kept": "fact kept",
    "carried": "fact carried over word for word, since the summary lost it",
    "absent": "fact not in this history",
}
