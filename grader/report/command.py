"""The command line of the report: where it goes, with names or without."""

from __future__ import annotations

import argparse
from pathlib import Path

from compaction.files import write_whole
from grader.autograde.course import Course, course_folder
from grader.errors import BadInput
from grader.report.data import needing, read_class, without_names
from grader.report.page import page, said
from grader.report.table import table


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what the command takes."""
    parser.add_argument(
        "--out",
        metavar="FOLDER",
        help="where report.html and report.csv go (default: beside the class's records)",
    )
    parser.add_argument("--anonymous", action="store_true", help="numbers instead of names")
    parser.add_argument("--course", metavar="FOLDER", help="where nbgrader_config.py is")


def run(options: argparse.Namespace) -> int:
    """Write the page and the table; say where they are."""
    course = Course(Path(options.course) if options.course else course_folder())
    known = read_class(course)
    if options.anonymous:
        known = without_names(known)
    folder = Path(options.out) if options.out else course.classroom / "report"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in (("report.html", page(known)), ("report.csv", table(known))):
            write_whole(folder / name, text.encode(errors="replace"))
    except OSError as error:
        raise BadInput(f"{folder}: cannot write there: {error.strerror}") from None
    count = len(list(needing(known)))
    print(f"{folder / 'report.html'} and report.csv: {said(len(known.records), 'submission')}")
    if count:
        print(f"{count} of them need a person" if count > 1 else "1 of them needs a person")
    return 0
