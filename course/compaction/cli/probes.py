"""``probes``: what the user pinned, and whether it is still there."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import TYPE_CHECKING

from compaction.cli.options import (
    FAILED,
    OK,
    add_facts,
    add_history,
    counted,
    file_name,
    named,
    one_line,
    print_json,
)
from compaction.files import InputError
from compaction.history import read_histories

if TYPE_CHECKING:
    from compaction.messages import Message
    from compaction.probes import Probe


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_history(parser)
    add_facts(parser)
    parser.add_argument(
        "--after",
        metavar="FILE",
        type=file_name,
        help="look for the facts in this compacted history; exit code 1 when one is lost",
    )
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """List the pinned facts of each conversation, and look for them in ``--after``."""
    from compaction.probes import Probe, pinned_probes, verify

    source = read_histories(options.history)
    after = read_histories(options.after) if options.after else None
    if after is not None and len(after.conversations) != len(source.conversations):
        raise InputError(
            f"{after.name}: expected {counted(len(source.conversations), 'conversation')} "
            f"as in {source.name}, got {len(after.conversations)}"
        )
    code = OK
    for index, (name, conversation) in enumerate(named(source)):
        looked_for = pinned_probes(conversation.messages)
        looked_for += [Probe(fact) for fact in options.fact]
        searched = conversation if after is None else after.conversations[index]
        found = verify(looked_for, searched.messages)
        if found.lost:
            code = FAILED
        if options.json:
            print_json(
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
        title = f"{name}: {counted(len(looked_for), 'fact')} to look for"
        if after is not None:
            title += f" in {after.name}: {len(found.kept)} kept, {len(found.lost)} lost"
        print(title)
        for probe in looked_for:
            places = _where(probe, searched.messages)
            stands = f"in message {', '.join(map(str, places))}" if places else "nowhere"
            state = ("kept: " if places else "LOST: ") if after or not places else ""
            print(f"  {state}{one_line(probe.fact)} ({stands})")
    return code


def _where(probe: Probe, messages: Sequence[Message]) -> list[int]:
    """Return the numbers (from 1) of the messages that hold the fact."""
    from compaction.probes import verify

    return [number for number, message in enumerate(messages, 1) if verify([probe], [message]).kept]
