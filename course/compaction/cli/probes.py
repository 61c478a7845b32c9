"""``probes``: what the user pinned, or what is worth pinning, and whether it is still there."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from compaction.cli.options import add_facts, add_history, file_name, named, opened
from compaction.console import FAILED, OK, counted, one_line, print_json
from compaction.files import InputError
from compaction.history import read_histories

if TYPE_CHECKING:
    from compaction.messages import Message
    from compaction.probes import Probe


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    add_history(parser)
    add_facts(parser)
    parser.add_argument(
        "--after",
        metavar="FILE",
        type=file_name,
        help="look for the facts in this compacted history; exit code 1 when one is lost",
    )


def run(options: argparse.Namespace) -> int:
    """List the pinned facts of each conversation, and look for them in ``--after``."""
    code = OK
    for name, messages, searched in _pairs(options):
        report = found_in(name, messages, searched, options.fact, options.after)
        if report["lost"]:
            code = FAILED
        if options.json:
            print_json(report)
        else:
            print("\n".join(_lines(report)))
    return code


def _pairs(options: argparse.Namespace) -> Iterator[tuple[str, list[Message], list[Message]]]:
    """Yield each conversation's name and messages, and the messages in which to look."""
    if not options.after:
        for name, conversation in named(opened(options)):
            yield name, conversation.messages, conversation.messages
        return
    source, after = read_histories(options.history), read_histories(options.after)
    if len(after.conversations) != len(source.conversations):
        raise InputError(
            f"{after.name}: expected {counted(len(source.conversations), 'conversation')} "
            f"as in {source.name}, got {len(after.conversations)}"
        )
    for (name, before), later in zip(named(source), after.conversations, strict=True):
        yield name, before.messages, later.messages


def found_in(
    name: str,
    messages: list[Message],
    searched: list[Message],
    facts: Sequence[str] = (),
    after: str | None = None,
) -> dict[str, Any]:
    """Return which pinned and given facts the searched messages hold, as plain data.

    Where nobody pinned anything, facts are proposed from the index of values.
    """
    from compaction.probes import Probe, pinned_probes, verify

    looked_for = pinned_probes(messages) + [Probe(fact) for fact in facts]
    is_proposed = not looked_for
    if is_proposed:
        from compaction.needed import proposed_probes

        looked_for = proposed_probes(messages)
    found = verify(looked_for, searched)
    return {
        "source": name,
        "after": after,
        "proposed": is_proposed,
        "probes": [
            {
                "fact": probe.fact,
                "question": probe.question,
                "kept": probe in found.kept,
                "in_messages": _where(probe, searched),
            }
            for probe in looked_for
        ],
        "kept": len(found.kept),
        "lost": len(found.lost),
    }


def _where(probe: Probe, messages: Sequence[Message]) -> list[int]:
    """Return the numbers (from 1) of the messages that hold the fact."""
    from compaction.probes import verify

    return [number for number, message in enumerate(messages, 1) if verify([probe], [message]).kept]


def _lines(report: dict[str, Any]) -> list[str]:
    probes, name, after = report["probes"], report["source"], report["after"]
    if not probes:
        return [f'{name}: nothing is pinned; a user pins a fact with "remember: ..."']
    title = f"{name}: {counted(len(probes), 'fact')} to look for"
    if report["proposed"]:
        title += ", proposed since nothing is pinned"
    if after is not None:
        title += f" in {after}: {report['kept']} kept, {report['lost']} lost"
    lines = [title]
    for probe in probes:
        places = probe["in_messages"]
        stands = f"in message {', '.join(map(str, places))}" if places else "nowhere"
        state = ("kept: " if places else "LOST: ") if after or not places else ""
        lines.append(f"  {state}{one_line(probe['fact'])} ({stands})")
        if report["proposed"]:
            lines.append(f"    {one_line(probe['question'])}")
    return lines
