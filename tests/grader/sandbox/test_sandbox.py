"""A learner's code in another process: calls, callbacks, limits, levels of isolation, points."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from compaction.calibration import TokenMeter
from compaction.grouping import Group, group_messages
from compaction.session import load
from compaction.summary import compact
from grader.checks import CHECKS, Result, run_check
from grader.errors import BadInput
from grader.exercises import EXERCISES, SLUGS, exercises_of, source_of
from grader.notebooks.lab import read_notebook
from grader.sandbox import (
    Absent,
    Child,
    Died,
    Forbidden,
    Garbled,
    LaunchError,
    LearnerError,
    LearnerFault,
    Limits,
    OutOfMemory,
    Sandbox,
    SandboxMissing,
    TimedOut,
    TooMuchOutput,
    Unfit,
    grade,
    launch,
    sandbox,
    submission,
)
from tests.grader.sandbox.hostile import imports

NOBODY = 65534

LINUX = sys.platform == "linux"
DAYS = sorted(SLUGS)


def opened(isolation: str, limits: Limits | None = None, **options: Any) -> Sandbox:
    """Return a sandbox; skip the test, with the reason, where its level does not work."""
    made = Sandbox(limits, isolation, **options)
    try:
        made.isolation  # noqa: B018
    except SandboxMissing as reason:
        made.close()
        pytest.skip(str(reason))
    return made


@pytest.fixture(
    scope="module",
    params=[
        "limits",
        "alone",
        pytest.param("bwrap", marks=pytest.mark.sandbox),
    ],
)
def any_sandbox(request: pytest.FixtureRequest) -> Iterator[Sandbox]:
    """Each level of isolation that works here; ``alone`` is how it is done on Windows."""
    with pytest.MonkeyPatch.context() as patch:
        if request.param == "alone":
            patch.setattr(sandbox, "_CAN_HAND_OVER", False)
        with opened("limits" if request.param == "alone" else request.param) as made:
            yield made


@pytest.fixture(scope="module")
def best() -> Iterator[Sandbox]:
    """The best level of isolation that works here."""
    with contextlib.ExitStack() as stack:
        made = stack.enter_context(Sandbox())
        try:
            made.isolation  # noqa: B018
        except SandboxMissing:
            made = stack.enter_context(Sandbox(isolation="limits"))
        yield made


def code(text: str) -> str:
    return textwrap.dedent(text).strip("\n")


def run(place: Sandbox, *cells: str, **options: Any) -> Child:
    """Start what the function ``f`` needs."""
    return place.start([code(cell) for cell in cells], "f", **options)


# --- calls ------------------------------------------------------------------------------


def test_a_call_answers_with_plain_values(any_sandbox: Sandbox) -> None:
    with run(any_sandbox, "def f(*args, **kwargs): return [args, kwargs]") as child:
        function = child.function("f")
        assert function(1, "a", [None], key=(2.5, True)) == [(1, "a", [None]), {"key": (2.5, True)}]
        assert function.__name__ == "f"


def test_the_librarys_types_cross_as_themselves(any_sandbox: Sandbox) -> None:
    source = """
        from compaction.grouping import Group
        def f(group):
            assert type(group) is Group
            return [Group(group.end, group.start, group.keep)]
        """
    with run(any_sandbox, source) as child:
        assert child.function("f")(Group(1, 2, "recent")) == [Group(2, 1, "recent")]


def test_functions_and_counters_are_called_back(any_sandbox: Sandbox) -> None:
    source = """
        def f(messages, summarize, meter):
            try:
                summarize([])
            except ValueError as error:
                return [str(error), meter.count(messages), summarize(messages)]
        """
    asked = []

    def summarize(messages: list[Any]) -> str:
        asked.append(messages)
        if not messages:
            raise ValueError("nothing to summarise")
        return f"{len(messages)} messages"

    meter = TokenMeter()
    messages = load("long").messages
    meter.observe(messages, 5000)
    with run(any_sandbox, source) as child:
        answer = child.function("f")(messages, summarize, meter)
    assert answer == ["nothing to summarise", 5000, "14 messages"]
    assert asked == [[], messages]


def test_a_function_of_the_learners_serves_the_library_here(best: Sandbox) -> None:
    """The library runs on this side and calls the learner's grouping on the other."""
    cells = [imports(4), ("group_messages", source_of(group_messages))]
    session = load("long")
    replies = iter(session.replies)
    with best.start(cells, "group_messages", stubbed=["group_messages"]) as child:
        done = compact(
            session.messages,
            lambda stretch: next(replies),
            group=child.function("group_messages"),
            meter=TokenMeter(),
        )
    assert (len(done.messages), done.before, done.after) == (7, 1368, 571)


def test_what_a_function_does_to_its_arguments_stays_there(any_sandbox: Sandbox) -> None:
    messages = [{"role": "user", "content": "hello"}]
    with run(any_sandbox, "def f(messages):\n    messages.clear()\n    return messages") as child:
        assert child.function("f")(messages) == []
    assert messages == [{"role": "user", "content": "hello"}]


def test_calls_share_a_process_and_notebooks_do_not(any_sandbox: Sandbox) -> None:
    source = """
        import compaction.tokens
        seen = getattr(compaction.tokens, "seen", [])
        compaction.tokens.seen = seen
        def f(x):
            seen.append(x)
            return seen
        """
    with run(any_sandbox, source) as child:
        assert child.function("f")(1) == [1]
        assert child.function("f")(2) == [1, 2]
    with run(any_sandbox, source) as child:
        assert child.function("f")(3) == [3]


def test_two_notebooks_at_a_time(best: Sandbox) -> None:
    with run(best, "def f(): return 1") as one, run(best, "def f(): return 2") as two:
        assert [one.function("f")(), two.function("f")(), one.function("f")()] == [1, 2, 1]


# --- what goes wrong --------------------------------------------------------------------


def test_an_exception_keeps_its_name_its_text_and_the_learners_traceback(
    any_sandbox: Sandbox,
) -> None:
    source = """
        def f(window):
            return helper(window)
        def helper(window):
            raise ValueError(f"no window of {window}")
        """
    with any_sandbox.start([("my cell", code(source))], "f") as child:
        with pytest.raises(LearnerError, match="no window of -1") as caught:
            child.function("f")(-1)
        assert type(caught.value).__name__ == "ValueError"
        trace = caught.value.trace
        assert 'File "my cell", line 4, in helper' in trace
        assert 'raise ValueError(f"no window of {window}")' in trace
        assert "inside" not in trace
        assert caught.value._render_traceback_() == trace.splitlines()


@pytest.mark.parametrize(
    ("source", "fault", "reason"),
    [
        ("def f():\n    while True: pass", TimedOut, "took longer than 0.5 s and was stopped"),
        ("import os\ndef f(): os._exit(7)", Died, "(exit code 7)"),
        ("import os\ndef f(): os._exit(0)", Died, "ended its process instead of answering"),
        ("def f(): raise SystemExit(3)", LearnerError, "3"),
        ("def f(): raise KeyboardInterrupt", LearnerError, ""),
        ("def f(): return f()", LearnerError, "maximum recursion depth exceeded"),
        ("def f():\n    while True: print('x' * 999)", TooMuchOutput, "printed more than 50,000"),
        ("def f(): return 'x' * 10**6", Garbled, "an answer of 1,000,0"),
        ("def f(): return [[f()]] if 0 else (x := [], x.append(x))[0]", Unfit, "nested too deep"),
        ("f = 3", Absent, "f is not a function"),
        ("g = 3", Absent, "f is not defined"),
        ("def f(:", Absent, "f is not defined: cell 1 failed: SyntaxError"),
        ("1 / 0\ndef f(): pass", Absent, "cell 1 failed: ZeroDivisionError: division by zero"),
        ("import time\ndef f(): time.sleep(60)", TimedOut, "took longer than"),
    ],
)
def test_every_fault_has_a_name_and_a_line(
    any_sandbox: Sandbox, source: str, fault: type[LearnerFault], reason: str
) -> None:
    limits = Limits(call_s=0.5, output_chars=1000, answer_bytes=100_000)
    with run(any_sandbox, source, limits=limits) as child, pytest.raises(fault) as caught:
        child.function("f")()
    assert reason in str(caught.value)
    assert len(str(caught.value).splitlines()) <= 1


@pytest.mark.skipif(not LINUX, reason="only Linux limits the memory of a process")
def test_memory_is_limited(any_sandbox: Sandbox) -> None:
    limits = Limits(memory_bytes=256 * 2**20)
    with run(any_sandbox, "def f(size): return len(bytearray(size))", limits=limits) as child:
        assert child.function("f")(1000) == 1000
        with pytest.raises(OutOfMemory):
            child.function("f")(300 * 2**20)
        assert child.function("f")(1000) == 1000


def test_processor_time_is_limited(any_sandbox: Sandbox) -> None:
    if not sandbox._CAN_HAND_OVER:
        pytest.skip("the system's account of processor time is not asked there")
    source = "def f():\n    while True:\n        try: g()\n        except BaseException: pass"
    limits = Limits(call_s=30, cpu_s=1)
    over = pytest.raises(TimedOut, match="used more than 1 s of CPU time")
    with run(any_sandbox, source, limits=limits) as child, over:
        child.function("f")()


def test_after_a_fault_the_next_call_starts_again(any_sandbox: Sandbox) -> None:
    source = """
        import os
        calls = []
        def f(way):
            calls.append(way)
            if way == "exit":
                os._exit(1)
            while way == "hang":
                pass
            return calls
        """
    with run(any_sandbox, source, limits=Limits(call_s=1.0)) as child:
        function = child.function("f")
        for way, fault in (("exit", Died), ("hang", TimedOut)):
            with pytest.raises(fault):
                function(way)
            assert function("well") == ["well"]
        # Patience is shorter now: what hangs once will hang again.
        began = time.monotonic()
        with pytest.raises(TimedOut, match=r"took longer than 0\.2 s"):
            function("hang")
        assert time.monotonic() - began < 0.9


def test_starting_again_has_an_end(any_sandbox: Sandbox) -> None:
    with run(any_sandbox, "import os\ndef f(): os._exit(1)", limits=Limits(restarts=2)) as child:
        for _ in range(3):
            with pytest.raises(Died, match="exit code 1"):
                child.function("f")()
        with pytest.raises(Died, match="ended 3 times and is not started again"):
            child.function("f")()


def test_a_submission_has_its_time(any_sandbox: Sandbox) -> None:
    source = "import time\ndef f(): time.sleep(0.3)"
    over = pytest.raises(TimedOut, match=r"the submission took longer than 1\.5 s")
    with run(any_sandbox, source, limits=Limits(submission_s=1.5)) as child, over:
        for _ in range(10):
            child.function("f")()


def test_calls_back_count_against_the_time_of_a_call(any_sandbox: Sandbox) -> None:
    """What the code asks of this side takes this side's time, and that is limited too."""
    source = "def f(slow):\n    while True:\n        try: slow()\n        except Exception: pass"
    asked = []

    def slow() -> None:
        asked.append(time.sleep(0.05))

    over = pytest.raises(TimedOut, match=r"took longer than 0\.5 s")
    with run(any_sandbox, source, limits=Limits(call_s=0.5)) as child, over:
        child.function("f")(slow)
    assert len(asked) <= 12


def test_a_cell_that_fails_does_not_stop_the_others(any_sandbox: Sandbox) -> None:
    cells = (
        "from nowhere import a",
        "b = (lambda: 1 / 0)()",
        "while True: c = 1",
        "raise SystemExit",
        "def f(): return [n for n in ('a', 'b', 'c') if n in globals()] or (a, b, c)",
    )
    with run(any_sandbox, *cells, limits=Limits(cell_s=1.0)) as child:
        with pytest.raises(LearnerError, match="name 'a' is not defined"):
            child.function("f")()
        assert child.faults == {
            "cell 1": "ModuleNotFoundError: No module named 'nowhere'",
            "cell 2": "ZeroDivisionError: division by zero",
            "cell 3": "took longer than 1 s and was stopped",
        }


def test_all_cells_are_run_when_that_is_asked(any_sandbox: Sandbox) -> None:
    with run(any_sandbox, "globals()['a'] = 1", "def f(): return a") as child:
        assert child.left_out
        with pytest.raises(LearnerError, match="name 'a' is not defined"):
            child.function("f")()
        child.run_cells(whole=True)
        assert child.function("f")() == 1
        assert not child.left_out


def test_what_is_printed_is_kept_up_to_a_limit(any_sandbox: Sandbox) -> None:
    source = """
        import sys
        print("in the cell")
        def f():
            print("in the call \\x1b[31m")
            print("on standard error", file=sys.stderr)
            print("x" * 100_000)
            return 1
        """
    with run(any_sandbox, source, limits=Limits(output_chars=3000)) as child:
        assert child.function("f")() == 1
        told = child.printed
    assert told.startswith("in the cell\nin the call \ufffd[31m\non standard error\nxxx")
    assert len(told) <= 3000


@pytest.mark.parametrize("cell", ["%%bash\nexit 1", "!exit 1", "%load_ext nothing", "display(1)"])
def test_magics_do_nothing(best: Sandbox, cell: str) -> None:
    with run(best, f"{cell}\nx = 1", "def f(): return 2") as child:
        child.run_cells(whole=True)
        assert child.function("f")() == 2
        assert not child.faults


def test_checks_in_cells_do_nothing(best: Sandbox) -> None:
    cell = "from grader import check, score\nx = check('fit', None) or score() or 5"
    with run(best, cell, "def f(): return x") as child:
        assert child.function("f")() == 5


# --- the stubbed functions -------------------------------------------------------------


def test_reaching_for_the_days_function_is_named(any_sandbox: Sandbox) -> None:
    source = "from compaction.calibration import fit\ndef f(): return 1"
    with run(any_sandbox, source, stubbed=["fit"]) as child, pytest.raises(Forbidden) as caught:
        child.function("f")()
    assert str(caught.value) == (
        "uses the library's own fit (from compaction.calibration), which is this day's exercise"
    )


def test_a_look_at_it_in_a_cell_that_is_not_needed_costs_nothing(any_sandbox: Sandbox) -> None:
    cells = ("from compaction.calibration import fit", "exec('x = 1')", "def f(): return x")
    with run(any_sandbox, *cells, stubbed=["fit"]) as child:
        child.run_cells(whole=True)
        assert child.function("f")() == 1
        assert child.reached == []


def test_other_days_functions_are_there(any_sandbox: Sandbox) -> None:
    source = "from compaction.tokens import estimate\ndef f(): return estimate('hello world')"
    with run(any_sandbox, source, stubbed=["fit"]) as child:
        assert child.function("f")() == 3


# --- levels of isolation ----------------------------------------------------------------


def test_no_environment_and_nothing_to_read(
    any_sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GRADER_SEED", "4711")
    source = """
        import os, sys
        def f(): return sorted(os.environ), sys.stdin.read(), os.read(0, 9) == b"", sys.argv[1:]
        """
    with run(any_sandbox, source) as child:
        names, text, is_empty, arguments = child.function("f")()
    assert set(names) <= {*submission._ENVIRONMENT, "HOME", "TMPDIR", "LC_CTYPE"}
    assert (text, is_empty, arguments) == ("", True, [])


def test_a_file_can_be_written_and_is_gone_afterwards(any_sandbox: Sandbox) -> None:
    source = """
        import os, tempfile
        def f():
            held = os.listdir(".")
            with open("note.txt", "w") as file:
                file.write("x")
            with tempfile.TemporaryFile() as file:
                file.write(b"x")
            return held, os.getcwd()
        """
    places = []
    for _ in range(2):
        with run(any_sandbox, source) as child:
            held, place = child.function("f")()
            assert held == []
            places.append(place)
    assert not any(Path(place, "note.txt").exists() for place in places)


def test_numpy_can_be_imported(best: Sandbox) -> None:
    pytest.importorskip("numpy")
    source = "import numpy\ndef f(): return int(numpy.arange(4).sum())"
    with run(best, source) as child:
        assert child.function("f")() == 6


@pytest.mark.sandbox
def test_an_installed_copy_of_the_library_is_hidden(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for package in ("compaction", "grader", "harmless"):
        (tmp_path / "site-packages" / package).mkdir(parents=True)
        (tmp_path / "site-packages" / package / "answer.py").write_text("")
    launch.open_to_all(tmp_path / "site-packages")
    packages = [*launch.package_folders(), str(tmp_path / "site-packages")]
    monkeypatch.setattr(launch, "package_folders", lambda: packages)
    source = f"""
        import os
        def f():
            folder = {str(tmp_path / "site-packages")!r}
            return [os.listdir(os.path.join(folder, name)) for name in sorted(os.listdir(folder))]
        """
    with opened("bwrap") as place, run(place, source) as child:
        assert child.function("f")() == [[], [], ["answer.py"]]


def test_a_call_within_a_call_is_refused(any_sandbox: Sandbox) -> None:
    with run(any_sandbox, "def f(again): return again()") as child:
        function = child.function("f")
        with pytest.raises(LearnerError, match="while another one is running"):
            function(lambda: function(int))
        assert function(int) == 0


def test_a_fault_of_the_sandbox_is_no_fault_of_the_learner(monkeypatch: pytest.MonkeyPatch) -> None:
    with Sandbox(isolation="limits") as made:
        cells = {"estimate": [imports(1), "import os\ndef estimate(text): os._exit(1)"]}
        opens = made.open
        starts = []

        def failing(stubbed: tuple[str, ...]) -> Any:
            starts.append(stubbed)
            if len(starts) > 1:
                raise LaunchError("the machine is on fire")
            return opens(stubbed)

        monkeypatch.setattr(made, "open", failing)
        with pytest.raises(LaunchError, match="on fire"):
            grade(made, cells, [CHECKS["estimate-latin"], CHECKS["estimate-cjk"]])


def test_a_level_that_does_not_exist_is_bad_input() -> None:
    with pytest.raises(BadInput, match="isolation: expected one of auto, bwrap"):
        Sandbox(isolation="chroot")


@pytest.mark.parametrize(("word", "level"), [("auto", "bwrap"), ("process", "limits")])
def test_a_level_has_more_than_one_word(word: str, level: str) -> None:
    assert sandbox.level_of(word) == level


def test_the_level_that_is_gone_says_what_to_use() -> None:
    with pytest.raises(BadInput, match="namespace is gone; use bwrap, or limits"):
        Sandbox(isolation="namespace")


def test_where_no_sandbox_works_the_way_on_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    found = shutil.which
    monkeypatch.setattr(shutil, "which", lambda name: None if name == "bwrap" else found(name))
    expected = pytest.raises(
        SandboxMissing, match=r"install bubblewrap .*--isolation limits.*bwrap is not installed"
    )
    with Sandbox() as made:
        for _ in range(2):  # it is not settled for less the second time either
            with expected:
                run(made, "def f(): return 1")
        with expected:
            made.isolation  # noqa: B018


def test_an_accident_is_no_missing_sandbox(
    best: Sandbox, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """What has worked before fails for a reason of the moment, and no notebook pays for it."""

    def fails(*args: Any) -> launch.Supervisor:
        raise LaunchError("no new process")

    with run(best, "def f(): return 1"):
        monkeypatch.setattr(launch, "start_supervisor", fails)
        with pytest.raises(LaunchError, match="no new process"):
            best.start(["def fit(): return 1"], "fit", stubbed=["fit", "verify"])


@pytest.mark.skipif(not LINUX or os.geteuid() != 0, reason="only root gives up root's rights")
@pytest.mark.parametrize("level", ["limits", pytest.param("bwrap", marks=pytest.mark.sandbox)])
def test_root_gives_its_rights_up(level: str) -> None:
    """Even where Python lies in a folder that only root may enter."""
    source = """
        import os
        def f(): return os.getuid(), os.access("/etc/shadow", os.R_OK), os.listdir(".")
        """
    with opened(level) as place, run(place, source) as child:
        user, reads_secrets, held = child.function("f")()
    assert user != 0 and not reads_secrets and held == []


@pytest.mark.skipif(not LINUX or os.geteuid() != 0, reason="only root gives up root's rights")
def test_where_root_cannot_give_its_rights_up_it_refuses(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(launch, "_useless", set())
    monkeypatch.setattr(launch, "_uncovering", lambda *args: iter(()))
    monkeypatch.setattr(launch, "run_program", lambda folder: [str(tmp_path / "python")])
    (tmp_path / "python").write_text("#!/bin/sh")
    (tmp_path / "python").chmod(0o700)
    refused = pytest.raises(SandboxMissing, match="root's rights are given up first, and then")
    with Sandbox(isolation="limits") as made, refused:
        made.isolation  # noqa: B018


def test_the_program_inside_serves_many(best: Sandbox) -> None:
    with run(best, "def f(): return 1"):
        before = [supervisor.process_id for supervisor in best._supervisors.values()]
        for _ in range(3):
            with run(best, "def f(): return 1"):
                pass
        assert [supervisor.process_id for supervisor in best._supervisors.values()] == before


@pytest.mark.sandbox
@pytest.mark.skipif(not LINUX, reason="elsewhere every notebook has its own")
def test_when_the_program_inside_is_killed_another_one_is_started() -> None:
    with opened("bwrap") as place, run(place, "def f(): return 1") as child:
        kill_supervisors(place)
        with pytest.raises(LaunchError, match="the program in the sandbox was killed"):
            child.function("f")()
        assert child.function("f")() == 1


def kill_supervisors(place: Sandbox) -> None:
    for supervisor in list(place._supervisors.values()):
        os.killpg(supervisor.process_id, 9)
        supervisor._process.wait()
    while _mentioning(place._own):
        time.sleep(0.01)


@pytest.mark.sandbox
@pytest.mark.skipif(not LINUX, reason="elsewhere every notebook has its own")
def test_a_killed_program_costs_nobody_a_point(monkeypatch: pytest.MonkeyPatch) -> None:
    cells = {"estimate": [imports(1), source_of(EXERCISES[0].solution())]}
    checks = [CHECKS["estimate-latin"], CHECKS["estimate-cjk"]]
    with opened("bwrap") as place:
        runs = Child.run_cells
        killed = []

        def run_and_kill(child: Child, whole: bool = False) -> None:
            runs(child, whole)
            if not killed:
                kill_supervisors(place)
                killed.append(child)

        monkeypatch.setattr(Child, "run_cells", run_and_kill)
        assert all(result.passed for result in grade(place, cells, checks))
        assert killed


def test_sandboxes_share_copies_of_the_library(tmp_path: Path) -> None:
    with Sandbox(isolation="limits", folder=tmp_path) as one:
        first = one.library(("fit",))
        with Sandbox(isolation="limits", folder=tmp_path) as two:
            assert two.library(("fit",)) == first
            assert two.library(()) != first
    assert first.is_dir()


def test_closing_leaves_nothing_behind() -> None:
    made = Sandbox(isolation="limits")
    with run(made, "def f(): return 1"):
        folder = made._own
        supervisors = list(made._supervisors.values())
    made.close()
    made.close()
    assert not folder.exists()
    assert not any(supervisor.is_alive for supervisor in supervisors)


@pytest.mark.skipif(not LINUX, reason="processes are looked up in /proc")
@pytest.mark.parametrize(
    "level",
    [
        "limits",
        pytest.param("bwrap", marks=pytest.mark.sandbox),
    ],
)
def test_when_the_grading_is_killed_nothing_goes_on(level: str, tmp_path: Path) -> None:
    opened(level).close()
    source = f"""
        import sys
        from grader.sandbox import Limits, Sandbox
        sandbox = Sandbox(Limits(call_s=100), {level!r})
        cell = "import os\\nos.fork()\\ndef f():\\n    while True: pass"
        child = sandbox.start([cell], "f")
        print("ready", flush=True)
        child.function("f")()
        """
    # Everything that belongs to it has this folder in its command line.
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    for folder in (tmp_path, tmp_path.parent, tmp_path.parent.parent):
        folder.chmod(0o755)
    grading = subprocess.Popen(
        [sys.executable, "-c", code(source)],
        stdout=subprocess.PIPE,
        text=True,
        env=environment,
        cwd=Path(__file__).parents[3],
    )
    with grading:
        assert grading.stdout is not None
        assert grading.stdout.readline() == "ready\n"
        assert _mentioning(tmp_path)
        grading.kill()
    until = time.monotonic() + 10
    while _mentioning(tmp_path) and time.monotonic() < until:
        time.sleep(0.05)
    assert not _mentioning(tmp_path)


def _mentioning(folder: Path) -> list[str]:
    """Return the command lines of processes that mention a folder."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            line = path.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if str(folder) in line:
            found.append(line)
    return found


@pytest.mark.sandbox
@pytest.mark.skipif(not LINUX or os.geteuid() != 0, reason="root tries it as somebody else")
def test_it_works_for_an_ordinary_user(repository: Path) -> None:
    program = next((path for path in (sys.executable, "/usr/bin/python3") if _can_run(path)), None)
    if program is None or not _is_reachable(repository):
        pytest.skip("another user can reach neither Python nor the repository")
    source = f"""
        import os, sys
        sys.dont_write_bytecode = True
        sys.path[:0] = [{str(repository)!r}, {str(repository / "course")!r}]
        from grader.sandbox import Sandbox, SandboxMissing
        for level in ("bwrap",):
            with Sandbox(isolation=level) as sandbox:
                try:
                    sandbox.isolation
                except SandboxMissing as reason:
                    print(level, "is missing:", reason)
                    continue
                cell = "import os\\ndef f(path): return os.path.exists(path), os.getuid()"
                with sandbox.start([cell], "f") as child:
                    print(level, *child.function("f")({str(repository / "solutions")!r}))
        """
    done = subprocess.run(
        [program, "-c", code(source)],
        capture_output=True,
        text=True,
        timeout=120,
        user=NOBODY,
        group=NOBODY,
        extra_groups=[],
        env={"PATH": os.environ["PATH"]},
        cwd="/",
        check=False,
    )
    assert done.returncode == 0, done.stderr
    lines = [line for line in done.stdout.splitlines() if "is missing" not in line]
    if not lines:
        pytest.skip(done.stdout)
    assert all(line.endswith(" False 1000") for line in lines)


def _is_reachable(path: Path) -> bool:
    real = path.resolve()
    return all(place.stat().st_mode & 0o001 for place in (real, *real.parents))


def _can_run(program: str) -> bool:
    if not os.path.exists(program) or not _is_reachable(Path(program)):
        return False
    told = subprocess.run(
        [program, "-c", "import sys; print(sys.version_info >= (3, 11))"],
        capture_output=True,
        text=True,
        check=False,
    )
    return told.stdout.strip() == "True"


# --- points -----------------------------------------------------------------------------


def starters(day: int) -> dict[str, Callable[..., Any]]:
    return {exercise.function: exercise.starter() for exercise in exercises_of(day)}


@pytest.mark.parametrize("day", DAYS)
def test_starters_get_the_same_points_and_words_as_here(best: Sandbox, day: int) -> None:
    functions = starters(day)
    checks = [check for check in CHECKS.values() if check.day == day]
    cells = [imports(day), *((name, source_of(f)) for name, f in functions.items())]
    there = grade(best, dict.fromkeys(functions, cells), checks, seed=3)
    here = [run_check(check, functions[check.function], 3) for check in checks]
    assert [(r.id, r.passed, r.line) for r in there] == [(r.id, r.passed, r.line) for r in here]
    assert [r.failure and r.failure.lines for r in there] == [
        r.failure and r.failure.lines for r in here
    ]


def labs(repository: Path, folder: str) -> list[Path]:
    return sorted((repository / folder).glob("day*/day*.ipynb"))


@pytest.mark.parametrize("folder", ["solutions", "labs"])
def test_the_courses_own_notebooks(best: Sandbox, repository: Path, folder: str) -> None:
    paths = labs(repository, folder)
    assert paths
    for path in paths:
        notebook = read_notebook(path)
        checks = [check for check in CHECKS.values() if check.day == notebook.day]
        results = grade(best, notebook.cells_above_checks(), checks, seed=4)
        if folder == "solutions":
            assert all(result.passed for result in results), [r.line for r in results]
            continue
        functions = starters(notebook.day)
        here = [run_check(check, functions[check.function], 4) for check in checks]
        assert [r.line for r in results] == [r.line for r in here]


def test_a_function_gets_the_cells_above_its_checks(repository: Path) -> None:
    notebook = read_notebook(repository / "solutions/day3_trigger/day3_trigger.ipynb")
    above = notebook.cells_above_checks()
    assert list(above) == ["should_compact", "budget_table"]
    first, second = above.values()
    assert second[: len(first)] == first and len(second) > len(first)
    assert "def should_compact" in first[-1][1] or any("def should_compact" in s for _, s in first)
    assert not any("def budget_table" in source for _, source in first)


def test_results_come_in_the_order_of_the_checks(best: Sandbox) -> None:
    day3 = [CHECKS["budget-table"], CHECKS["trigger-proportion"]]
    results = grade(best, {}, day3)
    assert [result.id for result in results] == ["budget-table", "trigger-proportion"]
    assert [result.line for result in results] == [
        "✗ budget-table: budget_table is not defined",
        "✗ trigger-proportion: should_compact is not defined",
    ]
    assert all(isinstance(result, Result) for result in results)


def test_the_time_of_a_submission_is_for_all_its_functions(best: Sandbox) -> None:
    hang = "def {0}(*args, **kwargs):\n    while True: pass"
    cells = {name: [hang.format(name)] for name in ("should_compact", "budget_table")}
    checks = [CHECKS["trigger-proportion"], CHECKS["budget-table"]]
    began = time.monotonic()
    results = grade(best, cells, checks, limits=Limits(call_s=60, submission_s=2.0))
    assert time.monotonic() - began < 10
    assert not any(result.passed for result in results)
    assert "the submission took longer than" in results[0].line


def test_another_seed_draws_other_cases(best: Sandbox) -> None:
    """The learner's side sees the cases and nothing of the seed."""
    source = """
        seen = []
        def estimate(text, coefficients=None):
            print(ascii(text))
            return 0
        """
    told = []
    for seed in (1, 2, 1):
        with best.start([code(source)], "estimate", stubbed=["estimate"]) as child:
            check = CHECKS["estimate-cjk"]
            function = child.function("estimate")

            def honest(text: str, *args: Any, _function: Any = function) -> int:
                _function(text)
                return EXERCISES[0].solution()(text, *args)

            assert run_check(check, honest, seed).passed
            told.append(child.printed)
    assert told[0] == told[2] != told[1]


def users_below(process: int) -> set[int]:
    """Return the users of all processes that descend from one, as the host sees them."""
    parent, user = {}, {}
    for folder in Path("/proc").iterdir():
        with contextlib.suppress(OSError, ValueError):
            status = (folder / "status").read_text(encoding="utf-8")
            parent[int(folder.name)] = int(re.search(r"PPid:\s+(\d+)", status)[1])
            user[int(folder.name)] = int(re.search(r"Uid:\s+(\d+)", status)[1])
    below = {process}
    while more := {p for p in parent if parent[p] in below} - below:
        below |= more
    return {user[p] for p in below}


@pytest.mark.skipif(not LINUX or os.geteuid() != 0, reason="only root becomes another user")
def test_every_sandbox_has_a_user_of_its_own() -> None:
    """Processes are counted by user: with a shared one, a fork bomb would stop all others."""
    before = users_below(os.getpid())
    cell = "def f(): return 1"
    with (
        Sandbox() as first,
        Sandbox() as second,
        first.start([cell], "f") as one,
        second.start([cell], "f") as two,
    ):
        assert (one.function("f")(), two.function("f")()) == (1, 1)
        added = users_below(os.getpid()) - before
    assert len(added) == 2
    assert all(user >= 1_000_000_000 for user in added)


@pytest.mark.parametrize(
    ("known", "expected"),
    [
        ("0 0 4294967295", range(1_000_000_000, 1_900_000_000)),
        ("0 1000 1\n1 100000 65536", range(61_184, 65_520)),
        ("0 1000 1", range(65_534, 65_535)),
    ],
)
def test_the_user_is_one_that_the_container_can_have(
    known: str, expected: range, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Path, "read_text", lambda path, *args: known)
    assert launch.spare_user() in expected


def test_a_change_of_the_arguments_is_seen_from_outside(best: Sandbox) -> None:
    spoiling = """
def fields_to_drop(state, keep, needed):
    gone = sorted(state, key=lambda name: name in needed)[:max(0, len(state) - keep)]
    for name in gone:
        del state[name]
    return gone
"""
    checks = [CHECKS["carry-needed"]]
    (there,) = grade(best, {"fields_to_drop": [imports(7), ("cell 2", spoiling)]}, checks, seed=3)
    assert there.failure is not None
    assert there.failure.expected == "what is handed in stays untouched"
    assert there.failure.got == "the right value, but an argument was changed"
