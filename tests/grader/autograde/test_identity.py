"""Whose work it is: nobody's is merged, replaced or lost, whatever names learners choose."""

from __future__ import annotations

import io
import os
import zipfile
from datetime import datetime
from pathlib import Path

import pytest

from grader.autograde.intake import read as reading
from grader.autograde.intake.decide import Refused
from grader.autograde.intake.journal import NOBODY, Places, read_journal, write_journal
from grader.autograde.intake.names import SHAPES, by_shape
from grader.autograde.intake.roster import Roster, read_roster
from grader.autograde.intake.take_in import Intake, take_in
from tests.grader.classroom import DAY1, DAY2, starter, text_of, with_code

LAB1, LAB2 = text_of(starter()).encode(), text_of(starter(DAY2)).encode()


def lab(mark: str) -> bytes:
    return text_of(with_code(f"# {mark}\n")).encode()


@pytest.fixture
def places(tmp_path: Path) -> Places:
    root = tmp_path / "class"
    return Places(lambda s, g: root / "submitted" / s / g, root / "handed_in")


def pack(path: Path, files: dict[str, bytes]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in files.items():
            archive.writestr(zipfile.ZipInfo(name, (2026, 2, 18, 10, 30, 0)), data)
    return path


def lay(folder: Path, files: dict[str, bytes]) -> Path:
    for name, data in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    return folder


def zipped(files: dict[str, bytes]) -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        for name, data in files.items():
            archive.writestr(name, data)
    return packed.getvalue()


def roster_of(tmp_path: Path, text: str) -> Roster:
    path = tmp_path / "roster.csv"
    path.write_text(text, encoding="utf-8")
    return read_roster(path)


def counts(result: Intake) -> dict[str, bytes]:
    return {one.student: one.path.read_bytes() for one in result.counting}


def held(result: Intake) -> list[str]:
    return sorted(one.origin for one in result.refused if one.held)


# --- the outermost name decides ----------------------------------------------------------

ADA, EVE = lab("ada"), lab("eve")
INNER = ("Ada Lovelace_1001_assignsubmission_file", "lovelaceada_1001_70001_x", "ada",
         "Lab 5_ada_attempt_2026-01-02-10-11-12_x", "100-200 - Ada Lovelace - Jan 2, 2026 304 PM",
         "Lovelace, Ada(ada)", f"ada+{DAY1}+2026-01-01 10:30:00.000000 UTC+x")  # fmt: skip
OUTER = {
    "Moodle": ("Ada Lovelace_1001_assignsubmission_file/{}", "Eve Ng_1002_assignsubmission_file/{}",
               "Ada Lovelace", "Eve Ng"),
    "Canvas, an archive": ("lovelaceada_1001_70001_{}", "ngeve_1002_70002_{}",
                           "lovelaceada", "ngeve"),
    "Blackboard, an archive": ("Lab_a_da_attempt_2026-01-02-10-11-12_{}",
                               "Lab_e_ve_attempt_2026-01-02-10-11-12_{}", "a_da", "e_ve"),
    "Brightspace": ("100-200 - Ada Lovelace - Jan 2, 2026 304 PM/{}",
                    "101-201 - Eve Ng - 2 January, 2026 1504/{}", "Ada Lovelace", "Eve Ng"),
    "Sakai": ("Lab 5/Lovelace, Ada(ada)/Submission attachment(s)/{}",
              "Lab 5/Ng, Eve(eve)/Submission attachment(s)/{}", "ada", "eve"),
    "Teams": ("C - Student Work/Submitted files/Ada Lovelace/Lab 5/Version 1/{}",
              "C - Student Work/Submitted files/Eve Ng/Lab 5/Version 1/{}",
              "Ada Lovelace", "Eve Ng"),
    "GitHub Classroom": ("lab-5-submissions/lab-5-ada-x/{}", "lab-5-submissions/lab-5-eve/{}",
                         "ada-x", "eve"),
    "a folder a learner": ("ada/{}", "eve/{}", "ada", "eve"),
}  # fmt: skip


@pytest.mark.parametrize("inner", INNER)
@pytest.mark.parametrize("platform", OUTER)
def test_names_inside_a_hand_in_prove_nothing(
    platform: str, inner: str, tmp_path: Path, places: Places
) -> None:
    """Eve hands in an archive and a folder that say they are Ada's."""
    ada, eve, her, hers = OUTER[platform]
    files = {
        ada.format(f"{DAY1}.ipynb"): ADA,
        eve.format("work.zip"): zipped({f"{inner}/{DAY1}.ipynb": EVE}),
    }
    result = take_in(pack(tmp_path / "Lab 5.zip", files), places)
    assert counts(result) == {her: ADA, hers: EVE}
    assert not result.refused


def test_every_shape_has_an_example_that_it_reads_and_a_source() -> None:
    for shape in SHAPES:
        name = shape.example.partition(", also")[0].removeprefix("Lab 5/").split("/")[0]
        named = by_shape(name, not name.endswith(".ipynb"))
        assert named is not None and named.platform == shape.platform, shape.example
        assert shape.source


def test_google_forms_add_the_name_at_the_end(tmp_path: Path, places: Places) -> None:
    files = {
        "Lab 5 (File responses)/day5 - Ada Lovelace.ipynb": ADA,
        "Lab 5 (File responses)/day5 - Ada Lovelace - Eve Ng.ipynb": EVE,
    }
    result = take_in(pack(tmp_path / "f.zip", files), places)
    assert counts(result) == {"Ada Lovelace": ADA, "Eve Ng": EVE}


def test_teams_counts_the_highest_version_and_no_drafts(tmp_path: Path, places: Places) -> None:
    root = "C - Student Work"
    files = {
        f"{root}/Submitted files/Ada/Lab 5/Version 9/{DAY1}.ipynb": lab("nine"),
        f"{root}/Submitted files/Ada/Lab 5/Version 10/{DAY1}.ipynb": lab("ten"),
        f"{root}/Submitted files/Eve/Lab 5/Version 1/{DAY1}.ipynb": EVE,
        f"{root}/Working files/Ada/Lab 5/{DAY1}.ipynb": lab("draft"),
    }
    assert counts(take_in(pack(tmp_path / "t.zip", files), places)) == {
        "Ada": lab("ten"),
        "Eve": EVE,
    }


def test_sakai_s_time_is_the_platform_s_where_it_lies_beside(
    tmp_path: Path, places: Places
) -> None:
    files = {}
    for name, login in (("Lovelace, Ada", "ada"), ("Ng, Eve", "eve")):
        at = f"Lab 5/{name}({login})"
        files[f"{at}/Submission attachment(s)/{DAY1}.ipynb"] = lab(login)
        files[f"{at}/Submission attachment(s)/timestamp.txt"] = b"20200101000000000"
        files[f"{at}/timestamp.txt"] = b"20260102101112345"
    found = take_in(pack(tmp_path / "s.zip", files), places)
    local = datetime(2026, 1, 2, 10, 11, 12).astimezone()
    assert {one.when for one in found.counting} == {local.replace(tzinfo=None) - local.utcoffset()}


def test_blackboard_s_own_file_is_no_hand_in_and_logins_hold_underscores(
    tmp_path: Path, places: Places
) -> None:
    stamp = "attempt_2026-01-02-10-11-12"
    files = {
        f"Lab 5_a_lovelace_{stamp}_day5.ipynb": ADA,
        f"Lab 5_a_lovelace_{stamp}.txt": b"Name: Ada Lovelace (a_lovelace)",
        f"Lab 5_b_lovelace_{stamp}_day5.ipynb": EVE,
        f"Lab 5_b_lovelace_{stamp}.txt": b"Name: Bea Lovelace (b_lovelace)",
    }
    result = take_in(pack(tmp_path / "b.zip", files), places)
    assert counts(result) == {"a_lovelace": ADA, "b_lovelace": EVE} and not result.refused
    one = pack(tmp_path / "one.zip", {f"Lab_5_c_l_{stamp}_day5.ipynb": lab("c")})
    assert held(take_in(one, places)) == [f"one.zip!Lab_5_c_l_{stamp}_day5.ipynb"]
    known = roster_of(tmp_path, "username\na_lovelace\nb_lovelace\nc_l\n")
    assert counts(take_in(one, places, known))["c_l"] == lab("c")


# --- nbgrader's exchange -----------------------------------------------------------------


def test_in_the_exchange_the_owner_of_the_folder_decides(
    tmp_path: Path, places: Places, monkeypatch: pytest.MonkeyPatch
) -> None:
    owners = {1001: "a+da", 1002: "eve"}
    monkeypatch.setattr(reading, "owner_of", lambda uid: owners.get(uid, ""))
    names = {"a+da": 1001, "ben": 1002, "cem": 1003}
    for name, uid in names.items():
        folder = tmp_path / "inbound" / f"{name}+{DAY1}+2020-01-01 10:30:00.000000 UTC+r="
        lay(folder, {f"{DAY1}.ipynb": lab(name), "timestamp.txt": b"2020-01-01 10:30:00 UTC"})
        os.utime(folder, (1771410600, 1771410600))
        monkeypatch.setitem(_OWNERS, str(folder), uid)
    monkeypatch.setattr(Path, "stat", _stat)
    result = take_in(tmp_path / "inbound", places)
    assert counts(result) == {"a+da": lab("a+da")}
    assert result.counting[0].when == datetime(2026, 2, 18, 10, 30)  # the folder's, not its text's
    reasons = sorted(one.reason for one in result.refused)
    assert "ben's, but its folder belongs to eve" in reasons[0]
    assert "account that is gone" in reasons[1]


_OWNERS: dict[str, int] = {}
_real_stat = Path.stat


def _stat(self: Path, *, follow_symlinks: bool = True) -> os.stat_result:
    status = _real_stat(self, follow_symlinks=follow_symlinks)
    uid = _OWNERS.get(str(self))
    return status if uid is None else os.stat_result([*status[:4], uid, *status[5:10]])


# --- names that only might be the same ---------------------------------------------------

PAIRS = {
    "kov1 and kov2": ("kov1_day1.ipynb", "kov2_day1.ipynb", True),
    "li and li_": ("li_day1.ipynb", "li__day1.ipynb", True),
    "li and li_, folders": (f"li/{DAY1}.ipynb", f"li_/{DAY1}.ipynb", True),
    "ann and ann (1)": ("ann.ipynb", "ann (1).ipynb", False),
    "ann and ann (1), folders": (f"ann/{DAY1}.ipynb", f"ann (1)/{DAY1}.ipynb", False),
    "Kim Lee and Lee Kim": (f"Kim Lee/{DAY1}.ipynb", f"Lee Kim/{DAY1}.ipynb", True),
    "Ada and ada": (f"Ada/{DAY1}.ipynb", f"ada/{DAY1}.ipynb", False),
    "one folder": (f"Lab 5/{DAY1}.ipynb", f"Lab 5/{DAY1} (1).ipynb", False),
    "copies of": ("Copy of day1.ipynb", "Copy of day1 (1).ipynb", False),
    "archives": ("Lab 5.zip", "Lab 5 (1).zip", False),
    "sections": ("North/ada/x.ipynb", "North/eve/y.ipynb", True),
}


@pytest.mark.parametrize("form", ["folder", "zip"])
@pytest.mark.parametrize("kind", PAIRS)
def test_names_that_might_be_the_same_are_never_joined(
    kind: str, form: str, tmp_path: Path, places: Places
) -> None:
    one, other, both_count = PAIRS[kind]
    files = {one: ADA, other: EVE}
    if one.endswith(".zip"):
        files = {one: zipped({"x.ipynb": ADA}), other: zipped({"x.ipynb": EVE})}
    source = lay(tmp_path / "in", files) if form == "folder" else pack(tmp_path / "in.zip", files)
    result = take_in(source, places)
    waiting = [refused for refused in result.refused if refused.held]
    assert len(result.counting) + len(waiting) == 2 and not result.older
    assert len(set(counts(result).values())) == len(result.counting)
    assert (len(result.counting) == 2) is both_count
    assert all("python -m grader assign" in refused.line for refused in waiting)


def test_several_notebooks_of_a_lab_in_one_hand_in_are_held(tmp_path: Path, places: Places) -> None:
    files = {
        "Ada Li_1_assignsubmission_file/a.ipynb": lab("a"),
        "Ada Li_1_assignsubmission_file/b.ipynb": lab("b"),
        "Ben Ng_2_assignsubmission_file/a.ipynb": lab("c"),
        "Ben Ng_2_assignsubmission_file/copy.ipynb": lab("c"),
    }
    result = take_in(pack(tmp_path / "m.zip", files), places)
    assert counts(result) == {"Ben Ng": lab("c")}  # the same bytes twice are one
    assert len(held(result)) == 2 and {one.student for one in result.refused} == {"Ada Li"}


# --- rosters -----------------------------------------------------------------------------

CANVAS = (
    "Student,ID,SIS User ID,SIS Login ID,Section,Lab 5 (77)\n"
    ",,,,,Manual Posting\n"
    "    Points Possible,,,,,10\n"
    '"Lee, Kim",1001,s1,kim,A,\n'
    '"Kim, Lee",1002,s2,lee,A,\n'
    '"Student, Test",1003,,t,A,\n'
)


def test_canvas_s_gradebook_is_a_roster_as_it_is(tmp_path: Path, places: Places) -> None:
    known = roster_of(tmp_path, CANVAS)
    assert {one.student: one.name for one in known.people.values()} == {
        "kim": "Kim Lee",
        "lee": "Lee Kim",
    }
    files = {"leekim_1001_5_x.ipynb": ADA, "kimlee_1002_6_x.ipynb": EVE, "nu_9_7_x.ipynb": lab("n")}
    result = take_in(pack(tmp_path / "c.zip", files), places, known)
    assert counts(result) == {"kim": ADA, "lee": EVE}
    assert held(result) == ["c.zip!nu_9_7_x.ipynb"]
    moodle = {
        "Kim Lee_1_assignsubmission_file/x.ipynb": lab("1"),
        "Lee Kim_2_assignsubmission_file/x.ipynb": lab("2"),
    }
    result = take_in(pack(tmp_path / "m.zip", moodle), places, known)
    assert counts(result) == {"kim": lab("1"), "lee": lab("2")}


@pytest.mark.parametrize(
    "data",
    [
        b"sep=;\r\nusername;name\r\nada;Ada Lovelace\r\n",
        "Last Name\tFirst Name\tUsername\nLovelace\tAda\tada\n".encode("utf-16"),
        "\ufeffOrgDefinedId,Username,Last Name,First Name,End-of-Line Indicator\n"
        "#1,#ada,Lovelace,Ada,#\n".encode(),
        b'username,name\nada,"Lovelace, Ada"\n',
    ],
    ids=["Excel", "Blackboard", "Brightspace", "surname first"],
)
def test_rosters_of_every_platform(data: bytes, tmp_path: Path) -> None:
    path = tmp_path / "roster.csv"
    path.write_bytes(data)
    known = read_roster(path)
    assert [one.name for one in known.people.values()] == ["Ada Lovelace"]
    assert known.by_name("Ada Lovelace") == known.by_name("Lovelace, Ada") != set()


def test_a_roster_that_comes_later_settles_what_was_held(tmp_path: Path, places: Places) -> None:
    source = pack(tmp_path / "in.zip", {"ann (1).ipynb": ADA, "ann.ipynb": EVE})
    assert held(take_in(source, places)) == ["in.zip!ann (1).ipynb"]
    known = roster_of(tmp_path, "username\nann\nann (1)\n")
    result = take_in(None, places, known)
    assert counts(result) == {"ann": EVE, "ann (1)": ADA} and not result.refused


# --- a person's word ---------------------------------------------------------------------


def test_an_assignment_is_remembered_and_can_be_forgotten(tmp_path: Path, places: Places) -> None:
    source = pack(tmp_path / "Lab5.zip", {"Copy of day1.ipynb": ADA, "eve_day1.ipynb": EVE})
    assert held(take_in(source, places)) == ["Lab5.zip!Copy of day1.ipynb"]
    journal = read_journal(places)
    (one,) = journal.find("Lab5.zip!Copy of day1.ipynb")
    journal.assigned[one.key] = "ada"
    write_journal(places, journal)
    for again in (None, source):  # the download is not needed any more, and does not undo it
        result = take_in(again, places)
        assert counts(result) == {"ada": ADA, "eve": EVE} and not result.refused
    # A new file of the same name is another file.
    pack(source, {"Copy of day1.ipynb": lab("other"), "eve_day1.ipynb": EVE})
    assert held(take_in(source, places)) == ["Lab5.zip!Copy of day1.ipynb"]
    journal = read_journal(places)
    for key in [key for key in journal.hand_ins if key[0].endswith("Copy of day1.ipynb")]:
        journal.assigned[key] = NOBODY
    write_journal(places, journal)
    result = take_in(None, places)
    assert counts(result) == {"eve": EVE} and not result.refused
    assert any("taken back from ada" in note for note in result.notes)


def test_a_dry_run_writes_nothing(tmp_path: Path, places: Places) -> None:
    source = pack(tmp_path / "in.zip", {"ann (1).ipynb": ADA, "ann.ipynb": EVE})
    before = sorted(tmp_path.rglob("*"))
    result = take_in(source, places, dry_run=True)
    assert [one.student for one in result.counting] == ["ann"] and len(held(result)) == 1
    assert sorted(tmp_path.rglob("*")) == before


# --- what counts, whichever way it came --------------------------------------------------


def test_the_newest_counts_whichever_way_it_came(tmp_path: Path, places: Places) -> None:
    """Collected from the exchange, then Canvas, then by mail; an old one at the end."""
    known = roster_of(tmp_path, 'Student,ID,SIS Login ID\n"Lovelace, Ada",1001,ada\n')
    folder = places.submitted("ada", DAY1)
    # The learner's own program wrote that it was handed in long after everything else.
    lay(folder, {f"{DAY1}.ipynb": lab("exchange"), "timestamp.txt": b"2099-01-01 00:00:00 UTC",
                 "submission_secret.txt": b"s"})  # fmt: skip
    os.utime(folder, (1_700_000_000, 1_700_000_000))
    assert counts(take_in(None, places, known)) == {"ada": lab("exchange")}
    canvas = pack(tmp_path / "c.zip", {"lovelaceada_1001_5_x.ipynb": lab("canvas")})
    assert counts(take_in(canvas, places, known)) == {"ada": lab("canvas")}
    assert not (folder / "submission_secret.txt").exists()
    mail = lay(tmp_path / "mail", {"ada/x.ipynb": lab("mail")})
    assert counts(take_in(mail, places, known)) == {"ada": lab("mail")}
    old = "Lab 1_ada_attempt_2020-01-02-10-11-12_x.ipynb"
    assert counts(take_in(lay(tmp_path / "bb", {old: lab("old")}), places, known)) == {
        "ada": lab("mail")
    }
    kept = {path.read_bytes() for path in (places.kept / "files").iterdir()}
    assert kept == {lab("exchange"), lab("canvas"), lab("mail"), lab("old")}


# --- what needs a person stays until it is settled ----------------------------------------


def test_an_item_leaves_when_it_is_settled_not_when_the_next_run_begins(
    tmp_path: Path, places: Places
) -> None:
    broken = pack(tmp_path / "a.zip", {"ada_day1_estimate.ipynb": b"{nope"})
    assert [one.student for one in take_in(broken, places).refused] == ["ada"]
    other = pack(tmp_path / "b.zip", {"eve_day1.ipynb": EVE})
    assert [one.student for one in take_in(other, places).refused] == ["ada"]
    mended = pack(tmp_path / "c.zip", {"ada_day1_estimate.ipynb": ADA})
    result = take_in(mended, places)
    assert counts(result) == {"ada": ADA, "eve": EVE} and not result.refused


# --- hostile hand-ins --------------------------------------------------------------------

_DEEP = "/".join("d" * 2 for _ in range(20))
HOSTILE: dict[str, tuple[dict[str, bytes], str]] = {
    "too deep": ({f"{_DEEP}/x.ipynb": EVE}, "too deep"),
    "a hidden name": ({".secret/x.ipynb": EVE}, "hidden name"),
    "a name without end": ({"x" * 400 + ".ipynb": EVE}, "more than 300 characters"),
    "twice": ({"x.ipynb": EVE, "x.ipynb ": EVE}, "twice"),
    "half a JSON": ({"x.ipynb": EVE[: len(EVE) // 2]}, "not JSON"),
    "deep JSON": ({"x.ipynb": b"[" * 50_000 + b"]" * 50_000}, "not JSON"),
    "brackets": ({"x.ipynb": b"[" + b"[]," * 1_100_000 + b"[]]"}, "made of brackets"),
    "no archive": ({"x.zip": b"PK\x03\x04" + b"\0" * 100}, "not a zip archive"),
    "an archive in an archive": ({"x.zip": zipped({"y.zip": b"PK"})}, "archive in an archive"),
    "many files": ({"x.zip": zipped({f"{n}.txt": b"" for n in range(2_100)})}, "2,000 files"),
    "climbing": ({"x.zip": zipped({"../../y.ipynb": EVE})}, "leads out"),
    "a picture": ({"lab.png": b"\x89PNG"}, "no notebook: lab.png"),
}


@pytest.mark.parametrize("kind", HOSTILE)
def test_a_hostile_hand_in_costs_nobody_else_anything(
    kind: str, tmp_path: Path, places: Places
) -> None:
    theirs, said = HOSTILE[kind]
    files = {f"Eve Ng_2_assignsubmission_file/{name}": data for name, data in theirs.items()}
    files["Ada Li_1_assignsubmission_file/x.ipynb"] = ADA
    source = tmp_path / "in.zip"
    with zipfile.ZipFile(source, "w") as archive:
        for name, data in files.items():
            member = zipfile.ZipInfo(name.rstrip())
            with pytest.warns(UserWarning) if name.endswith(" ") else _nothing():
                archive.writestr(member, data)
    result = take_in(source, places)
    assert counts(result)["Ada Li"] == ADA
    mine = [one for one in result.refused if one.student == "Eve Ng"]
    assert len(mine) == 1 and said in mine[0].reason and "\n" not in mine[0].reason, mine


class _nothing:
    def __enter__(self) -> None: ...

    def __exit__(self, *exception: object) -> None: ...


def test_a_refusal_says_file_reason_and_command() -> None:
    one = Refused("Lab5.zip!Copy of x.ipynb", "", DAY1, "why", held=True)
    assert one.line.endswith("settle: python -m grader assign 'Lab5.zip!Copy of x.ipynb' LEARNER")
