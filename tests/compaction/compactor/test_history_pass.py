"""compact_history: targets, gains, probes, masks, roles, and what survives many passes."""

from __future__ import annotations

import copy
import json
import random
from itertools import pairwise

import pytest

from compaction.calibration import TokenMeter
from compaction.compactor import compact_history, mask_secrets
from compaction.messages import is_summary, problems, text_of
from compaction.probes import Probe, verify
from compaction.summary import HEADINGS, parse_summary
from compaction.summary.extractive import EARLIER_CHARACTERS
from compaction.summary.gather import gather
from tests.builders import said, system, trip, user

SYSTEM = system()


def work(number, lines=40):
    """A request, a file that is read and changed, and a conclusion."""
    rng = random.Random(number)
    text = "\n".join(f"order_{rng.randrange(10**6):06d} = {rng.random():.4f}" for _ in range(lines))
    path = f"shop/part_{number}.py"
    edit = {"path": path, "old": "a", "new": "b"}
    return [
        user(f"Please mend part {number}."),
        *trip(f"{number}r", "read_file", {"path": path}, text),
        *trip(f"{number}e", "edit_file", edit, "Replaced 1 occurrence."),
        said(f"Part {number} is mended."),
    ]


def history(parts):
    return [SYSTEM, *(message for number in range(parts) for message in work(number))]


def summary_text(done):
    return "\n".join(text_of(m) for m in done.messages if is_summary(m))


@pytest.mark.parametrize("share", [0.5, 0.25, 0.1])
def test_a_target_is_kept_and_used(share):
    messages = history(12)
    meter = TokenMeter()
    floor = meter.count([messages[0], *messages[-5:]])
    target = int(floor + (meter.count(messages) - floor) * share)
    done = compact_history(messages, target_tokens=target, meter=meter)
    assert done.abandoned is None
    assert meter.count(done.messages) == done.after <= target
    assert done.after >= 0.85 * target
    assert problems(done.messages) == []


def test_a_target_that_cannot_be_reached_is_abandoned_with_what_fills_it():
    messages = [system("rule " * 400), *history(6)[1:]]
    done = compact_history(messages, target_tokens=300, meter=TokenMeter())
    assert done.messages is messages
    assert "300 tokens cannot be reached" in done.abandoned and "system" in done.abandoned


def test_a_summariser_is_told_its_share_where_it_asks_for_it():
    told = []

    def summarize(messages, max_tokens=None):
        told.append(max_tokens)
        return "\n".join(f"{heading} x" for heading in HEADINGS)

    compact_history(history(6), summarize, target_tokens=900, meter=TokenMeter())
    assert told and all(0 < tokens < 900 for tokens in told)
    told.clear()
    compact_history(history(6), summarize, meter=TokenMeter())
    assert told and set(told) == {None}


def test_a_summariser_that_says_too_much_abandons_the_pass():
    def summarize(messages):
        return "\n".join(f"{heading} {'word ' * 500}" for heading in HEADINGS)

    messages = history(6)
    done = compact_history(messages, summarize, target_tokens=900, meter=TokenMeter())
    assert done.messages is messages and "900" in done.abandoned


def test_stretches_and_what_is_left_are_told():
    messages = history(4)
    done = compact_history(messages, target_tokens=700, meter=TokenMeter())
    assert done.stretches[0].start == 1
    for stretch in done.stretches:
        assert stretch.after < stretch.before
        assert all(value in summary_text(done) for value in stretch.kept)
    assert any(stretch.left for stretch in done.stretches)


def test_the_input_is_never_touched():
    messages = history(5)
    before = copy.deepcopy(messages)
    compact_history(messages, target_tokens=500, alternate=True, mask=mask_secrets)
    assert messages == before


FACTS = [f"The depot number {n} opens at {n}:30." for n in range(5, 10)]
RULES = ["Do not touch vendor/legacy.", "You must sign every release.", "只能用整数分。"]


def grown(messages, number):
    return [*messages, *work(number)]


@pytest.mark.parametrize("target", [None, 1200])
def test_five_passes_lose_no_fact_of_the_user_and_no_change(target):
    messages = [SYSTEM, user(" ".join([*FACTS, *RULES])), said("Noted.")]
    for number in range(6):
        messages = grown(messages, number)
        done = compact_history(messages, target_tokens=target, meter=TokenMeter())
        messages = done.messages
    text = "\n".join(text_of(message) for message in messages)
    for fact in [*FACTS, *RULES]:
        assert fact in text
    for number in range(5):
        assert f"shop/part_{number}.py" in text


@pytest.mark.parametrize("target", [None, 1500])
def test_twenty_passes_lose_no_rule_and_stay_bounded(target):
    messages = [SYSTEM, user(" ".join(RULES)), said("Noted.")]
    sizes = []
    for number in range(20):
        messages = grown(messages, number)
        done = compact_history(messages, target_tokens=target, meter=TokenMeter())
        messages = done.messages
        sizes.append(TokenMeter().count(messages))
    text = "\n".join(text_of(message) for message in messages)
    assert all(rule in text for rule in RULES)
    assert text.count("Confirmed facts") + text.count("已确认的事实") <= 3
    # What earlier summaries hold has a bound of its own.
    assert sizes[-1] < EARLIER_CHARACTERS / 4 + 1000
    assert target is None or max(sizes) <= target


def test_a_masked_secret_enters_no_summary_and_no_request():
    secret = "sk-proj-abcdefghijklmnop1234567890"
    read = trip("s", "read_file", {"path": ".env"}, f"OPENAI_API_KEY={secret}\n" + "x = 1\n" * 200)
    messages = [SYSTEM, user(f"Remember: the key is `{secret}`."), *read, *history(4)[1:]]
    seen = []

    def summarize(stretch):
        seen.extend(text_of(message) for message in stretch)
        return "\n".join(f"{heading} x" for heading in HEADINGS)

    probe = Probe(secret)
    for by in (summarize, None):
        options = {"mask": mask_secrets, "meter": TokenMeter(), "probes": [probe]}
        done = compact_history(messages, *([by] if by else []), **options)
        assert done.abandoned is None
        assert secret not in json.dumps(done.messages)
        assert any("masked" in line for line in done.dropped)
    assert seen and not any(secret in text for text in seen)


def test_joined_messages_are_read_apart_again():
    messages = [*history(4), user("[todo] 1. mend part 9"), *work(9), *work(10)]
    once = compact_history(messages, alternate=True, meter=TokenMeter())
    again = [*once.messages, *work(11), *work(12)]
    done = compact_history(again, alternate=True, meter=TokenMeter())
    roles = [m["role"] for m in done.messages]
    assert not any(a == b == "user" for a, b in pairwise(roles))
    assert "[todo] 1. mend part 9" in "\n".join(text_of(m) for m in done.messages)
    # No summary was taken for a request, none was quoted inside another.
    assert "\n".join(text_of(m) for m in done.messages).count("Confirmed facts") <= 6


def test_a_carried_fact_brings_its_sentence():
    def forgets(stretch):
        return "\n".join(f"{heading}\nnone" for heading in HEADINGS)

    messages = [SYSTEM, user("Staging listens on port 8443. " + "word " * 200), *history(3)[1:]]
    done = compact_history(messages, forgets, probes=[Probe("8443")], meter=TokenMeter())
    first = parse_summary(done.summaries[0])["Confirmed facts"]
    assert first == "- Staging listens on port 8443."
    assert verify([Probe("8443")], done.messages).kept


def test_a_superseded_value_goes():
    messages = [
        user("How is order W1?"),
        *trip(1, "get_order", {"order_id": "W1"}, '{"status_code": "4711", "carrier": "DHL22"}'),
        *trip(2, "get_order", {"order_id": "W1"}, '{"status_code": "4712", "carrier": "DHL22"}'),
    ]
    index = gather([messages]).index
    assert "4712" in index.entries and "4711" not in index.entries


def test_the_work_grows_with_the_history():
    """Twice the messages, about twice the values looked at: counted, not timed."""
    sizes = []
    for parts in (20, 40):
        calls = 0
        material = gather([history(parts)])
        calls += len(material.lines) + len(material.index.entries)
        sizes.append(calls)
    assert sizes[1] <= 2.2 * sizes[0]
