"""Day 0 names what is missing and what to do; a machine that is ready reads the same everywhere."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from compaction import setup_check
from compaction.setup_check import (
    Finding,
    check_labs,
    check_library,
    check_packages,
    check_python,
    check_validate,
    check_writing,
    findings,
    report,
)

SERVER = "nbgrader.server_extensions.validate_assignment"
PLUGIN = "@jupyter/nbgrader:validate-assignment"


@pytest.fixture
def course(tmp_path: Path) -> Path:
    """A repository with two labs, both laid."""
    for slug in ("day1_estimate", "day2_calibrate"):
        for folder in ("labs", "workbook"):
            path = tmp_path / folder / slug / f"{slug}.ipynb"
            path.parent.mkdir(parents=True)
            path.write_text("{}")
    return tmp_path


def jupyter(folder: Path, *, extension: bool = True, server: bool = True) -> dict[str, list[str]]:
    """Lay out what nbgrader leaves behind when it is installed."""
    if extension:
        (folder / "share" / "labextensions" / "@jupyter" / "nbgrader").mkdir(parents=True)
    settings = folder / "etc" / "jupyter_server_config.d" / "nbgrader.json"
    settings.parent.mkdir(parents=True)
    extensions = {"ServerApp": {"jpserver_extensions": {SERVER: server}}}
    settings.write_text(json.dumps(extensions))
    return {
        "data_folders": [str(folder / "share")],
        "settings_folders": [str(folder / "nowhere"), str(folder / "etc")],
    }


def test_the_committed_notebook_shows_what_a_ready_machine_says(
    repository: Path, course: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    notebook = json.loads((repository / "course" / "day0_setup.ipynb").read_text("utf-8"))
    (cell,) = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    assert cell["metadata"]["tags"] == ["varies"]  # or a build would commit this machine's state
    committed = "".join(line for output in cell["outputs"] for line in output["text"])

    monkeypatch.setattr(setup_check, "check_labs", lambda root: check_labs(course))
    found = findings(here=repository / "course")
    assert [str(finding) for finding in found if not finding.ok] == []
    assert committed == report(found) + "\n"
    assert not re.search(r"\d\.\d|[/\\]\w+[/\\]", committed), "a version or a folder varies"


def test_what_is_not_ready_is_counted_and_said_with_what_to_do() -> None:
    text = report([Finding(True, "one is there"), Finding(False, "two is not", "do this")])
    assert text.splitlines() == [
        "[OK]   one is there",
        "[FAIL] two is not",
        "       do this",
        "",
        "1 of 2 not ready. Mend them, restart the kernel, and run this again.",
    ]


def test_a_check_that_breaks_is_a_requirement_that_is_not_met(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def broken() -> Finding:
        raise OSError("no such thing")

    monkeypatch.setattr(setup_check, "check_packages", broken)
    found = findings()
    assert len(found) == 6
    assert found[1].text == "the packages cannot be checked: OSError: no such thing"
    assert found[1].what_to_do


@pytest.mark.parametrize(
    ("version", "ok"), [((3, 10, 14), False), ((3, 11, 0), True), ((3, 13, 1), True)]
)
def test_python(version: tuple[int, ...], ok: bool) -> None:
    finding = check_python(version)
    assert finding.ok is ok
    assert ok or "make lab PYTHON=" in finding.what_to_do


def test_packages() -> None:
    assert check_packages().ok
    found = check_packages(
        ["pytest>=1", "pytest<1", "not-there-at-all", "nor-this; extra == 'test'", "packaging"]
    )
    assert not found.ok
    assert re.fullmatch(
        r"not as the course needs them: pytest \(\S+, needs <1\), not-there-at-all \(missing\)",
        found.text,
    )


def test_a_python_without_the_course_is_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(setup_check, "DISTRIBUTION", "surely-not-installed")
    assert check_packages().text == "the course is not installed in this kernel's Python"


def test_a_library_that_does_not_import_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    assert check_library().ok
    monkeypatch.setitem(sys.modules, "compaction.plots", None)
    found = check_library()
    assert not found.ok
    assert found.text.startswith("compaction.plots cannot be imported: ModuleNotFoundError")


def test_a_notebook_of_another_clone_is_noticed(repository: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    (other / "course" / "compaction").mkdir(parents=True)
    (other / "course" / "compaction" / "tokens.py").touch()
    found = check_library(repository, here=other / "course")
    assert not found.ok
    assert str(other) in found.text
    assert str(repository) in found.text
    assert check_library(repository, here=repository / "course").ok
    assert check_library(repository, here=tmp_path).ok  # a notebook copied elsewhere


def test_labs_count_under_any_file_name(course: Path) -> None:
    assert check_labs(course).ok
    lab = course / "workbook" / "day2_calibrate" / "day2_calibrate.ipynb"
    lab.rename(lab.with_name("mine.ipynb"))
    assert check_labs(course).ok
    shutil.rmtree(lab.parent)
    checkpoints = lab.parent / ".ipynb_checkpoints"
    checkpoints.mkdir(parents=True)
    (checkpoints / "day2_calibrate.ipynb").touch()
    found = check_labs(course)
    assert found.text == "not in workbook/ yet: day2_calibrate"
    assert "python -m grader workbook" in found.what_to_do
    shutil.rmtree(course / "labs")
    assert not check_labs(course).ok


def test_the_validate_button(tmp_path: Path) -> None:
    assert check_validate().ok  # here
    folders = jupyter(tmp_path / "a")
    assert check_validate(**folders).ok

    without = check_validate(**jupyter(tmp_path / "b", extension=False))
    assert without.text == "nbgrader's Validate button is not installed"
    off = check_validate(**jupyter(tmp_path / "c", server=False))
    assert off.text == "nbgrader's Validate button is switched off in the server"
    assert SERVER in off.what_to_do

    page = tmp_path / "a" / "etc" / "labconfig" / "page_config.json"
    page.parent.mkdir()
    others = {"@jupyter/nbgrader:formgrader": True, PLUGIN: False}
    page.write_text(json.dumps({"disabledExtensions": others}))
    assert check_validate(**folders).ok  # what `make lab` hides from learners is something else
    for disabled in ({PLUGIN: True}, [PLUGIN], {"@jupyter/nbgrader": True}):
        page.write_text(json.dumps({"disabledExtensions": disabled}))
        found = check_validate(**folders)
        assert found.text == "nbgrader's Validate button is switched off"
        assert PLUGIN in found.what_to_do
    page.write_text("not JSON")
    assert check_validate(**folders).ok


@pytest.mark.skipif(os.name == "nt", reason="folder permissions work differently on Windows")
def test_writing(course: Path) -> None:
    assert check_writing(course).ok
    assert sorted(path.name for path in (course / "workbook").iterdir()) == [
        "day1_estimate",
        "day2_calibrate",
    ]
    found = check_writing(course / "not-there")
    assert not found.ok
    assert "not-there: No such file or directory" in found.text
    if os.geteuid() != 0:  # root may write anywhere
        (course / "workbook").chmod(0o500)
        assert not check_writing(course).ok
        (course / "workbook").chmod(0o700)


def test_importing_it_needs_nothing_but_the_standard_library() -> None:
    code = "import sys, compaction.setup_check as c; print(set(sys.modules) & set(sys.argv[1:]))"
    others = ["numpy", "matplotlib", "openai", "packaging", "jupyter_core", "nbgrader", "rich"]
    done = subprocess.run(
        [sys.executable, "-c", code, *others], capture_output=True, text=True, check=True
    )
    assert done.stdout == "set()\n"
