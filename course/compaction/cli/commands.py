"""The command line: measure a history, see its budget, compact it, check what it kept.

Each command loads what it needs when it runs, so that a short command starts in a moment.
"""

from __future__ import annotations

import argparse
import importlib
import io
import json
import math
import os
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NoReturn

from compaction import __version__
from compaction.history import (
    Conversation,
    HistoryError,
    HistoryFile,
    read_histories,
    read_tools,
    render_histories,
    write_atomically,
)

if TYPE_CHECKING:
    from compaction.budget import Row
    from compaction.messages import Message
    from compaction.probes import Probe
    from compaction.summary import Compaction

OK, FAILED, BAD_INPUT, INTERRUPTED, PIPE_CLOSED = 0, 1, 2, 130, 141

DEFAULT_WINDOW = 128_000
THRESHOLD = 0.70

_HISTORY_HELP = (
    'a file with a JSON list of messages, {"messages": [...]}, or JSON lines (a message or a '
    'conversation a line); "-" reads standard input'
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code.

    0: done. 1: the compaction was abandoned, or a pinned fact is lost. 2: the input or the
    command line is wrong, said in one line. 130: stopped by Ctrl-C.
    """
    _open_closed_streams()
    for stream in (sys.stdout, sys.stderr):
        # Texts of a history may hold what this terminal cannot show.
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")
    try:
        given = list(sys.argv[1:] if arguments is None else arguments)
        options = _parser(given).parse_args(given)
        code = options.run(options)
        sys.stdout.flush()
        return int(code)
    except HistoryError as error:
        return _complain(error)
    except BrokenPipeError:  # the reader has gone (`| head`): nothing to say
        _forget_output()
        return PIPE_CLOSED
    except OSError as error:
        _forget_output()
        reason = error.strerror or str(error)
        return _complain(f"{error.filename}: {reason}" if error.filename else reason, FAILED)
    except KeyboardInterrupt:
        return INTERRUPTED


def _open_closed_streams() -> None:
    """Give a process that was started without its standard streams empty ones.

    Python has None in their place, and the next file opened would get a closed stream's number.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115


def _complain(error: object, code: int = BAD_INPUT) -> int:
    print(f"error: {error}", file=sys.stderr)
    return code


def _forget_output() -> None:
    """Let nothing be flushed at exit into an output that takes nothing more."""
    with suppress(OSError, ValueError), open(os.devnull, "w") as nowhere:
        os.dup2(nowhere.fileno(), sys.stdout.fileno())


# --- the parser -------------------------------------------------------------------------


class _Parser(argparse.ArgumentParser):
    """An argument parser that complains in one line."""

    def error(self, message: str) -> NoReturn:
        self.exit(BAD_INPUT, f"error: {message} (see {self.prog} --help)\n")


def _parser(given: Sequence[str]) -> argparse.ArgumentParser:
    parser = _Parser(
        prog="python -m compaction",
        description="Measure an agent's history, see what fills its context window, replace\n"
        "old stretches by summaries, and check that nothing pinned was lost.",
        epilog=_examples(
            "estimate history.json",
            "budget history.json --window 128000",
            "compact history.json --out shorter.json",
            "probes history.json --after shorter.json",
            "agent",
        ),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"compaction {__version__}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    # Only the command that is asked for loads its module and adds its arguments.
    asked = next((word for word in given if not word.startswith("-")), None)
    for name, (about, add_arguments, examples) in _COMMANDS.items():
        command = commands.add_parser(
            name,
            help=about,
            description=about[0].upper() + about[1:] + ".",
            epilog=_examples(*examples),
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        if name == asked:
            add_arguments(command)
    return parser


def _examples(*lines: str) -> str:
    return "examples:\n" + "\n".join(f"  python -m compaction {line}" for line in lines)


def _whole(least: int, what: str, most: float = math.inf) -> Callable[[str], int]:
    """Return a reader of whole numbers from ``least`` to ``most``, for argparse."""

    def read(text: str) -> int:
        try:
            number = int(text)
        except ValueError:
            number = least - 1
        if not least <= number <= most:
            raise argparse.ArgumentTypeError(f"expected {what}, got {text!r}")
        return number

    return read


# Shares of a window are floats, which hold whole numbers up to here exactly.
_tokens = _whole(1, "a positive number of tokens up to 10^15", 10**15)


def _not_blank(what: str) -> Callable[[str], str]:
    """Return a reader of words for argparse; an unset variable of a shell gives none."""

    def read(text: str) -> str:
        if not text.strip():
            raise argparse.ArgumentTypeError(f"expected {what}, got {text!r}")
        return text

    return read


_file_name = _not_blank("a file name")


def _add_history(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("history", metavar="HISTORY", help=_HISTORY_HELP)
    parser.add_argument("--json", action="store_true", help="print JSON, one value a conversation")


def _add_tools(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--tools",
        metavar="FILE",
        type=_file_name,
        help="a JSON list of tool schemas that ride along on every request (otherwise the "
        '"tools" that lie beside the "messages", if any)',
    )


def _add_keep_recent(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--keep-recent",
        metavar="N",
        type=_whole(0, "a number of groups, 0 or more"),
        default=3,
        help="how many of the newest groups stay as they are (default: 3)",
    )


def _add_facts(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--fact",
        metavar="TEXT",
        type=_not_blank("a fact to look for"),
        action="append",
        default=[],
        help='a fact to look for, besides what the user pinned with "remember:"; may be repeated',
    )


def _add_estimate(parser: argparse.ArgumentParser) -> None:
    _add_history(parser)
    _add_tools(parser)
    parser.add_argument(
        "--window", metavar="N", type=_tokens, help="show the share of a window of N tokens"
    )
    parser.set_defaults(run=estimate)


def _add_budget(parser: argparse.ArgumentParser) -> None:
    _add_history(parser)
    _add_tools(parser)
    parser.add_argument(
        "--window",
        metavar="N",
        type=_tokens,
        default=DEFAULT_WINDOW,
        help=f"the context window in tokens (default: {DEFAULT_WINDOW})",
    )
    parser.set_defaults(run=budget)


def _add_compact(parser: argparse.ArgumentParser) -> None:
    _add_history(parser)
    _add_tools(parser)
    _add_keep_recent(parser)
    _add_facts(parser)
    parser.add_argument(
        "--out",
        metavar="FILE",
        type=_file_name,
        help="write the compacted history here, in the form of the input; may be the input "
        'itself; "-" is standard output (the report then goes to standard error)',
    )
    parser.add_argument(
        "--window", metavar="N", type=_tokens, help="show the shares of a window of N tokens"
    )
    parser.add_argument(
        "--min-segment-tokens",
        metavar="N",
        type=_whole(0, "a number of tokens, 0 or more"),
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
    parser.set_defaults(run=compact)


def _add_probes(parser: argparse.ArgumentParser) -> None:
    _add_history(parser)
    _add_facts(parser)
    parser.add_argument(
        "--after",
        metavar="FILE",
        type=_file_name,
        help="look for the facts in this compacted history; exit code 1 when one is lost",
    )
    parser.set_defaults(run=probes)


def _add_simulate(parser: argparse.ArgumentParser) -> None:
    from compaction.carrying import KEEPS, SEED

    parser.add_argument("--seed", metavar="N", type=int, default=SEED, help=f"(default: {SEED})")
    parser.add_argument(
        "--keep",
        metavar="N",
        type=_whole(0, "a number of fields, 0 or more"),
        nargs="+",
        default=list(KEEPS),
        help=f"budgets in fields (default: {' '.join(map(str, KEEPS))})",
    )
    parser.add_argument(
        "--seeds",
        metavar="N",
        type=_whole(2, "a number of seeds, 2 or more"),
        help="run every row under N seeds, and show means with confidence intervals",
    )
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    parser.add_argument(
        "--plot",
        metavar="FILE",
        type=_file_name,
        help="draw tokens against success (PNG, SVG, PDF)",
    )
    parser.set_defaults(run=simulate)


def _late(module: str) -> Callable[[argparse.ArgumentParser], None]:
    """Return a function that lets a module of its own add the arguments of its command."""

    def add_arguments(parser: argparse.ArgumentParser) -> None:
        loaded = importlib.import_module(module)
        loaded.add_arguments(parser)
        # What the module calls a script that is none is bad input, like a history that is none.
        script_error = getattr(loaded, "ScriptError", HistoryError)

        def run(options: argparse.Namespace) -> int:
            try:
                return int(loaded.run(options))
            except script_error as error:
                return _complain(error)

        parser.set_defaults(run=run)

    return add_arguments


_Command = tuple[str, Callable[[argparse.ArgumentParser], None], tuple[str, ...]]

_COMMANDS: dict[str, _Command] = {
    "estimate": (
        "estimate the tokens of a history",
        _add_estimate,
        (
            "estimate history.json",
            "estimate history.json --tools schemas.json --window 128000",
            "estimate - < history.jsonl",
        ),
    ),
    "budget": (
        "show which of seven paths fills the window",
        _add_budget,
        ("budget history.json --window 128000", "budget history.json --json"),
    ),
    "compact": (
        "replace old stretches of a history by summaries",
        _add_compact,
        (
            "compact history.json --out shorter.json",
            "compact history.json --keep-recent 5 --fact 'pnpm build:calc'",
            "compact - --out - < history.json > shorter.json",
        ),
    ),
    "probes": (
        "list what the user pinned, and look for it in a compacted history",
        _add_probes,
        ("probes history.json", "probes history.json --after shorter.json"),
    ),
    "simulate": (
        "run the simulator of day 7: what a task carries, under two policies",
        _add_simulate,
        ("simulate", "simulate --keep 3 4 --seeds 200", "simulate --plot sweep.png"),
    ),
    "agent": (
        "work with a small coding agent that compacts itself",
        _late("compaction.agent"),
        ("agent", "agent --help"),
    ),
    "gateway": (
        "serve a scripted OpenAI-compatible gateway on this machine",
        _late("compaction.gateway"),
        ("gateway", "gateway --help"),
    ),
}


# --- estimate ---------------------------------------------------------------------------


def estimate(options: argparse.Namespace) -> int:
    """Print the estimate of each conversation."""
    from compaction.calibration import meter, size_of
    from compaction.messages import problems
    from compaction.tokens import about, heuristic

    source = read_histories(options.history)
    schemas = _schemas(options)
    total = 0
    for name, conversation in _named(source):
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
            _print_json(report)
            continue
        print(f"{name}: {about(tokens)}")
        print(
            f"  {_counted(len(messages), 'message')}, {report['cjk_characters']} CJK and "
            f"{report['other_characters']} other characters, {_counted(report['images'], 'image')}"
        )
        if tools:
            print(
                f"  {_counted(len(tools), 'tool schema')} of {report['tool_schema_tokens']} tokens"
            )
        print(
            "  by the cruder heuristic, (characters + 20) / 4 a message: "
            f"{report['heuristic_tokens']} tokens"
        )
        if options.window:
            print(f"  {_of_window(tokens, options.window)}: {_verdict(tokens, options.window)}")
        _print_problems(report["problems"])
    if len(source.conversations) > 1 and not options.json:
        print(f"{_counted(len(source.conversations), 'conversation')}: {about(total)} in all")
    return OK


# --- budget -----------------------------------------------------------------------------


def budget(options: argparse.Namespace) -> int:
    """Print the seven-path table of each conversation."""
    from compaction.budget import PATHS, budget_table, should_compact
    from compaction.tokens import about

    source = read_histories(options.history)
    schemas = _schemas(options)
    for index, (name, conversation) in enumerate(_named(source)):
        messages, tools = conversation.messages, schemas or conversation.tools
        rows = budget_table(messages, options.window, tools=tools)
        total = sum(row.tokens for row in rows)
        if options.json:
            _print_json(
                {
                    "source": name,
                    "window": options.window,
                    "tokens": total,
                    "messages": len(messages),
                    "threshold": THRESHOLD,
                    "should_compact": should_compact(
                        messages, options.window, THRESHOLD, tools=tools
                    ),
                    "rows": [
                        {
                            "path": row.path,
                            "nature": path.nature,
                            "tokens": row.tokens,
                            "allowance": row.allowance,
                            "share": path.share,
                            "used": row.used if math.isfinite(row.used) else None,
                            "over": row.over,
                        }
                        for row, path in zip(rows, PATHS, strict=True)
                    ],
                }
            )
            continue
        if index:
            print()
        print(f"{name}: {about(total)} in {_counted(len(messages), 'message')}")
        draw_budget(rows, total, options.window)
        print(f"{_of_window(total, options.window)}: {_verdict(total, options.window)}")
    return OK


_BAR_CELLS = 14


def draw_budget(rows: Sequence[Row], total: int, window: int) -> None:
    """Draw the table; a full bar is the whole allowance."""
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    console = Console(highlight=False, soft_wrap=False, force_jupyter=False)
    console.width = max(78, min(console.width, 100))
    table = Table(box=None, padding=(0, 1, 0, 0), show_footer=True)
    table.add_column("path", footer="total", no_wrap=True)
    table.add_column("tokens", footer=str(total), justify="right", no_wrap=True)
    table.add_column("allowed", footer=str(window), justify="right", no_wrap=True)
    table.add_column("used", footer=_percent(total / window), justify="right", no_wrap=True)
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True)
    for row in rows:
        over = f"over by {row.tokens - row.allowance}" if row.over else ""
        table.add_row(
            escape(row.path),
            str(row.tokens),
            str(row.allowance),
            _percent(row.used),
            _bar(row.used, getattr(sys.stdout, "encoding", None)),
            over,
            style="bold" if row.over else None,
        )
    with console.capture() as drawn:
        console.print(table)
    # Without the blanks that fill each line up to the table's width.
    print("\n".join(line.rstrip() for line in drawn.get().splitlines()))


def _bar(used: float, encoding: str | None = "utf-8") -> str:
    """Draw a share of an allowance as cells; what is beyond it shows as an arrow.

    >>> _bar(0.5), _bar(3.0)
    ('███████░░░░░░░', '█████████████▶')
    """
    filled, empty, beyond = "█░▶"
    try:
        "█░▶".encode(encoding or "ascii")
    except (UnicodeEncodeError, LookupError):
        filled, empty, beyond = "#.>"
    if used > 1:
        return filled * (_BAR_CELLS - 1) + beyond
    cells = math.ceil(used * _BAR_CELLS)  # whatever is there shows
    return filled * cells + empty * (_BAR_CELLS - cells)


# --- compact ----------------------------------------------------------------------------


def compact(options: argparse.Namespace) -> int:
    """Compact each conversation, report, and write the result when asked to."""
    from compaction import summary
    from compaction.probes import Probe, pinned_probes

    source = read_histories(options.history)
    schemas = _schemas(options)
    summarize = _summarizer(options)
    results: list[list[Message]] = []
    abandoned = 0
    for name, conversation in _named(source):
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
            _print_json(report, report_to)
        else:
            _print_compaction(report, options, report_to)
    # One conversation among many that is too short must not hold up the others: it stays as
    # it is, and the exit code tells.
    if options.out and abandoned < len(results):
        text = render_histories(source, results)
        if options.out == "-":
            _print_history(text)
        else:
            write_atomically(options.out, text)
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
            raise HistoryError("--base-url needs --model, the model to ask for the summaries")
        from compaction.summary import extract

        return extract
    from compaction.gateway import summarize_with

    try:
        import openai

        client = openai.OpenAI(base_url=options.base_url)
    except ImportError as error:
        raise HistoryError("--model needs the package openai, which is not installed") from error
    except openai.OpenAIError as error:
        reason = str(error).splitlines()[0]
        raise HistoryError(f"--model: {reason}") from error
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
        say(f"  {_counted(report['messages_before'], 'message')}, {before} tokens, left as it is")
    else:
        say(
            f"{report['source']}: compacted {report['messages_before']} -> "
            f"{report['messages_after']} messages, {before} -> {after} tokens "
            f"({_percent(after / before)} of before)"
        )
    if options.window:
        say(f"  before: {_of_window(before, options.window)}: {_verdict(before, options.window)}")
        if report["abandoned"] is None:
            say(f"  after: {_of_window(after, options.window)}: {_verdict(after, options.window)}")
    for number, item in enumerate(report["summaries"], 1):
        replaced = ", ".join(_counted(n, kind) for kind, n in item["replaced"].items())
        say(
            f"  summary {number} replaces messages {item['from_message']} to {item['to_message']}, "
            f"{item['tokens_before']} -> {item['tokens_after']} tokens"
        )
        say(f"    {replaced}")
    for state in ("kept", "carried", "absent"):
        for fact in report[state]:
            say(f"  {_FACT_STATES[state]}: {_one_line(fact)}")
    _print_problems(report["problems"], file)
    if report["abandoned"] is None and not options.out:
        say("  nothing was written; --out FILE writes the compacted history")


_FACT_STATES = {
    "kept": "fact kept",
    "carried": "fact carried over word for word, since the summary lost it",
    "absent": "fact not in this history",
}


# --- probes -----------------------------------------------------------------------------


def probes(options: argparse.Namespace) -> int:
    """List the pinned facts of each conversation, and look for them in ``--after``."""
    from compaction.probes import Probe, pinned_probes, verify

    source = read_histories(options.history)
    after = read_histories(options.after) if options.after else None
    if after is not None and len(after.conversations) != len(source.conversations):
        raise HistoryError(
            f"{after.name}: expected {_counted(len(source.conversations), 'conversation')} "
            f"as in {source.name}, got {len(after.conversations)}"
        )
    code = OK
    for index, (name, conversation) in enumerate(_named(source)):
        looked_for = pinned_probes(conversation.messages)
        looked_for += [Probe(fact) for fact in options.fact]
        searched = conversation if after is None else after.conversations[index]
        found = verify(looked_for, searched.messages)
        if found.lost:
            code = FAILED
        if options.json:
            _print_json(
                {
                    "source": name,
                    "after": after.name if after else None,
                    "probes": [
                        {
                            "fact": probe.fact,
                            "question": probe.question,
                            "kept": probe in found.kept,
                            "in_messages": _where(probe, searched.messages),
                        }
                        for probe in looked_for
                    ],
                    "kept": len(found.kept),
                    "lost": len(found.lost),
                }
            )
            continue
        if not looked_for:
            print(f'{name}: nothing is pinned; a user pins a fact with "remember: ..."')
            continue
        title = f"{name}: {_counted(len(looked_for), 'fact')} to look for"
        if after is not None:
            title += f" in {after.name}: {len(found.kept)} kept, {len(found.lost)} lost"
        print(title)
        for probe in looked_for:
            places = _where(probe, searched.messages)
            stands = f"in message {', '.join(map(str, places))}" if places else "nowhere"
            state = ("kept: " if places else "LOST: ") if after or not places else ""
            print(f"  {state}{_one_line(probe.fact)} ({stands})")
    return code


def _where(probe: Probe, messages: Sequence[Message]) -> list[int]:
    """Return the numbers (from 1) of the messages that hold the fact."""
    from compaction.probes import verify

    return [number for number, message in enumerate(messages, 1) if verify([probe], [message]).kept]


# --- simulate ---------------------------------------------------------------------------


def simulate(options: argparse.Namespace) -> int:
    """Print the tables of day 7, or means over many seeds."""
    from compaction import carrying

    seed, keeps = options.seed, options.keep
    if options.seeds:
        rows = carrying.spread(options.seeds, keeps, first_seed=seed, workers=os.cpu_count() or 1)
        plain: Any = carrying.spread_dict(rows) if options.json else carrying.spread_table(rows)
    elif options.json:
        plain = carrying.sweep_dict(seed, keeps)
    else:
        plain = carrying.sweep_table(seed, keeps)
    if options.plot:
        _plot_sweep(options)
    if options.json:
        _print_json(plain)
    else:
        print(plain)
    return OK


_PLOT_FORMATS = (".png", ".svg", ".pdf")


def _plot_sweep(options: argparse.Namespace) -> None:
    """Draw the rows of one seed into a file; its name says which format."""
    suffix = os.path.splitext(options.plot)[1].lower()
    if suffix not in _PLOT_FORMATS:
        known = f"{', '.join(_PLOT_FORMATS[:-1])} or {_PLOT_FORMATS[-1]}"
        raise HistoryError(f"--plot {options.plot}: expected a file name that ends in {known}")
    os.environ.setdefault("MPLBACKEND", "agg")  # no window, and no screen needed

    from compaction import carrying
    from compaction.plots import plot_sweep

    uncompacted, *rows = carrying.sweep(options.seed, options.keep)
    drawn = io.BytesIO()
    plot_sweep(rows, uncompacted.first).savefig(drawn, format=suffix[1:], dpi=150)
    write_atomically(options.plot, drawn.getvalue())


# --- what all commands share ------------------------------------------------------------


def _schemas(options: argparse.Namespace) -> list[dict[str, Any]] | None:
    return read_tools(options.tools) if options.tools else None


def _named(source: HistoryFile) -> Iterator[tuple[str, Conversation]]:
    """Yield the conversations, each with a name for a person."""
    several = len(source.conversations) > 1
    for number, conversation in enumerate(source.conversations, 1):
        yield f"{source.name}, conversation {number}" if several else source.name, conversation


def _of_window(tokens: int, window: int) -> str:
    return f"{_percent(tokens / window)} of a window of {window}"


def _verdict(tokens: int, window: int) -> str:
    from compaction.budget import line_tokens

    line = line_tokens(window, THRESHOLD)
    if tokens > line:
        return f"above the line of {_percent(THRESHOLD)} ({line:g}), compaction is due"
    return f"not above the line of {_percent(THRESHOLD)} ({line:g}), no compaction needed"


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %" if math.isfinite(share) else "-"


def _counted(number: int, what: str) -> str:
    """Say a number of things.

    >>> _counted(1, "image"), _counted(2, "image"), _counted(2, "earlier summary")
    ('1 image', '2 images', '2 earlier summaries')
    """
    if number == 1:
        return f"{number} {what}"
    if what.endswith(" with calls"):
        return f"{number} {what.removesuffix(' with calls')}s with calls"
    return f"{number} {what[:-1]}ies" if what.endswith("y") else f"{number} {what}s"


def _one_line(text: str) -> str:
    folded = " ".join(text.split())
    return folded if len(folded) <= 200 else folded[:197] + "..."


def _print_problems(found: Sequence[str], file: Any = None) -> None:
    for problem in found:
        print(f"  an API would refuse this history: {problem}", file=file)


def _print_json(value: object, file: Any = None) -> None:
    stream = sys.stdout if file is None else file
    # Where the encoding lacks a character, JSON's own escapes must stand for it.
    is_utf8 = (getattr(stream, "encoding", None) or "").lower().replace("-", "") == "utf8"
    print(json.dumps(value, ensure_ascii=not is_utf8, allow_nan=False), file=stream)
