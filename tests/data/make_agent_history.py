"""Make agent_history.json: a scripted agent works through real tools on a scratch project.

The agent's words and its choice of tools are written here; every tool result is what the tool
really gave. The script makes a small project with three faults in it, runs the steps, and writes
what was said and seen, with neutral paths and without timings::

    python tests/data/make_agent_history.py [FILE]
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

Message = dict[str, Any]

# --- the project ------------------------------------------------------------------------

RULES = """\
# Rules of the lending desk

A loan runs 21 days. A copy that comes back late costs its borrower a fee.

1. The first two days after the due date are free (the grace days).
2. From the third day on, every late day costs 15 cents. Grace days are never charged.
3. A fee is capped at 600 cents a copy.
4. Staff accounts (members whose number begins with S) never pay.
5. Amounts are whole cents everywhere; only the report shows euros.
"""

DATES = '''\
"""Dates of loans, as text in the form YYYY-MM-DD."""


def parse(text):
    year, month, day = text.split("-")
    return int(year), int(month), int(day)


def days_between(first, second):
    """Days from first to second; negative when second is earlier."""
    y1, m1, d1 = parse(first)
    y2, m2, d2 = parse(second)
    return (y2 - y1) * 360 + (m2 - m1) * 30 + (d2 - d1)


def is_date(text):
    try:
        year, month, day = parse(text)
    except ValueError:
        return False
    return 1 <= month <= 12 and 1 <= day <= 31 and year > 1900
'''

FEES = '''\
"""What a late copy costs, in cents. The rules stand in docs/rules.md."""

from shelf.dates import days_between

GRACE_DAYS = 2
CENTS_PER_DAY = 15
CAP_CENTS = 600


def is_staff(member):
    return member.startswith("S")


def fee_cents(member, due, returned):
    """Return the fee of one copy in whole cents."""
    if is_staff(member):
        return 0
    late = days_between(due, returned)
    if late < GRACE_DAYS:
        return 0
    return min(late * CENTS_PER_DAY, CAP_CENTS)
'''

REPORT = '''\
"""The nightly report: who owes what."""

import csv
import sys

from shelf.dates import is_date
from shelf.fees import fee_cents


def read_loans(path):
    """Yield the loans of a CSV file with the columns copy, member, due, returned."""
    with open(path, encoding="utf-8") as file:
        rows = csv.DictReader(file)
        next(rows)  # the header
        for row in rows:
            if is_date(row["due"]) and is_date(row["returned"]):
                yield row


def totals(loans):
    """Sum the fees of each member, in cents."""
    owed = {}
    for loan in loans:
        member = loan["member"]
        cents = fee_cents(member, loan["due"], loan["returned"])
        owed[member] = owed.get(member, 0) + cents
    return owed


def lines(owed):
    for member, cents in sorted(owed.items(), key=lambda item: -item[1]):
        if cents:
            yield f"{member}  {cents // 100}.{cents % 100:02d}"


def main(path):
    owed = totals(read_loans(path))
    for line in lines(owed):
        print(line)
    print("total", sum(owed.values()))


if __name__ == "__main__":
    main(sys.argv[1])
'''

TEST_DATES = """\
import unittest

from shelf.dates import days_between, is_date


class DatesTest(unittest.TestCase):
    def test_same_month(self):
        self.assertEqual(days_between("2026-03-02", "2026-03-09"), 7)

    def test_month_of_31_days(self):
        self.assertEqual(days_between("2026-03-30", "2026-04-02"), 3)

    def test_end_of_february(self):
        self.assertEqual(days_between("2026-02-27", "2026-03-01"), 2)

    def test_leap_year(self):
        self.assertEqual(days_between("2024-02-28", "2024-03-01"), 2)

    def test_year(self):
        self.assertEqual(days_between("2025-12-31", "2026-01-01"), 1)

    def test_early(self):
        self.assertEqual(days_between("2026-03-09", "2026-03-02"), -7)

    def test_no_date(self):
        self.assertFalse(is_date("lost"))


if __name__ == "__main__":
    unittest.main()
"""

TEST_FEES = """\
import unittest

from shelf.fees import fee_cents


class FeesTest(unittest.TestCase):
    def test_in_time(self):
        self.assertEqual(fee_cents("M100", "2026-03-10", "2026-03-08"), 0)

    def test_second_day_is_free(self):
        self.assertEqual(fee_cents("M100", "2026-03-10", "2026-03-12"), 0)

    def test_third_day_costs_one_day(self):
        self.assertEqual(fee_cents("M100", "2026-03-10", "2026-03-13"), 15)

    def test_cap(self):
        self.assertEqual(fee_cents("M100", "2026-01-01", "2026-12-01"), 600)

    def test_staff(self):
        self.assertEqual(fee_cents("S007", "2026-01-01", "2026-12-01"), 0)


if __name__ == "__main__":
    unittest.main()
"""

TEST_REPORT = '''\
import os
import tempfile
import unittest

from shelf.report import lines, read_loans, totals

TEXT = """copy,member,due,returned
c1,M100,2026-03-10,2026-03-20
c2,M200,2026-03-10,2026-03-11
c3,M100,2026-03-10,lost
"""


class ReportTest(unittest.TestCase):
    def setUp(self):
        handle, self.path = tempfile.mkstemp(suffix=".csv")
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(TEXT)
        self.addCleanup(os.remove, self.path)

    def test_reads_every_loan_with_dates(self):
        copies = [loan["copy"] for loan in read_loans(self.path)]
        self.assertEqual(copies, ["c1", "c2"])

    def test_totals(self):
        self.assertEqual(totals(read_loans(self.path)), {"M100": 120, "M200": 0})

    def test_lines_show_euros(self):
        self.assertEqual(list(lines({"M1": 5, "M2": 120, "M3": 0})), ["M2  1.20", "M1  0.05"])


if __name__ == "__main__":
    unittest.main()
'''

MAKEFILE = """\
CHANNEL ?= beta

test:
\tpython -m unittest discover -s tests -v

ship: test
\tpython tools/ship.py --channel $(CHANNEL)
"""


def _loans() -> str:
    rows = ["copy,member,due,returned"]
    for i in range(140):
        member = f"S{i % 7:03d}" if i % 11 == 5 else f"M{100 + i * 37 % 60}"
        month, day = 1 + i * 5 % 11, 1 + i * 13 % 28
        late = (i * 17) % 23 - 6
        back = (
            "lost"
            if i % 19 == 9
            else f"2026-{month + (day + late > 28):02d}-" + (f"{(day + late - 1) % 28 + 1:02d}")
        )
        rows.append(f"c{1000 + i},{member},2026-{month:02d}-{day:02d},{back}")
    return "\n".join(rows) + "\n"


def _log() -> str:
    lines = []
    for i in range(160):
        clock = f"2026-04-{1 + i // 16:02d} 02:{i % 16 * 3:02d}:00"
        if i % 37 == 21:
            lines.append(f"{clock} ERROR report: total differs from the ledger by {15 + i} cents")
        elif i % 23 == 7:
            lines.append(f"{clock} WARN  loans.csv: row {i} has no return date, skipped")
        else:
            lines.append(f"{clock} INFO  report: member M{100 + i % 60} done")
    return "\n".join(lines) + "\n"


def write_project(folder: Path) -> None:
    files = {
        "docs/rules.md": RULES,
        "shelf/__init__.py": "",
        "shelf/dates.py": DATES,
        "shelf/fees.py": FEES,
        "shelf/report.py": REPORT,
        "tests/__init__.py": "",
        "tests/test_dates.py": TEST_DATES,
        "tests/test_fees.py": TEST_FEES,
        "tests/test_report.py": TEST_REPORT,
        "data/loans.csv": _loans(),
        "logs/nightly.log": _log(),
        "Makefile": MAKEFILE,
    }
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8", newline="\n")


# --- the tools --------------------------------------------------------------------------


class Tools:
    """The agent's tools, confined to one folder; every result is text."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def list_files(self, path: str = ".") -> str:
        found = sorted(p for p in (self.folder / path).rglob("*") if p.is_file())
        return "\n".join(
            f"{p.stat().st_size:6d}  {p.relative_to(self.folder).as_posix()}"
            for p in found
            if "__pycache__" not in p.parts
        )

    def read_file(self, path: str) -> str:
        lines = (self.folder / path).read_text(encoding="utf-8").splitlines()
        return "\n".join(f"{number:4d}  {line}" for number, line in enumerate(lines, 1))

    def grep(self, pattern: str, path: str = ".") -> str:
        root = self.folder / path
        found = []
        for file in [root] if root.is_file() else sorted(root.rglob("*")):
            if not file.is_file() or "__pycache__" in file.parts:
                continue
            name = file.relative_to(self.folder).as_posix()
            for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), 1):
                if re.search(pattern, line):
                    found.append(f"{name}:{number}: {line}")
        return "\n".join(found) or "no match"

    def edit_file(self, path: str, old: str, new: str) -> str:
        file = self.folder / path
        text = file.read_text(encoding="utf-8")
        if text.count(old) != 1:
            return f"error: the text to replace stands {text.count(old)} times in {path}"
        file.write_text(text.replace(old, new), encoding="utf-8", newline="\n")
        return f"{path}: replaced {len(old.splitlines())} lines by {len(new.splitlines())}"

    def run_command(self, command: str) -> str:
        words = command.split()
        assert words[0] == "python", command
        done = subprocess.run(
            [sys.executable, *words[1:]],
            cwd=self.folder,
            env={
                "PATH": os.environ.get("PATH", ""),
                "SYSTEMROOT": os.environ.get("SYSTEMROOT", ""),
                "PYTHONDONTWRITEBYTECODE": "1",
                "PYTHONUTF8": "1",
                "NO_COLOR": "1",
            },
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        return self._neutral(f"exit code {done.returncode}\n{done.stdout}{done.stderr}")

    def _neutral(self, output: str) -> str:
        for folder in (os.path.realpath(self.folder), str(self.folder)):
            output = output.replace(folder + os.sep, "").replace(folder, ".")
        output = re.sub(r'File "[^"]*[/\\](unittest|csv)', r'File "lib/\1', output)
        return re.sub(r"(Ran \d+ tests?) in [\d.]+s", r"\1", output).strip()


# --- what the agent and the user say and do ---------------------------------------------

Step = tuple[str, Any]


def user(text: str) -> Step:
    return "user", text


def say(text: str) -> Step:
    return "assistant", text


def do(*calls: tuple[str, dict[str, str]], text: str | None = None) -> Step:
    return "calls", (text, calls)


def read(path: str) -> tuple[str, dict[str, str]]:
    return "read_file", {"path": path}


def grep(pattern: str, path: str = ".") -> tuple[str, dict[str, str]]:
    return "grep", {"pattern": pattern, "path": path}


def edit(path: str, old: str, new: str) -> tuple[str, dict[str, str]]:
    return "edit_file", {"path": path, "old": old, "new": new}


def run(command: str) -> tuple[str, dict[str, str]]:
    return "run_command", {"command": command}


TEST_ALL = "python -m unittest discover -s tests -v"

STEPS: tuple[Step, ...] = (
    user(
        "The nightly report does not agree with the ledger. Find out why and mend it.\n"
        "Remember: we release with `make ship CHANNEL=stable`, and only from the main branch. "
        "Do not change docs/rules.md: the desk decides what stands there."
    ),
    do(("list_files", {"path": "."}), text="I begin with what is there."),
    do(read("docs/rules.md"), read("shelf/report.py")),
    do(read("shelf/fees.py"), read("shelf/dates.py")),
    do(run(TEST_ALL), text="Now the tests, before I change anything."),
    say(
        "Eight tests fail. days_between counts every month as 30 days, fee_cents charges the grace "
        "days, and read_loans skips the first loan of the file."
    ),
    do(grep("days_between|is_date")),
    do(grep("ERROR|WARN", "logs/nightly.log")),
    do(read("logs/nightly.log"), text="The whole log, to see whether the errors have a rhythm."),
    say("The log shows differences on several nights, so it is no single bad row."),
    do(read("tests/test_dates.py")),
    do(
        edit(
            "shelf/dates.py",
            "    return (y2 - y1) * 360 + (m2 - m1) * 30 + (d2 - d1)\n",
            "    return (date(y2, m2, d2) - date(y1, m1, d1)).days\n",
        )
    ),
    do(
        edit(
            "shelf/dates.py",
            '"""Dates of loans, as text in the form YYYY-MM-DD."""\n',
            '"""Dates of loans, as text in the form YYYY-MM-DD."""\n\nfrom datetime import date\n',
        )
    ),
    do(run("python -m unittest -v tests.test_dates")),
    say("Changed days_between to subtract real dates; all seven tests of dates pass."),
    do(read("tests/test_fees.py")),
    do(
        edit(
            "shelf/fees.py",
            "    if late < GRACE_DAYS:\n        return 0\n"
            "    return min(late * CENTS_PER_DAY, CAP_CENTS)\n",
            "    charged = max(0, late - GRACE_DAYS)\n"
            "    return min(charged * CENTS_PER_DAY, CAP_CENTS)\n",
        )
    ),
    do(run("python -m unittest -v tests.test_fees")),
    say("Changed fee_cents so that grace days are never charged; its five tests pass."),
    user(
        "Good. Then the report itself. While you are there: staff must not show up in it at all, "
        "not even with 0.00.\n记住：报表里的金额用欧元，账目里一律用“整数分”。"
    ),
    do(read("shelf/report.py"), read("tests/test_report.py")),
    do(run("python -m shelf.report data/loans.csv"), text="The report as it is now:"),
    do(read("data/loans.csv"), text="And the loans that it reads:"),
    do(edit("shelf/report.py", "        next(rows)  # the header", "")),
    do(edit("shelf/report.py", "        next(rows)  # the header\n", "")),
    do(read("shelf/report.py")),
    do(
        edit(
            "shelf/report.py",
            "        rows = csv.DictReader(file)\n\n",
            "        rows = csv.DictReader(file)\n",
        )
    ),
    do(run("python -m unittest -v tests.test_report")),
    say("Removed the line that skipped the first loan: DictReader takes the header itself."),
    do(
        edit(
            "tests/test_report.py",
            'if __name__ == "__main__":\n',
            "class StaffTest(unittest.TestCase):\n"
            "    def test_staff_is_not_listed(self):\n"
            '        self.assertEqual(list(lines({"S001": 0, "M1": 15})), ["M1  0.15"])\n\n'
            "    def test_staff_has_no_total(self):\n"
            '        loan = {"member": "S001", "due": "2026-01-01", "returned": "2026-03-01"}\n'
            "        self.assertEqual(totals([loan]), {})\n\n\n"
            'if __name__ == "__main__":\n',
        ),
        text="First a test that says what you want:",
    ),
    do(run("python -m unittest -v tests.test_report")),
    do(
        edit(
            "shelf/report.py",
            '        member = loan["member"]\n',
            '        member = loan["member"]\n        if is_staff(member):\n            continue\n',
        ),
        edit(
            "shelf/report.py",
            "from shelf.fees import fee_cents\n",
            "from shelf.fees import fee_cents, is_staff\n",
        ),
    ),
    do(run(TEST_ALL)),
    say("Added the rule for staff to totals; all seventeen tests pass."),
    do(run("python -m shelf.report data/loans.csv")),
    say(
        "The report now lists members only and sums whole cents. Next: look for other places "
        "that read loans.csv by hand."
    ),
    user("Yes, please look. And is there anything that would break when we ship?"),
    do(grep("loans.csv|DictReader|open\\("), grep("CHANNEL|ship", "Makefile")),
    do(read("Makefile")),
    do(("list_files", {"path": "."})),
    say(
        "Nothing else reads loans.csv. But the Makefile runs tools/ship.py, and there is no such "
        "file here: `make ship` would fail after the tests."
    ),
    say(
        "[todo]\n- [x] count real days\n- [x] no fee for grace days\n- [x] first loan of the file\n"
        "- [x] staff not listed\n- [ ] ask where tools/ship.py lives"
    ),
    user("It comes from another repository, leave it. Run everything once more and sum up."),
    do(run(TEST_ALL), run("python -m shelf.report data/loans.csv")),
    say(
        "All seventeen tests pass and the report agrees with the rules: real days, no fee for "
        "grace days, every loan read, staff left out. tools/ship.py stays with its repository."
    ),
)

SYSTEM = (
    "You are a careful coding agent in the project shelf. Use the tools to look before you change "
    "anything, run the tests after every change, and report in short sentences."
)


def work(folder: Path) -> list[Message]:
    """Run all steps in a folder and return the history."""
    write_project(folder)
    tools = Tools(folder)
    ids = (f"call_{number:03d}" for number in range(1, 1000))
    history: list[Message] = [{"role": "system", "content": SYSTEM}]
    for kind, value in STEPS:
        if kind == "calls":
            history += _round_trip(tools, *value, ids)
        else:
            history.append({"role": kind, "content": value})
    return history


def _round_trip(
    tools: Tools,
    text: str | None,
    calls: tuple[tuple[str, dict[str, str]], ...],
    ids: Iterator[str],
) -> list[Message]:
    messages: list[Message] = [{"role": "assistant", "content": text, "tool_calls": []}]
    for name, arguments in calls:
        call_id = next(ids)
        function = {"name": name, "arguments": json.dumps(arguments, ensure_ascii=False)}
        messages[0]["tool_calls"].append({"id": call_id, "type": "function", "function": function})
        tool: Callable[..., str] = getattr(tools, name)
        messages.append({"role": "tool", "tool_call_id": call_id, "content": tool(**arguments)})
    return messages


def main(target: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        history = work(Path(folder))
    text = json.dumps(history, ensure_ascii=False, indent=1) + "\n"
    Path(target).write_text(text, encoding="utf-8", newline="\n")
    print(f"{len(history)} messages, {len(text)} characters: {target}")


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else str(Path(__file__).with_name("agent_history.json")))
