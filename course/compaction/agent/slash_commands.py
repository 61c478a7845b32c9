"""The agent's commands: each looks at the session or changes it, and returns lines to show."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path

from compaction.agent.agent import Agent
from compaction.agent.wrapping import shortened
from compaction.calibration import FeatureMeter, size_of
from compaction.console import budget_text
from compaction.engine import Decision
from compaction.files import InputError
from compaction.messages import Message, is_summary, problems, text_of
from compaction.probes import Probe, verify
from compaction.tokens import DEFAULT, Coefficients


@dataclass(frozen=True)
class Command:
    """A command: what follows its name, what it does in a few words, and the function."""

    argument: str
    about: str
    run: Callable[[Agent, str], str]


class CommandError(Exception):
    """A command that cannot be done; the text is one line for a person."""


def run_command(agent: Agent, line: str) -> str:
    """Run a line such as ``/save FILE`` and return what is to be shown; "" for nothing.

    Raises CommandError.
    """
    name, _, argument = line.strip().partition(" ")
    command = COMMANDS.get(name)
    argument = argument.strip()
    if command is None:
        begun = [known for known in COMMANDS if known.startswith(name)]
        if len(begun) != 1:
            near = get_close_matches(name.lower(), COMMANDS, n=1, cutoff=0.5)
            nearest = "".join(f"the nearest is {known}, " for known in near)
            raise CommandError(f"there is no command {name}; {nearest}/help lists them")
        command = COMMANDS[begun[0]]
    needs_one = command.argument.isalpha()
    if argument and not command.argument:
        raise CommandError(f"{name} takes nothing after it")
    if needs_one and not argument:
        raise CommandError(f"expected {name} {command.argument}")
    try:
        return command.run(agent, argument)
    except InputError as error:
        raise CommandError(str(error)) from error


# --- what the window holds ------------------------------------------------------------------


def budget(agent: Agent, argument: str = "") -> str:
    """Return the seven-path table of the next request."""
    rows = agent.engine.budget()
    table = budget_text(rows, agent.window, getattr(sys.stdout, "encoding", None))
    basis = agent.basis()
    used = f"{_used(agent)}: {basis}" if basis else _used(agent)
    return f"{table}\n{used}\n{_lines_of(agent)}"


def _used(agent: Agent) -> str:
    """Say how full the window is: what is likely, and what is decided with."""
    about, at_most = agent.sizes()
    share = f"of {agent.window:,} tokens ({100 * at_most / agent.window:.0f} %)"
    if at_most == about:
        return f"about {about:,} {share}"
    return f"about {about:,}, at most {at_most:,} {share}"


def _lines_of(agent: Agent) -> str:
    lines = agent.engine.lines
    routine = lines.line_of(Decision.COMPACT_THRESHOLD)
    latest = lines.line_of(Decision.COMPACT_EMERGENCY)
    return f"compacts above {routine:,.0f}, at the latest at {latest:,.0f}"


def tokens(agent: Agent, argument: str = "") -> str:
    """Return the estimate, the last real usage, and what the calibration made of it."""
    lines = [f"next request: {_used(agent)}", f"lines: {_lines_of(agent)}"]
    basis = agent.basis()
    if basis:
        lines[1:1] = [f"  {basis}"]
    if agent.usage is None:
        lines.append("last request: no usage yet; until then the number is the plain estimate")
    else:
        used = agent.usage
        error = (used.estimate - used.tokens) / used.tokens
        lines.append(
            f"last request: estimated {used.estimate:,}, charged {used.tokens:,} "
            f"({100 * error:+.1f} %)"
        )
    found = agent.calibration
    if found is not None:
        table = getattr(agent.parts.counter, "coefficients", None)
        line = "calibration: features of the text, weighted"
        if not isinstance(agent.parts.counter, FeatureMeter) and isinstance(table, Coefficients):
            line = f"calibration: CJK {table.cjk:.2f} / other {table.other:.2f} tokens a character"
        if found.samples >= 3:
            before, after = 100 * found.error_before, 100 * found.error_after
            line += f"\n  on {found.samples} samples, error {before:.1f} % -> {after:.1f} %"
        else:
            line += f", {found.samples} of 3 samples needed"
        lines.append(line)
    return "\n".join(lines)


def history(agent: Agent, argument: str = "") -> str:
    """Return the messages, one line each: role, size, why it stays, how it begins."""
    messages = agent.history
    kinds: dict[int, str] = {}
    for group in agent.parts.group_messages(messages):
        kinds |= dict.fromkeys(range(group.start, group.end), group.keep)
    table = getattr(agent.parts.counter, "coefficients", DEFAULT)
    lines = [" no  role       tokens  kept as       text"]
    for number, message in enumerate(messages):
        kind = "summary" if is_summary(message) else kinds.get(number, "")
        lines.append(
            f"{number + 1:>3}  {message.get('role')!s:<9}  "
            f"{size_of(message).tokens(table):>6,.0f}  {kind:<12}  {_beginning(message)}"
        )
    open_calls = [text for text in problems(messages) if "no result" in text]
    return "\n".join([*lines, *open_calls])


def _beginning(message: Message, width: int = 38) -> str:
    text = " ".join(text_of(message).split())
    text = "".join(c if c.isprintable() else "?" for c in text)
    return shortened(text, width)


# --- compaction and its proof ---------------------------------------------------------------


def compact(agent: Agent, argument: str = "") -> str:
    """Make one pass, down to a size if one is given; the session's listener is told the line."""
    target_tokens = None
    if argument:
        digits = argument.replace(",", "").replace("_", "")
        if not digits.isdecimal() or int(digits) == 0:
            raise CommandError("expected /compact, or /compact N: at most N tokens afterwards")
        target_tokens = int(digits)
    agent.compact(target_tokens)
    return ""


def undo(agent: Agent, argument: str = "") -> str:
    """Take the last compaction back."""
    if not agent.undo():
        raise CommandError("there is nothing to undo: no compaction was made since the start")
    return f"the last compaction is taken back: {_used(agent)}"


def probes(agent: Agent, argument: str = "") -> str:
    """Return each pinned fact with where it stands; with "ask", the model is asked too."""
    if argument not in ("", "ask"):
        raise CommandError("expected /probes, or /probes ask to put the questions to the model")
    if not agent.engine.probes:
        return 'nothing is pinned; write "remember: ..." to pin a fact'
    try:
        report, unseen = agent.check_probes(ask=argument == "ask")
    except Exception as error:
        raise CommandError(agent.reason(error)) from error
    lines = []
    for probe in agent.engine.probes:
        if probe in unseen:
            state = "not in this session yet"
        elif probe in report.lost:
            state = "LOST"
        else:
            places = _places(probe, agent.history)
            state = f"kept, in message{'s' * (len(places) > 1)} {', '.join(map(str, places))}"
        if argument == "ask":
            state += "; the model answered it" if probe in report.answered else "; no answer"
        lines.append(f"{probe.fact}: {state}")
    return "\n".join(lines)


def _places(probe: Probe, messages: list[Message]) -> list[int]:
    return [n for n, message in enumerate(messages, 1) if verify([probe], [message]).kept]


# --- the session ----------------------------------------------------------------------------


def save(agent: Agent, argument: str) -> str:
    """Write a copy of the session."""
    agent.save_copy(Path(argument).expanduser())
    return f"wrote {argument}"


def load(agent: Agent, argument: str) -> str:
    """Go on with the history in a file."""
    agent.load(Path(argument).expanduser())
    count = len(agent.history)
    return f"{count} message{'s' * (count != 1)} from {argument}; /budget measures them"


def go_on(agent: Agent, argument: str = "") -> str:
    """Go on with a turn that was stopped."""
    agent.go_on()
    return ""


def retry(agent: Agent, argument: str = "") -> str:
    """Ask again after a fault, or for another last reply."""
    agent.retry()
    return ""


def model(agent: Agent, argument: str = "") -> str:
    """Say which model answers, or change it."""
    if not argument:
        return agent.connection.model
    if agent.connection.offline:
        raise CommandError("the offline model is a script; start with --model NAME for another one")
    agent.change_model(argument)
    return f"from now on: {argument}; what only the model before could read has left the history"


def help_text(agent: Agent, argument: str = "") -> str:
    """Return the list of commands."""
    lines = [
        f"  {f'{name} {command.argument}'.strip():<14} {command.about}"
        for name, command in COMMANDS.items()
    ]
    return "\n".join(
        [
            *lines,
            "",
            '"remember: ..." in a message pins a fact: it survives every compaction.',
            "Ctrl-C stops a turn and keeps the session; Ctrl-D ends it.",
            f"folder: {agent.toolbox.folder}",
            *([f"session: {agent.save_to}"] if agent.save_to else []),
        ]
    )


def leave(agent: Agent, argument: str = "") -> str:
    """End the session."""
    raise EOFError


COMMANDS = {
    "/budget": Command("", "who uses the window: seven paths and their allowances", budget),
    "/compact": Command("[N]", "summaries in the place of old stretches; N: to N tokens", compact),
    "/undo": Command("", "take the last compaction back", undo),
    "/probes": Command("[ask]", "look for the pinned facts; ask: put them to the model", probes),
    "/tokens": Command("", "estimate, real usage and calibration", tokens),
    "/history": Command("", "the messages, one line each", history),
    "/continue": Command("", "go on with a turn that was stopped", go_on),
    "/retry": Command("", "ask again after a fault, or for another last reply", retry),
    "/model": Command("[NAME]", "which model answers; NAME: another one of the gateway", model),
    "/save": Command("FILE", "write a copy of the session", save),
    "/load": Command("FILE", "go on with another history", load),
    "/help": Command("", "this list", help_text),
    "/exit": Command("", "end the session (or Ctrl-D)", leave),
    "/quit": Command("", "the same", leave),
}
"""All commands by name."""
