"""Measure grading a class: ours against nbgrader's own autograde, on the same submissions.

    python benchmarks/autograde.py [--submissions 20 200 1000] [--stock 20] [--jobs N] [--json]

A class is made from the labs: perfect, starter, half done, and broken (code that does not parse,
a file that was cut off). Ours runs with its sandbox on. nbgrader's own is measured on a sample
of the same class, because it takes a second or more for each; the sample's size is printed. Both
are started as programs, so both pay for their start. Endless loops are left out: they would
cost nbgrader's own half a minute a check.
"""

from __future__ import annotations

import argparse
import copy
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[1]
KINDS = ("perfect", "starter", "half done", "perfect", "starter", "half done", "broken", "cut off")


class Run(NamedTuple):
    """One grading of a class; CPU seconds are those of all its processes."""

    name: str
    submissions: int
    graded: int
    seconds: float
    cpu_s: float
    peak_mib: float
    largest_mib: float

    @property
    def a_minute(self) -> float:
        """Submissions a minute."""
        return 60 * self.submissions / self.seconds


# --- a class -----------------------------------------------------------------------------


def make_class(root: Path, submissions: int) -> list[tuple[str, str]]:
    """Make a course with so many submissions; return them as (student, lab)."""
    slugs = sorted(path.parent.name for path in ROOT.glob("labs/*/*.ipynb"))
    slugs = [slug for slug in slugs if (ROOT / "solutions" / slug / f"{slug}.ipynb").is_file()]
    for part in ("labs", "solutions"):
        shutil.copytree(ROOT / part, root / part)
    (root / "nbgrader_config.py").write_text(
        f"load_subconfig({str(ROOT / 'grader' / 'nbgrader_config.py')!r})\n"
        "c = get_config()\n"
        f"c.CourseDirectory.root = {str(root)!r}\n"
        f"c.CourseDirectory.db_url = {f'sqlite:///{root}/gradebook.db'!r}\n"
    )
    handed_in = []
    for number in range(submissions):
        kind = KINDS[number % len(KINDS)]
        slug = slugs[number // len(KINDS) % len(slugs)]
        student = f"student{number:05}"
        folder = root / "grader" / "classroom" / "submitted" / student / slug
        folder.mkdir(parents=True)
        (folder / f"{slug}.ipynb").write_text(handed_in_as(kind, slug, number), encoding="utf-8")
        handed_in.append((student, slug))
    return handed_in


def handed_in_as(kind: str, slug: str, number: int) -> str:
    """Return a lab as somebody of this kind hands it in; no two are the same."""
    lab = json.loads((ROOT / "labs" / slug / f"{slug}.ipynb").read_text(encoding="utf-8"))
    source = (ROOT / "solutions" / slug / f"{slug}.ipynb").read_text(encoding="utf-8")
    solutions = {cell["id"]: cell["source"] for cell in json.loads(source)["cells"]}
    notebook = copy.deepcopy(lab)
    own = [c for c in notebook["cells"] if c["metadata"].get("nbgrader", {}).get("solution")]
    for place, cell in enumerate(own):
        if kind == "perfect" or (kind == "half done" and place % 2 == 0):
            cell["source"] = solutions[cell["id"]]
        if kind == "broken" and cell["cell_type"] == "code":
            cell["source"] = ["def broken(:\n", *cell["source"]]
    code = next(cell for cell in own if cell["cell_type"] == "code")
    code["source"] = [f"# {number}\n", *code["source"]]
    text = json.dumps(notebook, ensure_ascii=False, indent=1)
    return text[: len(text) // 2] if kind == "cut off" else text


# --- measuring ---------------------------------------------------------------------------


def measured(name: str, commands: Sequence[Sequence[str]], root: Path, count: int) -> Run:
    """Run programs one after another, and measure them with everything that they start."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    peak = _Peak()
    started = time.monotonic()
    for command in commands:
        environment = {**os.environ, "PATH": _with_own_programs()}
        with subprocess.Popen(
            [sys.executable, "-m", *command],
            cwd=root,
            env=environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        ) as process:
            peak.watch(process)
    seconds = time.monotonic() - started
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    graded = len(list(root.glob("grader/classroom/autograded/*/*/*.ipynb")))
    return Run(name, count, graded, seconds, cpu_s, peak.sum_mib, peak.largest_mib)


class _Peak:
    """The most memory that a program and all that it started held at once."""

    def __init__(self) -> None:
        self.sum_mib = self.largest_mib = 0.0

    def watch(self, process: subprocess.Popen[bytes]) -> None:
        """Look every half second until the program ends."""
        over = threading.Event()

        def look() -> None:
            while not over.wait(0.5):
                sizes = [_resident_mib(pid) for pid in _tree(process.pid)]
                self.sum_mib = max(self.sum_mib, sum(sizes))
                self.largest_mib = max([self.largest_mib, *sizes])

        watcher = threading.Thread(target=look)
        watcher.start()
        process.wait()
        over.set()
        watcher.join()


def _tree(pid: int) -> set[int]:
    """Return a process and its descendants (Linux; elsewhere the process alone)."""
    parents = {}
    for entry in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = entry.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        parents[int(entry.parent.name)] = int(fields[1])
    found, more = {pid}, {pid}
    while more:
        more = {child for child, parent in parents.items() if parent in found} - found
        found |= more
    return found


def _resident_mib(pid: int) -> float:
    """Return a process's own memory: what it shares with others is not counted twice."""
    try:
        text = Path(f"/proc/{pid}/statm").read_text().split()
    except OSError:
        return 0.0
    return (int(text[1]) - int(text[2])) * resource.getpagesize() / 2**20


def _with_own_programs() -> str:
    return os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])


def measure(submissions: int, stock: int, jobs: int | None) -> tuple[Run, Run | None]:
    """Grade a class with ours, and a sample of it with nbgrader's own."""
    with tempfile.TemporaryDirectory(prefix="class-") as folder:
        root = Path(folder).resolve() / "ours"
        root.mkdir()
        for slug in sorted({slug for _, slug in make_class(root, submissions)}):
            _enter(root, slug)
        options = ["--jobs", str(jobs)] if jobs else []
        ours = measured("ours", [["grader", "autograde", *options]], root, submissions)
        if not stock:
            return ours, None
        sample = min(stock, submissions)
        root = Path(folder).resolve() / "stock"
        root.mkdir()
        handed_in = make_class(root, sample)
        slugs = sorted({slug for _, slug in handed_in})
        for slug in slugs:
            _enter(root, slug)
        commands = [["nbgrader", "autograde", slug] for slug in slugs]
        return ours, measured("nbgrader's own", commands, root, sample)


def _enter(root: Path, slug: str) -> None:
    """Enter a lab into the gradebook. Not measured: it is done once a course."""
    subprocess.run(
        [sys.executable, "-m", "nbgrader", "generate_assignment", slug, "--force"],
        cwd=root,
        env={**os.environ, "PATH": _with_own_programs()},
        check=True,
        capture_output=True,
    )


# --- the command line --------------------------------------------------------------------


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--submissions", type=int, nargs="+", default=[20, 200], metavar="N")
    parser.add_argument("--stock", type=int, default=20, metavar="N", help="0: ours only")
    parser.add_argument("--jobs", type=int, metavar="N", help="processes of ours (default: cores)")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    options = parser.parse_args(arguments)
    told: list[dict[str, Any]] = []
    stock: Run | None = None
    for position, submissions in enumerate(options.submissions):
        # nbgrader's own takes each submission by itself: one sample stands for all sizes.
        sample = options.stock if position == 0 else 0
        ours, measured_now = measure(submissions, sample, options.jobs)
        stock = measured_now or stock
        ratio = ours.a_minute / stock.a_minute if stock else None
        for run in filter(None, (measured_now, ours)):
            told.append({**run._asdict(), "a_minute": run.a_minute, "ratio": None})
        told[-1]["ratio"] = ratio
    if options.json:
        print(json.dumps(told, indent=1))
        return 0
    load = f"{os.getloadavg()[0]:.1f}" if hasattr(os, "getloadavg") else "unknown"
    print(f"{os.cpu_count()} cores, load {load}; memory is that of all processes together")
    print(
        f"{'':15}{'submissions':>12}{'graded':>8}{'seconds':>9}{'s each':>8}{'CPU s each':>12}"
        f"{'a minute':>10}{'peak MiB':>10}{'largest':>9}{'ratio':>8}"
    )
    for run in told:
        n = run["submissions"]
        ratio_text = f"{run['ratio']:.1f}" if run["ratio"] else ""
        print(
            f"{run['name']:15}{n:12}{run['graded']:8}{run['seconds']:9.1f}"
            f"{run['seconds'] / n:8.3f}{run['cpu_s'] / n:12.3f}{run['a_minute']:10.0f}"
            f"{run['peak_mib']:10.0f}{run['largest_mib']:9.0f}{ratio_text:>8}"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
