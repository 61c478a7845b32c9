"""A long file is read, measured and written in the memory of its longest conversation."""

from __future__ import annotations

import json
import tracemalloc

import pytest

from compaction import cli
from compaction.history import open_histories
from tests.builders import said, trip, user


def laid(path, megabytes):
    text = "order_48213 is in src/orders.py, and goes out at 8:30.\n" * 400
    messages = [
        user("Please mend the orders."),
        *trip("c1", "read_file", {"path": "src/orders.py"}, text),
        *trip("c2", "read_file", {"path": "src/late.py"}, text),
        said("The orders are mended."),
    ]
    line = json.dumps({"messages": messages}) + "\n"
    path.write_text(line * (megabytes * 1_000_000 // len(line)), encoding="utf-8")
    return path


@pytest.mark.parametrize("command", ["convert", "budget"])
def test_memory_does_not_grow_with_the_file(tmp_path, capsys, command):
    peaks = []
    small = laid(tmp_path / "small.jsonl", 1)
    cli.main([command, str(small)])  # whatever is loaded once is loaded
    for megabytes in (1, 4):
        path = laid(tmp_path / f"{megabytes}.jsonl", megabytes)
        options = ("--out", str(tmp_path / "out.jsonl")) if command == "convert" else ()
        tracemalloc.start()
        try:
            assert cli.main([command, str(path), *options]) == 0
            peaks.append(tracemalloc.get_traced_memory()[1])
        finally:
            tracemalloc.stop()
        capsys.readouterr()
    # Four times the file: what is more is a small part of the file itself.
    assert peaks[1] - peaks[0] < 1_000_000


def test_the_reader_tells_how_far_it_is(tmp_path):
    path = laid(tmp_path / "long.jsonl", 12)
    told = []
    stream = open_histories(path, lambda done, size: told.append((done, size)))
    assert sum(1 for _ in stream.conversations) > 100
    size = path.stat().st_size
    assert len(told) >= 2
    assert all(total == size for _, total in told)
    assert told == sorted(told) and told[-1][0] <= size
