"""Values and the records that hold them."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from compaction.summary.records import Entry, Record, line_of, read_line
from compaction.summary.values import values_in, without_line_numbers


def test_shapes():
    text = "Pay 1,286 by 2024-05-20 10:30 to a@b.org; see src/calc.py, os.path, --dry-run, a5f0d91."
    assert set(values_in(text)) == {
        *("1,286", "2024-05-20", "10:30", "a@b.org", "src/calc.py"),
        *("os.path", "--dry-run", "a5f0d91"),
    }
    assert values_in("and/or 12 ab1 the word") == []
    assert values_in('say "pnpm build:calc" twice: `make  all`') == ["pnpm build:calc", "make all"]


def test_line_numbers_of_a_listing_are_no_facts():
    assert values_in(without_line_numbers(" 1200\tx = 1\n 1201\ty = 2")) == []


VALUES = st.text("abcXYZ019_./-", min_size=4, max_size=20).filter(lambda v: values_in(v) == [v])


@given(st.lists(st.tuples(st.sampled_from(["", "date", "flight_no"]), VALUES), min_size=1))
def test_a_line_of_values_is_read_back_as_a_record(pairs):
    record = Record(0, 0, "get_order", "W1")
    labels = {value: label for label, value in pairs}
    entries = [Entry(value, record, label) for value, label in labels.items()]
    for language in ("en", "zh"):
        read = read_line(line_of(record, entries, language))
        assert read is not None
        origin, found = read
        assert origin == "get_order W1"
        assert {value for _, value in found} == {entry.value for entry in entries}
