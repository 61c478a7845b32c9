"""The agent in a notebook: ``%load_ext compaction`` brings ``%budget``, ``%compact``, ``%%agent``.

One session lives in the kernel. The first ``%%agent`` cell opens it; offline it is the
demonstration, with ``--model NAME --base-url URL`` a real model. :func:`current` returns it, so
that a cell can look at its history.
"""

from __future__ import annotations

import argparse
import shlex
import sys
from typing import TYPE_CHECKING, Any, NoReturn

from compaction.agent.agent import Agent
from compaction.agent.options import add_arguments, open_agent
from compaction.agent.slash_commands import budget
from compaction.agent.terminal import Screen, banner
from compaction.files import InputError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from compaction.engine import Event
    from compaction.messages import Message

_session: Agent | None = None


def current() -> Agent:
    """Return the kernel's session; raises LookupError before the first ``%%agent`` cell."""
    if _session is None:
        raise LookupError("there is no session yet; a %%agent cell opens one")
    return _session


def close() -> None:
    """End the kernel's session, if there is one; the next ``%%agent`` cell opens a new one."""
    global _session
    if _session is not None:
        _session.close()
        _session = None


def register(ipython: Any) -> None:
    """Add the three magics to an IPython shell; the session ends with the shell."""
    ipython.register_magic_function(agent_magic, "line_cell", "agent")
    ipython.register_magic_function(budget_magic, "line", "budget")
    ipython.register_magic_function(compact_magic, "line", "compact")
    import atexit

    atexit.unregister(close)
    atexit.register(close)


# --- the magics -----------------------------------------------------------------------------


def agent_magic(line: str, cell: str | None = None) -> None:
    """Run a turn of the session on the cell's text.

    The options are those of ``python -m compaction agent``; they count when a session begins, with
    the first cell and with ``--new``. ``--continue`` in place of a text goes on with a turn that
    was stopped; ``--plot`` draws what the engine measured in this turn.
    """
    options = _read(_agent_parser(), line, "%%agent")
    if options is None:
        return
    if _session is None or options.new:
        _open(options)
    elif _names_a_session(line):
        _complain("a session is open; --new with these options begins another one")
    agent = current()
    if options.yes and isinstance(agent.listener, Screen):
        agent.listener.allow_all = True
    text = (cell or "").strip()
    seen = len(agent.engine.events)
    if options.go_on:
        agent.go_on()
    elif text:
        agent.say(text)
    elif cell is not None:
        _complain("%%agent needs a message in the cell")
    if options.plot:
        _show_turn(agent, agent.engine.events[seen:])


def budget_magic(line: str) -> None:
    """Show who uses the window: the seven-path table of the session, and its picture."""
    options = _read(_view_parser("%budget"), line, "%budget")
    if options is None:
        return
    agent = _current_or_complain()
    print(budget(agent))
    if options.plot:
        from compaction.plots import plot_budget, show

        rows = agent.engine.budget()
        over = [row.path for row in rows if row.over]
        sentence = f"Over their allowance: {', '.join(over) or 'no path'}."
        show(plot_budget(rows, agent.window), f"Bars: each path's use. {sentence}")
        print(sentence)


def compact_magic(line: str) -> None:
    """Compact the session now; show the history before and after."""
    options = _read(_view_parser("%compact"), line, "%compact")
    if options is None:
        return
    agent = _current_or_complain()
    before = list(agent.history)
    passed = agent.compact()
    if passed is not None and passed.abandoned is None and options.plot:
        _show_strips(before, agent.history)


# --- pictures -------------------------------------------------------------------------------


def _show_strips(before: list[Message], after: list[Message]) -> None:
    from compaction.plots import plot_strips, show

    sentence = (
        f"{len(before)} messages before, {len(after)} after: summaries stand in the place of old "
        "stretches, all else is as it was. The strips show the plain estimate of each message."
    )
    show(plot_strips({"before": before, "after": after}), f"Two message strips. {sentence}")
    print(sentence)


def _show_turn(agent: Agent, events: Sequence[Event]) -> None:
    from compaction.plots import plot_trace, show

    if not events:
        return
    lines = agent.engine.lines
    compacts = [n for n, event in enumerate(events) if event.decision != "send"]
    figure = plot_trace(
        [event.estimate for event in events],
        [event.kind.replace(" ", "\n") for event in events],
        agent.window,
        lines.threshold,
        lines.emergency,
        compacts,
    )
    fired = f"{len(compacts)} of them over a line" if compacts else "none of them over a line"
    sentence = f"{len(events)} measurements in this turn, {fired}."
    show(figure, f"Tokens at every growth point. {sentence}")
    print(sentence)


# --- the session ----------------------------------------------------------------------------


def _open(options: argparse.Namespace) -> None:
    """Open a session in the place of the one that is open, if one is."""
    global _session
    screen = Screen(ask=_ask_in_notebook, allow_all=options.yes, flush=False)
    try:
        opened = open_agent(options, screen)
    except InputError as error:
        _complain(str(error))
    close()
    _session = opened
    opened.connection.start()
    screen.show(banner(opened) + "\n")


def _ask_in_notebook(question: str) -> str:
    """Ask in the cell; where a notebook runs without a person, the answer is no."""
    try:
        return input(question)
    except (RuntimeError, EOFError):  # IPython's "no input here" is a RuntimeError
        print(f"{question}n (nobody can be asked here; %%agent --yes allows commands)")
        return "n"


def _current_or_complain() -> Agent:
    try:
        return current()
    except LookupError as error:
        _complain(str(error))


# --- options and complaints -----------------------------------------------------------------


class _Complaint(Exception):
    """What argparse wants to say; no text after it has shown the help."""


class _Parser(argparse.ArgumentParser):
    """A parser that raises instead of ending the kernel."""

    def error(self, message: str) -> NoReturn:
        raise _Complaint(message)

    def exit(self, status: int = 0, message: str | None = None) -> NoReturn:
        raise _Complaint(message or "")


def _agent_parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="%%agent", description=agent_magic.__doc__)
    parser.add_argument("--new", action="store_true", help="begin a new session")
    parser.add_argument(
        "--continue", dest="go_on", action="store_true", help="go on with a stopped turn"
    )
    parser.add_argument("--plot", action="store_true", help="draw the measurements of this turn")
    add_arguments(parser)
    return parser


def _names_a_session(line: str) -> bool:
    """Say whether a line has options that only count when a session begins."""
    words = {word.split("=")[0] for word in shlex.split(line)}
    return bool(words - {"--plot", "--continue", "--yes"})


def _view_parser(name: str) -> argparse.ArgumentParser:
    parser = _Parser(prog=name)
    parser.add_argument("--no-plot", dest="plot", action="store_false", help="show the text alone")
    return parser


def _read(parser: argparse.ArgumentParser, line: str, name: str) -> argparse.Namespace | None:
    """Return the options of a line; None when it asked for help, which has been shown."""
    try:
        return parser.parse_args(shlex.split(line))
    except (_Complaint, ValueError) as error:
        if str(error):
            _complain(f"{error} ({name.replace('%%', '%')} --help lists the options)")
        return None


def _complain(text: str) -> NoReturn:
    """End the cell with one line instead of a stack."""
    from IPython.core.error import UsageError

    sys.stdout.flush()
    raise UsageError(text)
