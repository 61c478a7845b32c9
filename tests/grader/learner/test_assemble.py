"""The end of the course: a learner's own functions in the engine, each missing one named."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from compaction.documents import Packing
from compaction.engine import Decision
from compaction.probes import Probe
from compaction.summary import Compaction
from grader.build.command import ROOT, labs
from grader.errors import BadInput
from grader.exercises import EXERCISES, IMPORTS, SLUGS
from grader.learner.assemble import Assembly, assemble, labs_beside, run_session
from grader.starters import day1, day8

NAMES = [exercise.function for exercise in EXERCISES]
SOLUTIONS = {exercise.function: exercise.solution() for exercise in EXERCISES}


def notebook(*sources: tuple[str, str]) -> str:
    cells: list[dict[str, Any]] = [
        {
            "cell_type": "code",
            "execution_count": None,
            "id": f"c{number}",
            "metadata": {"nbgrader": {"grade_id": grade_id}} if grade_id else {},
            "outputs": [],
            "source": source,
        }
        for number, (grade_id, source) in enumerate(sources)
    ]
    return json.dumps({"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 5})


def lay(folder: Path, slug: str, *sources: tuple[str, str]) -> Path:
    path = folder / slug / f"{slug}.ipynb"
    path.parent.mkdir(parents=True)
    path.write_text(notebook(*sources), encoding="utf-8")
    return path


def test_the_solutions_are_all_own_and_the_session_comes_out_right() -> None:
    assembly = assemble(ROOT / "solutions")
    assert assembly.own == tuple(e.function for e in EXERCISES if e.slug in labs())
    run = run_session(assembly)
    assert (len(run.before), len(run.after)) == (14, 7)
    assert (run.tokens_before, run.tokens_after) == (1368, 571)
    assert [probe.fact for probe in run.kept.kept] == ["pnpm build:calc", "divide by zero"]
    assert "pnpm build:calc" in run.answer and "divide by zero" in run.answer
    assert [event.kind for event in run.events] == ["run start", "pass", "reply"]
    assert "14 -> 7 messages, 1368 -> 571 tokens" in str(run)


def test_what_is_handed_out_is_named_day_by_day_and_the_library_stands_in() -> None:
    assembly = assemble(ROOT / "labs")
    assert assembly.own == ("budget_table",)  # the only starter that passes all of its checks
    there = {e.function for e in EXERCISES if e.slug in labs()} - {"budget_table"}
    assert {name for name, why in assembly.missing.items() if why.startswith("not solved")} == there
    assert assembly.missing["estimate"] == "not solved yet: estimate-cjk"
    assert "  day 1  estimate        the library's (not solved yet: estimate-cjk)\n" in str(
        assembly
    )
    assert run_session(assembly).tokens_after == 571


def test_every_function_is_put_to_use() -> None:
    used: set[str] = set()

    def counted(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            used.add(name)
            return function(*args, **kwargs)

        return call

    functions = {name: counted(name, function) for name, function in SOLUTIONS.items()}
    run = run_session(Assembly(None, functions, {}))
    assert used == set(NAMES)
    assert (run.tokens_before, run.tokens_after) == (1368, 571)


def test_a_wrong_function_would_show_in_the_outcome() -> None:
    def forget(messages: list[Any], summarize: Any, **how: Any) -> Compaction:
        return Compaction([messages[0], *messages[-5:]], 0, 0, [], None, [])

    run = run_session(Assembly(None, {**SOLUTIONS, "compact": forget}, {}))
    assert run.tokens_after != 571
    assert Probe("pnpm build:calc", "Which command builds the calc module?") in run.kept.lost
    assert "gone from my context" in run.answer

    run = run_session(Assembly(None, {**SOLUTIONS, "should_compact": lambda *_, **__: False}, {}))
    assert [event.kind for event in run.events] == ["run start", "reply"]

    def keep_none(costs: list[int], budget: int) -> Packing:
        return Packing([], list(range(len(costs))))

    run = run_session(Assembly(None, {**SOLUTIONS, "pack": keep_none}, {}))
    assert (run.packed.kept, len(run.packed.lost)) == ([], 2)


def test_what_stands_in_the_open_notebook_counts_before_what_was_saved(tmp_path: Path) -> None:
    lay(tmp_path, SLUGS[8], ("next_step", "raise RuntimeError('an old version')"))
    assembly = assemble(tmp_path, **{name: SOLUTIONS[name] for name in ("next_step", "pack")})
    assert assembly.own == ("next_step", "pack")
    assert assembly.functions["pack"] is SOLUTIONS["pack"]
    assert assembly.missing["make_room"] == "day8_ship: no cell defines make_room"
    why = "day8_ship: cell 1 (next_step) does not run: line 1: RuntimeError: an old version"
    assert assemble(tmp_path).missing["next_step"] == why
    assert assemble("/nowhere", pack=SOLUTIONS["pack"]).own == ("pack",)


def test_a_function_that_fails_raises_or_is_none_is_replaced(tmp_path: Path) -> None:
    def loud(*args: Any, **kwargs: Any) -> Any:
        print("something")
        raise ZeroDivisionError

    assembly = assemble(tmp_path, estimate=day1.estimate, verify=loud, pack=day8.pack)
    assert assembly.own == ()
    assert assembly.missing["estimate"] == "not solved yet: estimate-cjk"
    assert assembly.missing["verify"] == "not solved yet: probe-survives, probe-control"
    assert all(assembly.functions[name] is SOLUTIONS[name] for name in NAMES)
    assert "0 of 11 functions are yours" in str(assembly)


def test_nothing_that_a_function_prints_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    def chatty(*args: Any, **kwargs: Any) -> Any:
        print("I am called")
        return SOLUTIONS["pack"](*args, **kwargs)

    assert assemble("/nowhere", pack=chatty).own == ("pack",)
    assert capsys.readouterr() == ("", "")


def test_a_broken_notebook_is_named_and_the_other_days_count(tmp_path: Path) -> None:
    lay(tmp_path, SLUGS[1], ("estimate", "def estimate(:"))
    lay(tmp_path, SLUGS[7], ("fields_to_drop", _source("fields_to_drop")))
    assembly = assemble(tmp_path)
    assert assembly.own == ("fields_to_drop",)
    assert assembly.missing["estimate"].startswith("day1_estimate: cell 1 (estimate) does not run")
    assert str(assembly).splitlines()[0] == f"1 of 11 functions are yours, in {tmp_path.name}/"


def test_a_notebook_that_assembles_itself_does_not_run_for_ever(tmp_path: Path) -> None:
    lay(
        tmp_path,
        SLUGS[7],
        ("imports", f"{IMPORTS[7]}from grader import check, score"),
        ("fields_to_drop", _source("fields_to_drop")),
        ("", "from grader.learner.assemble import assemble\nassemble('.')"),
    )
    assert assemble(tmp_path).own == ("fields_to_drop",)
    assert assemble(tmp_path).own == ("fields_to_drop",)  # and it can be called again


def _source(name: str) -> str:
    import inspect

    return inspect.getsource(SOLUTIONS[name])


def test_an_unknown_name_is_refused() -> None:
    with pytest.raises(BadInput, match=r"nextstep: no function of this course; there are estimate"):
        assemble("/nowhere", nextstep=SOLUTIONS["next_step"])


def test_labs_are_found_from_where_a_notebook_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "empty").mkdir()
    assert labs_beside(tmp_path / "empty") is None
    for folder in ("labs", "solutions"):
        lay(tmp_path / folder, SLUGS[7])
        lay(tmp_path / folder, SLUGS[8])
        assert labs_beside(tmp_path / folder / SLUGS[8]) == tmp_path / folder
    flat = tmp_path / "flat"
    flat.mkdir()
    for day in (1, 8):
        (flat / f"{SLUGS[day]}.ipynb").write_text(notebook())
    assert labs_beside(flat) == flat
    lay(tmp_path / "workbook", SLUGS[7], ("fields_to_drop", _source("fields_to_drop")))
    lay(tmp_path / "workbook", SLUGS[8])
    here = tmp_path / "workbook" / SLUGS[8]
    assert labs_beside(here) == tmp_path / "workbook"
    assert labs_beside(tmp_path) == labs_beside(tmp_path / "empty") == tmp_path / "workbook"
    monkeypatch.chdir(here)
    assembly = assemble()
    assert assembly.own == ("fields_to_drop",)
    assert assembly.where == tmp_path / "workbook"


def test_a_run_says_what_was_over_its_allowance_and_what_packing_would_lose() -> None:
    run = run_session(Assembly(None, SOLUTIONS, {}))
    assert [row.path for row in run.over] == ["tool results"]
    assert [probe.fact for probe in run.packed.lost] == ["divide by zero"]
    text = str(replace(run, over=[]))
    assert "over their allowance before: no path" in text
    assert "calibrated: error 55.6% -> 2.6%" in text
    assert "three fields carried: 16569 tokens instead of 21913, 0.9583" in text


def test_ones_own_line_decides_as_in_the_agent() -> None:
    """An own ``should_compact`` is asked by itself: it needs no line of ``next_step`` as well."""
    own = {**assemble("/nowhere").functions, "should_compact": lambda *_, **__: True}
    lines = run_session(replace(assemble("/nowhere"), functions=own)).lines
    assert lines.decide(100) == Decision.COMPACT_THRESHOLD
    assert lines.decide(1800) == Decision.COMPACT_EMERGENCY
