"""The lessons as a reader meets them: they run, look alike, and point somewhere."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from grader.build.lessons import execute_lessons, lessons
from grader.exercises import SLUGS

ROOT = Path(__file__).parents[2]
COURSE = ROOT / "course"
DAYS = [f"{slug}.ipynb" for slug in SLUGS.values()]
ALL = ["day0_setup.ipynb", *DAYS]

# Written one way everywhere; the pattern finds the other ways.
VOCABULARY = {
    "tool call, without a hyphen": r"\btool-calls?\b(?!-id)",
    "context window": r"\bcontext-window\b",
    "summarise, with s": r"\bsummariz(?:e[sd]?|ing)\b",
    "compaction, not compactification": r"\bcompactif",
    "prompt tokens, without a hyphen": r"\bprompt-tokens\b",
    "white space, two words": r"\bwhitespace\b",
}


def load(name: str) -> dict[str, Any]:
    notebook: dict[str, Any] = json.loads((COURSE / name).read_text(encoding="utf-8"))
    return notebook


def cells(name: str, kind: str) -> list[tuple[str, str]]:
    """Return (id, source) of a lesson's cells of one kind."""
    return [
        (cell["id"], "".join(cell["source"]))
        for cell in load(name)["cells"]
        if cell["cell_type"] == kind
    ]


def prose(name: str) -> str:
    return "\n\n".join(source for _, source in cells(name, "markdown"))


def outputs(name: str) -> list[tuple[str, dict[str, Any]]]:
    return [
        (cell["id"], output)
        for cell in load(name)["cells"]
        if cell["cell_type"] == "code"
        for output in cell["outputs"]
    ]


def test_every_day_has_its_lesson() -> None:
    assert sorted(path.name for path in lessons()) == sorted(ALL)


@pytest.mark.parametrize("name", ALL)
def test_a_lesson_gives_the_same_texts_in_a_fresh_kernel(name: str) -> None:
    assert execute_lessons([name.removesuffix(".ipynb")], check=True) == []


@pytest.mark.parametrize("name", ALL)
def test_a_lesson_is_committed_with_outputs_in_order_and_is_small(name: str) -> None:
    assert (COURSE / name).stat().st_size < 300_000
    code = [cell for cell in load(name)["cells"] if cell["cell_type"] == "code"]
    assert [cell["execution_count"] for cell in code] == list(range(1, len(code) + 1))
    assert any(cell["outputs"] for cell in code)
    assert [o for _, o in outputs(name) if o.get("name") == "stderr"] == []


@pytest.mark.parametrize("name", DAYS)
def test_a_lesson_has_the_size_that_a_reader_can_take(name: str) -> None:
    guesses = sum(source.startswith("my_guess = ...") for _, source in cells(name, "code"))
    count = len(load(name)["cells"]) - guesses / 2
    assert 20 <= count <= 55, f"{count} cells"
    needed, _, beyond = prose(name).partition("\n## Beyond")
    assert len(needed.split()) < 2000, f"{len(needed.split())} words"
    assert len(beyond.split()) <= 600, f"{len(beyond.split())} words beyond"
    long_cells = [i for i, source in cells(name, "code") if len(source.strip().splitlines()) > 12]
    assert long_cells == []


@pytest.mark.parametrize("name", DAYS)
def test_no_outcome_of_a_guess_is_told_above_the_cell_that_shows_it(name: str) -> None:
    above = ""
    for cell in load(name)["cells"]:
        for output in cell.get("outputs", []):
            found = re.search(
                r"no guess yet · outcome: ([\d,.]{3,}) ", "".join(output.get("text", ""))
            )
            if found:
                told = rf"(?<![\d,.]){re.escape(found[1])}(?![\d,.])"
                assert not re.search(told, above), f"{found[1]} above {cell['id']}"
        if cell["cell_type"] == "markdown":
            above += "".join(cell["source"])


@pytest.mark.parametrize("name", DAYS)
def test_a_lesson_has_its_parts(name: str) -> None:
    text = prose(name)
    assert re.match(r"# Day \d · \w", text)
    assert "desk" in text.split("\n## ")[0]
    assert "By the end you can" in text
    assert len(re.findall(r"\*\*Predict", text)) >= 2
    assert "honest failure" in text
    assert "## Check yourself" in text and text.count("<details>") >= 2
    summary = re.search(r"## In five lines\n+((?:- .+\n?)+)", text)
    assert summary is not None
    assert len(summary[1].strip().splitlines()) == 5


@pytest.mark.parametrize("name", DAYS)
def test_every_answer_explains_every_option(name: str) -> None:
    asked = prose(name).split("## Check yourself")[1].split("\n## ")[0]
    questions = re.split(r"\n(?=### \d\. )", asked)[1:]
    assert 2 <= len(questions) <= 3
    for question in questions:
        options, answer = question.split("<details>")
        letters = re.findall(r"(?m)^- ([a-e])\) ", options)
        assert len(letters) >= 3
        for letter in letters:
            explained = rf"(?m)^- {letter}\) \w.*\w|^\*\*{letter}\.\*\* .*\w"
            assert re.search(explained, answer), f"{letter}: {options}"


@pytest.mark.parametrize("name", DAYS)
def test_pictures_have_alt_text_and_a_sentence_below(name: str) -> None:
    pictures = [(i, o) for i, o in outputs(name) if "image/png" in o.get("data", {})]
    assert pictures
    order = [(cell["id"], cell["cell_type"]) for cell in load(name)["cells"]]
    for cell_id, output in pictures:
        alt = output["metadata"]["image/png"]["alt"]
        assert len(alt.split()) >= 8
        following = order[[i for i, _ in order].index(cell_id) + 1]
        assert following[1] == "markdown", f"no sentence below the picture of {cell_id}"


@pytest.mark.parametrize("name", ["README.md", *ALL])
def test_links_lead_somewhere(name: str) -> None:
    text = (COURSE / name).read_text(encoding="utf-8") if name.endswith(".md") else prose(name)
    targets = re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", text)
    for target in targets:
        if not target.startswith(("http://", "https://")):
            assert (COURSE / target).exists(), f"{name} points to {target}"


@pytest.mark.parametrize("name", ["README.md", *ALL])
@pytest.mark.parametrize("rule", VOCABULARY)
def test_words_are_used_one_way(name: str, rule: str) -> None:
    text = (COURSE / name).read_text(encoding="utf-8") if name.endswith(".md") else prose(name)
    text = re.sub(r"```.*?```|`[^`]*`|\]\([^)]*\)", " ", text, flags=re.DOTALL)
    assert re.findall(VOCABULARY[rule], text, re.IGNORECASE) == []


@pytest.mark.parametrize("name", ALL)
def test_no_address_and_no_place_of_a_machine_is_shown(name: str) -> None:
    shown = json.dumps([o for _, o in outputs(name) if "image/png" not in o.get("data", {})])
    assert not re.search(r"127\.0\.0\.1:\d|localhost:\d|0x[0-9a-f]{6}|/home/(?!mei)|/root/", shown)


def test_the_names_of_days_are_the_course_s() -> None:
    syllabus = (COURSE / "README.md").read_text(encoding="utf-8")
    assert [name for name in ALL if f"]({name})" not in syllabus] == []
