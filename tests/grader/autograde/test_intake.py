"""What a class hands in: whose it is, which lab, which one counts; and what is kept out."""

from __future__ import annotations

import io
import json
import os
import stat
import struct
import zipfile
from collections.abc import Callable
from datetime import datetime
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from grader.autograde.intake import files as finding
from grader.autograde.intake.journal import Places
from grader.autograde.intake.roster import read_roster, student_id
from grader.autograde.intake.take_in import Intake, take_in
from grader.errors import BadInput
from tests.grader.classroom import DAY1, DAY2, solved, starter, text_of, with_code

LAB1, LAB2 = text_of(starter()).encode(), text_of(starter(DAY2)).encode()


def lab(mark: str) -> bytes:
    """Return a lab that differs from all others by a line."""
    return text_of(with_code(f"# {mark}\n")).encode()


@pytest.fixture
def places(tmp_path: Path) -> Places:
    return Places(
        lambda s, g: tmp_path / "class" / "submitted" / s / g, tmp_path / "class" / "kept"
    )


def lay(folder: Path, files: dict[str, bytes]) -> Path:
    for name, data in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    return folder


def pack(path: Path, files: dict[str, bytes]) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in files.items():
            member = zipfile.ZipInfo(name, (2026, 2, 18, 10, 30, 0))
            archive.writestr(member, data, zipfile.ZIP_DEFLATED)
    return path


def who(result: Intake) -> list[tuple[str, str]]:
    return [(one.student, one.slug) for one in result.counting]


SCHEMES: dict[str, tuple[str, str]] = {
    "nbgrader's exchange": (f"ada/{DAY1}/{DAY1}.ipynb", "ada"),
    "Moodle, folders": ("Ada Lovelace_8815_assignsubmission_file/my lab.ipynb", "Ada Lovelace"),
    "Moodle, older folders": ("Ada Lovelace_8815_assignsubmission_file_/a.ipynb", "Ada Lovelace"),
    "Moodle, one folder": (f"Ada Lovelace_8815_assignsubmission_file_{DAY1}.ipynb", "Ada Lovelace"),
    "Moodle, anonymous": ("Participant_8815_assignsubmission_file_/x.ipynb", "Participant 8815"),
    "Canvas": ("lovelaceada_12345_67890_day1_estimate-1.ipynb", "lovelaceada"),
    "Canvas, late": ("lovelaceada_LATE_12345_67890_day1.ipynb", "lovelaceada"),
    "Blackboard": ("Lab 1_alovelace_attempt_2026-02-18-10-30-00_day1.ipynb", "alovelace"),
    "Brightspace": (
        "12345-67890 - Ada Lovelace - Feb 18, 2026 1030 AM/day1.ipynb",
        "Ada Lovelace",
    ),
    "Sakai": ("Lovelace, Ada(alovelace)/Submission attachment(s)/lab.ipynb", "alovelace"),
    "student in the folder": ("Ada Lovelace/whatever.ipynb", "Ada Lovelace"),
    "lab, then student": (f"{DAY1}/ada/x.ipynb", "ada"),
    "student before the lab in the file": (f"ada_{DAY1}.ipynb", "ada"),
    "student after the lab in the file": (f"{DAY1}-ada-lovelace.ipynb", "ada-lovelace"),
    "student and dash": ("Ada Lovelace - Day 1.ipynb", "Ada Lovelace"),
    "a copy by JupyterLab": (f"ada/{DAY1}/{DAY1}-Copy1.ipynb", "ada"),
    "downloaded twice": (f"ada_{DAY1} (2).ipynb", "ada"),
    "accents": ("José Núñez_77_assignsubmission_file/día.ipynb", "José Núñez"),
    "another script": ("李雷/作业.ipynb", "李雷"),
}


@pytest.mark.parametrize("form", ["folder", "zip"])
@pytest.mark.parametrize("scheme", SCHEMES)
def test_the_student_is_found_in_usual_names(
    scheme: str, form: str, tmp_path: Path, places: Places
) -> None:
    name, student = SCHEMES[scheme]
    files = {name: LAB1, name.replace("ada", "ben").replace("Ada", "Ben"): LAB1}
    source = lay(tmp_path / "in", files) if form == "folder" else pack(tmp_path / "in.zip", files)
    result = take_in(source, places)
    assert (student, DAY1) in who(result)
    assert not result.refused
    assert places.submitted(student, DAY1).joinpath(f"{DAY1}.ipynb").read_bytes() == LAB1


def test_a_folder_around_all_others_is_nobody(tmp_path: Path, places: Places) -> None:
    files = {f"Class of 2026/{s}/{DAY1}.ipynb": LAB1 for s in ("ada", "ben")}
    assert who(take_in(pack(tmp_path / "a.zip", files), places)) == [("ada", DAY1), ("ben", DAY1)]


def test_one_student_with_two_labs_is_no_wrapper(tmp_path: Path, places: Places) -> None:
    folder = lay(tmp_path / "in", {f"ada/{DAY1}/a.ipynb": LAB1, f"ada/{DAY2}/b.ipynb": LAB2})
    assert who(take_in(folder, places)) == [("ada", DAY1), ("ada", DAY2)]


def test_an_archive_that_a_student_handed_in_is_looked_into(tmp_path: Path, places: Places) -> None:
    inner = pack(tmp_path / "inner.zip", {"labs/x.ipynb": LAB1, "labs/y.ipynb": LAB2})
    outer = {
        "Ada Lovelace_1_assignsubmission_file/labs.zip": inner.read_bytes(),
        "Ben Ng_2_assignsubmission_file/lab.ipynb": LAB1,
    }
    result = take_in(pack(tmp_path / "outer.zip", outer), places)
    expected = [("Ada Lovelace", DAY1), ("Ada Lovelace", DAY2), ("Ben Ng", DAY1)]
    assert who(result) == expected


def test_a_renamed_notebook_is_known_by_its_metadata(tmp_path: Path, places: Places) -> None:
    folder = lay(tmp_path / "in", {f"ada/{DAY1}.ipynb": LAB2})  # it says day 1, and is day 2
    assert who(take_in(folder, places)) == [("ada", DAY2)]


# --- late and repeated -------------------------------------------------------------------


def test_the_newest_counts_and_all_are_kept(tmp_path: Path, places: Places) -> None:
    files = {
        f"Lab 1_ada_attempt_2026-02-{day}-10-30-00_x.ipynb": lab(f"day {day}")
        for day in ("17", "19", "18")
    }
    result = take_in(lay(tmp_path / "in", files), places)
    assert who(result) == [("ada", DAY1)] and result.older == 2
    assert result.counting[0].path.read_bytes() == lab("day 19")
    kept = {path.read_bytes() for path in (places.kept / "files").glob("*.ipynb")}
    assert kept == {lab("day 17"), lab("day 18"), lab("day 19")}
    stamp = (result.counting[0].path.parent / "timestamp.txt").read_text()
    assert stamp.startswith("2026-02-19") and stamp.endswith(" UTC\n")


def test_canvas_counts_attempts_whatever_the_files_times_are(
    tmp_path: Path, places: Places
) -> None:
    folder = lay(
        tmp_path / "in",
        {"adal_7_102_lab-1.ipynb": lab("second"), "adal_LATE_7_103_lab-2.ipynb": lab("third")},
    )
    os.utime(folder / "adal_LATE_7_103_lab-2.ipynb", (0, 0))
    (one,) = take_in(folder, places).counting
    assert one.path.read_bytes() == lab("third")
    assert one.late and one.when is None


def test_a_later_folder_replaces_what_was_there_and_an_older_one_does_not(
    tmp_path: Path, places: Places
) -> None:
    def attempt(day: int) -> Path:
        name = f"Lab 1_ada_attempt_2026-02-{day}-10-30-00_x.ipynb"
        return lay(tmp_path / f"in{day}", {name: lab(str(day))})

    for day, counts in ((18, "18"), (20, "20"), (19, "20")):
        (one,) = take_in(attempt(day), places).counting
        assert one.path.read_bytes() == lab(counts)
    assert len(list((places.kept / "files").glob("*.ipynb"))) == 3


def test_what_an_instructor_mended_stays(tmp_path: Path, places: Places) -> None:
    folder = lay(tmp_path / "in", {"ada/x.ipynb": LAB1})
    (one,) = take_in(folder, places).counting
    one.path.write_bytes(lab("mended"))
    (again,) = take_in(folder, places).counting
    assert again.path.read_bytes() == lab("mended")


def test_a_time_in_a_hand_in_is_the_learner_s_word(tmp_path: Path, places: Places) -> None:
    files = {f"ada/{DAY1}/x.ipynb": LAB1, f"ada/{DAY1}/timestamp.txt": b"2026-02-18 12:30:00 +0200"}
    (one,) = take_in(lay(tmp_path / "in", files), places).counting
    assert one.when is None


def test_namesakes_are_told_apart_by_number(tmp_path: Path, places: Places) -> None:
    files = {
        "Ada Li_1_assignsubmission_file/x.ipynb": lab("one"),
        "Ada Li_2_assignsubmission_file/x.ipynb": lab("two"),
    }
    result = take_in(lay(tmp_path / "in", files), places)
    assert who(result) == [("Ada Li 1", DAY1), ("Ada Li 2", DAY1)]
    assert any("several people are called Ada Li" in note for note in result.notes)


def test_the_same_bytes_of_two_students_count_for_both(tmp_path: Path, places: Places) -> None:
    folder = lay(tmp_path / "in", {"ada/x.ipynb": LAB1, "ben/x.ipynb": LAB1})
    assert [one.path.read_bytes() for one in take_in(folder, places).counting] == [LAB1, LAB1]


# --- the roster --------------------------------------------------------------------------


def roster(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "roster.csv"
    path.write_text(text, encoding="utf-8")
    return path


def test_a_roster_gives_ids(tmp_path: Path, places: Places) -> None:
    people = read_roster(
        roster(
            tmp_path,
            "\ufeffIdentifier;First name;Last name;Email address\n"
            "Participant 8815;José;Núñez;jn1@example.edu\n"
            "Participant 8816;Ada;Lovelace;al2@example.edu\n",
        )
    )
    files = {
        "jose nunez_1_assignsubmission_file/x.ipynb": LAB1,
        "Participant_8816_assignsubmission_file/x.ipynb": LAB1,
        "Mallory_9_assignsubmission_file/x.ipynb": lab("stranger"),
    }
    result = take_in(lay(tmp_path / "in", files), places, people)
    assert who(result) == [("al2", DAY1), ("jn1", DAY1)]
    (refused,) = result.refused
    assert refused.student == "Mallory" and "not in the roster" in refused.reason
    kept = {path.read_bytes() for path in (places.kept / "files").iterdir()}
    assert lab("stranger") in kept
    assert refused.held and "assign" in refused.settle


def test_a_name_that_two_people_have_is_nobody_s(tmp_path: Path, places: Places) -> None:
    people = read_roster(roster(tmp_path, "student_id,name\na1,Ada Li\na2,Ada Li\n"))
    result = take_in(lay(tmp_path / "in", {"Ada Li/x.ipynb": LAB1}), places, people)
    assert not result.counting and "not one person alone" in result.refused[0].reason


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "expected a line of titles"),
        ("colour,size\nred,1\n", "expected a line of titles"),
        ("student_id,name\n,\n", "expected a line of titles"),
        ("student_id,name\na1,Ada\na1,Ben\n", "line 3: a1 is in two lines"),
        ("student_id,email\n , ,x\n", "line 2: no id"),
    ],
)
def test_a_roster_that_is_none_says_so(text: str, said: str, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=said):
        read_roster(roster(tmp_path, text))


# --- what is kept out --------------------------------------------------------------------


def outside(tmp_path: Path) -> set[str]:
    """Return everything in the test's folder but the class's own."""
    return {
        path.relative_to(tmp_path).as_posix()
        for path in tmp_path.rglob("*")
        if path.relative_to(tmp_path).parts[0] != "class"
    }


@pytest.mark.parametrize(
    "name",
    [
        "../../../escaped.ipynb",
        "ada/../../escaped.ipynb",
        "/tmp/escaped.ipynb",
        "C:\\escaped.ipynb",
        "..\\..\\escaped.ipynb",
        "\\\\host\\share\\escaped.ipynb",
    ],
)
def test_names_that_lead_out_of_an_archive_are_refused(
    name: str, tmp_path: Path, places: Places
) -> None:
    source = pack(tmp_path / "in.zip", {name: LAB1, "ben/x.ipynb": LAB1})
    before = outside(tmp_path)
    result = take_in(source, places)
    assert who(result) == [("ben", DAY1)]
    assert "leads out of the archive" in result.refused[0].reason
    assert outside(tmp_path) == before
    assert not Path("/tmp/escaped.ipynb").exists()


def test_links_are_not_followed(tmp_path: Path, places: Places) -> None:
    secret = tmp_path / "gradebook.db"
    secret.write_bytes(LAB1)
    folder = lay(tmp_path / "in", {"ben/x.ipynb": LAB1})
    (folder / "ada").mkdir()
    (folder / "ada" / "x.ipynb").symlink_to(secret)
    (folder / "eve").symlink_to(tmp_path)
    os.mkfifo(folder / "ben" / "pipe.ipynb")
    result = take_in(folder, places)
    assert who(result) == [("ben", DAY1)]
    assert [refused.student for refused in result.refused] == ["ada", "ben", "eve"]
    assert sum("a link" in refused.reason for refused in result.refused) == 2


def test_a_link_in_an_archive_is_not_followed(tmp_path: Path, places: Places) -> None:
    with zipfile.ZipFile(tmp_path / "in.zip", "w") as archive:
        link = zipfile.ZipInfo("ada/x.ipynb")
        link.external_attr = (stat.S_IFLNK | 0o777) << 16
        archive.writestr(link, "/etc/passwd")
    (refused,) = take_in(tmp_path / "in.zip", places).refused
    assert "a link in the archive" in refused.reason


def test_a_zip_bomb_is_read_up_to_the_limit(
    tmp_path: Path, places: Places, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(finding, "MAX_BYTES", 100_000)
    inner = pack(tmp_path / "inner.zip", {"y.ipynb": b" " * 10_000_000})
    files = {
        "ada/x.ipynb": b" " * 10_000_000,
        "eve/inner.zip": inner.read_bytes(),
        "ben/x.ipynb": LAB1,
    }
    result = take_in(pack(tmp_path / "in.zip", files), places)
    assert who(result) == [("ben", DAY1)]
    assert [(r.student, "larger than" in r.reason) for r in result.refused] == [
        ("ada", True),
        ("eve", True),
    ]
    written = sum(path.stat().st_size for path in (tmp_path / "class").rglob("*"))
    assert written < 1_000_000


def test_an_archive_lies_about_sizes(tmp_path: Path, places: Places) -> None:
    path = pack(tmp_path / "in.zip", {"ada/x.ipynb": b"0" * 50_000_000, "ben/x.ipynb": LAB1})
    data = path.read_bytes().replace(struct.pack("<L", 50_000_000), struct.pack("<L", 100))
    path.write_bytes(data)
    result = take_in(path, places)
    assert who(result) == [("ben", DAY1)] and result.refused[0].student == "ada"


def test_archives_in_archives_come_to_an_end(tmp_path: Path, places: Places) -> None:
    data = LAB1
    name = "x.ipynb"
    for depth in range(5):
        buffer = io.BytesIO()
        with zipfile.ZipFile(buffer, "w") as archive:
            archive.writestr(name, data)
        data, name = buffer.getvalue(), f"{depth}.zip"
    (tmp_path / "in.zip").write_bytes(data)
    (refused,) = take_in(tmp_path / "in.zip", places).refused
    assert "an archive in an archive" in refused.reason


def test_more_than_a_class_holds_is_not_read(
    tmp_path: Path, places: Places, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(finding, "MAX_FILES", 3)
    source = pack(tmp_path / "in.zip", {f"s{n}/x.ipynb": LAB1 for n in range(9)})
    result = take_in(source, places)
    assert len(result.counting) == 3 and "more than a class" in result.refused[0].reason


BROKEN: dict[str, tuple[bytes, str]] = {
    "empty": (b"", "not JSON"),
    "cut off": (LAB1[:1000], "not JSON"),
    "another encoding": (
        LAB1.decode().replace("lab", "läb").encode("latin-1", "replace"),
        "not UTF-8",
    ),
    "no notebook": (b"[1, 2]", "no notebook"),
    "an old format": (b'{"nbformat": 3, "worksheets": []}', "old format 3"),
    "no lab": (json.dumps({"nbformat": 4, "cells": []}).encode(), "no lab of this course"),
    "deep": (b"[" * 100_000 + b"]" * 100_000, "not JSON"),
    "brackets": (b"[" + b"[]," * 1_100_000 + b"[]]", "made of brackets"),
    "large": (b" " * 20_000_001, "larger than 20 MB"),
    "strange cells": (b'{"nbformat": 4, "cells": [7, null, {}]}', "no notebook cell"),
}


@pytest.mark.parametrize("kind", BROKEN)
def test_what_cannot_be_used_has_a_reason_and_is_kept(
    kind: str, tmp_path: Path, places: Places
) -> None:
    data, said = BROKEN[kind]
    folder = lay(tmp_path / "in", {f"ada_{DAY1}.ipynb": data, "ben/x.ipynb": LAB1})
    result = take_in(folder, places)
    assert who(result) == [("ben", DAY1)]
    (refused,) = result.refused
    assert (refused.student, refused.slug) == ("ada", DAY1)
    assert said in refused.reason and "\n" not in refused.reason
    assert str(tmp_path) not in refused.reason


def test_files_without_a_notebook_are_named(tmp_path: Path, places: Places) -> None:
    folder = lay(tmp_path / "in", {"ada/lab.pdf": b"%PDF", "ben/x.ipynb": LAB1})
    (refused,) = take_in(folder, places).refused
    assert refused.student == "ada" and "lab.pdf; expected .ipynb" in refused.reason


def test_a_notebook_without_an_owner_is_named(tmp_path: Path, places: Places) -> None:
    folder = lay(tmp_path / "in", {f"{DAY1}.ipynb": LAB1, "ben/x.ipynb": LAB1})
    (refused,) = take_in(folder, places).refused
    assert refused.origin == f"in/{DAY1}.ipynb" and "whose it is" in refused.reason


@pytest.mark.parametrize(
    "make",
    [
        lambda p: p / "absent",
        lambda p: lay(p / "in", {}) if (p / "in").mkdir() is None else p,
        lambda p: lay(p / "in", {"notes.txt": b"x"}),
        lambda p: lay(p, {"a.zip": b"PK not"}) / "a.zip",
        lambda p: pack(p / "a.zip", {}),
    ],
    ids=["absent", "empty", "no notebook", "no archive", "empty archive"],
)
def test_nothing_to_take_in_is_bad_input(
    make: Callable[[Path], Path], tmp_path: Path, places: Places
) -> None:
    with pytest.raises(BadInput, match=r"expected|not a zip archive"):
        take_in(make(tmp_path), places)


# --- ids ---------------------------------------------------------------------------------


@given(st.text(max_size=300))
@settings(max_examples=300)
def test_an_id_is_a_safe_name_of_a_folder(name: str) -> None:
    made = student_id(name)
    assert made and made == made.strip() and len(made) <= 100 and len(made.encode()) <= 200
    assert not set(made) & set('/\\:*?"<>|[]{}') and made.isprintable()
    assert made[0] not in ".-~" and made not in (".", "..")
    assert student_id(made) == made


@given(st.text(max_size=20), st.text(max_size=20))
def test_ids_of_different_names_differ(one: str, other: str) -> None:
    def seen(name: str) -> str:
        import unicodedata

        return " ".join(unicodedata.normalize("NFC", name).split())

    if seen(one) != seen(other):
        assert student_id(one) != student_id(other)


def test_composed_and_decomposed_accents_are_one_person() -> None:
    assert student_id("José") == student_id("José")


# --- nbgrader's own folder ---------------------------------------------------------------


def test_a_survey_copies_nothing(tmp_path: Path) -> None:
    folder = lay(
        tmp_path / "in",
        {
            f"ada/{DAY1}/{DAY1}.ipynb": LAB1,
            f"ada/{DAY1}/timestamp.txt": b"2020-01-01 00:00:00.000000 UTC",
            f"ben/{DAY2}/My lab.ipynb": LAB2,
            f"eve/{DAY1}/old.ipynb": LAB1,
            f"eve/{DAY1}/{DAY1}.ipynb": text_of(solved()).encode(),
            "mal/lab.ipynb": LAB1,
        },
    )
    os.utime(folder / "ada" / DAY1, (1771410600, 1771410600))  # 2026-02-18 10:30 UTC
    before = outside(tmp_path)
    at = Places(lambda s, g: folder / s / g, tmp_path / "kept")
    result = take_in(None, at)
    assert who(result) == [("ada", DAY1), ("ben", DAY2), ("eve", DAY1)]
    assert result.counting[0].when == datetime(2026, 2, 18, 10, 30)
    assert [one.path.name for one in result.counting][1:] == ["My lab.ipynb", f"{DAY1}.ipynb"]
    assert "expected in a folder of its lab" in result.refused[0].reason
    # Only what was seen first, and when, is written down; no notebook is copied.
    assert set(outside(tmp_path)) - set(before) == {"kept", "kept/journal.json"}
