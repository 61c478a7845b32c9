"""Day 2: fits, and the meter that is anchored on observed usage."""

from __future__ import annotations

import copy
import math
import random
from itertools import pairwise
from statistics import fmean, median
from types import SimpleNamespace

import numpy
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from compaction import calibration
from compaction.calibration import (
    MAX_COEFFICIENT,
    MIN_COEFFICIENT,
    UNIFORM_NOTE,
    Fit,
    Sample,
    Size,
    TokenMeter,
    fit,
    fit_robust,
    limit_coefficient,
    mean_error,
    size_of,
    size_of_tools,
    usable_samples,
)
from compaction.measurements import usage_by_call
from compaction.messages import transcript
from compaction.session import calibration_samples
from compaction.tokens import DEFAULT, IMAGE_TOKENS, Coefficients, count_chars, estimate
from tests.builders import calls, said, system, user
from tests.compaction.strategies import histories

samples_of = st.lists(
    st.builds(Sample, st.integers(0, 5000), st.integers(0, 20000), st.integers(-5, 9000)),
    max_size=12,
)


TOOLS = [{"type": "function", "function": {"name": "read_file", "description": "d" * 90}}]


# --- the plain fit ------------------------------------------------------------------------


def test_the_published_calibration():
    found = fit(calibration_samples())
    assert (round(found.coefficients.cjk, 2), round(found.coefficients.other, 2)) == (0.50, 0.51)
    assert (f"{found.error_before:.1%}", f"{found.error_after:.1%}") == ("55.6%", "2.6%")
    assert (found.samples, found.degenerate, found.calibrated) == (5, False, True)


def test_exact_usage_gives_the_coefficients_back():
    texts = [(100, 300), (400, 100), (50, 900), (700, 20)]
    found = fit([Sample(c, o, round(0.6 * c + 0.3 * o)) for c, o in texts])
    assert found.coefficients.cjk == pytest.approx(0.6, abs=1e-9)
    assert found.coefficients.other == pytest.approx(0.3, abs=1e-9)
    assert found.error_after == pytest.approx(0.0, abs=1e-9)


@pytest.mark.parametrize("count", [0, 1, 2])
def test_fewer_than_three_samples_leave_the_table_as_it_is(count):
    active = Coefficients(0.7, 0.3)
    found = fit([Sample(100, 100, 90), Sample(0, 100, 30)][:count], active)
    assert found.coefficients == active
    assert (found.samples, found.degenerate, found.calibrated) == (count, False, False)
    assert found.error_before == found.error_after
    assert found.note.strip()


def test_min_samples_may_be_another_number():
    two = [Sample(100, 0, 60), Sample(0, 100, 30)]
    assert fit(two, min_samples=2).calibrated
    assert not fit([*two, Sample(1, 1, 1)], min_samples=4).calibrated


def test_latin_samples_fall_back_to_one_coefficient_for_all_characters():
    samples = [Sample(0, n, round(n / 3)) for n in (300, 600, 1200)]
    found = fit(samples)
    expected = sum(s.tokens * s.other for s in samples) / sum(s.other**2 for s in samples)
    assert found.coefficients == Coefficients(expected, expected)
    assert (found.degenerate, found.calibrated, found.note) == (True, True, UNIFORM_NOTE)


@pytest.mark.parametrize("scale", [1, 1000])
@pytest.mark.parametrize("ratio", [(0, 1), (1, 0), (1, 1), (2, 3)])
def test_a_uniform_ratio_is_degenerate_whatever_the_length(ratio, scale):
    samples = [Sample(ratio[0] * n * scale, ratio[1] * n * scale, n * scale) for n in (10, 20, 55)]
    found = fit(samples)
    assert found.degenerate
    characters = [s.cjk + s.other for s in samples]
    expected = sum(s.tokens * n for s, n in zip(samples, characters, strict=True)) / sum(
        n * n for n in characters
    )
    assert found.coefficients.cjk == found.coefficients.other == pytest.approx(expected)


def test_the_determinant_is_judged_relative_to_the_sums():
    """Long texts of nearly one ratio: the determinant is huge, and still says nothing."""
    samples = [Sample(100_000, 300_000, 150_000), Sample(200_000, 600_001, 300_000)]
    samples.append(Sample(50_000, 150_000, 75_000))
    sxx, syy = sum(s.cjk**2 for s in samples), sum(s.other**2 for s in samples)
    determinant = sxx * syy - sum(s.cjk * s.other for s in samples) ** 2
    assert determinant > 1e6
    assert fit(samples).degenerate


def test_the_line_between_degenerate_and_not():
    """|det| < 1e-6 * max(1, Sxx*Syy), strictly."""
    for other in range(2000, 2400, 3):
        samples = [Sample(1000, 2000, 900), Sample(1000, 2000, 900), Sample(1000, other, 950)]
        sxx, syy = sum(s.cjk**2 for s in samples), sum(s.other**2 for s in samples)
        determinant = sxx * syy - sum(s.cjk * s.other for s in samples) ** 2
        assert fit(samples).degenerate == (abs(determinant) < 1e-6 * max(1, sxx * syy))


@pytest.mark.parametrize(
    ("samples", "expected"),
    [
        # Far too expensive, and as if free.
        ([Sample(1, 0, 900), Sample(0, 1, 900), Sample(1, 1, 900)], (4.0, 4.0)),
        ([Sample(9000, 0, 1), Sample(0, 9000, 1), Sample(10, 20, 1)], (0.01, 0.01)),
        # The solution wants one coefficient below zero.
        ([Sample(100, 100, 5), Sample(0, 100, 40), Sample(10, 200, 80)], (0.01, None)),
    ],
)
def test_coefficients_are_limited(samples, expected):
    found = fit(samples).coefficients
    for value, wanted in zip((found.cjk, found.other), expected, strict=True):
        assert MIN_COEFFICIENT <= value <= MAX_COEFFICIENT
        assert wanted is None or value == wanted


def test_limits():
    assert (MIN_COEFFICIENT, MAX_COEFFICIENT) == (0.01, 4.0)
    assert [limit_coefficient(v) for v in (-1, 0.01, 2.5, 4.0, 9)] == [0.01, 0.01, 2.5, 4.0, 4.0]


def test_errors_compare_the_unrounded_estimate():
    samples = [Sample(0, 5, 1), Sample(0, 6, 2), Sample(1, 0, 2)]
    assert fit(samples).error_before == pytest.approx(fmean([0.25, 0.25, 0.5]))
    assert mean_error(samples, DEFAULT) == fit(samples).error_before


def test_error_before_is_that_of_the_table_in_force():
    samples = [Sample(100, 0, 60), Sample(0, 100, 30), Sample(100, 100, 90)]
    active = Coefficients(0.6, 0.3)
    assert fit(samples, active).error_before == pytest.approx(0.0)
    assert fit(samples).error_before == mean_error(samples, DEFAULT) > 0.2


def test_samples_that_say_nothing_are_left_out():
    nothing = [Sample(0, 0, 5), Sample(9, 9, 0), Sample(9, 9, -4)]
    real = [Sample(100, 0, 60), Sample(0, 100, 30), Sample(100, 100, 90)]
    assert usable_samples([*nothing, *real]) == real
    assert fit([*nothing, *real]) == fit(real)
    assert not fit([*nothing, *real[:2]]).calibrated


@given(samples_of)
def test_any_samples_give_a_usable_table(samples):
    for found in (fit(iter(samples)), fit_robust(iter(samples))):
        for value in (found.coefficients.cjk, found.coefficients.other):
            assert MIN_COEFFICIENT <= value <= MAX_COEFFICIENT
        assert math.isfinite(found.error_before) and math.isfinite(found.error_after)
        assert found.samples == len(usable_samples(samples))
        assert found.calibrated == (found.samples >= 3)


# --- the robust fit -------------------------------------------------------------------------


def test_robust_agrees_with_plain_on_good_samples():
    texts = [(100, 300), (400, 100), (50, 900), (700, 20), (200, 200)] * 8
    samples = [Sample(c, o, round(0.6 * c + 0.3 * o)) for c, o in texts]
    found = fit_robust(samples).coefficients
    assert found.cjk == pytest.approx(0.6, rel=0.03)
    assert found.other == pytest.approx(0.3, rel=0.03)


def test_one_language_leaves_the_other_coefficient_near_its_prior():
    latin = fit_robust([Sample(0, n, round(n / 3)) for n in (300, 500, 800, 1300)])
    assert latin.coefficients.cjk == pytest.approx(1.0, rel=0.02)
    assert latin.coefficients.other == pytest.approx(1 / 3, rel=0.03)
    assert latin.degenerate and latin.calibrated
    chinese = fit_robust([Sample(n, 0, round(n * 0.7)) for n in (300, 500, 800, 1300)])
    assert chinese.coefficients.other == pytest.approx(0.25, rel=0.02)
    assert chinese.coefficients.cjk == pytest.approx(0.7, rel=0.03)


def test_one_stray_chinese_character_does_not_set_its_coefficient():
    """The plain fit gives that one character the whole residual."""
    samples = [Sample(0, 400, 110), Sample(0, 500, 118), Sample(1, 800, 240), Sample(0, 300, 80)]
    assert fit(samples).coefficients.cjk == MAX_COEFFICIENT
    assert fit_robust(samples).coefficients.cjk == pytest.approx(1.0, rel=0.1)


@pytest.mark.parametrize("odd", [Sample(10, 500, 90_000), Sample(500, 4000, 1), Sample(0, 3, 4000)])
def test_one_odd_sample_does_not_wreck_the_table(odd):
    good = [
        Sample(c, o, round(0.6 * c + 0.3 * o))
        for c, o in [(100, 300), (400, 100), (50, 900), (700, 20), (250, 250)]
    ]
    found = fit_robust([*good, odd]).coefficients
    assert found.cjk == pytest.approx(0.6, rel=0.2)
    assert found.other == pytest.approx(0.3, rel=0.2)


def test_robust_beats_plain_on_few_noisy_samples():
    """Five noisy texts, mostly Latin, judged on mixed text: the case that plain fits get wrong."""
    draw = random.Random(20260218)
    plain_errors, robust_errors = [], []
    judge = [Sample(c, o, round(0.7 * c + 0.3 * o)) for c, o in [(400, 400), (900, 100), (90, 900)]]
    for _ in range(200):
        samples = []
        for _ in range(5):
            other, cjk = draw.randint(200, 2000), draw.choice([0, 0, 1, 3, 60])
            noise = draw.uniform(0.7, 1.3)
            samples.append(Sample(cjk, other, round((0.7 * cjk + 0.3 * other) * noise)))
        plain_errors.append(mean_error(judge, fit(samples).coefficients))
        robust_errors.append(mean_error(judge, fit_robust(samples).coefficients))
    assert median(robust_errors) < median(plain_errors)
    assert max(robust_errors) < 1 < max(plain_errors)


def test_robust_needs_three_samples_too():
    found = fit_robust([Sample(0, 100, 30)] * 2, Coefficients(0.8, 0.2))
    assert (found.coefficients, found.calibrated) == (Coefficients(0.8, 0.2), False)


def test_the_prior_decides_where_samples_say_nothing():
    latin = [Sample(0, n, n // 2) for n in (400, 800, 1200)]
    found = fit_robust(latin, prior=Coefficients(0.5, 0.25)).coefficients
    assert found.cjk == pytest.approx(0.5, rel=0.02)


# --- sizes ----------------------------------------------------------------------------------


@given(histories())
def test_sizes_add_up_to_the_transcript(history):
    sizes = [size_of(message) for message in history]
    chars = count_chars(transcript(history))
    assert (sum(s.cjk for s in sizes), sum(s.other for s in sizes)) == chars


def test_size_arithmetic():
    assert Size(1, 2, 3).plus(Size(4, 5, 6)) == Size(5, 7, 9)
    assert Size(5, 7, 9).minus(Size(4, 5, 6)) == Size(1, 2, 3)
    assert Size(2, 4, 1).tokens(DEFAULT) == 2 + 1 + IMAGE_TOKENS
    assert size_of_tools(None) == size_of_tools([]) == Size()


# --- the meter before the first observation ---------------------------------------------------


@given(histories())
def test_before_any_observation_count_is_the_plain_estimate(history):
    meter = TokenMeter()
    images = sum(size_of(message).images for message in history)
    assert meter.count(history) == estimate(transcript(history)) + IMAGE_TOKENS * images
    with_tools = estimate(transcript(history, TOOLS)) + IMAGE_TOKENS * images
    assert meter.count(history, TOOLS) == with_tools
    assert meter.samples == []


def test_an_image_costs_its_flat_price_and_nothing_for_its_data():
    part = {"type": "image_url", "image_url": {"url": "data:image/png;base64," + "A" * 10**6}}
    text = [user([{"type": "text", "text": "look"}])]
    image = [user([{"type": "text", "text": "look"}, part])]
    assert TokenMeter().count(image) == TokenMeter().count(text) + 256


def test_a_meter_with_another_table():
    meter = TokenMeter(Coefficients(0.5, 0.5))
    assert meter.count([user("你好")]) == math.ceil(0.5 * 2 + 0.5 * 7)


# --- observing --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "usage",
    [
        None,
        0,
        -5,
        {},
        {"prompt_tokens": None},
        {"prompt_tokens": 0},
        {"prompt_tokens": -1},
        {"prompt_tokens": "60"},
        {"prompt_tokens": True},
        {"prompt_tokens": float("nan")},
        {"prompt_tokens": float("inf")},
        {"completion_tokens": 60},
        SimpleNamespace(prompt_tokens=None),
        SimpleNamespace(),
        True,
        "60",
    ],
)
def test_usage_that_says_nothing_is_no_sample(usage):
    meter = TokenMeter()
    history = [user("hello world " * 20)]
    before = meter.count(history)
    meter.observe(history, usage)
    assert meter.samples == []
    assert meter.count(history) == before


@pytest.mark.parametrize(
    "usage",
    [
        60,
        60.0,
        {"prompt_tokens": 60},
        {"prompt_tokens": 60, "prompt_tokens_details": {"cached_tokens": 50}},
        SimpleNamespace(prompt_tokens=60, completion_tokens=9),
        numpy.int64(60),
        numpy.float32(60),
        {"prompt_tokens": numpy.int32(60)},
    ],
)
def test_usage_in_every_form_is_one_sample(usage):
    meter = TokenMeter()
    history = [user("hello 世界 " * 20)]
    meter.observe(history, usage)
    chars = count_chars(transcript(history))
    assert meter.samples == [Sample(chars.cjk, chars.other, 60)]
    assert type(meter.samples[0].tokens) is int
    assert meter.count(history) == 60


def test_tools_are_part_of_the_sample():
    meter = TokenMeter()
    history = [user("hello")]
    meter.observe(history, 500, TOOLS)
    chars = count_chars(transcript(history, TOOLS))
    assert meter.samples == [Sample(chars.cjk, chars.other, 500)]


def test_a_sample_is_about_characters_not_images():
    meter = TokenMeter()
    part = {"type": "image_url", "image_url": {"url": "data:"}}
    history = [user([{"type": "text", "text": "look " * 40}, part])]
    meter.observe(history, 316)
    assert meter.samples[0].tokens == 316 - IMAGE_TOKENS
    # Where the gateway prices an image lower than we do, the sample is still one.
    meter.observe(history, 90)
    assert meter.samples[1].tokens == 1


def test_calibrate_fits_all_samples_and_uses_the_table():
    meter = TokenMeter()
    texts = ["hello world " * 40, "你好世界" * 40, "mixed 混合 text " * 40, "more " * 99]
    for text in texts * 5:
        chars = count_chars(transcript([user(text)]))
        meter.observe([user(text)], round(0.6 * chars.cjk + 0.35 * chars.other))
    found = meter.calibrate()
    assert isinstance(found, Fit) and found.calibrated and found.samples == 20
    assert meter.coefficients == found.coefficients
    assert meter.coefficients.cjk == pytest.approx(0.6, rel=0.06)
    assert meter.coefficients.other == pytest.approx(0.35, rel=0.06)
    assert found.error_after < 0.05 < found.error_before


def test_calibrating_twice_does_not_drift():
    """The ridge pulls towards the table the meter began with, not towards the last fit."""
    meter = TokenMeter()
    for count in (100, 300, 700):
        meter.observe([user("word " * count)], count * 2)
    first = meter.calibrate().coefficients
    for _ in range(5):
        meter.calibrate()
    assert meter.coefficients.cjk == pytest.approx(first.cjk, rel=1e-9)
    assert meter.coefficients.other == pytest.approx(first.other, rel=1e-9)


def test_calibrate_without_samples_changes_nothing():
    meter = TokenMeter(Coefficients(0.7, 0.3))
    assert not meter.calibrate().calibrated
    assert meter.coefficients == Coefficients(0.7, 0.3)


# --- anchored counting --------------------------------------------------------------------------


def observed(tokens=1000, tools=None):
    meter = TokenMeter()
    history = [user("hello " * 50), said("hi " * 30)]
    meter.observe(history, tokens, tools)
    return meter, history


def test_the_same_history_costs_what_it_really_cost():
    meter, history = observed()
    assert meter.count(history) == 1000
    assert meter.count(copy.deepcopy(history)) == 1000
    assert meter.count(tuple(history)) == 1000


def test_what_follows_is_estimated():
    meter, history = observed()
    added = [user("x" * 393), user("你" * 10)]
    expected = math.ceil(sum(size_of(message).tokens(DEFAULT) for message in added))
    assert meter.count(history + added) == 1000 + expected


def test_tools_that_come_or_go_are_the_difference():
    meter, history = observed()
    schemas = size_of_tools(TOOLS).tokens(DEFAULT)
    assert meter.count(history, TOOLS) == 1000 + math.ceil(schemas)
    meter, history = observed(tools=TOOLS)
    assert meter.count(history, TOOLS) == 1000
    assert meter.count(history) == 1000 + math.ceil(-schemas)


def test_schemas_changed_in_place_are_seen():
    tools = copy.deepcopy(TOOLS)
    meter, history = observed(tools=tools)
    assert meter.count(history, tools) == 1000
    tools[0]["function"]["description"] += "e" * 400
    assert meter.count(history, tools) == 1100


def test_count_is_never_negative():
    meter, history = observed(tokens=80, tools=TOOLS * 8)
    assert meter.count(history) == 0
    assert meter.count(history[:1]) >= 0
    assert meter.count([]) == 0


def test_any_other_history_is_its_estimate_times_the_ratio():
    meter, history = observed()
    ratio = 1000 / sum(size_of(m).tokens(DEFAULT) for m in history)
    ratio = min(4.0, ratio)
    other = [user("quite another " * 30)]
    assert meter.count(other) == math.ceil(ratio * size_of(other[0]).tokens(DEFAULT))


def test_a_shorter_history_does_not_begin_with_the_anchor():
    meter, history = observed(tokens=200)
    estimated = [size_of(m).tokens(DEFAULT) for m in history]
    assert meter.count(history[:1]) == math.ceil(round(200 / sum(estimated) * estimated[0], 6))


@pytest.mark.parametrize(("tokens", "ratio"), [(20, 0.25), (1500, 4.0)])
def test_the_ratio_is_limited(tokens, ratio):
    meter, _ = observed(tokens)
    other = [user("a" * 794)]  # "user: " and a line break make it 801
    assert meter.count(other) == math.ceil(ratio * 801 / 4)


def test_a_message_changed_in_place_loses_the_anchor():
    meter, history = observed(tokens=200)
    history[0]["content"] += " and more" * 100
    estimated = sum(size_of(m).tokens(DEFAULT) for m in history)
    ratio = 200 / sum(size_of(m).tokens(DEFAULT) for m in observed()[1])
    assert meter.count(history) == math.ceil(round(ratio * estimated, 6))


def test_a_change_deep_inside_a_message_is_seen():
    call = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    history = [user("hi"), calls(call)]
    meter = TokenMeter()
    meter.observe(history, 40)
    call["function"]["arguments"] = '{"path": "' + "a" * 400 + '"}'
    assert meter.count(history) > 100
    plain = TokenMeter()
    plain.count(history)
    call["function"]["arguments"] = "{}"
    assert plain.count(history) == TokenMeter().count(history)


def test_the_anchor_holds_again_when_the_history_is_back():
    meter, history = observed()
    original = copy.deepcopy(history)
    history[0]["content"] = "other"
    assert meter.count(history) != 1000
    assert meter.count(original) == 1000


def test_a_summary_in_front_is_no_longer_the_anchored_history():
    """After a compaction the count is in the unit of the last usage."""
    meter, history = observed(tokens=200)
    estimated = sum(size_of(m).tokens(DEFAULT) for m in history)
    compacted = [user("[compacted history] " + "a" * 80), history[1]]
    plain = sum(size_of(m).tokens(DEFAULT) for m in compacted)
    assert meter.count(compacted) == math.ceil(round(200 / estimated * plain, 6))


def test_the_last_observation_is_the_anchor():
    meter, history = observed()
    longer = [*history, user("more " * 40)]
    meter.observe(longer, 1500)
    assert meter.count(longer) == 1500
    assert len(meter.samples) == 2
    meter.observe(longer, None)
    assert meter.count(longer) == 1500


def test_counting_and_observing_change_no_message():
    meter, history = observed()
    original = copy.deepcopy(history)
    meter.count([*history, user("x")], TOOLS)
    meter.calibrate()
    assert history == original


def test_after_calibrating_the_anchor_still_holds():
    meter, history = observed()
    for count in (50, 90, 200):
        meter.observe([user("w " * count)], count)
    meter.observe(history, 1000)
    meter.calibrate()
    assert meter.count(history) == 1000
    added = user("x" * 400)
    expected = 1000 + math.ceil(size_of(added).tokens(meter.coefficients))
    assert meter.count([*history, added]) == expected


@settings(max_examples=60)
@given(histories(), histories(), st.floats(0.125, 16))
def test_a_count_goes_on_from_the_anchor(history, more, ratio):
    meter = TokenMeter()
    tokens = math.ceil(ratio * sum(size_of(message).tokens(DEFAULT) for message in history))
    meter.observe(history, max(1, tokens))
    added = sum(size_of(message).tokens(DEFAULT) for message in more)
    assert meter.count([*history, *more]) == max(1, tokens) + math.ceil(added)


# --- what counting costs --------------------------------------------------------------------------


def test_a_turn_measures_its_new_characters_only(monkeypatch):
    """Over a long session every character is measured once, not once a turn."""
    measured = 0

    def counting(text):
        nonlocal measured
        measured += len(text)
        return count_chars(text)

    monkeypatch.setattr(calibration, "count_chars", counting)
    meter, history = TokenMeter(), [system("s" * 4000)]
    for turn in range(400):
        history += [
            user(f"question {turn} " * 20),
            said("answer " * 40),
        ]
        meter.count(history, TOOLS)
        meter.observe(history, 100 + turn, TOOLS)
        meter.count(history, TOOLS)
    assert measured == len(transcript(history, TOOLS))


def test_a_changed_tail_measures_the_tail_only(monkeypatch):
    measured = 0

    def counting(text):
        nonlocal measured
        measured += len(text)
        return count_chars(text)

    meter, history = TokenMeter(), [user("a" * 10_000) for _ in range(20)]
    meter.count(history)
    monkeypatch.setattr(calibration, "count_chars", counting)
    for _ in range(10):
        history[-1] = user("b" * 100)
        meter.count(history)
        meter.count(history[:5])
        meter.count(history)
    assert measured == len(transcript([history[-1]]))


# --- against 896 real requests --------------------------------------------------------------------


def test_anchored_counting_on_real_requests():
    """Synthetic messages of the recorded sizes, observed call by call as an agent would.

    The first request of a segment is left out: after a real compaction the figures lack what
    was retained.
    """
    errors = []
    meter, history, segment = TokenMeter(), [], None
    for row in usage_by_call():
        if (row.session, row.segment) != segment:
            segment, meter, history = (row.session, row.segment), TokenMeter(), []
        history = history + messages_of_size(
            row.new_messages, row.new_cjk_chars, row.new_other_chars
        )
        if row.call > 0:
            errors.append(abs(meter.count(history) - row.prompt_tokens) / row.prompt_tokens)
        meter.observe(history, {"prompt_tokens": row.prompt_tokens})
    assert len(errors) > 800
    assert fmean(errors) < 0.01
    assert sorted(errors)[math.ceil(0.95 * len(errors)) - 1] < 0.02


def test_one_meter_through_both_sessions_is_as_good():
    errors, previous = [], None
    meter, history = TokenMeter(), []
    for row in usage_by_call():
        if previous is None or (row.session, row.segment) != (previous.session, previous.segment):
            history = []
        history = history + messages_of_size(
            row.new_messages, row.new_cjk_chars, row.new_other_chars
        )
        if row.call > 0:
            errors.append(abs(meter.count(history) - row.prompt_tokens) / row.prompt_tokens)
        meter.observe(history, row.prompt_tokens)
        if row.call % 50 == 49:
            meter.calibrate()
        previous = row
    assert fmean(errors) < 0.01
    assert sorted(errors)[math.ceil(0.95 * len(errors)) - 1] < 0.02


def messages_of_size(count: int, cjk: int, other: int) -> list[dict]:
    """Return ``count`` messages with so many characters of content in all."""
    count = max(1, count)
    cuts_cjk = [cjk * i // count for i in range(count + 1)]
    cuts_other = [other * i // count for i in range(count + 1)]
    roles = ["user" if i % 2 == 0 else "assistant" for i in range(count)]
    return [
        {"role": role, "content": "你" * (c2 - c1) + "x" * (o2 - o1)}
        for role, (c1, c2), (o1, o2) in zip(
            roles, pairwise(cuts_cjk), pairwise(cuts_other), strict=True
        )
    ]
