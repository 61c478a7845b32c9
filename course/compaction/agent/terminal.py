"""The agent in a terminal: the prompt, what is shown, and the questions before a command."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

from compaction.agent.agent import Agent
from compaction.agent.checklist import TODO, render_checklist
from compaction.agent.listener import Listener, Stopped
from compaction.agent.prompt import PROMPT, typed
from compaction.agent.shell import plain_text
from compaction.agent.slash_commands import CommandError, run_command
from compaction.agent.wrapping import Wrap, shortened, wrapped
from compaction.messages import Call

SHOWN_LINES = 8
"""How many lines of a tool's result are shown; the model gets all of them."""

_WORDS = {"y": "yes", "n": "no", "a": "always"}
_WIDEST = 100  # columns; longer lines are hard to read


def visible(text: str) -> str:
    """Return text so that nothing in it hides: control and invisible characters as escapes.

    >>> visible("rm x\\r# ls")
    'rm x\\\\r# ls'
    """
    return "".join(
        c if c.isprintable() or c in "\n\t" else c.encode("unicode_escape").decode() for c in text
    )


class Screen(Listener):
    """Shows a session: replies as they come, tool calls, and one line for all else.

    Colours only accompany words, and are left out where the output is no terminal or NO_COLOR is
    set. ``ask`` puts a question and returns the answer; with None nobody is there to ask, and no
    command runs, unless ``allow_all`` says that every command may. A notebook flushes by itself.
    """

    def __init__(
        self,
        out: Any = None,
        ask: Callable[[str], str] | None = input,
        allow_all: bool = False,
        flush: bool = True,
    ) -> None:
        self.allow_all = allow_all
        self._given_out = out
        self._ask = ask
        self._flushes = flush
        self._always: set[str] = set()
        self._wrap = Wrap(self.width, self._write)

    @property
    def _out(self) -> Any:
        # Looked up each time: a notebook captures a cell's output by putting another one here.
        return sys.stdout if self._given_out is None else self._given_out

    @property
    def _is_coloured(self) -> bool:
        return getattr(self._out, "isatty", bool)() and not os.environ.get("NO_COLOR")

    @property
    def width(self) -> int:
        """Columns that a line may take."""
        return min(_WIDEST, max(20, shutil.get_terminal_size().columns - 1))

    # What the session tells.

    def text(self, piece: str) -> None:
        """Show a piece of a reply; lines are broken between words."""
        self._wrap.add(visible(plain_text(piece)))
        self._flush()

    def end_text(self) -> None:
        """End the line of a reply."""
        self._wrap.end()
        self._wrap = Wrap(self.width, self._write)

    def call(self, call: Call) -> None:
        """Show a tool call in one line; a command exactly, every line of it."""
        command = _arguments(call).get("command")
        if call.name == "run_command" and isinstance(command, str):
            for number, line in enumerate(visible(command).split("\n")):
                self._line(self._bold(("  run: " if number == 0 else "       ") + line))
        else:
            self._line(self._bold("  " + _call_line(call, self.width - 4)))

    def result(self, call: Call, result: str) -> None:
        """Show what a tool call gave, in a few lines."""
        for line in _result_lines(call, result, self.width - 5):
            self._line(self._result_colour(call, line)(f"     {line}"))

    def note(self, line: str) -> None:
        """Show one line about the session."""
        self.show(f"* {line}")

    def allow(self, command: str) -> bool:
        """Ask whether the command that was just shown may run."""
        if self.allow_all or command in self._always:
            return True
        if self._ask is None:
            self._line("     not run: nobody can be asked here; --yes allows commands")
            return False
        answer = self._answer_to("run it? y = yes, n = no, a = always this command", "y", "n", "a")
        if answer == "a":
            self._always.add(command)
        return answer in ("y", "a")

    def allow_again(self, call: Call) -> bool:
        """Ask about a command that was interrupted; --yes is no answer to this."""
        self._line("     this command was interrupted; it may have run, in part or whole")
        if self.allow_all or self._ask is None:
            self._line("     not run again; the model is told")
            return False
        return self._answer_to("run it again? y = yes, n = no", "y", "n") == "y"

    def _answer_to(self, question: str, *letters: str) -> str:
        """Ask until one of the letters (or its word) is the answer; "" where nobody answers."""
        assert self._ask is not None
        try:
            with _echo(True):
                _forget_typed_ahead()
                while True:
                    answer = self._ask(f"     {question}: ").strip().lower()
                    if answer in letters or answer in [_WORDS[letter] for letter in letters]:
                        return answer[0]
        except EOFError:
            self._line("")
            return ""
        except KeyboardInterrupt:
            self._line("")
            raise

    # What the terminal itself shows.

    def show(self, text: str) -> None:
        """Show text; lines that are too long are broken between words."""
        for line in visible(text).splitlines():
            for part in wrapped(line, self.width):
                self._line(part)

    def _line(self, line: str) -> None:
        self._write(line + "\n")
        self._flush()

    def _flush(self) -> None:
        if self._flushes:
            self._out.flush()

    def _write(self, text: str) -> None:
        try:
            self._out.write(text)
        except UnicodeEncodeError:
            encoding = getattr(self._out, "encoding", None) or "ascii"
            self._out.write(text.encode(encoding, "backslashreplace").decode(encoding))

    # Colours.

    def _bold(self, text: str) -> str:
        return f"\x1b[1m{text}\x1b[0m" if self._is_coloured else text

    def _result_colour(self, call: Call, line: str) -> Callable[[str], str]:
        if not self._is_coloured:
            return str
        code = "2"
        if call.name == "edit_file" and line[:1] in ("+", "-"):
            code = "32" if line[0] == "+" else "31"
        return lambda text: f"\x1b[{code}m{text}\x1b[0m"


@contextmanager
def _echo(is_on: bool) -> Iterator[None]:
    """Let the terminal show what is typed, or not: keys must not mix with a reply."""
    try:
        import termios
    except ImportError:  # Windows
        yield
        return
    try:
        before = termios.tcgetattr(sys.stdin)
    except (OSError, ValueError, TypeError, termios.error):  # no terminal
        yield
        return
    changed = list(before)
    changed[3] = changed[3] | termios.ECHO if is_on else changed[3] & ~termios.ECHO
    termios.tcsetattr(sys.stdin, termios.TCSADRAIN, changed)
    try:
        yield
    finally:
        with suppress(OSError, termios.error):  # the terminal may have been closed meanwhile
            termios.tcsetattr(sys.stdin, termios.TCSADRAIN, before)


def _forget_typed_ahead() -> None:
    """Drop what was typed before the question: it was no answer to it."""
    with suppress(Exception):
        import termios

        termios.tcflush(sys.stdin, termios.TCIFLUSH)


def _arguments(call: Call) -> dict[str, Any]:
    try:
        arguments = json.loads(call.arguments)
    except (ValueError, RecursionError):
        return {}
    return arguments if isinstance(arguments, dict) else {}


def _call_line(call: Call, width: int) -> str:
    arguments = _arguments(call)
    what = str(arguments.get("path") or "") if arguments else call.arguments
    if arguments.get("start"):
        what += f" from line {arguments['start']}"
    line = " ".join(visible(f"{call.name} {what}").split())
    return shortened(line, width)


def _result_lines(call: Call, result: str, width: int) -> list[str]:
    """Return the lines of a result that a person wants to see."""
    lines = visible(plain_text(result)).splitlines()
    if call.name == "read_file" and not result.startswith("error: "):
        return [f"{len(lines)} lines"]
    if call.name == TODO and not result.startswith("error: "):
        with suppress(ValueError):
            lines = render_checklist(_arguments(call).get("items")).splitlines()[1:]
    lines = [line for line in lines if line.strip()]
    # Of a command the end matters: what failed, and the exit code.
    from_end = call.name == "run_command"
    if len(lines) > SHOWN_LINES + 1:
        left_out = f"... {len(lines) - SHOWN_LINES} more lines"
        tail, head = [left_out, *lines[-SHOWN_LINES:]], [*lines[:SHOWN_LINES], left_out]
        lines = tail if from_end else head
    return [shortened(line, width) for line in lines]


# --- the session in a terminal --------------------------------------------------------------


def work(agent: Agent, screen: Screen) -> int:
    """Read and answer until the person leaves; return the exit code.

    Where nobody can react, with input from a pipe, a turn that fails ends the program with 1.
    """
    is_terminal = sys.stdin.isatty() and sys.stdout.isatty()
    failed = False
    try:
        screen.show(banner(agent))
        if is_terminal:
            enter = "Press Enter to send the message shown in grey; " if agent.demo else ""
            screen.show(f"{enter}/help lists the commands.")
        lines = typed(agent, lambda: screen.show("\n")) if is_terminal else _piped(agent)
        for text in lines:
            try:
                _answer(agent, screen, text)
            except EOFError:
                break
            except Stopped:
                raise
            except KeyboardInterrupt:
                screen.note("stopped")
            failed = agent.turn_failed and not is_terminal
            if failed:
                break
    finally:
        agent.close()
    if agent.save_to is not None and agent.save_to.exists():
        screen.show(f"--resume goes on with this session: {agent.save_to}")
    return 1 if failed else 0


def _answer(agent: Agent, screen: Screen, text: str) -> None:
    try:
        with _echo(False):
            shown = run_command(agent, text) if text.startswith("/") else ""
            if not text.startswith("/"):
                agent.say(text)
    except CommandError as error:
        screen.note(str(error))
    else:
        screen.show(shown)


def _piped(agent: Agent) -> Iterator[str]:
    """Yield the lines of standard input; there is nobody to prompt."""
    agent.connection.start()
    for line in sys.stdin:
        text = line.strip()
        if text:
            print(f"{PROMPT}{text}", flush=True)
            yield text


def banner(agent: Agent) -> str:
    """Return the first lines of a session: which model, which window, which folder."""
    share = f"window {agent.window:,} tokens, compacts above {100 * agent.threshold:.0f} %"
    if agent.demo:
        lines = [
            "compaction agent, offline demonstration",
            share,
            "The model is a script; files, tests and compaction are real.",
            f"project: {agent.toolbox.folder}",
        ]
    else:
        where = agent.connection.base_url or "the gateway of the openai client"
        lines = [
            f"compaction agent: {agent.connection.model} at {where}",
            f"{share}; works in {agent.toolbox.folder}",
        ]
    earlier = len(agent.history)
    if any(message.get("role") == "user" for message in agent.history):
        state = ", the last turn was stopped: /continue goes on" if agent.can_go_on else ""
        lines.append(f"{earlier} messages of an earlier session{state}")
    return "\n".join(lines)
