"""The offline demonstration and its scripted model."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from compaction.agent import Agent, demo
from compaction.agent.connection import connect_to
from compaction.agent.functions import Parts
from compaction.agent.slash_commands import run_command
from compaction.agent.tools import Toolbox
from compaction.calibration import TokenMeter
from compaction.gateway import Gateway
from compaction.messages import content_of
from tests.compaction.agent.sessions import (
    Heard,
    assert_valid,
    heard,
)


@pytest.fixture
def demonstration(tmp_path: Path) -> Iterator[Agent]:
    heard = Heard()
    demo.lay_project(tmp_path / "calc")
    toolbox = Toolbox(tmp_path / "calc", allow=heard.allow)
    agent = Agent(
        connect_to(Gateway(after_script=demo.reply)),
        toolbox,
        heard,
        window=demo.WINDOW,
        probes=demo.PROBES,
        parts=Parts(counter=TokenMeter()),
        save_to=tmp_path / "session.json",
        demo=True,
    )
    yield agent
    agent.close()


def test_the_demonstration_from_beginning_to_end(demonstration: Agent) -> None:
    agent = demonstration
    said = []
    while (suggestion := demo.suggestion(agent.history)) is not None:
        said.append(suggestion)
        assert agent.say(suggestion)
        assert_valid(agent)
    assert said == [turn.suggestion for turn in demo.TURNS]
    ran = [result for result in heard(agent).results if "[exit code" in result]
    # Real tests: they fail, say what is expected, and pass after the edits.
    assert [("[exit code 0 " in text, "divide by zero" in text) for text in ran] == [
        (False, True),
        (True, False),
        (False, True),
        (True, False),
    ]
    assert "Ran 20 tests" in ran[-1]
    passes = [note for note in heard(agent).notes if note.startswith("compacted ")]
    assert len(passes) >= 2
    assert all(line.endswith("2 probes kept") for line in passes)
    report, unseen = agent.check_probes()
    assert report.kept == demo.PROBES and not report.lost and not unseen
    assert content_of(agent.history[-1]) == demo.recall(agent.history)
    assert "gone from my context" not in content_of(agent.history[-1])
    # The machine's own figures: what was estimated is what was charged, to about a percent.
    assert agent.usage is not None
    assert agent.usage.estimate == pytest.approx(agent.usage.tokens, rel=0.02)
    agent.say("And now?")
    assert "My script ends here" in content_of(agent.history[-1])


def test_the_scripted_model_knows_only_what_it_is_sent() -> None:
    for probe in demo.PROBES:
        other = next(p for p in demo.PROBES if p != probe)
        answer = demo.recall([{"role": "user", "content": probe.fact}])
        assert probe.fact in answer and other.fact not in answer
        assert "gone from my context" in answer


def test_the_probe_questions_are_put_to_the_model(demonstration: Agent) -> None:
    agent = demonstration
    shown = run_command(agent, "/probes ask")
    assert shown.count("not in this session yet; no answer") == 2
    agent.say(demo.TURNS[0].suggestion)
    before = list(agent.history)
    shown = run_command(agent, "/probes ask")
    assert shown.count("kept, in message") == 2 and shown.count("the model answered it") == 2
    assert agent.history == before


@pytest.mark.parametrize("text", ["What is the weather?", "你好", "write me a poem", "/"])
def test_free_input_gets_help_and_changes_nothing(demonstration: Agent, text: str) -> None:
    agent = demonstration
    agent.say(text)
    answer = content_of(agent.history[-1])
    assert "I am a script, not a model" in answer and demo.TURNS[0].suggestion in answer
    assert "--model NAME" in answer
    # The demonstration then goes on where it is.
    assert demo.suggestion(agent.history) == demo.TURNS[0].suggestion
    agent.say("Please find out why the test fails.")
    assert "divide by zero" in content_of(agent.history[-1])


def test_a_fact_of_ones_own_is_pinned(demonstration: Agent) -> None:
    agent = demonstration
    agent.say("Remember: deploy on `Fridays never`.")
    assert "`Fridays never`" in content_of(agent.history[-1])
    assert "Fridays never: kept" in run_command(agent, "/probes")


def test_a_refused_command_is_asked_for_again(demonstration: Agent) -> None:
    agent = demonstration
    agent.toolbox.allow = lambda command: False
    agent.say(demo.TURNS[0].suggestion)
    assert "Without that command I cannot go on" in content_of(agent.history[-1])
    assert demo.suggestion(agent.history) == "Go on."
    agent.toolbox.allow = lambda command: True
    agent.say("go on")
    assert "divide by zero" in content_of(agent.history[-1])
    assert demo.suggestion(agent.history) == demo.TURNS[1].suggestion


def test_the_demonstration_goes_on_after_a_stop(demonstration: Agent) -> None:
    agent = demonstration

    def interrupt(command: str) -> bool:
        raise KeyboardInterrupt

    allow, agent.toolbox.allow = agent.toolbox.allow, interrupt
    agent.say(demo.TURNS[0].suggestion)
    assert demo.suggestion(agent.history) == "Go on."
    agent.toolbox.allow = allow
    agent.say("Go on.")
    assert "divide by zero" in content_of(agent.history[-1])
    assert_valid(agent)


def test_the_project_is_laid_once(tmp_path: Path) -> None:
    demo.lay_project(tmp_path / "calc")
    (tmp_path / "calc" / "calc.py").write_text("mine")
    demo.lay_project(tmp_path / "calc")
    assert (tmp_path / "calc" / "calc.py").read_text() == "mine"
    assert demo.may_lay_project(tmp_path / "calc")
    (tmp_path / "other").mkdir()
    assert demo.may_lay_project(tmp_path / "other")
    (tmp_path / "other" / "thesis.txt").write_text("mine")
    assert not demo.may_lay_project(tmp_path / "other")
