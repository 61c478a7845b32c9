"""The door: what JupyterLab is told, and that nothing is written into the environment."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from grader.learner.start import SETTINGS, lab_command, lab_environment, workspace, write_workspace


def test_the_page_opens_with_lesson_and_lab_side_by_side(tmp_path: Path) -> None:
    path = write_workspace(tmp_path, 3)
    assert path.parent == tmp_path / ".jupyter" / "workspaces"
    data = json.loads(path.read_text(encoding="utf-8"))["data"]
    left, right = data["layout-restorer:data"]["main"]["dock"]["children"]
    assert left["widgets"][left["currentIndex"]] == "notebook:workbook/lessons/day3_lesson.ipynb"
    assert right["widgets"] == ["notebook:workbook/day3_trigger/day3_trigger.ipynb"]
    assert {*left["widgets"], *right["widgets"]} < set(data)


@pytest.mark.parametrize("day", range(1, 9))
def test_every_day_has_an_arrangement(day: int) -> None:
    assert f"notebook:workbook/lessons/day{day}_lesson.ipynb" in workspace(day)["data"]


def test_jupyterlab_finds_our_settings_before_anybody_elses(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("JUPYTER_CONFIG_PATH", "elsewhere")
    environment = lab_environment(Path("workbook"))
    assert environment["JUPYTER_CONFIG_PATH"].startswith(str(SETTINGS))
    assert environment["JUPYTER_CONFIG_PATH"].endswith("elsewhere")
    page = json.loads((SETTINGS / "labconfig" / "page_config.json").read_text(encoding="utf-8"))
    off = page["disabledExtensions"]
    assert off["@jupyter/nbgrader:formgrader"] and off["@jupyter/nbgrader:create-assignment"]
    assert not any("validate" in name for name in off)


def test_no_browser_is_opened_when_asked_not_to(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BROWSER", "none")
    assert "--no-browser" in lab_command(["--port=9"]) and "--port=9" in lab_command(["--port=9"])
    monkeypatch.setenv("BROWSER", "firefox")
    assert "--no-browser" not in lab_command([])
