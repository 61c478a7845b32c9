"""The meter for real histories: close, on the safe side, and not to be fooled."""

from __future__ import annotations

import copy
import random
from itertools import pairwise
from statistics import fmean
from types import SimpleNamespace

import pytest

from compaction import feature_meter
from compaction.calibration import FeatureMeter, TokenMeter
from compaction.features import count_features
from compaction.measurements import tokenizer_counts, usage_by_call
from compaction.messages import text_of, tools_text
from tests.builders import calls, said, system, user
from tests.compaction.test_histories import cases_of

RECORD = tokenizer_counts()
FAMILIES = [family.id for family in RECORD.families]
TOOLS = [{"type": "function", "function": {"name": "read_file", "description": "d e " * 90}}]
METERS = pytest.mark.parametrize("make", [TokenMeter, FeatureMeter])


def request(rng, pieces, family):
    """Return a request of a few pieces, and what it costs: the pieces and 4 a message."""
    chosen = [rng.choice(pieces) for _ in range(rng.randint(1, 5))]
    messages = [
        {"role": ("user", "assistant")[index % 2], "content": piece.text}
        for index, piece in enumerate(chosen)
    ]
    return messages, sum(piece.tokens[family] + 4 for piece in chosen)


def halves(seed):
    pieces = list(RECORD.pieces)
    random.Random(seed).shuffle(pieces)
    return pieces[::2], pieces[1::2]


def calibrated(family, samples, seed=0, strange=()):
    rng, meter = random.Random(f"{family} {seed}"), FeatureMeter()
    seen, unseen = halves(seed)
    for index in range(samples):
        messages, tokens = request(rng, seen, family)
        meter.observe(messages, tokens)
        if index < len(strange):
            messages, tokens = request(rng, seen, family)
            meter.observe(messages, round(strange[index] * tokens))
    meter.calibrate()
    return meter, [request(rng, unseen, family) for _ in range(40)]


def error(meter, requests):
    return fmean(abs(meter.count(messages) / tokens - 1) for messages, tokens in requests)


# --- how close, how safe (requests of this package's own pieces, six exact tokenizers) ---------


def test_closer_than_two_terms_without_any_sample():
    rng = random.Random(1)
    requests = [request(rng, RECORD.pieces, family) for family in FAMILIES for _ in range(40)]
    two_terms = fmean(abs(TokenMeter().count(m) / tokens - 1) for m, tokens in requests)
    assert error(FeatureMeter(), requests) < 0.13
    assert two_terms > 0.18


def test_samples_bring_it_closer():
    errors = {
        samples: fmean(error(*calibrated(family, samples)) for family in FAMILIES)
        for samples in (0, 3, 20)
    }
    assert errors[20] < errors[3] < errors[0]
    assert errors[20] < 0.08


def test_at_most_is_hardly_ever_too_low():
    for samples, allowed, over in ((0, 0.12, 0.35), (20, 0.10, 0.18)):
        bounds = []
        for family in FAMILIES:
            meter, requests = calibrated(family, samples)
            bounds += [meter.at_most(messages) / tokens for messages, tokens in requests]
        assert fmean(bound < 1 for bound in bounds) <= allowed
        assert fmean(bounds) - 1 <= over


def test_three_strange_samples_among_twenty_do_no_harm():
    errors = [error(*calibrated(family, 20, strange=(5, 0.2, 12))) for family in FAMILIES]
    assert fmean(errors) < 0.085


def test_more_is_not_counted_as_less():
    meter = FeatureMeter()
    history = [user("What is in the file?")]
    for piece in RECORD.pieces[::9]:
        longer = [*history, user(piece.text)]
        assert meter.count(longer) > meter.count(history)
        assert meter.count(longer) <= meter.at_most(longer)
        history = longer


# --- the anchor ----------------------------------------------------------------------------


def test_an_observed_history_costs_what_it_cost():
    meter, history = FeatureMeter(), [user("hello " * 50)]
    meter.observe(history, 70)
    assert meter.count(history) == meter.at_most(history) == 70
    assert meter.count(copy.deepcopy(history)) == 70
    assert meter.estimate(history) != 70


def test_what_follows_is_estimated_with_its_own_margin():
    meter, history = FeatureMeter(), [user("hello " * 50)]
    meter.observe(history, 70)
    added = user("A second question about quite another thing.")
    assert meter.count([*history, added]) == 70 + FeatureMeter().count([added])
    assert meter.at_most([*history, added]) == 70 + FeatureMeter().at_most([added])


def test_tools_count_and_may_come_and_go():
    meter, history = FeatureMeter(), [user("hello " * 50)]
    assert meter.count(history, TOOLS) > meter.count(history) + 100
    meter.observe(history, 300, TOOLS)
    assert meter.count(history, TOOLS) == 300
    assert meter.count(history) < 200


def test_growth_is_the_sample():
    meter, history = FeatureMeter(), [user("hello " * 50)]
    meter.observe(history, 4000)  # a gateway's own instructions come on top
    history = [*history, user("how are you? " * 30)]
    meter.observe(history, 4130)
    meter.observe(history, 4130)  # asked once more: no growth, no sample
    assert [sample.tokens for sample in meter.samples] == [4000, 130]
    assert meter.samples[1].features[:-2] == count_features(text_of(history[1]))
    assert meter.samples[1].features[-2:] == (1, 0)


def test_no_ratio_once_calibrated():
    meter = FeatureMeter()
    for index in range(4):
        meter.observe([user(f"Question {index}: " + "why is that so? " * 40)], 210)
    other = [user("An answer to all of it. " * 20)]
    assert meter.count(other) != meter.estimate(other)
    assert meter.calibrate().calibrated
    assert meter.count(other) == meter.estimate(other)


def test_a_message_changed_in_place_is_measured_anew():
    call = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    history = [user("hi"), calls(call)]
    meter = FeatureMeter()
    before = meter.count(history)
    call["function"]["arguments"] = '{"path": "' + "a/b" * 60 + '"}'
    assert meter.count(history) > before + 60


def test_a_growing_session_is_measured_once(monkeypatch):
    measured = 0

    def counting(text):
        nonlocal measured
        measured += len(text)
        return count_features(text)

    monkeypatch.setattr(feature_meter, "count_features", counting)
    meter, history = FeatureMeter(), [system("s " * 2000)]
    zero = measured
    for turn in range(60):
        history += [user(f"question {turn} " * 20), said("a " * 40)]
        meter.count(history, TOOLS)
        meter.at_most(history, TOOLS)
        meter.observe(history, 4000 + 100 * turn, TOOLS)
    texts = sum(len(text_of(message)) for message in history)
    assert measured - zero == texts + len(tools_text(TOOLS))


# --- not to be fooled ----------------------------------------------------------------------


IMPOSSIBLE = [
    None, 0, -5, True, "60", {}, {"prompt_tokens": "60"}, {"prompt_tokens": -1},
    {"prompt_tokens": float("nan")}, {"prompt_tokens": 10**12}, {"completion_tokens": 9},
    SimpleNamespace(), 10**9, 3,
]  # fmt: skip


@METERS
@pytest.mark.parametrize("usage", IMPOSSIBLE)
def test_usage_that_cannot_be_changes_nothing(make, usage):
    meter, history = make(), [user("hello world, " * 23)]  # 299 characters
    before = meter.count(history)
    meter.observe(history, usage)
    assert meter.samples == []
    assert meter.count(history) == before


@METERS
def test_cached_tokens_are_inside_or_beside(make):
    history = [user("hello world, " * 200)]
    for prompt, cached, tokens in ((600, 512, 600), (88, 512, 600)):
        meter = make()
        details = {"cached_tokens": cached}
        meter.observe(history, {"prompt_tokens": prompt, "prompt_tokens_details": details})
        assert meter.count(history) == tokens


def test_one_stray_character_changes_nothing_else():
    meter, plain = FeatureMeter(), FeatureMeter()
    for index in range(8):
        text = f"Sentence {index} of a plain report. " * 20
        stray = "你" if index == 3 else ""
        plain.observe([user(text)], 190)
        meter.observe([user(text + stray)], 191 if stray else 190)
    meter.calibrate()
    plain.calibrate()
    chinese = [user("请把第三章的错误改过来，然后再运行一次测试。" * 20)]
    assert meter.count(chinese) == pytest.approx(plain.count(chinese), rel=0.03)


def test_one_language_leaves_the_others_in_their_range():
    meter = FeatureMeter()
    english = [piece for piece in RECORD.pieces if piece.kind == "english"]
    for piece in english:
        meter.observe([user(piece.text)], round(1.3 * piece.tokens["o200k"]))
    meter.calibrate()
    for kind in ("chinese", "russian", "json"):
        pieces = [piece for piece in RECORD.pieces if piece.kind == kind]
        counted = sum(meter.count([user(piece.text)]) for piece in pieces)
        before = sum(FeatureMeter().count([user(piece.text)]) for piece in pieces)
        assert 0.7 * before < counted < 1.6 * before


def test_a_changed_model_is_followed():
    errors = {"before": [], "after": []}
    for old, new in (("o200k", "cl100k"), ("cl100k", "qwen3"), ("qwen3", "mistral")):
        meter, _ = calibrated(old, 20)
        rng = random.Random(5)
        requests = [request(rng, RECORD.pieces, new) for _ in range(40)]
        errors["before"].append(error(meter, requests))
        for _ in range(15):
            meter.observe(*request(rng, RECORD.pieces, new))
        meter.calibrate()
        errors["after"].append(error(meter, requests))
    assert fmean(errors["after"]) < 0.75 * fmean(errors["before"])


def test_fewer_than_three_samples_change_nothing():
    meter, history = FeatureMeter(), [user("hello " * 50)]
    meter.observe(history, 70)
    found = meter.calibrate()
    assert (found.calibrated, found.samples) == (False, 1)
    assert found.note == "1 of 3 samples needed: the weights stay as they are"
    assert FeatureMeter().calibrate().error_before == 0.0


# --- the cases, and 896 real requests ------------------------------------------------------


@cases_of("count")
def test_cases_of_counting(case):
    call, expect = case["call"], case["expect"]
    counted = TokenMeter().count(case["messages"]) - TokenMeter().count(call["without"])
    assert expect["at_least"] <= counted <= expect["at_most"]
    # The words of the cases are cheap English: closer to the truth is below the two terms.
    counted = FeatureMeter().count(case["messages"]) - FeatureMeter().count(call["without"])
    assert 0.9 * expect["at_least"] <= counted <= expect["at_most"]


@METERS
@cases_of("usage")
def test_cases_of_usage(case, make):
    meter = make()
    meter.observe(case["messages"], case["call"]["usage"])
    assert case["expect"]["at_least"] <= meter.count(case["messages"])
    assert meter.count(case["messages"]) <= case["expect"]["at_most"]


def test_the_next_request_of_real_sessions():
    """Texts of the recorded sizes, observed call by call as an agent would.

    The first request of a segment is left out: the figures lack what was retained.
    """
    words = "The next step is to read `src/main.py` and to run the tests again. "
    errors = []
    meter, history, segment = FeatureMeter(), [], None
    for row in usage_by_call():
        begins = (row.session, row.segment) != segment
        segment, history = (row.session, row.segment), [] if begins else history
        count = max(1, row.new_messages)
        cuts = [row.new_other_chars * i // count for i in range(count + 1)]
        sizes = [high - low for low, high in pairwise(cuts)]
        history = history + [user((words * (1 + size // len(words)))[:size]) for size in sizes]
        if not begins:
            errors.append(abs(meter.count(history) - row.prompt_tokens) / row.prompt_tokens)
        meter.observe(history, {"prompt_tokens": row.prompt_tokens})
        if row.call % 50 == 49:
            meter.calibrate()
    assert len(errors) > 800
    assert fmean(errors) < 0.003
