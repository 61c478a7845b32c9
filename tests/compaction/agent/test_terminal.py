"""The agent in a terminal: what is shown, what is asked, and a session in a real terminal."""

from __future__ import annotations

import io
import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from compaction.agent.store import read_session
from compaction.agent.terminal import SHOWN_LINES, Screen, visible
from compaction.agent.wrapping import Wrap
from compaction.history import read_history
from compaction.messages import Call, problems


class Answers:
    """Gives answers in turn and writes down the questions."""

    def __init__(self, *answers: str | type[BaseException]) -> None:
        self._answers = iter(answers)
        self.asked = 0

    def __call__(self, question: str) -> str:
        self.asked += 1
        answer = next(self._answers)
        if isinstance(answer, str):
            return answer
        raise answer


@pytest.fixture
def out() -> io.StringIO:
    return io.StringIO()


def call(name: str, **arguments: Any) -> Call:
    return Call("c1", name, json.dumps(arguments))


# --- what is shown --------------------------------------------------------------------------


def test_nothing_in_a_command_hides(out: io.StringIO) -> None:
    command = "ls\r\x1b[2Krm -rf x # \u202egnp.\nsecond line\u200b"
    Screen(out).call(call("run_command", command=command))
    assert out.getvalue() == (
        "  run: ls\\r\\x1b[2Krm -rf x # \\u202egnp.\n       second line\\u200b\n"
    )


@given(st.text())
def test_what_is_visible_is_printable(text: str) -> None:
    assert all(c.isprintable() or c in "\n\t" for c in visible(text))
    if text.isprintable():
        assert visible(text) == text


def test_a_reply_cannot_steer_the_terminal(out: io.StringIO) -> None:
    screen = Screen(out)
    screen.text("red \x1b[31m\x1b]0;title\x07text\x08\n")
    screen.end_text()
    assert out.getvalue() == "red text\n"


def test_tool_calls_and_results_are_short(out: io.StringIO) -> None:
    screen = Screen(out)
    read = call("read_file", path="src/calc.py")
    screen.call(read)
    screen.result(read, "a\nb\nc\n")
    screen.call(call("read_file", path="x" * 200))
    run = call("run_command", command="make test")
    screen.call(run)
    screen.result(run, "".join(f"line {n}\n" for n in range(40)) + "[exit code 1 after 0.1 s]")
    lines = out.getvalue().splitlines()
    assert lines[:2] == ["  read_file src/calc.py", "     3 lines"]
    assert lines[2].startswith("  read_file xxx") and lines[2].endswith("...")
    assert lines[3:5] == ["  run: make test", "     ... 33 more lines"]
    assert lines[-1] == "     [exit code 1 after 0.1 s]" and len(lines) == 5 + SHOWN_LINES
    assert all(len(line) < 80 for line in lines)


def test_errors_and_checklists_are_shown_as_they_are(out: io.StringIO) -> None:
    screen = Screen(out)
    screen.result(call("read_file", path="a"), "error: there is no file a")
    todo = call("todo", items=[{"text": "read", "done": True}, {"text": "mend", "done": False}])
    screen.call(todo)
    screen.result(todo, "checklist written: 1 of 2 done")
    screen.result(Call("c1", "todo", "{"), "error: the arguments of todo are not JSON")
    assert out.getvalue().splitlines() == [
        "     error: there is no file a",
        "  todo",
        "     [x] read",
        "     [ ] mend",
        "     error: the arguments of todo are not JSON",
    ]


def test_an_edit_shows_its_lines_with_signs(out: io.StringIO) -> None:
    edit = call("edit_file", path="a.py", old="x", new="y")
    Screen(out).result(edit, "changed a.py at line 1\n-x\n+y")
    assert out.getvalue() == "     changed a.py at line 1\n     -x\n     +y\n"


def test_colours_only_where_a_terminal_wants_them(
    out: io.StringIO, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    monkeypatch.delenv("NO_COLOR", raising=False)
    edit = call("edit_file", path="a.py")
    coloured, plain = Terminal(), Terminal()
    Screen(coloured).result(edit, "-x\n+y")
    assert coloured.getvalue() == "\x1b[31m     -x\x1b[0m\n\x1b[32m     +y\x1b[0m\n"
    monkeypatch.setenv("NO_COLOR", "1")
    Screen(plain).result(edit, "-x\n+y")
    assert plain.getvalue() == "     -x\n     +y\n"


def test_characters_that_the_output_lacks_are_escaped() -> None:
    raw = io.BytesIO()
    ascii_out = io.TextIOWrapper(raw, encoding="ascii")
    Screen(ascii_out).note("除数 0")
    ascii_out.flush()
    assert raw.getvalue() == b"* \\u9664\\u6570 0\n"


WORDS = st.text(st.sampled_from("abc de\n"), max_size=80)


@given(text=WORDS, cuts=st.lists(st.integers(0, 80), max_size=6), width=st.integers(8, 20))
def test_wrapping_does_not_depend_on_the_pieces(text: str, cuts: list[int], width: int) -> None:
    def wrapped(pieces: list[str]) -> str:
        written: list[str] = []
        wrap = Wrap(width, written.append)
        for piece in pieces:
            wrap.add(piece)
        wrap.end()
        return "".join(written)

    borders = sorted({0, len(text), *(cut for cut in cuts if cut <= len(text))})
    pieces = [text[a:b] for a, b in pairwise(borders)]
    whole = wrapped([text])
    assert wrapped(pieces) == whole
    assert "".join(whole.split()) == "".join(text.split())
    words = max(map(len, text.split()), default=0)
    indents = max((len(line) - len(line.lstrip()) for line in text.split("\n")), default=0)
    assert all(len(line) <= max(width, words + indents) for line in whole.split("\n"))


# --- what is asked --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("answers", "allowed"),
    [
        (["y"], True),
        (["YES "], True),
        (["n"], False),
        (["", "maybe", "no"], False),
        (["sure", "y"], True),
        ([EOFError], False),
    ],
)
def test_only_a_clear_yes_runs_a_command(
    out: io.StringIO, answers: list[Any], allowed: bool
) -> None:
    ask = Answers(*answers)
    assert Screen(out, ask).allow("rm x") is allowed
    assert ask.asked == len(answers)


def test_always_is_for_this_very_command(out: io.StringIO) -> None:
    ask = Answers("a", "n")
    screen = Screen(out, ask)
    assert screen.allow("make test") and screen.allow("make test")
    assert not screen.allow("make test; rm x")
    assert ask.asked == 2


def test_where_nobody_can_be_asked_nothing_runs(out: io.StringIO) -> None:
    assert not Screen(out, ask=None).allow("ls")
    assert "--yes allows commands" in out.getvalue()
    assert Screen(out, ask=None, allow_all=True).allow("ls")


def test_ctrl_c_at_the_question_stops_the_turn(out: io.StringIO) -> None:
    with pytest.raises(KeyboardInterrupt):
        Screen(out, Answers(KeyboardInterrupt)).allow("ls")


# --- a pipe instead of a person -------------------------------------------------------------


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    plain = {key: value for key, value in os.environ.items() if not key.startswith("OPENAI_")}
    own = {"COMPACTION_HOME": str(tmp_path / "home"), "TMPDIR": str(tmp_path)}
    return {**plain, **own, "PYTHONUTF8": "1", "TERM": "xterm-256color"}


AGENT = [sys.executable, "-m", "compaction", "agent"]


def test_lines_from_a_pipe_are_a_session(environment: dict[str, str], tmp_path: Path) -> None:
    lines = "A calc test fails. Find out why. Remember: build with `pnpm build:calc`.\n\n/probes\n"
    done = subprocess.run(
        [*AGENT, "--yes", "--session", str(tmp_path / "s.json")],
        input=lines + "/budgte\n/exit\nnever said\n",
        capture_output=True,
        text=True,
        env=environment,
        timeout=120,
    )
    assert done.returncode == 0 and done.stderr == ""
    shown = done.stdout
    assert "\x1b" not in shown
    assert "  run: python -m unittest -v test_calc\n" in shown
    assert 'test expects a CalcError that says "divide by zero"' in " ".join(shown.split())
    assert "pnpm build:calc: kept, in message 2" in shown
    assert "* there is no command /budgte; the nearest is /budget, /help lists them" in shown
    assert "never said" not in shown
    assert problems(read_history(tmp_path / "s.json")) == []
    assert max(map(len, shown.splitlines())) < 100


def test_without_a_person_commands_are_refused(environment: dict[str, str]) -> None:
    done = subprocess.run(
        AGENT, input="find it\n", capture_output=True, text=True, env=environment, timeout=120
    )
    assert "not run: nobody can be asked here; --yes allows commands" in done.stdout
    assert "Without that command I cannot go on" in done.stdout
    assert done.returncode == 0


def _processor_s(pid: int) -> float:
    stat = Path(f"/proc/{pid}/stat")
    if not stat.exists():
        pytest.skip("this system does not tell a process's processor time under /proc")
    fields = stat.read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


# --- a real terminal ------------------------------------------------------------------------


class Tmux:
    """A terminal of its own, driven key by key."""

    def __init__(self, socket: Path, width: int, height: int, command: str) -> None:
        self._base = ["tmux", "-S", str(socket), "-f", "/dev/null"]
        size = ["-x", str(width), "-y", str(height)]
        self._tmux("new-session", "-d", *size, command)
        self._tmux("set-option", "remain-on-exit", "on")
        self._tmux("set-option", "history-limit", "5000")

    def _tmux(self, *arguments: str) -> str:
        done = subprocess.run(
            [*self._base, *arguments], capture_output=True, text=True, timeout=20, check=True
        )
        return done.stdout

    def type(self, text: str) -> None:
        self._tmux("send-keys", "-l", text)

    def press(self, *keys: str) -> None:
        self._tmux("send-keys", *keys)

    def screen(self) -> str:
        return self._tmux("capture-pane", "-p")

    def everything(self) -> str:
        """What was shown since the beginning, wrapped lines joined."""
        return self._tmux("capture-pane", "-p", "-J", "-S", "-")

    def wait_for(self, wanted: str, timeout_s: float = 60.0) -> str:
        """Wait until the end of the screen shows a regular expression; return the screen."""
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline:
            screen = self.screen()
            if re.search(wanted, screen.rstrip()):
                return screen
            time.sleep(0.1)
        raise AssertionError(f"waited in vain for {wanted!r}; the screen:\n{self.screen()}")

    def close(self) -> None:
        subprocess.run([*self._base, "kill-server"], capture_output=True, check=False)


@pytest.fixture
def tmux(
    environment: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[..., Tmux]]:
    if shutil.which("tmux") is None:
        pytest.skip("tmux is not installed")
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("TMUX", raising=False)
    opened: list[Tmux] = []

    def open_terminal(width: int, height: int, *arguments: str) -> Tmux:
        import shlex

        socket = tmp_path / f"tmux-{len(opened)}"
        opened.append(Tmux(socket, width, height, shlex.join([*AGENT, *arguments])))
        return opened[-1]

    yield open_terminal
    for terminal in opened:
        terminal.close()


PROMPT = r"(?m)^> .*\s*\n.*\| /help$"
QUESTION = r"run it\? y = yes, n = no, a = always this command:$"


@pytest.mark.terminal
@pytest.mark.parametrize(("width", "height"), [(80, 24), (120, 40)])
def test_a_session_in_a_terminal(
    tmux: Callable[..., Tmux], tmp_path: Path, width: int, height: int
) -> None:
    file = tmp_path / "s.json"
    terminal = tmux(width, height, "--session", str(file))
    terminal.wait_for(r"> A calc test fails\. Find out why\. Remember: build with")
    terminal.press("Enter")
    for answer, following in (("y", "Fix it"), ("a", "Does the invoice")):
        terminal.wait_for(QUESTION)
        terminal.type(answer)
        terminal.press("Enter")
        terminal.wait_for(rf"> {following}[^\n]*\s*\n.*/help$")
        terminal.press("Enter")
    for _ in range(2):  # two different commands, so "always" was for neither
        terminal.wait_for(QUESTION)
        terminal.type("y")
        terminal.press("Enter")
        time.sleep(1.0)
    terminal.wait_for(r"> How do I build it[^\n]*\s*\n.*/help$")
    for command, wanted in (
        ("/budget", r"tool results .*\n(.*\n)*total .*\nabout [^>]* at most [^>]* above 4,480"),
        ("/compact", r"\* compacted \d+ -> \d+ messages, \d+ -> \d+ tokens, 2 probes kept"),
        ("/probes", r"pnpm build:calc: kept, in message.*\ndivide by zero: kept, in message"),
        ("/save", r"\* expected /save FILE"),
    ):
        terminal.type(command)
        terminal.press("Enter")
        terminal.wait_for(wanted)
        screen = terminal.wait_for(PROMPT)
        # Nothing reaches the edge, so nothing was broken in mid-word.
        assert all(len(line) < width for line in screen.splitlines())
    terminal.press("C-d")
    terminal.wait_for(r"--resume goes on with this session:")
    shown = terminal.everything()
    assert "Traceback" not in shown.replace("Traceback (most recent call last):\n  File", "")
    assert shown.count("* compacted ") >= 3
    saved = read_session(file)
    assert problems(saved.messages) == []
    assert [probe.fact for probe in saved.probes] == ["pnpm build:calc", "divide by zero"]


@pytest.mark.terminal
def test_ctrl_c_and_completion_in_a_terminal(tmux: Callable[..., Tmux], tmp_path: Path) -> None:
    file = tmp_path / "s.json"
    terminal = tmux(80, 24, "--session", str(file))
    terminal.wait_for(PROMPT)
    terminal.type("/")
    terminal.wait_for(r"/budget +who uses the window")
    terminal.type("pro")
    terminal.wait_for(r"> /pro\n +/probes +look for the pinned facts")
    terminal.press("Tab")
    terminal.wait_for(r"> /probes")
    terminal.press("Enter")
    terminal.wait_for(r"> /probes\npnpm build:calc: not in this session yet")
    terminal.wait_for(PROMPT)
    # Ctrl-C at the prompt drops the line; at a question it stops the turn.
    terminal.type("some words")
    terminal.press("C-c")
    terminal.press("Enter")
    terminal.wait_for(QUESTION)
    terminal.press("C-c")
    terminal.wait_for(r"\* stopped, 1 tool call without a result; the session is whole")
    assert "some words" not in file.read_text()
    assert problems(read_session(file).messages) == [
        problem for problem in problems(read_session(file).messages) if "no result" in problem
    ]
    terminal.wait_for(PROMPT)
    terminal.type("/continue")
    terminal.press("Enter")
    terminal.wait_for(QUESTION)
    terminal.type("y")
    terminal.press("Enter")
    terminal.wait_for(r"> Fix it")
    # What was typed comes back with the arrow key.
    terminal.press("Up")
    terminal.wait_for(r"> /continue")
    terminal.press("C-c")
    terminal.type("/exit")
    terminal.press("Enter")
    terminal.wait_for(r"--resume goes on")
    assert problems(read_session(file).messages) == []
