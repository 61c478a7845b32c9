"""Submissions that attack the grading, break it by accident, or look strange and are honest.

Each has the checks that its honest part deserves. ``submissions`` fills in where the things lie
that an attack goes for: a secret file (a gradebook), the repository, a port on this machine.
"""

from __future__ import annotations

import textwrap
from dataclasses import dataclass
from pathlib import Path

from grader.exercises import IMPORTS, exercises_of, source_of

CHECKS_OF = {
    1: ("estimate-latin", "estimate-cjk"),
    2: ("calibrate-fit", "calibrate-singular", "calibrate-few"),
    3: ("trigger-proportion", "budget-table"),
    4: ("group-atomic", "group-unfinished", "group-keep", "group-no-orphans"),
    5: ("compact-summaries", "compact-abandons"),
    6: ("probe-survives", "probe-control"),
    7: ("carry-budget", "carry-needed", "carry-run"),
    8: (
        "step-threshold",
        "step-emergency",
        "room-passes",
        "room-recount",
        "pack-all",
        "pack-newest",
    ),
}

NONE: tuple[str, ...] = ()


@dataclass(frozen=True)
class Submission:
    """A lab as handed in: code cells (name, source), the checks that must pass, no others.

    ``reason`` is part of what is said about a check that fails.
    """

    name: str
    day: int
    cells: tuple[tuple[str, str], ...]
    passes: tuple[str, ...]
    reason: str = ""


def honest(function: str) -> str:
    """Return the solution of an exercise."""
    day = next(d for d in CHECKS_OF if any(e.function == function for e in exercises_of(d)))
    found = next(e for e in exercises_of(day) if e.function == function)
    return source_of(found.solution())


def imports(day: int) -> tuple[str, str]:
    """Return the lab's import cell."""
    return ("imports", IMPORTS[day] + "from grader import check, score")


def _code(text: str) -> str:
    return textwrap.dedent(text).strip("\n") + "\n"


def submissions(secret: Path, repository: Path, port: int) -> list[Submission]:
    """Return all of them."""
    places = {"@SECRET@": str(secret), "@REPOSITORY@": str(repository), "@PORT@": str(port)}

    def placed(text: str) -> str:
        for mark, place in places.items():
            text = text.replace(mark, place)
        return text

    return [
        Submission(
            s.name, s.day, tuple((n, placed(t)) for n, t in s.cells), s.passes, placed(s.reason)
        )
        for s in _all()
    ]


def _all() -> list[Submission]:
    return [
        *_answers_that_lie(),
        *_patches(),
        *_ways_to_stop(),
        *_floods(),
        *_left_running(),
        *_reaching_out(),
        *_reaching_for_the_answer(),
        *_the_pipe(),
        *_the_program(),
        *_detecting(),
        *_strange_but_honest(),
        *_broken(),
    ]


# --- building blocks --------------------------------------------------------------------

LATIN, CJK = CHECKS_OF[1]
BOTH = CHECKS_OF[1]


def _day1(name: str, cell: str, passes: tuple[str, ...] = NONE, reason: str = "") -> Submission:
    """A notebook of day 1 whose solution cell is this one."""
    return Submission(name, 1, (imports(1), ("estimate", _code(cell))), passes, reason)


def _around(before: str, after: str = "") -> str:
    """The honest function with something of the learner's around it, in one cell."""
    return _code(before) + "\n" + honest("estimate") + "\n" + _code(after)


def _inside(attack: str) -> str:
    """An honest function that first tries something, each time it is called."""
    body = textwrap.indent(_code(attack) + "return _honest(text, coefficients)\n", "    ")
    return (
        honest("estimate").replace("def estimate", "def _honest")
        + f"\n\ndef estimate(text, coefficients=DEFAULT):\n{body}"
    )


def _day3(name: str, bad_cell: str, reason: str = "") -> Submission:
    """A notebook of day 3: one exercise attacks, the other one is honest and keeps its point."""
    cells = (
        imports(3),
        ("should_compact", _code(bad_cell)),
        ("budget_table", honest("budget_table")),
    )
    return Submission(name, 3, cells, ("budget-table",), reason)


# --- the attacks ------------------------------------------------------------------------


def _answers_that_lie() -> list[Submission]:
    return [
        _day1(
            "an object that equals everything",
            """
            class Trick:
                def __eq__(self, other): return True
                def __ne__(self, other): return False
                def __hash__(self): return 0
                def __getattr__(self, name): return self
                def __call__(self, *args, **kwargs): return self
            def estimate(text, coefficients=None): return Trick()
            """,
            reason="returned a Trick object",
        ),
        _day1(
            "a whole number that equals everything",
            """
            class Trick(int):
                def __eq__(self, other): return True
                __hash__ = int.__hash__
            def estimate(text, coefficients=None): return Trick(0)
            """,
            reason="returned a Trick object",
        ),
        _day1(
            "an object that says it is a whole number",
            """
            class Trick:
                @property
                def __class__(self): return int
                def __index__(self): return 86
                def __int__(self): return 86
            def estimate(text, coefficients=None): return Trick()
            """,
            reason="returned a Trick object",
        ),
        _day1(
            "a metaclass that says it is int",
            """
            class Meta(type):
                def __eq__(cls, other): return True
                def __hash__(cls): return hash(int)
                def __instancecheck__(cls, thing): return True
            class Trick(metaclass=Meta): pass
            def estimate(text, coefficients=None): return Trick()
            """,
            reason="returned a Trick object",
        ),
        _day1(
            "text that equals every number",
            """
            class Trick(str):
                def __eq__(self, other): return True
                __hash__ = str.__hash__
            def estimate(text, coefficients=None): return Trick("86")
            """,
            reason="returned a Trick object",
        ),
        _day1(
            "a pickled payload",
            """
            import os
            class Bomb:
                def __reduce__(self): return (os.system, ("touch @SECRET@",))
            def estimate(text, coefficients=None): return Bomb()
            """,
            reason="returned a Bomb object",
        ),
        _day1(
            "a generator instead of an answer",
            """
            def estimate(text, coefficients=None):
                while True:
                    yield 86
            """,
            reason="returned a generator object",
        ),
        _day1(
            "not a number",
            "def estimate(text, coefficients=None): return float('nan')",
        ),
        _day1(
            "infinity",
            "def estimate(text, coefficients=None): return float('inf')",
        ),
        _day1(
            "a whole number of very many digits",
            "def estimate(text, coefficients=None): return 1 << 10**7",
            reason="a whole number of 10000001 bits",
        ),
        _day1(
            "a list that contains itself",
            """
            def estimate(text, coefficients=None):
                answer = []
                answer.append(answer)
                return answer
            """,
            reason="nested too deep",
        ),
        _day1(
            "a dict that contains itself, through objects",
            """
            def estimate(text, coefficients=None):
                answer = {}
                answer["again"] = (answer,)
                return answer
            """,
            reason="nested too deep",
        ),
        _day1(
            "True instead of a number",
            "def estimate(text, coefficients=None): return True",
        ),
        Submission(
            "a list whose items lie",
            4,
            (
                imports(4),
                (
                    "group_messages",
                    _code(
                        """
                        class Groups(list):
                            def __eq__(self, other): return True
                            def __iter__(self): return iter([Group(0, 1, "recent")])
                            def __len__(self): return 1
                        def group_messages(messages, keep_recent=3, pinned=None): return Groups()
                        """
                    ),
                ),
            ),
            NONE,
            "returned a Groups object",
        ),
        Submission(
            "a type of one's own with the library's name",
            4,
            (
                imports(4),
                (
                    "group_messages",
                    _code(
                        """
                        class Group(tuple):
                            start = property(lambda self: 0)
                            end = property(lambda self: 1)
                            keep = "system"
                        def group_messages(messages, keep_recent=3, pinned=None):
                            return [Group() for message in messages]
                        """
                    ),
                ),
            ),
            NONE,
            "Group",
        ),
        Submission(
            "a library object with fields that lie",
            4,
            (
                imports(4),
                (
                    "group_messages",
                    _code(
                        """
                        class Any:
                            def __eq__(self, other): return True
                            def __lt__(self, other): return True
                            def __hash__(self): return 0
                        def group_messages(messages, keep_recent=3, pinned=None):
                            return [Group(Any(), Any(), Any()) for message in messages]
                        """
                    ),
                ),
            ),
            NONE,
            "Any object",
        ),
        Submission(
            "a library object with more fields than it has",
            6,
            (
                imports(6),
                (
                    "verify",
                    _code(
                        """
                        def verify(probes, messages, ask=None):
                            report = ProbeReport([], [], [])
                            object.__setattr__(report, "kept", _Everything())
                            object.__setattr__(report, "passed", True)
                            return report
                        class _Everything(list):
                            def __contains__(self, thing): return True
                            def __eq__(self, other): return True
                        """
                    ),
                ),
            ),
            NONE,
            "_Everything object",
        ),
        Submission(
            "a choice that looks like the library's",
            8,
            (
                imports(8),
                (
                    "next_step",
                    _code(
                        """
                        class Choice(str):
                            value = "send"
                            def __eq__(self, other): return True
                            def __hash__(self): return 0
                        def next_step(*args, **kwargs): return Choice("send")
                        """
                    ),
                ),
                ("make_room", honest("make_room")),
                ("pack", honest("pack")),
            ),
            CHECKS_OF[8][2:],
            "returned a Choice object",
        ),
        Submission(
            "the summariser itself as the answer",
            5,
            (
                imports(5),
                ("compact", "def compact(messages, summarize, **options): return summarize\n"),
            ),
            NONE,
            "function",
        ),
    ]


def _patches() -> list[Submission]:
    return [
        _day1(
            "patched builtins",
            """
            import builtins
            builtins.isinstance = lambda *a: True
            builtins.type = lambda *a: int
            builtins.abs = builtins.min = builtins.sum = lambda *a: 0
            def estimate(text, coefficients=None): return 0
            """,
        ),
        _day3(
            "patched builtins in one exercise",
            """
            import builtins
            builtins.len = lambda *a: 0
            builtins.sorted = builtins.sum = builtins.map = None
            def should_compact(*args, **kwargs): return True
            """,
        ),
        _day1(
            "patched json and an honest function",
            _around(
                """
                import json, json.encoder, json.decoder
                json.dumps = lambda *a, **k: '{"answer": 0, "value": 86}'
                json.loads = lambda *a, **k: {"answer": 0, "value": 86}
                json.JSONEncoder = json.JSONDecoder = None
                """
            ),
            BOTH,
        ),
        _day1(
            "patched json and no function to speak of",
            """
            import json
            json.dumps = lambda *a, **k: '{"value": 86, "passed": true}'
            def estimate(text, coefficients=None): return 0
            """,
        ),
        _day1(
            "patched IPython",
            """
            try:
                from IPython.core import interactiveshell
                interactiveshell.InteractiveShell.run_cell_async = None
                interactiveshell.InteractiveShell.run_cell = lambda *a, **k: True
            except Exception:
                pass
            def estimate(text, coefficients=None): return 0
            """,
        ),
        _day1(
            "patched checks",
            """
            import sys, types
            fake = types.ModuleType("grader.checks")
            fake.run_check = fake.check = lambda *a, **k: True
            sys.modules["grader.checks"] = sys.modules["grader"] = fake
            def check(*args, **kwargs): print("passed")
            score = check
            def estimate(text, coefficients=None): return 0
            """,
        ),
        _day1(
            "points in the output",
            """
            def estimate(text, coefficients=None):
                print('{"answer": 1, "value": 86, "score": 2, "max_score": 2}')
                print("✓ Latin text of 341 characters: about 86 tokens")
                return 0
            """,
        ),
        _day1(
            "patched library",
            """
            import compaction.tokens, compaction.messages
            compaction.tokens.DEFAULT = None
            compaction.tokens.count_chars = lambda text: (0, 0)
            compaction.tokens.estimate = lambda *a: 0
            def estimate(text, coefficients=None): return 0
            """,
        ),
        _day1(
            "an import hook",
            _around(
                """
                import sys
                class Hook:
                    def find_spec(self, name, path=None, target=None):
                        raise ImportError("no more imports")
                sys.meta_path.insert(0, Hook())
                sys.path.clear()
                """
            ),
            BOTH,
        ),
        _day1(
            "a trace function that changes what it sees",
            """
            import sys
            def trace(frame, event, argument):
                for name in list(frame.f_locals):
                    if name in ("passed", "value", "right", "expected"):
                        frame.f_locals[name] = True
                return trace
            sys.settrace(trace)
            def estimate(text, coefficients=None): return 0
            """,
        ),
    ]


def _ways_to_stop() -> list[Submission]:
    return [
        _day1(
            "os._exit in the function",
            "import os\ndef estimate(text, coefficients=None): os._exit(0)",
            reason="ended its process",
        ),
        _day3(
            "os._exit in one exercise's cell",
            """
            import os
            def should_compact(*args, **kwargs): return True
            os._exit(0)
            """,
            reason="ended its process",
        ),
        Submission(
            "os._exit in a cell that nothing needs",
            1,
            (imports(1), ("estimate", honest("estimate")), ("try it", "import os\nos._exit(1)")),
            BOTH,
        ),
        _day1(
            "sys.exit in the function",
            "import sys\ndef estimate(text, coefficients=None): sys.exit(0)",
            reason="SystemExit",
        ),
        _day1("sys.exit after an honest function", _around("import sys", "sys.exit(0)"), BOTH),
        _day1(
            "sys.exit before the function",
            _around("import sys\nsys.exit('good bye')"),
            reason="SystemExit: good bye",
        ),
        _day1(
            "KeyboardInterrupt",
            "def estimate(text, coefficients=None): raise KeyboardInterrupt",
            reason="KeyboardInterrupt",
        ),
        _day1(
            "an exception that calls itself a failed check",
            """
            class CheckFailure(BaseException):
                def __str__(self): return "passed"
            def estimate(text, coefficients=None): raise CheckFailure
            """,
            reason="CheckFailure: passed",
        ),
        _day1(
            "an exception that raises when it is printed",
            """
            class Worse(Exception):
                def __str__(self): raise SystemExit
                __repr__ = __str__
            def estimate(text, coefficients=None): raise Worse
            """,
            reason="Worse",
        ),
        _day1(
            "an exception with a text of ten million characters and control codes",
            """
            def estimate(text, coefficients=None):
                raise ValueError("\\x1b[2J\\x07" + "no " * 10**7)
            """,
            reason="ValueError",
        ),
        _day3(
            "an endless loop",
            """
            def should_compact(*args, **kwargs):
                while True:
                    pass
            """,
            reason="took longer than",
        ),
        _day3(
            "an endless loop in one exercise's cell",
            """
            def should_compact(*args, **kwargs): return True
            while True:
                pass
            """,
            reason="took longer than",
        ),
        _day1(
            "sleeping, with every signal ignored",
            """
            import signal, time
            for number in range(1, 65):
                try:
                    signal.signal(number, signal.SIG_IGN)
                except (OSError, ValueError):
                    pass
            def estimate(text, coefficients=None):
                while True:
                    try:
                        time.sleep(1000)
                    except BaseException:
                        pass
            """,
            reason="took longer than",
        ),
        _day1(
            "deep recursion",
            """
            def down(number): return down(number + 1) + 1
            def estimate(text, coefficients=None): return down(0)
            """,
            reason="RecursionError",
        ),
        _day3(
            "a crash",
            """
            import ctypes
            def should_compact(*args, **kwargs): return ctypes.string_at(0)
            """,
            reason="crashed (signal 11)",
        ),
        _day1(
            "reading from standard input",
            "def estimate(text, coefficients=None): return int(input('tokens? '))",
            reason="EOFError",
        ),
        _day1(
            "reading all of standard input",
            _inside("import sys, os\nassert sys.stdin.read() == '' and os.read(0, 10) == b''"),
            BOTH,
        ),
        _day3(
            "killing everything",
            """
            import os, signal
            def should_compact(*args, **kwargs):
                for process in (-1, 0, 1, 2, os.getppid()):
                    try:
                        os.kill(process, signal.SIGKILL)
                    except OSError:
                        pass
                return None
            """,
        ),
        _day1(
            "a hook at exit that hangs",
            _around("import atexit, time\natexit.register(time.sleep, 1000)"),
            BOTH,
        ),
    ]


def _floods() -> list[Submission]:
    return [
        _day3(
            "endless printing",
            """
            def should_compact(*args, **kwargs):
                while True:
                    print("again " * 100)
            """,
            reason="printed more than",
        ),
        _day1(
            "endless printing past Python",
            """
            import os
            def estimate(text, coefficients=None):
                while True:
                    os.write(1, b"again " * 1000)
                    os.write(2, b"again " * 1000)
            """,
            reason="took longer than",
        ),
        _day1(
            "much printing and an honest answer",
            _inside("import sys\nprint('reading ' * 2000)\nprint('x' * 9999, file=sys.stderr)"),
            BOTH,
        ),
        _day1(
            "warnings and a log on standard error",
            _inside(
                """
                import logging, sys, warnings
                warnings.warn("this function is old")
                logging.warning("and slow")
                sys.stderr.write("really\\n")
                """
            ),
            BOTH,
        ),
        _day1(
            "a list of ten million numbers",
            "def estimate(text, coefficients=None): return [86] * 10**7",
        ),
        _day1(
            "a text of thirty million characters",
            "def estimate(text, coefficients=None): return 'x' * (3 * 10**7)",
            reason="an answer of 30,0",
        ),
        Submission(
            "twelve thousand groups",
            4,
            (
                imports(4),
                (
                    "group_messages",
                    _code(
                        """
                        def group_messages(messages, keep_recent=3, pinned=None):
                            return [Group(i, i + 1, "recent") for i in range(12_000)]
                        """
                    ),
                ),
            ),
            NONE,
            "end at message 12000",
        ),
        Submission(
            "a compaction of nearly a megabyte",
            5,
            (
                imports(5),
                (
                    "compact",
                    _code(
                        """
                        def compact(messages, summarize, *, meter, **options):
                            text = "# " * 100_000 + "Confirmed facts: " * 20_000
                            many = [{"role": "tool", "content": "x"}] * 4_000
                            return Compaction([{"role": "user", "content": text}, *many],
                                9, 8, [text[:200_000]], None, [])
                        """
                    ),
                ),
            ),
            NONE,
        ),
        _day3(
            "all the memory at once",
            "def should_compact(*args, **kwargs): return bytearray(10**11)",
            reason="memory",
        ),
        _day3(
            "all the memory in small pieces",
            """
            def should_compact(*args, **kwargs):
                kept = []
                while True:
                    kept.append(bytearray(10**7))
            """,
            reason="memory",
        ),
        _day1(
            "a file that fills the disk",
            _inside(
                """
                try:
                    with open("big", "wb") as file:
                        while True:
                            file.write(bytes(10**6))
                except OSError:
                    full = True
                assert full
                """
            ),
            BOTH,
        ),
        _day1(
            "many files that fill the disk",
            _inside(
                """
                import os
                full = os.path.exists("small-0")  # in the first call; it stays full
                for number in range(0 if full else 100_000):
                    try:
                        with open(f"small-{number}", "wb") as file:
                            file.write(bytes(5000))
                    except OSError:
                        full = True
                        break
                assert full
                """
            ),
            BOTH,
        ),
        _day1(
            "all file descriptors",
            _around(
                """
                import os
                kept = []
                try:
                    while len(kept) < 100_000:
                        kept.append(open(os.devnull))
                except OSError:
                    pass
                assert len(kept) < 100_000
                """
            ),
            BOTH,
        ),
        _day1(
            "memory that no limit counts",
            _inside(
                """
                import ctypes, os
                libc = ctypes.CDLL(None, use_errno=True)
                assert libc.shmget(0, 4096, 0o1600) == -1
                try:
                    os.memfd_create("hidden")
                except OSError:
                    pass
                else:
                    raise AssertionError("memory without a limit")
                """
            ),
            BOTH,
        ),
    ]


def _left_running() -> list[Submission]:
    return [
        _day3(
            "a fork bomb",
            """
            import os
            def should_compact(*args, **kwargs):
                while True:
                    try:
                        os.fork()
                    except OSError:
                        pass
            """,
        ),
        _day3(
            "a fork that answers twice",
            """
            import os
            def should_compact(*args, **kwargs):
                os.fork()
                return None
            """,
        ),
        _day1(
            "a process in the background",
            _around(
                """
                import os, signal, time
                if os.fork() == 0:
                    os.setsid()
                    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
                        signal.signal(number, signal.SIG_IGN)
                    if os.fork() == 0:
                        os.setsid()
                    while True:
                        time.sleep(1000)
                """
            ),
            BOTH,
        ),
        _day1(
            "threads in the background",
            _around(
                """
                import threading, time
                def nag():
                    while True:
                        time.sleep(0.001)
                for _ in range(50):
                    try:
                        threading.Thread(target=nag).start()
                    except RuntimeError:
                        break
                """
            ),
            BOTH,
        ),
        _day1(
            "a thread that keeps the processor busy",
            _around(
                """
                import threading
                def burn():
                    while True:
                        pass
                threading.Thread(target=burn, daemon=True).start()
                """
            ),
            BOTH,
        ),
        _day1(
            "another program",
            _inside(
                """
                import subprocess, sys
                for command in ("sh", "/bin/sh", "bash", "curl", "touch"):
                    try:
                        subprocess.run([command, "-c", "touch @SECRET@"], timeout=1)
                    except OSError:
                        continue
                    raise AssertionError(f"{command} could be run")
                """
            ),
            BOTH,
        ),
    ]


def _reaching_out() -> list[Submission]:
    return [
        _day1(
            "the gradebook, read through a link",
            _inside(
                """
                import os
                for path in ("@SECRET@", "/proc/1/root@SECRET@", "/proc/self/cwd/../@SECRET@"):
                    os.path.lexists("link") and os.unlink("link")
                    os.symlink(path, "link")
                    try:
                        text = open("link").read()
                    except OSError:
                        continue
                    raise AssertionError(text)
                """
            ),
            BOTH,
        ),
        _day1(
            "the gradebook, overwritten",
            _inside(
                """
                import os, pathlib
                for way in (
                    lambda: pathlib.Path("@SECRET@").write_text("all the points"),
                    lambda: os.unlink("@SECRET@"),
                    lambda: os.rename("@SECRET@", "@SECRET@.old"),
                    lambda: os.link("@SECRET@", "mine"),
                    lambda: os.chmod("@SECRET@", 0o777),
                ):
                    try:
                        way()
                    except OSError:
                        continue
                    raise AssertionError("the gradebook is there")
                """
            ),
            BOTH,
        ),
        _day1(
            "the repository: solutions, checks, other submissions",
            _inside(
                """
                import os
                root = "@REPOSITORY@"
                for path in ("solutions", "grader", "grader/checks", "course", "tests", ".git"):
                    assert not os.path.exists(os.path.join(root, path)), path
                try:
                    import grader.checks
                except ImportError:
                    pass
                else:
                    raise AssertionError("the checks are there")
                """
            ),
            BOTH,
        ),
        _day1(
            "writing wherever it can",
            _inside(
                """
                import os, sys
                here = os.getcwd()
                folders = ["/", "/tmp", "/etc", "/usr/lib", "/dev", "/var/tmp", "/root", "/home"]
                folders += [os.path.dirname("@SECRET@"), "@REPOSITORY@", *sys.path]
                folders += [os.path.dirname(os.__file__), sys.prefix, "/dev/shm", "/run"]
                for folder in folders:
                    try:
                        open(os.path.join(folder, "hostile-was-here"), "w").close()
                    except OSError:
                        continue
                    raise AssertionError(folder)
                """
            ),
            BOTH,
        ),
        _day1(
            "the environment and the seed",
            _inside(
                """
                import glob, os
                told = repr(os.environ)
                for path in glob.glob("/proc/*/environ") + glob.glob("/proc/*/cmdline"):
                    try:
                        told += open(path).read()
                    except OSError:
                        pass
                assert "SEED" not in told and "@SECRET@" not in told, told
                """
            ),
            BOTH,
        ),
        _day1(
            "the network, loopback too",
            _inside(
                """
                import socket
                for family, place in (
                    (socket.AF_INET, ("127.0.0.1", @PORT@)),
                    (socket.AF_INET, ("192.0.2.1", 80)),
                    (socket.AF_INET6, ("::1", @PORT@)),
                    (socket.AF_UNIX, "@SECRET@.socket"),
                ):
                    try:
                        one = socket.socket(family)
                        one.settimeout(0.2)
                        one.connect(place)
                    except OSError:
                        continue
                    raise AssertionError(place)
                """
            ),
            BOTH,
        ),
        _day1(
            "a namespace of one's own, and other processes' memory",
            _inside(
                """
                import ctypes, os
                libc = ctypes.CDLL(None, use_errno=True)
                assert libc.unshare(0x10000000) == -1
                assert libc.unshare(0x00020000) == -1
                assert libc.mount(b"tmpfs", b"/dev", b"tmpfs", 0, b"") == -1
                assert libc.chroot(b"/") == -1
                assert libc.ptrace(16, 1, 0, 0) == -1
                assert libc.setns(0, 0) == -1
                assert libc.prctl(39, 0, 0, 0, 0) == 1  # no new privileges
                assert libc.prctl(21, 0, 0, 0, 0) == 2  # a filter of system calls
                head, sets = b"\\x22\\x05\\x08\\x20" + bytes(4), ctypes.create_string_buffer(24)
                assert libc.capget(head, sets) == 0 and sets.raw == bytes(24)
                assert os.getuid() != 0
                held = []
                for number in range(1000):
                    try:
                        os.fstat(number)
                        held.append(number)
                    except OSError:
                        pass
                assert held == [0, 1, 2, 3, 4]  # nothing, nothing, nothing, the pipe, nothing
                """
            ),
            BOTH,
        ),
        _day1(
            "higher limits",
            _inside(
                """
                import resource
                for name in ("AS", "CPU", "FSIZE", "NOFILE", "NPROC", "CORE"):
                    number = getattr(resource, "RLIMIT_" + name)
                    soft, hard = resource.getrlimit(number)
                    assert hard != resource.RLIM_INFINITY, name
                    try:
                        resource.setrlimit(number, (hard + 1, hard + 1))
                    except (OSError, ValueError):
                        continue
                    raise AssertionError(name)
                """
            ),
            BOTH,
        ),
        _day1(
            "magics and shell lines",
            _around(
                """
                %matplotlib inline
                !touch @SECRET@
                files = !ls @REPOSITORY@
                import math
                """
            ),
            BOTH,
        ),
        Submission(
            "a cell for the shell",
            1,
            (
                imports(1),
                ("try it", "%%bash\nrm -rf @REPOSITORY@/course @SECRET@\n"),
                ("estimate", honest("estimate")),
                ("more", "get_ipython().system('touch @SECRET@')"),
            ),
            BOTH,
        ),
    ]


def _reaching_for_the_answer() -> list[Submission]:
    own = "uses the library's own estimate"
    return [
        _day1(
            "the library's own function, imported",
            "from compaction.tokens import estimate",
            reason=own,
        ),
        _day1(
            "the library's own function under another name",
            """
            from compaction.tokens import estimate as theirs
            def estimate(text, coefficients=DEFAULT): return theirs(text, coefficients)
            """,
            reason=own,
        ),
        _day1(
            "the library's own function, imported when called",
            """
            def estimate(text, coefficients=DEFAULT):
                from compaction import tokens
                return tokens.estimate(text, coefficients)
            """,
            reason=own,
        ),
        _day1(
            "the library's own function, by a name put together",
            """
            import importlib
            theirs = getattr(importlib.import_module("compaction." + "tokens"), "esti" + "mate")
            def estimate(text, coefficients=DEFAULT): return theirs(text, coefficients)
            """,
            reason=own,
        ),
        _day1(
            "the library's own function, out of sys.modules",
            """
            import sys
            def estimate(text, coefficients=DEFAULT):
                for name, module in list(sys.modules.items()):
                    if name.startswith("compaction."):
                        theirs = getattr(module, "estimate", None)
                        if theirs:
                            return theirs(text, coefficients)
                return 0
            """,
            reason=own,
        ),
        _day1(
            "the library's own function, and one's own where it is missing",
            """
            try:
                from compaction.tokens import estimate
            except ImportError:
                def estimate(text, coefficients=DEFAULT):
                    chars, table = count_chars(text), coefficients
                    return math.ceil(table.cjk * chars.cjk + table.other * chars.other)
            """,
            reason=own,
        ),
        _day1(
            "the source of the library's own function",
            """
            import compaction.tokens, glob, inspect, os
            texts = [inspect.getsource(compaction.tokens)]
            folder = os.path.dirname(compaction.tokens.__file__)
            for path in glob.glob(folder + "/**", recursive=True):
                if os.path.isfile(path):
                    texts.append(open(path, "rb").read().decode("latin-1"))
            found = [text for text in texts if "def estimate(" in text]
            exec(found[0][found[0].index("def estimate(") :].split("\\n\\n\\n")[0])
            """,
            reason=own,
        ),
        _day1(
            "another copy of the library",
            """
            import sys, glob, importlib.util
            found = [
                path
                for folder in [*sys.path, "@REPOSITORY@/course", "/usr/lib/python3/dist-packages"]
                for path in glob.glob(folder + "/compaction/tokens.py")
            ]
            for path in found:
                spec = importlib.util.spec_from_file_location("copy", path)
                module = importlib.util.module_from_spec(spec)
                spec.loader.exec_module(module)
                if "estimate" in vars(module):
                    estimate = module.estimate
            """,
            reason=own,
        ),
        _day1(
            "what is left of it in memory",
            """
            import gc, types
            found = [
                thing
                for thing in gc.get_objects()
                if isinstance(thing, types.FunctionType) and thing.__name__ == "estimate"
            ]
            estimate = found[0]
            """,
            reason="IndexError",
        ),
        Submission(
            "the answer in another function's default",
            4,
            (
                imports(4),
                (
                    "group_messages",
                    _code(
                        """
                        import compaction.summary
                        group_messages = compaction.summary.compact.__kwdefaults__["group"]
                        """
                    ),
                ),
            ),
            NONE,
            "uses the library's own group_messages",
        ),
        Submission(
            "the answer through a function that needs it",
            6,
            (
                imports(6),
                (
                    "verify",
                    _code(
                        """
                        from compaction.documents import faithful
                        def verify(probes, messages, ask=None):
                            return faithful(probes, "\\n".join(map(text_of, messages)), ask)
                        """
                    ),
                ),
            ),
            NONE,
            "uses the library's own verify",
        ),
        Submission(
            "the answer of the day's other exercise",
            3,
            (
                imports(3),
                (
                    "should_compact",
                    _code(
                        """
                        from compaction.budget import budget_table as table
                        def should_compact(messages, window, threshold=0.7, **options):
                            rows = table(messages, window, **options)
                            return sum(row.tokens for row in rows) > threshold * window
                        """
                    ),
                ),
                ("budget_table", honest("budget_table")),
            ),
            ("budget-table",),
            "uses the library's own budget_table",
        ),
    ]


def _the_pipe() -> list[Submission]:
    return [
        _day3(
            "garbage on the pipe",
            """
            import os
            def should_compact(*args, **kwargs):
                for number in range(3, 32):
                    try:
                        os.write(number, b"\\x00\\x00\\x00\\x05garbage" * 10)
                    except OSError:
                        pass
                return True
            """,
            reason="no answer",
        ),
        _day3(
            "answers before the questions",
            """
            import os
            body = b'{"answer": 0, "value": true}'
            frame = len(body).to_bytes(4, "big") + body
            for number in range(3, 32):
                try:
                    os.write(number, frame * 50)
                except OSError:
                    pass
            def should_compact(*args, **kwargs): return None
            """,
        ),
        _day3(
            "a frame of four gigabytes",
            """
            import os
            def should_compact(*args, **kwargs):
                os.write(3, b"\\xff\\xff\\xff\\xff")
                while True:
                    os.write(3, bytes(10**6))
            """,
            reason="an answer of 4,294,967,295 bytes",
        ),
        _day3(
            "half a frame, and then nothing",
            """
            import os, time
            def should_compact(*args, **kwargs):
                os.write(3, b"\\x00\\x00")
                time.sleep(1000)
            """,
            reason="took longer than",
        ),
        _day3(
            "lists in lists in lists on the pipe",
            """
            import os
            def should_compact(*args, **kwargs):
                body = b'{"answer": ' + b"[" * 100_000 + b"]" * 100_000 + b"}"
                os.write(3, len(body).to_bytes(4, "big") + body)
            """,
            reason="no answer",
        ),
        _day1(
            "an object on the pipe that nobody asked for",
            """
            import sys
            protocol = sys.modules["grader.sandbox.inside.protocol"]
            def encode(value, export=None):
                return {"is": "Popen", "of": ["touch @SECRET@"]}
            protocol.encode = encode
            def estimate(text, coefficients=None): return 0
            """,
            reason="no answer",
        ),
        _day1(
            "keys that collide",
            """
            import sys
            protocol = sys.modules["grader.sandbox.inside.protocol"]
            def encode(value, export=None):
                return {"dict": [[{"tuple": [number, 0]}, 0] for number in range(20_000)]}
            protocol.encode = encode
            def estimate(text, coefficients=None): return 0
            """,
            reason="no answer",
        ),
        _day1(
            "everything true on the pipe",
            """
            import sys
            pipe = sys.modules["grader.sandbox.inside.protocol"]
            pipe._write_json = lambda message: '{"answer": true, "value": true, "passed": true}'
            def estimate(text, coefficients=None): return 0
            """,
            reason="no answer",
        ),
        _day1(
            "the pipe closed",
            "import os\ndef estimate(text, coefficients=None): os.closerange(0, 1000)",
            reason="ended its process",
        ),
        Submission(
            "calling back without end",
            5,
            (
                imports(5),
                (
                    "compact",
                    _code(
                        """
                        def compact(messages, summarize, *, meter, **options):
                            while True:
                                meter.count(messages)
                                try:
                                    summarize([{"role": "user", "content": "again"}])
                                except Exception:
                                    pass
                        """
                    ),
                ),
            ),
            NONE,
        ),
        Submission(
            "calling back with nonsense",
            5,
            (
                imports(5),
                (
                    "compact",
                    _code(
                        """
                        def compact(messages, summarize, *, meter, **options):
                            for nonsense in (None, 1, "x", [1], [[[]]], {"a": lambda: 1}, object()):
                                for options in ({}, {"unknown": 1}, {"messages": nonsense}):
                                    try:
                                        summarize(nonsense, **options)
                                    except Exception:
                                        pass
                            return None
                        """
                    ),
                ),
            ),
            NONE,
            "returned None",
        ),
    ]


# The program inside, reached through the objects of its own process.
_PROGRAM = """
    import gc, os, sys

    def _program():
        steps = sys._getframe()
        while "do_apply" != steps.f_code.co_name:
            steps = steps.f_back
        return steps.f_locals["self"], steps.f_locals["message"]
"""


def _the_program() -> list[Submission]:
    """Ways to make the program inside say something else; whatever it says is only an answer."""
    return [
        _day1(
            "an answer forged with its ticket",
            _PROGRAM
            + """
    def estimate(text, coefficients=None):
        worker, message = _program()
        forged = {"answer": message["id"], "value": True, "passed": True, "points": 1}
        worker._pipe.send({**forged, "line": "passed", "printed": "1/1", "reached": []})
        os._exit(0)
    """,
        ),
        _day1(
            "the program's answers replaced",
            _PROGRAM
            + """
    def estimate(text, coefficients=None):
        worker, message = _program()
        type(worker).do_apply = lambda self, message: {"value": True, "passed": True}
        return None
    """,
        ),
        _day1(
            "a function of the other side's as the answer",
            _PROGRAM
            + """
    def estimate(text, coefficients=None):
        protocol = sys.modules["grader.sandbox.inside.protocol"]
        protocol.encode = lambda value, export=None: {"call": 0}
        return 1
    """,
        ),
        _day1(
            "a counter of the other side's as the answer",
            _PROGRAM
            + """
    def estimate(text, coefficients=None):
        protocol = sys.modules["grader.sandbox.inside.protocol"]
        protocol.encode = lambda value, export=None: {"counter": 0, "coefficients": None}
        return 1
    """,
        ),
        _day1(
            "every function of this name in the process's memory",
            """
            import gc, types

            gc.unfreeze()

            def estimate(text, coefficients=None):
                for found in gc.get_objects():
                    if type(found) is types.FunctionType and found.__name__ == "estimate":
                        if found is not estimate:
                            return found(text)
            """,
            reason="uses the library's own estimate",
        ),
        _day1(
            "the note of a stub wiped out",
            """
            import sys
            import compaction.tokens as tokens

            def estimate(text, coefficients=None):
                try:
                    return tokens.estimate(text)
                except RuntimeError:
                    sys.modules["compaction._stubbed"].reached.clear()
                    return len(text) // 4
            """,
        ),
        _day1(
            "a signal handler that answers in between",
            _PROGRAM
            + """
    import signal, time

    def _answer(*_):
        worker, message = _program()
        worker._pipe.send({"answer": message["id"] + 1, "value": 1})

    def estimate(text, coefficients=None):
        signal.signal(signal.SIGALRM, _answer)
        signal.raise_signal(signal.SIGALRM)
        return 1
    """,
            reason="no answer",
        ),
        _day1(
            "the space of names replaced by one that has everything",
            """
            import sys

            class Everything(type(sys)):
                def __getattribute__(self, name):
                    if name == "__dict__":
                        return {"estimate": lambda text, coefficients=None: 86}
                    return super().__getattribute__(name)

            sys.modules["__main__"].__class__ = Everything

            def estimate(text, coefficients=None):
                return None
            """,
        ),
        _day1(
            "a group of a hundred thousand exceptions",
            """
            def estimate(text, coefficients=None):
                raise ExceptionGroup("many", [ValueError(n) for n in range(100_000)])
            """,
        ),
        _day1(
            "half a surrogate pair in what an exception says",
            r"""
            def estimate(text, coefficients=None):
                raise ValueError("\ud800\x1b[2J\u202e passed")
            """,
        ),
    ]


def _detecting() -> list[Submission]:
    return [
        _day1(
            "looking for the expected value up the stack",
            """
            import inspect
            def estimate(text, coefficients=None):
                for step in inspect.stack():
                    for name, value in step.frame.f_locals.items():
                        if name in ("right", "expected", "library") and isinstance(value, int):
                            return value
                        if callable(value) and getattr(value, "__name__", "") == "estimate":
                            if value is not estimate:
                                return value(text)
                return 0
            """,
        ),
        _day1(
            "the published figures, typed in",
            """
            def estimate(text, coefficients=None):
                return {341: 86, 8: 4, 5: 5}.get(len(text), 3)
            """,
        ),
        _day1(
            "honest only where nobody grades",
            """
            import os, sys
            grading = "ipykernel" not in sys.modules or "PATH" not in os.environ
            def estimate(text, coefficients=DEFAULT):
                if grading:
                    return 0
                return math.ceil(len(text) / 4)
            """,
        ),
        _day1(
            "counting the calls",
            """
            calls = []
            def estimate(text, coefficients=DEFAULT):
                calls.append(text)
                return [86, 4, 3, 0][min(len(calls), 3)]
            """,
        ),
    ]


def _strange_but_honest() -> list[Submission]:
    group = _code(
        """
        def group_messages(messages, keep_recent=3, pinned=is_checklist):
            groups = _honest(list(messages), keep_recent, pinned)
            messages.clear()
            return groups
        """
    )
    return [
        Submission(
            "arguments that are changed",
            4,
            (
                imports(4),
                (
                    "group_messages",
                    honest("group_messages").replace("def group_messages", "def _honest")
                    + "\n"
                    + group,
                ),
            ),
            NONE,
            "an argument was changed",
        ),
        _day1("a byte order mark", "\ufeff" + _around(""), BOTH),
        _day1("form feeds and carriage returns", _around("\f").replace("\n", "\r\n"), BOTH),
        _day1("a coding line that is not true", _around("# -*- coding: utf-7 -*-"), BOTH),
        _day1(
            "a name in other letters",
            honest("estimate").replace("def estimate", "def ｅｓｔｉｍａｔｅ"),
            BOTH,
        ),
        _day1("await at the top", _around("import asyncio\nawait asyncio.sleep(0)"), BOTH),
        _day1("a future import", _around("from __future__ import annotations"), BOTH),
        _day1("half a megabyte of comments", _around("# ...\n" * 80_000), BOTH),
        Submission(
            "a helper in another cell, and a table that a loop fills",
            1,
            (
                imports(1),
                ("helper", "import math as m\nPARTS = {}\ndef up(x): return m.ceil(x * ONE)"),
                ("table", "ONE = 1\nfor name in ('cjk', 'other'):\n    PARTS[name] = ONE"),
                (
                    "estimate",
                    _code(
                        """
                        def estimate(text, coefficients=DEFAULT):
                            chars = count_chars(text)
                            return up(sum(
                                getattr(coefficients, name) * getattr(chars, name) * part
                                for name, part in PARTS.items()
                            ))
                        """
                    ),
                ),
            ),
            BOTH,
        ),
        Submission(
            "a helper that only a run of everything makes",
            1,
            (
                imports(1),
                ("helper", "exec('def up(x): return math.ceil(x)')"),
                ("estimate", honest("estimate").replace("math.ceil", "up")),
                ("try it", "estimate('hello')"),
            ),
            BOTH,
        ),
        Submission(
            "a cell that fails, a cell that hangs, and an honest one",
            1,
            (
                imports(1),
                ("try it", "1 / 0"),
                ("no Python", "def estimate(:"),
                ("try again", "while True: pass"),
                ("estimate", honest("estimate")),
            ),
            BOTH,
        ),
        *(
            Submission(
                f"an honest notebook of day {day}",
                day,
                (imports(day), *((e.function, honest(e.function)) for e in exercises_of(day))),
                CHECKS_OF[day],
            )
            for day in CHECKS_OF
        ),
    ]


def _broken() -> list[Submission]:
    return [
        _day1("an empty cell", "", reason="estimate is not defined"),
        Submission("no cells at all", 1, (), NONE, "estimate is not defined"),
        _day1(
            "a syntax error",
            "def estimate(text)\n    return 1",
            reason="SyntaxError: expected ':' (line 1)",
        ),
        _day1("null bytes", "def estimate(text):\0 return 1", reason="null bytes"),
        _day1("half a character", "def estimate(text): return '\ud800'", reason="surrogates"),
        _day1(
            "brackets without end",
            f"def estimate(text): return {'(' * 5000}1{')' * 5000}",
            reason="SyntaxError",
        ),
        _day1(
            "signs without end",
            f"def estimate(text): return {'-' * 200_000}1",
        ),
        _day1("a number instead of a function", "estimate = 86", reason="is not a function"),
        _day1("other arguments", "def estimate(): return 86", reason="TypeError"),
        _day1(
            "an error in the cell, on many lines",
            """
            raise ValueError("all\\nyour\\u2028points\\x1b[2J\\u202e are mine\\n" * 1000)
            def estimate(text): return 1
            """,
            reason="failed: ValueError: all your",
        ),
        _day1(
            "an error in the cell",
            "raise ValueError('not today')\ndef estimate(text): return 1",
            reason="ValueError: not today",
        ),
    ]
