"""Files are written whole or not at all, whatever happens on the way."""

from __future__ import annotations

import os
import stat
import threading
from pathlib import Path

import pytest

from compaction import files as module
from compaction.files import InputError, write_whole


def only_file(folder):
    (name,) = os.listdir(folder)
    return name


def test_a_new_file(tmp_path):
    write_whole(tmp_path / "new.json", "甲\n")
    assert (tmp_path / "new.json").read_bytes() == "甲\n".encode()
    assert only_file(tmp_path) == "new.json"


@pytest.mark.skipif(os.name == "nt", reason="Windows has no such permissions")
def test_permissions_are_those_of_the_old_file_or_the_usual_ones(tmp_path):
    old, new = tmp_path / "old.json", tmp_path / "new.json"
    old.write_text("old")
    old.chmod(0o640)
    write_whole(old, "x")
    assert stat.S_IMODE(old.stat().st_mode) == 0o640 and old.read_text() == "x"
    before = os.umask(0o027)
    try:
        write_whole(new, "x")
    finally:
        os.umask(before)
    assert stat.S_IMODE(new.stat().st_mode) == 0o640


@pytest.mark.parametrize("step", ["fsync", "replace"])
def test_a_write_that_fails_leaves_the_old_file_and_nothing_else(tmp_path, monkeypatch, step):
    path = tmp_path / "h.json"
    path.write_text("old")

    def fail(*arguments):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(module.os, step, fail)
    with pytest.raises(InputError, match=r"h\.json: cannot be written: no space left on device"):
        write_whole(path, "new")
    assert path.read_text() == "old" and only_file(tmp_path) == "h.json"


def test_an_interrupted_write_leaves_the_old_file_and_nothing_else(tmp_path, monkeypatch):
    path = tmp_path / "h.json"
    path.write_text("old")

    def interrupt(*arguments):
        raise KeyboardInterrupt

    monkeypatch.setattr(module.os, "fsync", interrupt)
    with pytest.raises(KeyboardInterrupt):
        write_whole(path, "new")
    assert path.read_text() == "old" and only_file(tmp_path) == "h.json"


@pytest.mark.skipif(os.name == "nt", reason="links need a privilege on Windows")
def test_a_link_stays_a_link(tmp_path):
    (tmp_path / "real").mkdir()
    target, link = tmp_path / "real" / "h.json", tmp_path / "link.json"
    target.write_text("old")
    link.symlink_to(target)
    write_whole(link, "new")
    assert link.is_symlink() and target.read_text() == "new"


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes in the file system here")
def test_a_pipe_is_written_to_and_not_replaced(tmp_path):
    path = tmp_path / "pipe"
    os.mkfifo(path)
    got = []
    reader = threading.Thread(target=lambda: got.append(path.read_text()), daemon=True)
    reader.start()
    write_whole(path, "text")
    reader.join(timeout=20)
    assert got == ["text"] and stat.S_ISFIFO(path.stat().st_mode)


@pytest.mark.parametrize(
    ("make", "expected"),
    [
        (lambda folder: folder, "it is a folder; expected a file"),
        (lambda folder: folder / "missing" / "h.json", "there is no folder"),
    ],
)
def test_places_that_cannot_be_written(tmp_path, make, expected):
    with pytest.raises(InputError) as caught:
        write_whole(make(tmp_path), "x")
    assert expected in str(caught.value) and os.listdir(tmp_path) == []


@pytest.mark.skipif(
    not hasattr(os, "geteuid") or os.geteuid() == 0, reason="a privileged person may write anyway"
)
def test_a_read_only_file_is_respected(tmp_path):
    path = Path(tmp_path / "h.json")
    path.write_text("old")
    path.chmod(0o444)
    with pytest.raises(InputError, match="read-only"):
        write_whole(path, "new")
    assert path.read_text() == "old"


@pytest.mark.skipif(os.name == "nt", reason="Windows has no such permissions")
def test_a_given_mode_holds_and_replaces_a_read_only_file(tmp_path):
    path = tmp_path / "graded.ipynb"
    write_whole(path, "first", mode=0o444)
    assert stat.S_IMODE(path.stat().st_mode) == 0o444
    write_whole(path, "second", mode=0o600)
    assert path.read_text() == "second" and stat.S_IMODE(path.stat().st_mode) == 0o600
    assert only_file(tmp_path) == "graded.ipynb"
