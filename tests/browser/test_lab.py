"""The course as a learner sees it: a lab and a lesson in JupyterLab, in the system's browser."""

import importlib.util
import json
import os
import re
import secrets
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from grader.learner.start import SETTINGS
from grader.learner.working_copy import lay_workbook

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")

pytestmark = [
    pytest.mark.browser,
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="there is no chromium on this system"),
    pytest.mark.skipif(
        importlib.util.find_spec("playwright") is None,
        reason="Playwright is not installed: make test EXTRAS=browser",
    ),
    pytest.mark.skipif(shutil.which("make") is None, reason="there is no make on this system"),
]

PATIENCE_S = 120  # for each single step; a machine that is busy with other tests is slow
LAB = "workbook/day1_estimate/day1_estimate.ipynb"
LESSON = "course/day2_calibrate.ipynb"
FOUR_LINES = [
    '✗ estimate("你好 world")',
    "  expected: 4",
    "  got:      2",
    "  why:      one rule for all text: a CJK character costs about a whole token, not a quarter",
]


def read(path: Path) -> dict[str, Any]:
    notebook: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return notebook


def place(notebook: dict[str, Any], grade_id: str) -> int:
    """Return at which place in a notebook the cell with this grade id stands."""
    ids = [cell["metadata"].get("nbgrader", {}).get("grade_id") for cell in notebook["cells"]]
    return ids.index(grade_id)


# --- JupyterLab, as `make lab` starts it ---------------------------------------------------


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@dataclass
class Lab:
    """A running JupyterLab: the folder that it shows, and its address."""

    root: Path
    url: str
    token: str


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory, repository: Path) -> Iterator[Lab]:
    """Start JupyterLab on a copy of the course with a workbook in it, and nobody's settings."""
    root = tmp_path_factory.mktemp("course")
    rubbish = shutil.ignore_patterns("__pycache__", "classroom", ".ipynb_checkpoints")
    for folder in ("course", "grader", "labs"):
        shutil.copytree(repository / folder, root / folder, ignore=rubbish)
    shutil.copy(repository / "nbgrader_config.py", root)
    lay_workbook(root)

    own = tmp_path_factory.mktemp("jupyter")
    names = ("CONFIG_DIR", "DATA_DIR", "RUNTIME_DIR")
    environment = {name: value for name, value in os.environ.items() if "JUPYTER" not in name}
    environment |= {f"JUPYTER_{name}": str(own / name.lower()) for name in names}
    environment |= {"IPYTHONDIR": str(own / "ipython")}
    environment |= {"PYTHONPATH": os.pathsep.join([str(root), str(root / "course")])}
    environment["JUPYTER_CONFIG_PATH"] = str(SETTINGS)

    token = secrets.token_hex()
    command = [sys.executable, "-m", "jupyterlab", "--no-browser", f"--port={free_port()}"]
    command += ["--ip=127.0.0.1", f"--IdentityProvider.token={token}"]
    if hasattr(os, "getuid") and os.getuid() == 0:
        command.append("--allow-root")
    log = own / "log"
    with log.open("w") as sink:
        server = subprocess.Popen(command, cwd=root, env=environment, stdout=sink, stderr=sink)
    try:
        yield Lab(root, address(server, own / "runtime_dir", log), token)
    finally:
        server.terminate()  # it stops its kernels first
        try:
            server.wait(30)
        except subprocess.TimeoutExpired:
            server.kill()
            server.wait()


def address(server: subprocess.Popen[bytes], runtime: Path, log: Path) -> str:
    """Wait until the server has written down where it is; it takes the next port if need be."""
    end = time.monotonic() + PATIENCE_S
    while time.monotonic() < end and server.poll() is None:
        for path in runtime.glob("jpserver-*.json"):
            try:
                return str(read(path)["url"]).rstrip("/")
            except (json.JSONDecodeError, KeyError):
                pass  # half written
        time.sleep(0.1)
    raise AssertionError(f"JupyterLab did not start:\n{log.read_text(encoding='utf-8')}")


# --- a person in front of it ---------------------------------------------------------------


class Reader:
    """Someone who looks at one notebook, clicks, and pastes."""

    def __init__(self, page: Any, lab: Lab, path: str) -> None:
        self.page = page
        self.notebook = read(lab.root / path)
        workspace = path.replace("/", "-").removesuffix(".ipynb")
        page.goto(f"{lab.url}/lab/workspaces/{workspace}/tree/{path}?token={lab.token}")
        self.cell(len(self.notebook["cells"]) - 1).wait_for(state="attached")
        self.until_idle()

    def until_idle(self) -> None:
        idle = ".jp-Notebook-ExecutionIndicator[data-status=idle]"
        self.page.locator(idle).wait_for(state="attached")  # in a narrow window it is not shown

    def cell(self, which: int | str) -> Any:
        """Find a cell by its place or its grade id."""
        index = place(self.notebook, which) if isinstance(which, str) else which
        return self.page.locator(f'.jp-Notebook .jp-Cell[data-windowed-list-index="{index}"]')

    def prompt(self, which: int | str) -> str:
        return str(self.cell(which).locator(".jp-InputPrompt").first.text_content())

    def run_all(self) -> None:
        """Choose Run › Run All Cells, as the lab's rules say, and wait for the last cell."""
        before = self.prompt("score")
        self.page.locator(".lm-MenuBar-item", has_text=re.compile("^Run$")).click()
        self.page.locator(".lm-Menu-item", has_text=re.compile("^Run All Cells$")).click()
        end = time.monotonic() + PATIENCE_S
        while not (re.fullmatch(r"\[\d+\]:", now := self.prompt("score")) and now != before):
            assert time.monotonic() < end, f"the score cell has not run: {before} {now}"
            self.page.wait_for_timeout(100)
        self.until_idle()

    def output(self, which: int | str) -> str:
        """Return what is shown below a cell, once it is there."""
        found = self.cell(which).locator(".jp-OutputArea-output")
        self.bring_into_view(found)
        return "\n".join(found.all_inner_texts())

    def score(self) -> list[str]:
        """The score's caption, and each row's state and check."""
        table = self.cell("score").locator("table")
        rows = [row.locator("th, td").all_inner_texts() for row in table.locator("tbody tr").all()]
        return [table.locator("caption").inner_text(), *(" ".join(row[:2]) for row in rows)]

    def card(self, which: str) -> Any:
        card = self.cell(which).locator(".check-card")
        self.bring_into_view(card)
        return card

    def bring_into_view(self, found: Any) -> None:
        """Scroll until all of it has a text: what is not in view, or not drawn yet, has none."""
        end = time.monotonic() + PATIENCE_S
        found.last.scroll_into_view_if_needed()
        while not all(text.strip() for text in found.all_inner_texts()):
            assert time.monotonic() < end, "a part of the output stays empty"
            self.page.wait_for_timeout(100)
            found.last.scroll_into_view_if_needed()

    def paste_over(self, which: str, text: str) -> None:
        """Replace a cell's whole text by a pasted one."""
        self.page.evaluate("text => navigator.clipboard.writeText(text)", text)
        editor = self.cell(which).locator(".cm-content")
        editor.click()
        self.page.keyboard.press("ControlOrMeta+a")
        self.page.keyboard.press("ControlOrMeta+v")
        last = text.rstrip().splitlines()[-1].strip()
        editor.get_by_text(last, exact=True).wait_for()

    def validate(self) -> list[str]:
        """Press nbgrader's button and return the lines of its answer."""
        self.page.get_by_role("button", name="Validate").click()
        dialog = self.page.locator(".jp-Dialog-content")
        dialog.wait_for()
        lines = str(dialog.inner_text()).splitlines()
        dialog.get_by_role("button", name="Ok").click()
        dialog.wait_for(state="detached")
        return lines


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        # Without a sandbox of its own: as root, and in a container, chromium has none.
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        try:
            yield browser
        finally:
            browser.close()


@contextmanager
def opened(browser: Any, lab: Lab, path: str) -> Iterator[Reader]:
    """Open a notebook in a fresh window."""
    with browser.new_context(
        viewport={"width": 1280, "height": 900},
        permissions=["clipboard-read", "clipboard-write"],
    ) as context:
        page = context.new_page()
        page.set_default_timeout(1000 * PATIENCE_S)
        yield Reader(page, lab, path)


# --- what they see -------------------------------------------------------------------------


def test_a_learner_mends_a_function_and_sees_it_pass(
    browser: Any, lab: Lab, repository: Path
) -> None:
    with opened(browser, lab, LAB) as reader:
        reader.run_all()
        assert reader.output("estimate-cjk").splitlines()[-4:] == FOUR_LINES
        assert words(reader.card("estimate-cjk")) == ["Not yet · estimate-cjk"]
        assert "Latin text of 341 characters: about 86 tokens" in reader.output("estimate-latin")
        assert words(reader.card("estimate-latin")) == ["Passed · estimate-latin"]
        # Not by colour alone, and long lines are broken between words.
        border, breaks = "borderTopStyle", "wordBreak"
        assert style(reader.card("estimate-cjk"), border) == "dashed"
        assert style(reader.card("estimate-latin"), border) == "solid"
        for check_id in ("estimate-cjk", "estimate-latin"):
            assert style(reader.cell(check_id).locator("pre").last, breaks) == "normal"
        assert reader.score() == [
            "1 of 2 checks passed",
            "Passed estimate-latin",
            "Not yet estimate-cjk",
        ]

        answer = reader.validate()
        assert 'check("estimate-cjk", estimate)' in answer
        assert 'check("estimate-latin", estimate)' not in answer
        assert [line for line in answer if line in FOUR_LINES] == FOUR_LINES

        solutions = repository / "solutions" / "day1_estimate" / "day1_estimate.ipynb"
        solved = read(solutions)
        source = "".join(solved["cells"][place(solved, "estimate")]["source"])
        reader.paste_over("estimate", source)
        reader.run_all()
        assert words(reader.card("estimate-cjk")) == ["Passed · estimate-cjk"]
        assert "✗" not in reader.output("estimate-cjk")
        assert reader.score()[0] == "2 of 2 checks passed"

        answer = reader.validate()
        assert "Success! Your notebook passes all the tests." in answer
        mine = read(lab.root / LAB)  # nbgrader's button has saved it
        assert "".join(mine["cells"][place(mine, "estimate")]["source"]) == source


def words(card: Any) -> list[str]:
    """Return the first line of each card."""
    return [text.splitlines()[0] for text in card.all_inner_texts()]


def style(element: Any, name: str) -> str:
    return str(element.evaluate("(element, name) => getComputedStyle(element)[name]", name))


def test_a_learner_sees_only_a_learners_tools(browser: Any, lab: Lab) -> None:
    with opened(browser, lab, LAB) as reader:
        page = reader.page
        menus = page.locator(".lm-MenuBar-item").all_inner_texts()
        assert {"File", "Run", "Help"} <= set(menus)
        assert "Nbgrader" not in menus
        assert page.get_by_role("button", name="Validate").is_visible()
        captions = page.locator(".lm-TabBar-tab").evaluate_all("tabs => tabs.map(tab => tab.title)")
        assert any("File Browser" in caption for caption in captions)
        assert not [caption for caption in captions if re.search("nbgrader|ssignment", caption)]
        assert not page.locator(".jp-toast-message").count()
        # Each task has its hints, closed.
        hints = reader.page.locator(".jp-Notebook summary", has_text="Hint ")
        assert hints.count() == 3
        assert not hints.locator("xpath=ancestor::details[@open]").count()
        hints.first.click()
        assert hints.locator("xpath=ancestor::details[@open]").count() == 1


def test_a_lesson_shows_its_plots(browser: Any, lab: Lab) -> None:
    with opened(browser, lab, LESSON) as reader:
        kept = [output for cell in reader.notebook["cells"] for output in cell.get("outputs", [])]
        plots = [output for output in kept if "image/png" in output.get("data", {})]
        pictures = reader.page.locator(".jp-OutputArea-output img")
        assert pictures.count() == len(plots) > 0
        for picture in pictures.all():
            picture.scroll_into_view_if_needed()
            assert picture.is_visible()
            assert picture.evaluate("picture => picture.decode().then(() => picture.naturalWidth)")
