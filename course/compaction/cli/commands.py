"""Which commands there are; each is a module, loaded when it is asked for."""

from __future__ import annotations

from collections.abc import Sequence

from compaction import __version__
from compaction.console import Command, run_command

_DESCRIPTION = """\
Measure an agent's history, see what fills its context window, replace
old stretches by summaries, and check that nothing pinned was lost."""

_EXAMPLES = (
    "estimate history.json",
    "budget history.json --window 128000",
    "compact history.json --out shorter.json",
    "probes history.json --after shorter.json",
    "agent",
)

COMMANDS: dict[str, Command] = {
    "estimate": (
        "compaction.cli.estimate",
        "estimate the tokens of a history",
        "estimate history.json",
        "estimate history.json --tools schemas.json --window 128000",
        "estimate - < history.jsonl",
    ),
    "budget": (
        "compaction.cli.budget",
        "show which of seven paths fills the window",
        "budget history.json --window 128000",
        "budget history.json --json",
    ),
    "compact": (
        "compaction.cli.compact",
        "replace old stretches of a history by summaries",
        "compact history.json --out shorter.json",
        "compact history.json --target 8000 --fact 'pnpm build:calc'",
        "compact - --out - < history.json > shorter.json",
    ),
    "probes": (
        "compaction.cli.probes",
        "list what the user pinned or what is worth pinning, and look for it after compaction",
        "probes history.json",
        "probes history.json --after shorter.json",
    ),
    "needed": (
        "compaction.cli.needed",
        "measure which facts each method keeps of those needed later",
        "needed session.jsonl",
        "needed session.jsonl --json",
    ),
    "convert": (
        "compaction.cli.convert",
        "write another program's session as Chat Completions",
        "convert session.jsonl --out history.json",
        "convert trajectory.traj | python -m compaction budget -",
    ),
    "simulate": (
        "compaction.cli.simulate",
        "run the simulator of day 7: what a task carries, under two policies",
        "simulate",
        "simulate --keep 3 4 --seeds 200",
        "simulate --plot sweep.png",
    ),
    "agent": (
        "compaction.agent.main",
        "work with a small coding agent that compacts itself",
        "agent",
        "agent --help",
    ),
    "gateway": (
        "compaction.gateway",
        "serve a scripted OpenAI-compatible gateway on this machine",
        "gateway",
        "gateway --help",
    ),
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code.

    0: done. 1: the compaction was abandoned, or a pinned fact is lost. 2: the input or the
    command line is wrong, said in one line. 130: stopped by Ctrl-C.
    """
    return run_command(
        "python -m compaction",
        _DESCRIPTION,
        COMMANDS,
        arguments,
        version=f"compaction {__version__}",
        examples=_EXAMPLES,
    )
