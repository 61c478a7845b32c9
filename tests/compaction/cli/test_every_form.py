"""Every command reads every form; ``convert`` and ``compact --out`` write Chat Completions."""

from __future__ import annotations

import json

import pytest

from compaction import cli
from compaction.history import read_histories
from compaction.messages import is_summary, problems
from tests.compaction.history.test_formats import CASES, laid, named

READ = [*named("messages"), *named("conversations")]


@pytest.fixture
def run(capsys, monkeypatch, tmp_path):
    """Run a command in a scratch folder and return exit code, output and complaints."""
    monkeypatch.chdir(tmp_path)

    def run(*arguments):
        code = cli.main([str(argument) for argument in arguments])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return run


def histories(path):
    return [conversation.messages for conversation in read_histories(path).conversations]


@pytest.mark.parametrize("case", READ)
@pytest.mark.parametrize("command", ["estimate", "budget", "probes"])
def test_every_form_is_measured(run, tmp_path, command, case):
    path = laid(case, tmp_path)
    code, out, complaints = run(command, path)
    assert (code, complaints) == (0, "")
    assert out.count(path.name) >= len(histories(path))
    code, out, _ = run(command, path, "--json")
    assert code == 0
    assert len([json.loads(line) for line in out.splitlines()]) == len(histories(path))


def lengthened(case):
    """Return a case whose longest text, wherever its form has it, says much more."""
    texts = [text for message in case["expect"]["messages"] for text in texts_of(message)]
    raw = [text for text in texts if json_text(text) in case["text"]]
    longest = json_text(max(raw, key=len))
    longer = f"{longest} {'The order 48213 is in src/orders.py. ' * 60}"
    return {**case, "text": case["text"].replace(longest, longer)}


def texts_of(message):
    content = message["content"]
    if isinstance(content, str):
        return [content]
    return [p["text"] for p in content if "text" in p] if isinstance(content, list) else []


def json_text(text):
    return json.dumps(text, ensure_ascii=False)[1:-1]


@pytest.mark.parametrize("case", named("messages"))
def test_every_form_is_compacted_to_chat_completions(run, tmp_path, case):
    path, out_path = laid(lengthened(case), tmp_path), tmp_path / "shorter.out.json"
    options = ("--keep-recent", "0", "--out", out_path)
    code, _, complaints = run("compact", path, *options)
    assert code == 0, complaints
    (found,) = read_histories(out_path).conversations
    assert found.program == "Chat Completions"
    assert any(is_summary(message) for message in found.messages)
    assert problems(found.messages) == problems(histories(path)[0])


@pytest.mark.parametrize("case", READ)
def test_what_is_converted_reads_back_the_same(run, tmp_path, case):
    path, out_path = laid(case, tmp_path), tmp_path / "converted.out.json"
    code, out, complaints = run("convert", path, "--out", out_path)
    assert (code, complaints) == (0, "")
    assert f"wrote {out_path}" in out
    assert histories(out_path) == histories(path)
    assert {c.program for c in read_histories(out_path).conversations} == {"Chat Completions"}
    again = tmp_path / "again.out.json"
    assert run("convert", out_path, "--out", again)[0] == 0
    assert again.read_bytes() == out_path.read_bytes()


@pytest.mark.parametrize("case", READ)
@pytest.mark.parametrize("command", ["convert", "compact"])
def test_no_file_of_another_form_is_written_over(run, tmp_path, command, case):
    path = laid(case, tmp_path)
    data = path.read_bytes()
    programs = {conversation.program for conversation in read_histories(path).conversations}
    code, _, complaints = run(command, path, "--out", path)
    if programs != {"Chat Completions"}:
        assert code == 2
        assert complaints.count("\n") == 1 and path.name in complaints
        assert path.read_bytes() == data
    else:
        assert code in (0, 1)


@pytest.mark.parametrize("case", named("refused"))
@pytest.mark.parametrize("command", ["budget", "compact", "probes", "convert"])
def test_what_is_no_history_is_refused_by_every_command(run, tmp_path, command, case):
    out_path = tmp_path / "nothing.json"
    options = ("--out", out_path) if command in ("compact", "convert") else ()
    code, out, complaints = run(command, laid(case, tmp_path), *options)
    assert code == 2 and out == ""
    assert complaints.count("\n") == 1 and case["file"] in complaints
    assert all(word.lower() in complaints.lower() for word in case["expect"]["refused"])
    assert not out_path.exists()


def test_convert_to_standard_output_writes_the_history_alone(tmp_path, capfdbinary):
    case = next(case for case in CASES if case["file"] == "anthropic_body.json")
    path = laid(case, tmp_path)
    assert cli.main(["convert", str(path)]) == 0
    said = capfdbinary.readouterr()
    assert json.loads(said.out)["messages"] == histories(path)[0]
    assert path.name.encode() in said.err
