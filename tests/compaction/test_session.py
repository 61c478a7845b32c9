"""The course's own data: every figure comes out of counting, and the texts hang together."""

from __future__ import annotations

import difflib
import json
import math
import re
import subprocess
import sys
from importlib.resources import files

import pytest

from compaction.budget import budget_table, should_compact
from compaction.calibration import DEFAULT, Sample, TokenMeter, fit
from compaction.gateway import scripted_usage, scripted_usage_of_chars
from compaction.grouping import clear_results, group_messages, is_checklist, segments
from compaction.messages import calls_of, content_of, is_summary, problems, transcript
from compaction.probes import fold, pinned_probes, truncate, verify
from compaction.session import (
    FORMS,
    Session,
    calibration_samples,
    calibration_texts,
    load,
    replay,
)
from compaction.summary import (
    COMPACTION_NOTICE,
    KEYS,
    compact,
    extract,
    language_of,
    parse_summary,
)
from compaction.tokens import count_chars, estimate
from tests.builders import user

BUILD, ZERO = "pnpm build:calc", "divide by zero"


@pytest.fixture
def long() -> Session:
    return load("long")


@pytest.fixture
def short() -> Session:
    return load("short")


# --- figures ----------------------------------------------------------------------------


def test_the_long_form_measures_1368_and_the_short_one_176(long: Session, short: Session) -> None:
    assert TokenMeter().count(long.messages) == 1368
    assert TokenMeter().count(short.messages) == 176
    assert estimate(transcript(long.messages)) == 1368
    assert estimate(transcript(short.messages)) == 176


def test_only_the_long_form_is_over_seventy_percent(long: Session, short: Session) -> None:
    assert long.window == short.window == 1800
    assert should_compact(long.messages, 1800, meter=TokenMeter()) is True
    assert should_compact(short.messages, 1800, meter=TokenMeter()) is False


def test_scripted_summaries_take_the_long_form_to_7_messages_and_571_tokens(long: Session) -> None:
    done = compact(long.messages, replay(long.replies), meter=TokenMeter(), probes=long.probes)
    assert (done.abandoned, done.carried) == (None, [])
    assert (len(long.messages), len(done.messages)) == (14, 7)
    assert (done.before, done.after) == (1368, 571)
    assert estimate(transcript(done.messages)) == 571
    assert done.messages[0]["content"].endswith(COMPACTION_NOTICE)
    assert [list(parse_summary(summary)) for summary in done.summaries] == [list(KEYS)] * 2
    assert [content_of(m).split("\n", 1)[1] for m in done.messages if is_summary(m)] == long.replies


def test_truncation_takes_the_long_form_to_358_tokens(long: Session) -> None:
    kept = truncate(long.messages)
    assert TokenMeter().count(kept) == 358
    assert kept == [long.messages[0], *long.messages[10:]]  # no notice: nothing is summarised


def test_a_compaction_of_the_short_form_is_not_worth_it(short: Session) -> None:
    done = compact(short.messages, replay(short.replies), meter=TokenMeter())
    assert done.abandoned is not None and "nothing to compress" in done.abandoned
    assert done.messages == load("short").messages


def test_the_tool_results_are_over_their_allowance_in_the_long_form(long: Session) -> None:
    meter = TokenMeter()
    rows = {row.path: row for row in budget_table(long.messages, long.window, meter)}
    assert rows["tool results"].over
    assert [name for name, row in rows.items() if row.over] == ["tool results"]
    assert sum(row.tokens for row in rows.values()) == 1368


# --- order, groups and segments ---------------------------------------------------------


@pytest.mark.parametrize("form", FORMS)
def test_the_fourteen_messages_stand_in_the_agreed_order(form: str) -> None:
    messages = load(form).messages
    assert [m["role"][0] for m in messages] == list("suatatuataaata")
    assert [i for i, m in enumerate(messages) if calls_of(m)] == [2, 4, 7, 11]
    assert [i for i, m in enumerate(messages) if is_checklist(m)] == [10]
    names = [call.name for m in messages for call in calls_of(m)]
    assert names == ["read_file", "run_command", "edit_file", "run_command"]


@pytest.mark.parametrize("form", FORMS)
def test_groups_are_two_segments_and_the_last_three(form: str) -> None:
    messages = load(form).messages
    groups = group_messages(messages)
    assert segments(messages, groups) == [(1, 6), (6, 10)]  # 5 and 4 messages
    last = [(g.start, g.end, g.keep) for g in groups[-3:]]
    assert last == [(10, 11, "pinned"), (11, 13, "recent"), (13, 14, "recent")]
    assert {g.keep for g in groups[1:-3]} == {"compressible"}


def test_both_segments_of_the_long_form_are_worth_a_summary(long: Session) -> None:
    meter = TokenMeter()
    for start, end in segments(long.messages, group_messages(long.messages)):
        assert meter.count(long.messages[start:end]) >= 100


@pytest.mark.parametrize("form", FORMS)
def test_no_api_would_refuse_the_session(form: str) -> None:
    session = load(form)
    assert problems(session.messages) == []
    assert problems(truncate(session.messages)) == []


def test_no_api_would_refuse_the_compacted_session(long: Session) -> None:
    assert problems(compact(long.messages, replay(long.replies)).messages) == []


# --- probes -----------------------------------------------------------------------------


def test_both_probes_survive_compaction_and_truncation_loses_them(long: Session) -> None:
    assert [probe.fact for probe in long.probes] == [BUILD, ZERO]
    assert all(probe.question.endswith("?") for probe in long.probes)
    done = compact(long.messages, replay(long.replies), meter=TokenMeter())
    assert verify(long.probes, done.messages).kept == long.probes
    assert BUILD in [probe.fact for probe in verify(long.probes, truncate(long.messages)).lost]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("fact", [BUILD, ZERO])
def test_a_fact_stands_only_in_the_early_context(form: str, fact: str) -> None:
    messages = load(form).messages
    holding = [i for i in range(14) if fact in fold(transcript(messages[i : i + 1]))]
    assert holding and set(holding) <= set(range(1, 10))


@pytest.mark.parametrize("form", FORMS)
def test_the_user_pins_the_build_command_and_nothing_else_is_pinned(form: str) -> None:
    assert [probe.fact for probe in pinned_probes(load(form).messages)] == [BUILD]


def test_questions_do_not_give_the_facts_away(long: Session) -> None:
    for probe in long.probes:
        assert probe.fact not in probe.question


# --- the offline summariser on the session ----------------------------------------------


def test_extract_compacts_the_long_form_and_keeps_what_matters(long: Session) -> None:
    probes = [*long.probes, *pinned_probes(long.messages)]
    done = compact(long.messages, extract, meter=TokenMeter(), probes=probes)
    assert done.abandoned is None and len(done.messages) == 7
    assert done.after < done.before / 2
    assert verify(probes, done.messages).lost == []
    # Only a tool result says "divide by zero", so that fact is put back word for word.
    assert [probe.fact for probe in done.carried] == ["divide by zero"]
    first, second = map(parse_summary, done.summaries)
    assert "Remember: build with `pnpm build:calc`." in first["Confirmed facts"]
    assert first["Changes already made"] == "none"
    assert "run_command pnpm test" in done.summaries[0]
    assert "src/calc.ts" in done.summaries[0]
    assert "edit_file" in second["Changes already made"]
    assert "src/calc.ts" in second["Changes already made"]
    assert "除数为零要报错" in second["Confirmed facts"]
    assert problems(done.messages) == []


def test_clearing_loses_what_only_a_tool_result_said(long: Session) -> None:
    report = verify(long.probes, clear_results(long.messages))
    assert [probe.fact for probe in report.kept] == ["pnpm build:calc"]
    assert [probe.fact for probe in report.lost] == ["divide by zero"]


# --- one source, two forms --------------------------------------------------------------


def test_the_forms_differ_only_in_the_length_of_tool_results(long: Session, short: Session) -> None:
    assert (long.replies, long.probes) == (short.replies, short.probes)
    for at_length, tersely in zip(long.messages, short.messages, strict=True):
        if at_length["role"] == "tool":
            assert {**at_length, "content": ""} == {**tersely, "content": ""}
            assert len(tersely["content"]) < len(at_length["content"]) / 10
        else:
            assert at_length == tersely


@pytest.mark.parametrize("form", FORMS)
def test_messages_hold_nothing_that_an_api_does_not_know(form: str) -> None:
    for message in load(form).messages:
        assert set(message) <= {"role", "content", "tool_calls", "tool_call_id"}
        assert isinstance(message["content"], str) or message["tool_calls"]
    json.dumps(load(form).messages)


@pytest.mark.parametrize("form", FORMS)
def test_nobody_can_spoil_the_next_load(form: str) -> None:
    spoiled, untouched = load(form), load(form)
    spoiled.messages[2]["tool_calls"][0]["function"]["arguments"] = "{}"
    spoiled.messages[3]["content"] = ""
    spoiled.messages.pop()
    spoiled.replies.clear()
    spoiled.probes.clear()
    assert load(form) == untouched != spoiled


@pytest.mark.parametrize("form", ["medium", "Long", "", None, ["long"]])
def test_an_unknown_form_is_refused_in_one_line(form: object) -> None:
    with pytest.raises(ValueError, match="form must be one of long, short, not ") as caught:
        load(form)  # type: ignore[arg-type]
    assert repr(form) in str(caught.value) and "\n" not in str(caught.value)


def test_a_script_that_runs_out_says_so(long: Session) -> None:
    summarize = replay(long.replies)
    assert [summarize([]), summarize([])] == long.replies
    with pytest.raises(LookupError, match="no further summary"):
        summarize([])
    done = compact(long.messages, replay(long.replies[:1]), meter=TokenMeter())
    assert done.abandoned is not None and "no further summary" in done.abandoned
    assert done.messages == load("long").messages


# --- the story holds together -----------------------------------------------------------


def test_the_edit_applies_once_to_either_form_and_its_diff_is_true() -> None:
    for form in FORMS:
        messages = load(form).messages
        before, edit = messages[3]["content"], json.loads(calls_of(messages[7])[0].arguments)
        assert before.count(edit["old"]) == 1
        if form == "long":
            diff = difflib.unified_diff(
                before.split("\n"),
                before.replace(edit["old"], edit["new"]).split("\n"),
                f"{edit['path']} (before)",
                f"{edit['path']} (after)",
                n=5,
                lineterm="",
            )
            assert messages[8]["content"] == "\n".join(diff)


def test_the_test_runner_counts_its_own_lines(long: Session) -> None:
    failing, passing = long.messages[5]["content"], long.messages[12]["content"]
    for output, result in ((failing, "1 failed | 15 passed (16)"), (passing, "16 passed (16)")):
        assert f"Tests  {result}" in output
        passed = re.search(r"(\d+) passed \(16\)", output)
        assert passed is not None and output.count("✓") == int(passed[1])
    named = [line.rsplit(" ", 1)[0][3:] for line in passing.split("\n") if line[1:2] == "✓"]
    assert len(set(named)) == 16 and all(name in failing for name in named)


def test_english_with_a_little_chinese_and_no_padding(long: Session) -> None:
    chars = count_chars(transcript(long.messages))
    assert 0 < chars.cjk < chars.other / 50
    assert language_of(long.messages) == "en"
    for start, end in segments(long.messages, group_messages(long.messages)):
        assert language_of(long.messages[start:end]) == "en"
    for message in long.messages:
        assert not re.search(r"([^\W_])\1{4}", content_of(message))  # xxxxx
        lines = [line for line in content_of(message).split("\n") if len(line) > 12]
        assert len(lines) == len(set(lines))


def test_summaries_say_only_what_the_stretch_says(long: Session) -> None:
    stretches = segments(long.messages, group_messages(long.messages))
    for (start, end), reply in zip(stretches, long.replies, strict=True):
        source = transcript(long.messages[start:end])
        quoted = re.findall(r"`([^`]+)`|(src/\S+\.ts|test/\S+\.ts)", reply)
        assert quoted
        for ticked, path in quoted:
            assert (ticked or path) in source


# --- calibration ------------------------------------------------------------------------


def test_calibration_gives_the_published_figures() -> None:
    found = fit(calibration_samples())
    assert (found.samples, found.calibrated, found.degenerate) == (5, True, False)
    assert f"{found.coefficients.cjk:.2f} / {found.coefficients.other:.2f}" == "0.50 / 0.51"
    assert f"{found.error_before:.1%} -> {found.error_after:.1%}" == "55.6% -> 2.6%"


def test_samples_are_what_the_meter_would_have_observed() -> None:
    meter = TokenMeter()
    for text in calibration_texts():
        messages = [user(text)]
        meter.observe(messages, {"prompt_tokens": scripted_usage(messages)})
    assert meter.samples == calibration_samples()


def test_usage_follows_the_written_rule() -> None:
    """Half a token a character, rounded up, and three tokens for the message."""
    for sample in calibration_samples():
        assert sample.tokens == math.ceil((sample.cjk + sample.other) / 2) + 3


def test_the_shares_of_cjk_rise_from_none_to_nearly_all() -> None:
    shares = [s.cjk / (s.cjk + s.other) for s in calibration_samples()]
    assert shares[0] == 0 and shares[-1] > 0.9
    assert shares == sorted(set(shares))


def test_all_ascii_samples_cannot_separate_the_coefficients() -> None:
    texts = [calibration_texts()[0], "Run the tests.", "Then tell me which of them fail, and why."]
    samples = []
    for text in texts:
        other = len(transcript([user(text)]))
        samples.append(Sample(0, other, scripted_usage_of_chars(0, other, 1)))
    found = fit(samples)
    assert found.degenerate and found.calibrated
    assert found.coefficients.cjk == found.coefficients.other
    assert 0.5 < found.coefficients.other < 0.6
    assert "too uniform to separate the two coefficients" in found.note


def test_two_of_the_five_are_too_few() -> None:
    found = fit(calibration_samples()[:2])
    assert (found.calibrated, found.degenerate, found.coefficients) == (False, False, DEFAULT)


def test_the_texts_are_fresh_at_each_call() -> None:
    calibration_texts().clear()
    assert len(calibration_texts()) == len(calibration_samples()) == 5


def test_the_session_loads_no_server_and_no_client() -> None:
    program = (
        "import sys; from compaction.session import calibration_samples, load; load('long')\n"
        "assert 'compaction.gateway' not in sys.modules\n"
        "calibration_samples()\n"
        "print([m for m in ('tornado', 'openai', 'numpy', 'asyncio') if m in sys.modules])"
    )
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert (run.stdout.strip(), run.stderr) == ("[]", "")


def test_the_data_files_hold_no_results() -> None:
    folder = files("compaction") / "data"
    data = json.loads((folder / "session.json").read_text(encoding="utf-8"))
    assert list(data) == ["window", "messages", "replies", "probes"]
    texts = json.loads((folder / "calibration_texts.json").read_text(encoding="utf-8"))
    assert all(isinstance(text, str) for text in texts)
