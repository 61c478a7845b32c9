"""The agent's tools: files stay inside the folder, commands are asked for, capped and ended."""

from __future__ import annotations

import json
import os
import shlex
import stat
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from compaction.agent.checklist import (
    MAX_ITEMS,
    count_items,
    pin_checklist,
    render_checklist,
    without_old_checklists,
)
from compaction.agent.shell import _Capped, plain_text
from compaction.agent.tools import REFUSED, SCHEMAS, Toolbox
from compaction.grouping import group_messages
from compaction.messages import Call, Message, problems

PYTHON = shlex.quote(sys.executable)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    project = tmp_path / "project"
    project.mkdir()
    (tmp_path / "secret.txt").write_text("outside")
    return project


@pytest.fixture
def toolbox(folder: Path) -> Toolbox:
    return Toolbox(folder, allow=lambda command: True, time_limit_s=20)


def use(toolbox: Toolbox, name: str, **arguments: Any) -> str:
    return toolbox.call(Call("c1", name, json.dumps(arguments)))


# --- reading --------------------------------------------------------------------------------


def test_a_file_is_read_as_it_is(toolbox: Toolbox, folder: Path) -> None:
    (folder / "src").mkdir()
    (folder / "src" / "calc.py").write_text("def divide(a, b):\n    return a / b\n")
    assert use(toolbox, "read_file", path="src/calc.py") == "def divide(a, b):\n    return a / b\n"
    assert use(toolbox, "read_file", path="./src/../src/calc.py", start=2) == "    return a / b\n"


def test_a_long_file_is_read_in_pieces_that_join(folder: Path) -> None:
    toolbox = Toolbox(folder, allow=bool, limit=1000)
    text = "".join(f"line {number}\n" for number in range(1, 301))
    (folder / "long.txt").write_text(text)
    pieces, start = [], 1
    for _ in range(20):
        result = use(toolbox, "read_file", path="long.txt", start=start)
        piece, _, rest = result.partition("[lines ")
        assert len(piece) <= 1000
        pieces.append(piece)
        if not rest:
            break
        start = int(rest.rpartition("start=")[2].rstrip("]"))
    assert "".join(pieces) == text


def test_one_endless_line_is_cut(folder: Path) -> None:
    (folder / "long.txt").write_text("x" * 5000)
    result = use(Toolbox(folder, allow=bool, limit=1000), "read_file", path="long.txt")
    assert result == "x" * 1000 + "\n[line 1 of long.txt is cut here]"


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("../secret.txt", "outside the project folder"),
        ("/etc/passwd", "outside the project folder"),
        ("link.txt", "outside the project folder"),
        ("linked/secret.txt", "outside the project folder"),
        ("missing.py", "there is no file missing.py"),
        ("", "path must be"),
        ("a\0b", "path must be"),
        (".", "is a folder; it holds: binary, link.txt, linked/, wide.txt"),
        ("binary", "no text in UTF-8 (3 bytes)"),
        ("wide.txt", "no text in UTF-8"),
    ],
)
def test_what_is_not_read(toolbox: Toolbox, folder: Path, path: str, reason: str) -> None:
    (folder / "link.txt").symlink_to(folder.parent / "secret.txt")
    (folder / "linked").symlink_to(folder.parent)
    (folder / "binary").write_bytes(b"a\0b")
    (folder / "wide.txt").write_bytes("hi".encode("utf-16"))
    result = use(toolbox, "read_file", path=path)
    assert result.startswith("error: ") and reason in result


def test_a_pipe_is_not_waited_for(toolbox: Toolbox, folder: Path) -> None:
    os.mkfifo(folder / "pipe")
    assert use(toolbox, "read_file", path="pipe") == "error: pipe is no regular file"


def test_a_huge_file_is_not_read(toolbox: Toolbox, folder: Path) -> None:
    with open(folder / "huge", "wb") as file:
        file.truncate(3_000_000)
    assert (
        use(toolbox, "read_file", path="huge")
        == "error: huge is too large to read: 3,000,000 bytes"
    )


def test_lines_that_are_none(toolbox: Toolbox, folder: Path) -> None:
    (folder / "a.txt").write_text("one\n")
    (folder / "empty.txt").write_text("")
    assert "ends at line 1" in use(toolbox, "read_file", path="a.txt", start=2)
    assert "start must be" in use(toolbox, "read_file", path="a.txt", start=0)
    assert use(toolbox, "read_file", path="empty.txt") == "[empty.txt is empty]"


# --- editing --------------------------------------------------------------------------------


def test_an_edit_changes_one_place_and_shows_it(toolbox: Toolbox, folder: Path) -> None:
    file = folder / "calc.py"
    file.write_text("".join(f"line {n}\n" for n in range(1, 21)))
    file.chmod(0o750)
    result = use(toolbox, "edit_file", path="calc.py", old="line 10\n", new="ten\nand more\n")
    assert file.read_text().splitlines()[8:12] == ["line 9", "ten", "and more", "line 11"]
    assert stat.S_IMODE(file.stat().st_mode) == 0o750
    first, *diff = result.splitlines()
    assert first == "changed calc.py at line 10"
    assert [line for line in diff if line[0] in "+-"] == ["-line 10", "+ten", "+and more"]
    assert " line 7" in diff and " line 6" not in diff


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ("line 99", "x", "not in a.txt; read the file again"),
        ("same", "x", "stands in a.txt 2 times"),
        ("two  words", "x", "its white space differs"),
        ("line 1", "line 1", "nothing to change"),
        ("", "x", "exists; give the text to replace"),
    ],
)
def test_an_edit_that_is_refused_changes_nothing(
    toolbox: Toolbox, folder: Path, old: str, new: str, reason: str
) -> None:
    text = "line 1\nsame\nsame\ntwo words\n"
    (folder / "a.txt").write_text(text)
    result = use(toolbox, "edit_file", path="a.txt", old=old, new=new)
    assert result.startswith("error: ") and reason in result
    assert (folder / "a.txt").read_text() == text
    assert [entry.name for entry in folder.iterdir()] == ["a.txt"]


def test_an_edit_outside_is_refused(toolbox: Toolbox, folder: Path) -> None:
    for path in ("../secret.txt", "../new.txt"):
        old = "outside" if "secret" in path else ""
        assert "outside the project" in use(toolbox, "edit_file", path=path, old=old, new="x")
    assert (folder.parent / "secret.txt").read_text() == "outside"
    assert not (folder.parent / "new.txt").exists()


def test_a_file_keeps_its_own_line_breaks(toolbox: Toolbox, folder: Path) -> None:
    (folder / "dos.txt").write_bytes(b"one\r\ntwo\r\nthree\r\n")
    use(toolbox, "edit_file", path="dos.txt", old="one\ntwo\n", new="1\n2\n")
    assert (folder / "dos.txt").read_bytes() == b"1\r\n2\r\nthree\r\n"


def test_an_empty_text_makes_a_new_file(toolbox: Toolbox, folder: Path) -> None:
    assert use(toolbox, "edit_file", path="src/new.py", old="", new="a = 1\n") == (
        "made src/new.py: 1 line"
    )
    assert (folder / "src" / "new.py").read_text() == "a = 1\n"


@given(
    before=st.text(st.characters(codec="utf-8", exclude_characters="\r\0"), max_size=60),
    old=st.text(st.characters(codec="utf-8", exclude_characters="\r\0"), min_size=1, max_size=4),
    new=st.text(st.characters(codec="utf-8", exclude_characters="\r\0"), max_size=6),
)
def test_an_edit_is_exact_or_an_error(
    tmp_path_factory: pytest.TempPathFactory, before: str, old: str, new: str
) -> None:
    folder = tmp_path_factory.mktemp("edits")
    (folder / "a.txt").write_bytes(before.encode())
    result = use(Toolbox(folder, allow=bool), "edit_file", path="a.txt", old=old, new=new)
    after = (folder / "a.txt").read_bytes().decode()
    if before.count(old) == 1 and old != new:
        assert after == before.replace(old, new) and result.startswith("changed a.txt at line ")
    else:
        assert after == before and result.startswith("error: ")


# --- running --------------------------------------------------------------------------------


def test_a_command_runs_in_the_folder_and_says_how_it_ended(toolbox: Toolbox, folder: Path) -> None:
    result = use(toolbox, "run_command", command="pwd; echo to stderr >&2; exit 3")
    *output, end = result.splitlines()
    assert output == [str(folder.resolve()), "to stderr"]
    assert end.startswith("[exit code 3 after ")


def test_nothing_runs_without_a_yes(folder: Path) -> None:
    asked = []

    def refuse(command: str) -> bool:
        asked.append(command)
        return False

    toolbox = Toolbox(folder, allow=refuse)
    command = "touch here; rm -rf ~\r# ls"
    assert use(toolbox, "run_command", command=command) == REFUSED
    assert asked == [command]
    assert not list(folder.iterdir())


def test_python_in_a_command_is_this_python(toolbox: Toolbox) -> None:
    code = "import sys; print(sys.prefix)"
    assert use(toolbox, "run_command", command=f'python -c "{code}"').startswith(sys.prefix)


def test_output_is_capped_while_it_is_read(folder: Path) -> None:
    toolbox = Toolbox(folder, allow=lambda command: True, limit=2000, time_limit_s=60)
    code = "print('begin')\nfor _ in range(3000):\n    print('x' * 9999)\nprint('end')\n"
    (folder / "flood.py").write_text(code)
    result = use(toolbox, "run_command", command="python flood.py")
    assert len(result) < 2200
    assert result.startswith("begin\n") and "\nend\n[exit code 0" in result
    assert "bytes in the middle are left out]" in result


def test_endless_output_holds_no_memory() -> None:
    class Endless:
        """Thirty megabytes in pieces, without a pipe."""

        pieces = 480

        def read(self, size: int) -> bytes:
            self.pieces -= 1
            return b"0123456789abcdef" * 4096 if self.pieces > 0 else b""

        def __enter__(self) -> Endless:
            return self

        def __exit__(self, *_: object) -> None:
            pass

    capped = _Capped(10_000)
    capped.read_from(Endless())
    assert len(capped._head) + len(capped._tail) == 10_000
    assert len(capped.text()) < 10_100


@given(st.lists(st.binary(max_size=40), max_size=12), st.integers(2, 60))
def test_the_cap_keeps_beginning_and_end(pieces: list[bytes], limit: int) -> None:
    capped = _Capped(limit)
    for piece in pieces:
        capped._add(piece)
    whole = b"".join(pieces)
    assert bytes(capped._head) == whole[: limit // 2]
    kept = len(capped._head) + len(capped._tail)
    assert kept == min(len(whole), limit) and kept + capped._dropped == len(whole)
    assert whole.endswith(bytes(capped._tail))


def test_the_time_limit_ends_everything_that_was_started(folder: Path) -> None:
    toolbox = Toolbox(folder, allow=lambda command: True, time_limit_s=0.5)
    command = "echo begun; (sleep 3; touch late) & sleep 3; touch late"
    begun = time.monotonic()
    result = use(toolbox, "run_command", command=command)
    assert time.monotonic() - begun < 2.5
    assert result.startswith("begun\n") and "ended at the time limit of 0.5 s]" in result
    time.sleep(3.2)
    assert not (folder / "late").exists()


def test_what_a_command_leaves_running_is_ended(toolbox: Toolbox, folder: Path) -> None:
    begun = time.monotonic()
    result = use(toolbox, "run_command", command="(sleep 2; touch late) & echo done")
    assert time.monotonic() - begun < 1.5
    assert result.startswith("done\n[exit code 0 ") and "left running was ended]" in result
    time.sleep(2.2)
    assert not (folder / "late").exists()


def test_ctrl_c_ends_the_command(
    toolbox: Toolbox, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import subprocess

    real_wait = subprocess.Popen.wait

    def interrupted(self: Any, timeout: float | None = None) -> int:
        if timeout == toolbox.time_limit_s:
            raise KeyboardInterrupt
        return real_wait(self, timeout)

    monkeypatch.setattr(subprocess.Popen, "wait", interrupted)
    with pytest.raises(KeyboardInterrupt):
        use(toolbox, "run_command", command="sleep 1; touch late")
    time.sleep(1.2)
    assert not (folder / "late").exists()


def test_a_command_gets_no_input(toolbox: Toolbox) -> None:
    assert use(toolbox, "run_command", command="cat; echo end").startswith("end\n")


def test_keys_reach_neither_commands_nor_results(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = "sk-test-0123456789"
    monkeypatch.setenv("OPENAI_API_KEY", key)
    monkeypatch.setenv("ANOTHER_NAME", key)
    monkeypatch.setenv("HARMLESS", "kept")
    (folder / ".env").write_text(f"KEY={key}\n")
    toolbox = Toolbox(folder, allow=lambda command: True, secrets=[key])
    environment = use(toolbox, "run_command", command="env")
    assert "HARMLESS=kept" in environment
    assert key not in environment and "OPENAI_API_KEY" not in environment
    assert use(toolbox, "read_file", path=".env") == "KEY=[key]\n"


def test_colours_and_control_characters_are_left_out(toolbox: Toolbox) -> None:
    result = use(
        toolbox, "run_command", command=r"printf '\033[31mred\033[0m\033]0;title\007\b!\r\n'"
    )
    assert result.startswith("red!\n[exit code 0")
    assert plain_text("50 %\r100 %\n") == "50 %\n100 %\n"


# --- calls that are none --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "arguments", "reason"),
    [
        ("delete_all", "{}", "there is no tool 'delete_all'"),
        ("read_file", "{", "are not JSON"),
        ("read_file", "[]", "are not a JSON object"),
        ("read_file", "{}", "read_file missing 1 required positional argument: 'path'"),
        ("read_file", '{"path": 7}', "path must be"),
        ("edit_file", '{"path": "a.txt", "old": "x", "new": 7}', "old and new must be text"),
        ("run_command", '{"command": " "}', "command must be a command line"),
        ("run_command", '{"command": ["ls"]}', "command must be a command line"),
        ("todo", '{"items": []}', "at least one item"),
    ],
)
def test_a_call_that_is_none_gets_an_error_that_a_model_can_act_on(
    toolbox: Toolbox, folder: Path, name: str, arguments: str, reason: str
) -> None:
    (folder / "a.txt").write_text("x")
    result = toolbox.call(Call("c1", name, arguments))
    assert result.startswith("error: ") and reason in result and "\n" not in result


def test_the_folder_must_be_one(tmp_path: Path) -> None:
    with pytest.raises(NotADirectoryError):
        Toolbox(tmp_path / "nowhere", allow=bool)


def test_the_schemas_name_what_the_tools_take(toolbox: Toolbox) -> None:
    names = [schema["function"]["name"] for schema in SCHEMAS]
    assert names == ["read_file", "edit_file", "run_command", "todo"]
    for schema in SCHEMAS:
        function = schema["function"]
        parameters = function["parameters"]
        assert function["description"] and set(parameters["required"]) <= set(
            parameters["properties"]
        )
        assert "optional" not in json.dumps(schema)


# --- the checklist --------------------------------------------------------------------------


def checklist(call_id: str, *items: tuple[str, bool], content: str | None = None) -> Message:
    arguments = {"items": [{"text": text, "done": done} for text, done in items]}
    function = {"name": "todo", "arguments": json.dumps(arguments)}
    message: Message = {
        "role": "assistant",
        "content": content,
        "tool_calls": [{"id": call_id, "type": "function", "function": function}],
    }
    return pin_checklist(message)


def result(call_id: str) -> Message:
    return {"role": "tool", "tool_call_id": call_id, "content": "checklist written: 1 of 2 done"}


def test_a_checklist_is_pinned_with_its_call() -> None:
    message = checklist("c1", ("find", True), ("mend", False), content="I go on.")
    assert message["content"] == "[todo]\n[x] find\n[ ] mend\n\nI go on."
    [group] = group_messages([message, result("c1")], keep_recent=0)
    assert (group.start, group.end, group.keep) == (0, 2, "pinned")


def test_a_checklist_that_is_none_pins_nothing() -> None:
    message: Message = {"role": "assistant", "content": "So.", "tool_calls": []}
    for arguments in ("{", "{}", '{"items": [{"done": true}]}', '{"items": "all"}', "[]"):
        function = {"name": "todo", "arguments": arguments}
        asked = {**message, "tool_calls": [{"id": "c1", "type": "function", "function": function}]}
        assert pin_checklist(asked) == asked
    assert count_items([{"text": "a"}] * (MAX_ITEMS + 1)).startswith("error: ")
    assert render_checklist([{"text": "two\nlines", "done": "yes"}]) == "[todo]\n[ ] two lines"


def test_only_the_newest_checklist_stays() -> None:
    read = {"id": "r1", "type": "function", "function": {"name": "read_file", "arguments": "{}"}}
    both = checklist("c2", ("find", True))
    both["tool_calls"] = [*both["tool_calls"], read]
    history: list[Message] = [
        {"role": "user", "content": "[todo] mine"},
        checklist("c1", ("find", False)),
        result("c1"),
        both,
        result("c2"),
        {"role": "tool", "tool_call_id": "r1", "content": "text"},
        checklist("c3", ("find", True), ("mend", True), content="Nearly done."),
        result("c3"),
    ]
    shorter = without_old_checklists(history)
    assert problems(shorter) == []
    assert shorter == [
        history[0],
        {"role": "assistant", "content": None, "tool_calls": [read]},
        history[5],
        *history[6:],
    ]
    assert without_old_checklists(shorter) == shorter
    assert without_old_checklists(history[6:]) == history[6:]
