"""The command line: what it prints, what it writes, how it ends."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from compaction import carrying, cli
from compaction.budget import PATHS, budget_table
from compaction.calibration import FeatureMeter
from compaction.compactor import compact_history
from compaction.console import percent
from compaction.grouping import group_messages, segments
from compaction.history import read_histories
from compaction.messages import SUMMARY_PREFIX, is_summary, problems
from compaction.probes import Probe, verify
from compaction.session import load
from compaction.summary import HEADINGS

AGENT = Path(__file__).resolve().parents[2] / "data" / "agent_history.json"
TOOL = {"type": "function", "function": {"name": "read_file", "description": "d" * 390}}
COMMANDS = (
    "estimate",
    "budget",
    "compact",
    "probes",
    "needed",
    "convert",
    "simulate",
    "agent",
    "gateway",
)


@pytest.fixture
def run(capsys, monkeypatch, tmp_path):
    """Run a command in a scratch folder and return exit code, output and complaints."""
    monkeypatch.chdir(tmp_path)

    def run(*arguments):
        try:
            code = cli.main([str(argument) for argument in arguments])
        except SystemExit as end:  # argparse
            code = end.code
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return run


def size(messages, tools=None):
    """The count and the upper bound that the command line shows for a history."""
    meter = FeatureMeter()
    return meter.count(messages, tools), meter.at_most(messages, tools)


@pytest.fixture
def long(tmp_path):
    path = tmp_path / "long.json"
    path.write_text(json.dumps(load("long").messages, ensure_ascii=False), encoding="utf-8")
    return path


@pytest.fixture
def short(tmp_path):
    path = tmp_path / "short.json"
    path.write_text(json.dumps([{"role": "user", "content": "hi"}]), encoding="utf-8")
    return path


@pytest.fixture
def lines(tmp_path):
    """Three conversations a line: long, one message, the agent's."""
    path = tmp_path / "all.jsonl"
    conversations = [
        {"id": "a", "messages": load("long").messages},
        [{"role": "user", "content": "hi"}],
        {"messages": read_histories(AGENT).conversations[0].messages},
    ]
    text = "".join(json.dumps(conversation) + "\n" for conversation in conversations)
    path.write_text(text, encoding="utf-8")
    return path


def module(*arguments, **options):
    """Run ``python -m compaction`` in a process of its own."""
    return subprocess.run(
        [sys.executable, "-m", "compaction", *map(str, arguments)],
        capture_output=True,
        encoding="utf-8",
        timeout=120,
        check=False,
        **{"env": {**os.environ, "PYTHONUTF8": "1"}, **options},
    )


# --- help -------------------------------------------------------------------------------


def test_help_names_every_command_and_shows_examples(run):
    code, out, _ = run("--help")
    assert code == 0
    assert re.findall(r"^    (\w+)  ", out, re.MULTILINE) == list(COMMANDS)
    assert "python -m compaction estimate history.json" in out
    assert all(len(line) <= 80 for line in out.splitlines())


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help_with_examples(run, command):
    code, out, _ = run(command, "--help")
    assert code == 0
    assert f"usage: python -m compaction {command}" in out
    assert f"  python -m compaction {command}" in out.split("examples:")[1]


@pytest.mark.parametrize(
    "arguments",
    [
        (),
        ("nonsense",),
        ("estimate",),
        ("estimate", "a.json", "b.json"),
        ("estimate", "a.json", "--unknown"),
        ("budget", "a.json", "--window", "0"),
        ("budget", "a.json", "--window", "-5"),
        ("budget", "a.json", "--window", "many"),
        ("budget", "a.json", "--window", "1.5"),
        ("compact", "a.json", "--keep-recent", "-1"),
        ("compact", "a.json", "--keep-recent", "x"),
        ("budget", "a.json", "--window", "1" + "0" * 400),
        ("estimate", "a.json", "--window", "1" + "0" * 5000),
        # An unset variable of a shell must not turn an option off.
        ("estimate", "a.json", "--tools", ""),
        ("compact", "a.json", "--out", ""),
        ("compact", "a.json", "--fact", " "),
        ("probes", "a.json", "--after", ""),
        ("simulate", "--plot", ""),
        ("simulate", "--keep", "-1"),
        ("simulate", "--keep"),
        ("simulate", "--seeds", "1"),
        ("simulate", "--seed", "x"),
    ],
)
def test_a_wrong_command_line_is_one_line_and_exit_code_2(run, arguments):
    code, out, err = run(*arguments)
    assert (code, out) == (2, "")
    assert err.startswith("error: ") and err.count("\n") == 1 and "--help" in err


def test_version(run):
    code, out, _ = run("--version")
    assert code == 0 and out.startswith("compaction ")


# --- bad input --------------------------------------------------------------------------

BAD_TEXTS = {
    "malformed": '[{"role": "user"',
    "role": '[{"role": "bot", "content": "x"}]',
    "no object": "[7]",
    "empty": "[]",
    "content": '[{"role": "user", "content": 7}]',
    "nothing": "",
}


@pytest.mark.parametrize("command", ["estimate", "budget", "compact", "probes"])
@pytest.mark.parametrize("kind", BAD_TEXTS)
def test_bad_input_is_one_line_and_exit_code_2(run, tmp_path, command, kind):
    (tmp_path / "bad.json").write_text(BAD_TEXTS[kind], encoding="utf-8")
    more = ("--out", "out.json") if command == "compact" else ()
    code, out, err = run(command, "bad.json", *more)
    assert (code, out) == (2, "")
    assert err.startswith("error: bad.json") and err.count("\n") == 1
    assert os.listdir(tmp_path) == ["bad.json"]


@pytest.mark.parametrize("command", ["estimate", "budget", "compact", "probes"])
def test_a_file_that_is_not_there(run, command):
    code, out, err = run(command, "missing.json")
    assert (code, out) == (2, "")
    assert err == "error: missing.json: cannot be read: no such file or directory\n"


def test_a_bad_line_among_good_ones_stops_everything(run, tmp_path, lines):
    lines.write_text(lines.read_text(encoding="utf-8") + "[7]\n", encoding="utf-8")
    code, out, err = run("compact", lines, "--out", "out.jsonl")
    # Conversations are read one at a time: the reports of those before it are out already.
    assert code == 2 and "wrote" not in out
    assert "line 4, message 1 of 1" in err
    assert not (tmp_path / "out.jsonl").exists()


def test_bad_tools(run, tmp_path, short):
    (tmp_path / "tools.json").write_text("7")
    code, _, err = run("estimate", short, "--tools", "tools.json")
    assert code == 2 and "tools.json: expected a JSON list of tool schemas" in err


# --- estimate ---------------------------------------------------------------------------


def test_estimate(run, long):
    code, out, err = run("estimate", long)
    assert (code, err) == (0, "")
    count, bound = size(load("long").messages)
    assert f"{long}: about {count:,} tokens, at most {bound:,} (estimated, no usage" in out
    assert "14 messages" in out and "heuristic" in out


def test_estimate_as_json(run, long):
    code, out, _ = run("estimate", long, "--json", "--window", 1800)
    report = json.loads(out)
    assert code == 0
    assert (report["messages"], report["images"]) == (14, 0)
    assert (report["tokens"], report["at_most"]) == size(load("long").messages)
    assert report["used"] == pytest.approx(report["tokens"] / 1800)
    assert report["problems"] == []


def test_estimate_against_a_window(run, long):
    _, out, _ = run("estimate", long, "--window", 1800)
    count, bound = size(load("long").messages)
    share = percent(count / 1800)
    assert f"{share} of a window of 1800: above the line of 70 % (1260), compaction is due" in out
    # The upper bound decides, and says so where the plain count would not.
    window = round((count + bound) / 2 / 0.7)
    _, out, _ = run("estimate", long, "--window", window)
    assert f"perhaps, with at most {bound}, above the line" in out and "is due" in out
    _, out, _ = run("estimate", long, "--window", 128000)
    assert "1 % of a window of 128000: not above the line" in out


def test_tool_schemas_are_counted(run, tmp_path, short):
    (tmp_path / "tools.json").write_text(json.dumps([TOOL]))
    _, out, _ = run("estimate", short, "--tools", "tools.json", "--json")
    report = json.loads(out)
    assert report["tokens"] == FeatureMeter().count([{"role": "user", "content": "hi"}], [TOOL])
    assert report["tool_schema_tokens"] > 90
    # The same when they lie beside the messages.
    body = {"messages": [{"role": "user", "content": "hi"}], "tools": [TOOL]}
    (tmp_path / "body.json").write_text(json.dumps(body))
    _, out, _ = run("estimate", "body.json", "--json")
    assert json.loads(out)["tokens"] == report["tokens"]


def test_a_history_that_an_api_would_refuse_is_counted_and_named(run, tmp_path):
    history = [{"role": "tool", "tool_call_id": "c9", "content": "ok"}]
    (tmp_path / "h.json").write_text(json.dumps(history))
    code, out, _ = run("estimate", "h.json")
    assert code == 0
    assert "an API would refuse this history: tool result 'c9' does not follow" in out


def test_every_conversation_is_estimated(run, lines):
    code, out, _ = run("estimate", lines)
    assert code == 0
    assert f"all.jsonl, conversation 1: about {size(load('long').messages)[0]:,} tokens" in out
    assert "all.jsonl, conversation 3: about" in out
    assert re.search(r"^3 conversations: about [\d,]+ tokens in all$", out, re.MULTILINE)
    _, out, _ = run("estimate", lines, "--json")
    reports = [json.loads(line) for line in out.splitlines()]
    assert [report["messages"] for report in reports] == [14, 1, 83]


# --- budget -----------------------------------------------------------------------------


def test_budget_draws_the_seven_paths(run, long):
    code, out, err = run("budget", long, "--window", 1800)
    assert (code, err) == (0, "")
    rows = {path.name: line for path in PATHS for line in out.splitlines() if path.name in line}
    assert list(rows) == [path.name for path in PATHS]
    table = budget_table(load("long").messages, 1800, FeatureMeter())
    for row in table:
        shown = rows[row.path].removeprefix(row.path).split()
        assert shown[:2] == [str(row.tokens), str(row.allowance)]
    results = table[-1].tokens
    assert f"over by {results - 270}" in rows["tool results"]
    assert "over" not in rows["conversation"]
    total = sum(row.tokens for row in table)
    assert re.search(rf"^total +{total} +1800 +{percent(total / 1800)}$", out, re.MULTILINE)
    assert "compaction is due" in out


def test_the_table_fits_80_columns_and_has_no_colour_codes_when_piped(long):
    done = module("budget", long.name, "--window", 1800, cwd=long.parent)
    assert done.returncode == 0 and done.stderr == ""
    assert "\x1b" not in done.stdout
    assert all(len(line) <= 80 for line in done.stdout.splitlines())
    assert "█" in done.stdout and "▶" in done.stdout


def test_the_table_of_a_terminal_that_knows_ascii_only(long):
    environment = {**os.environ, "PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"}
    done = module("budget", long, "--window", 1800, env=environment)
    assert done.returncode == 0 and done.stderr == ""
    assert done.stdout.isascii() and "#" in done.stdout and ">" in done.stdout


@pytest.mark.parametrize("window", [1, 5, 17, 10**9])
def test_budget_of_odd_windows(run, long, window):
    code, out, _ = run("budget", long, "--window", window)
    assert code == 0 and "tool results" in out


def test_budget_as_json_adds_up(run, long):
    code, out, _ = run("budget", long, "--window", 1800, "--json")
    report = json.loads(out)
    assert code == 0
    assert report["tokens"] == sum(row["tokens"] for row in report["rows"])
    assert (report["tokens"], report["at_most"]) == size(load("long").messages)
    assert [row["path"] for row in report["rows"]] == [path.name for path in PATHS]
    assert [row["path"] for row in report["rows"] if row["over"]] == ["tool results"]
    assert report["should_compact"] is True
    _, out, _ = run("budget", long, "--window", 5, "--json")
    assert json.loads(out)["rows"][0]["used"] is None  # an allowance of no token


def test_budget_counts_tools_as_system_instructions(run, tmp_path, short):
    (tmp_path / "tools.json").write_text(json.dumps([TOOL]))
    _, out, _ = run("budget", short, "--tools", "tools.json", "--json")
    assert json.loads(out)["rows"][0]["tokens"] > 90


def test_budget_of_every_conversation(run, lines):
    code, out, _ = run("budget", lines)
    assert code == 0 and out.count("tool results") == 3


# --- compact ----------------------------------------------------------------------------


def test_compact_reports_before_and_after_and_writes_nothing(run, tmp_path, long):
    code, out, err = run("compact", long)
    done = compact_history(load("long").messages, meter=FeatureMeter())
    assert (code, err) == (0, "")
    assert f"compacted 14 -> 7 messages, {done.before} -> {done.after} tokens" in out
    assert "summary 1 replaces messages 2 to 6" in out
    assert "1 user message, 2 assistant messages with calls, 2 tool results" in out
    assert "fact kept: pnpm build:calc" in out
    assert "nothing was written" in out
    assert os.listdir(tmp_path) == ["long.json"]


def test_compact_writes_the_form_it_read(run, tmp_path, long):
    code, out, _ = run("compact", long, "--out", "out.json")
    assert code == 0 and "wrote out.json" in out
    written = read_histories(tmp_path / "out.json")
    assert written.form == "list"
    (conversation,) = written.conversations
    assert (
        conversation.messages
        == compact_history(load("long").messages, meter=FeatureMeter()).messages
    )
    assert sorted(os.listdir(tmp_path)) == ["long.json", "out.json"]


def test_compact_keeps_the_other_fields_of_an_object(run, tmp_path):
    body = {"model": "m", "messages": load("long").messages, "tools": [TOOL], "x": {"y": 1}}
    (tmp_path / "body.json").write_text(json.dumps(body, indent=2))
    code, out, _ = run("compact", "body.json", "--out", "body.json")
    assert code == 0
    written = json.loads((tmp_path / "body.json").read_text(encoding="utf-8"))
    assert {**written, "messages": None} == {**body, "messages": None}
    assert len(written["messages"]) == 7
    # The numbers are those of the request, schemas included.
    before = FeatureMeter().count(body["messages"], [TOOL])
    after = FeatureMeter().count(written["messages"], [TOOL])
    assert f"{before} -> {after} tokens" in out


def test_compact_message_lines(run, tmp_path):
    messages = load("long").messages
    (tmp_path / "h.jsonl").write_text("".join(json.dumps(m) + "\n" for m in messages))
    code, _, _ = run("compact", "h.jsonl", "--out", "out.jsonl")
    written = read_histories(tmp_path / "out.jsonl")
    assert code == 0 and written.form == "message lines"
    assert len(written.conversations[0].messages) == 7


def test_compact_as_json(run, long):
    code, out, _ = run("compact", long, "--json")
    report = json.loads(out)
    done = compact_history(load("long").messages, meter=FeatureMeter())
    assert code == 0 and report["abandoned"] is None
    assert (report["before"], report["after"]) == (done.before, done.after)
    assert (report["messages_before"], report["messages_after"]) == (14, 7)
    assert report["messages"] == done.messages
    assert [item["text"] for item in report["summaries"]] == done.summaries
    assert (report["kept"], report["carried"], report["absent"]) == (["pnpm build:calc"], [], [])
    assert report["new_problems"] == []


def test_the_summaries_are_reported_with_the_messages_they_replaced(run):
    code, out, _ = run("compact", AGENT, "--json", "--keep-recent", 5)
    report = json.loads(out)
    history = read_histories(AGENT).conversations[0].messages
    meter = FeatureMeter()
    expected = [
        (start + 1, end)
        for start, end in segments(history, group_messages(history, 5))
        if meter.count(history[start:end]) >= 100
    ]
    found = [(item["from_message"], item["to_message"]) for item in report["summaries"]]
    assert code == 0 and found == expected
    for item, (start, end) in zip(report["summaries"], expected, strict=True):
        assert sum(item["replaced"].values()) == end - start + 1
        assert item["tokens_before"] == meter.count(history[start - 1 : end])
    summaries = [message for message in report["messages"] if is_summary(message)]
    assert [item["tokens_after"] for item in report["summaries"]] == [
        meter.count([message]) for message in summaries
    ]


def test_an_abandoned_compaction_says_why_exits_1_and_writes_nothing(run, tmp_path, short):
    code, out, err = run("compact", short, "--out", "out.json")
    assert (code, out) == (1, "")
    assert "not compacted: nothing to compress" in err
    assert os.listdir(tmp_path) == ["short.json"]
    code, out, _ = run("compact", short, "--json", "--out", "out.json")
    assert code == 1 and "nothing to compress" in json.loads(out)["abandoned"]
    assert os.listdir(tmp_path) == ["short.json"]


def test_an_abandoned_compaction_leaves_an_old_file_alone(run, short):
    before = short.read_bytes()
    assert run("compact", short, "--out", short)[0] == 1
    assert short.read_bytes() == before


def test_each_conversation_is_compacted_and_written_as_a_line(run, tmp_path, lines):
    """What is too short stays as it is; the exit code tells that one was abandoned."""
    code, out, err = run("compact", lines, "--out", "out.jsonl")
    assert code == 1
    assert "conversation 1: compacted 14 -> 7 messages" in out
    assert "conversation 2: not compacted" in err
    assert "wrote 3 conversations, 1 of them unchanged to out.jsonl" in out
    written = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert written[0]["id"] == "a" and len(written[0]["messages"]) == 7
    assert written[1] == [{"role": "user", "content": "hi"}]
    assert problems(written[2]["messages"]) == []


def test_when_every_conversation_is_compacted_the_exit_code_is_0(run, tmp_path, lines):
    first, _, third = lines.read_text(encoding="utf-8").splitlines()
    lines.write_text(f"{first}\n{third}\n", encoding="utf-8")
    code, _, err = run("compact", lines, "--out", "out.jsonl", "--json")
    assert (code, err) == (0, "")
    assert len((tmp_path / "out.jsonl").read_text().splitlines()) == 2


def test_keep_recent_and_the_least_segment(run, long):
    report = json.loads(run("compact", long, "--json", "--keep-recent", 5)[1])
    assert report["messages"][-7:] == load("long").messages[-7:]
    assert run("compact", long, "--keep-recent", 50)[0] == 1
    assert run("compact", long, "--min-segment-tokens", 5000)[0] == 1
    assert len(json.loads(run("compact", long, "--json", "--keep-recent", 0)[1])["messages"]) < 7


def test_a_fact_of_ones_own_is_kept_or_named(run, long):
    _, out, _ = run("compact", long, "--fact", "divide by zero", "--fact", "no such fact")
    assert re.search("fact (kept|carried)[^:]*: divide by zero", out)
    assert "fact not in this history: no such fact" in out


def test_a_fact_that_the_summary_loses_is_carried(run, tmp_path):
    secret = "the blue key hangs behind the door"
    output = "line of output\n" * 200 + secret + "\n" + "line of output\n" * 200
    call = {"id": "c", "type": "function", "function": {"name": "read_file", "arguments": "{}"}}
    history = [
        {"role": "user", "content": "Read it."},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c", "content": output},
        *[{"role": "assistant", "content": "ok"}] * 3,
    ]
    (tmp_path / "h.json").write_text(json.dumps(history))
    code, out, _ = run("compact", "h.json", "--fact", secret, "--out", "out.json")
    assert (
        code == 0 and f"fact carried over word for word, since the summary lost it: {secret}" in out
    )
    written = read_histories(tmp_path / "out.json").conversations[0].messages
    assert verify([Probe(secret)], written).kept


def test_standard_input_and_output(long):
    text = long.read_text(encoding="utf-8")
    done = module("compact", "-", "--out", "-", input=text)
    assert done.returncode == 0
    assert "standard input: compacted 14 -> 7" in done.stderr
    shorter = json.loads(done.stdout)
    assert len(shorter) == 7 and sum(map(is_summary, shorter)) == 2
    again = module("estimate", "-", "--json", input=done.stdout)
    assert json.loads(again.stdout)["tokens"] == FeatureMeter().count(shorter)


def test_a_history_on_standard_output_is_utf8_whatever_the_terminal_is(tmp_path):
    history = load("long").messages
    history[-1] = {**history[-1], "content": "完成 é 🙂"}
    (tmp_path / "h.json").write_text(json.dumps(history))
    environment = {**os.environ, "PYTHONIOENCODING": "cp1252", "PYTHONUTF8": "0"}
    done = module("compact", "h.json", "--out", "-", cwd=tmp_path, env=environment)
    assert done.returncode == 0
    assert json.loads(done.stdout)[-1] == history[-1]
    report = module("compact", "h.json", "--json", cwd=tmp_path, env=environment)
    assert json.loads(report.stdout)["messages"][-1] == history[-1]


def test_an_output_that_cannot_be_written(run, tmp_path, long):
    code, _, err = run("compact", long, "--out", tmp_path / "missing" / "out.json")
    assert code == 2
    assert err.startswith("error: ") and "there is no folder" in err and err.count("\n") == 1


@pytest.mark.skipif(os.name == "nt", reason="Windows allows links to few")
def test_links_in_a_circle_are_not_replaced(run, tmp_path, long):
    link = tmp_path / "here"
    link.symlink_to(tmp_path / "there")
    (tmp_path / "there").symlink_to(link)
    code, _, err = run("compact", long, "--out", link)
    assert (code, err.count("\n")) == (2, 1) and "circle" in err
    assert link.is_symlink() and len(list(tmp_path.iterdir())) == 3


def test_a_part_of_an_odd_type_is_read_past(run, tmp_path):
    history = [{"role": "user", "content": [{"type": {}, "text": "hi"}, {"type": ["x"]}]}]
    (tmp_path / "odd.json").write_text(json.dumps(history), encoding="utf-8")
    for command in ("estimate", "budget", "probes"):
        code, _, err = run(command, "odd.json")
        assert (code, err) == (0, "")


def test_an_abandoned_compaction_says_why_on_one_line(run, long, monkeypatch):
    def fail(messages):
        raise ValueError("first line\nsecond line")

    monkeypatch.setattr("compaction.summary.extract", fail)
    code, out, err = run("compact", long)
    assert (code, out) == (1, "")
    assert "not compacted: the summariser failed: ValueError: first line second line\n" in err


def test_odd_characters_go_through(run, tmp_path):
    odd = load("long").messages
    odd[1] = {**odd[1], "content": odd[1]["content"] + " \ud800 🙂 \x1b[31m"}
    (tmp_path / "h.json").write_text(json.dumps(odd))
    for command in ("estimate", "budget", "compact", "probes"):
        assert run(command, "h.json")[0] == 0
        assert json.loads(run(command, "h.json", "--json")[1])
    assert run("compact", "h.json", "--keep-recent", 5, "--out", "out.json")[0] == 0
    assert read_histories(tmp_path / "out.json").conversations


# --- summaries by a model -----------------------------------------------------------------


def test_a_model_writes_the_summaries(run, long, monkeypatch):
    from compaction.gateway import Gateway

    monkeypatch.setenv("OPENAI_API_KEY", "none")
    with Gateway([]) as gateway:
        code, out, _ = run(
            "compact", long, "--model", "scripted", "--base-url", gateway.base_url, "--json"
        )
        assert len(gateway.requests) == 2
    report = json.loads(out)
    assert code == 0 and report["abandoned"] is None
    assert all(HEADINGS[0] in item["text"] for item in report["summaries"])


def test_a_gateway_that_is_away_abandons(run, long, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    code, out, err = run(
        "compact", long, "--model", "m", "--base-url", "http://127.0.0.1:9/v1", "--out", "out.json"
    )
    assert (code, out) == (1, "")
    assert "the summariser failed" in err and not Path("out.json").exists()


def test_a_model_without_a_key_is_one_line(run, long, monkeypatch):
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    code, out, err = run("compact", long, "--model", "m")
    assert (code, out) == (2, "") and err.startswith("error: --model") and err.count("\n") == 1


def test_a_base_url_needs_a_model(run, long):
    code, _, err = run("compact", long, "--base-url", "http://127.0.0.1:9/v1")
    assert code == 2 and "--base-url needs --model" in err


# --- probes -----------------------------------------------------------------------------


def test_probes_lists_what_is_pinned(run):
    code, out, err = run("probes", AGENT)
    assert (code, err) == (0, "")
    assert "2 facts to look for" in out
    assert "make ship CHANNEL=stable (in message 2)" in out
    assert "整数分 (in message 37)" in out


def test_probes_when_nothing_is_pinned(run, short):
    code, out, _ = run("probes", short)
    assert code == 0 and "nothing is pinned" in out


def test_probes_against_a_compacted_history(run, tmp_path):
    assert run("compact", AGENT, "--out", "out.json")[0] == 0
    code, out, _ = run("probes", AGENT, "--after", "out.json")
    assert code == 0 and "2 kept, 0 lost" in out
    assert "kept: 整数分" in out


def test_a_lost_fact_is_named_and_exits_1(run, tmp_path):
    history = read_histories(AGENT).conversations[0].messages
    (tmp_path / "cut.json").write_text(json.dumps(history[30:]))
    code, out, _ = run("probes", AGENT, "--after", "cut.json")
    assert code == 1
    assert "1 kept, 1 lost" in out
    assert "LOST: make ship CHANNEL=stable (nowhere)" in out
    code, out, _ = run("probes", AGENT, "--after", "cut.json", "--json")
    report = json.loads(out)
    assert code == 1 and (report["kept"], report["lost"]) == (1, 1)
    assert [probe["kept"] for probe in report["probes"]] == [False, True]


def test_a_fact_given_by_hand(run, short):
    assert run("probes", short, "--fact", "hi")[0] == 0
    code, out, _ = run("probes", short, "--fact", "ho")
    assert code == 1 and "LOST: ho (nowhere)" in out


def test_probes_of_as_many_conversations(run, tmp_path, lines, short):
    assert run("compact", lines, "--out", "out.jsonl")[0] == 1
    assert run("probes", lines, "--after", "out.jsonl")[0] == 0
    code, _, err = run("probes", lines, "--after", short)
    assert code == 2 and "expected 3 conversations" in err


# --- simulate ---------------------------------------------------------------------------


def test_simulate_prints_the_tables(run):
    code, out, err = run("simulate")
    assert (code, err) == (0, "")
    assert out.strip() == carrying.sweep_table().strip()


def test_simulate_with_another_seed_and_budget(run):
    code, out, _ = run("simulate", "--seed", 7, "--keep", 3, 5, "--json")
    assert code == 0 and json.loads(out) == carrying.sweep_dict(7, [3, 5])


def test_simulate_over_many_seeds(run):
    code, out, _ = run("simulate", "--seeds", 3, "--keep", 3)
    assert code == 0
    assert out.strip() == carrying.spread_table(carrying.spread(3, [3])).strip()


def test_simulate_draws_a_picture(run, tmp_path):
    code, _, _ = run("simulate", "--plot", "sweep.png", "--keep", 3, 4)
    assert code == 0
    assert (tmp_path / "sweep.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("name", ["sweep.txt", "sweep"])
def test_a_picture_of_no_known_format(run, tmp_path, name):
    code, out, err = run("simulate", "--plot", name)
    assert (code, out) == (2, "") and "expected a file name that ends in .png, .svg or .pdf" in err
    assert os.listdir(tmp_path) == []


# --- how it ends ----------------------------------------------------------------------------


def test_a_gateway_script_that_is_none(run, tmp_path):
    code, _, err = run("gateway", "--script", "missing.json")
    assert code == 2 and err.startswith("error: ") and err.count("\n") == 1


@pytest.mark.skipif(os.name == "nt", reason="Windows has another Ctrl-C")
def test_ctrl_c_ends_quietly_with_130():
    process = subprocess.Popen(
        [sys.executable, "-m", "compaction", "estimate", "-"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdin is not None
    time.sleep(1.5)  # it waits for its input
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out, err) == (130, b"", b"")


@pytest.mark.skipif(os.name == "nt", reason="Windows closes pipes in another way")
def test_a_reader_that_goes_away_is_no_error(lines):
    script = f"{sys.executable} -m compaction compact {lines} --json; echo code $? >&2"
    process = subprocess.Popen(
        ["sh", "-c", script], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None and process.stderr is not None
    process.stdout.close()
    err = process.stderr.read()
    process.wait(timeout=60)
    assert err == "code 141\n"


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no full device here")
def test_a_full_disk_is_one_line(long):
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "compaction", "estimate", str(long)],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert done.returncode == 1
    assert done.stderr.startswith("error: ") and done.stderr.count("\n") == 1


@pytest.mark.skipif(os.name == "nt", reason="a shell's way to close a stream")
@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        ("estimate {long} >&-", 0, ""),
        ("compact {long} --out out.json >&-", 0, ""),
        ("estimate missing.json >&-", 2, "error: missing.json: cannot be read"),
        ("estimate - <&-", 2, "error: standard input: the file is empty"),
        ("estimate {long} 2>&-", 0, ""),
    ],
)
def test_a_closed_stream_is_an_empty_one(long, tmp_path, arguments, code, said):
    script = f"{sys.executable} -m compaction {arguments.format(long=long)}"
    done = subprocess.run(
        ["sh", "-c", script], capture_output=True, text=True, cwd=tmp_path, check=False
    )
    assert done.returncode == code
    assert done.stderr.startswith(said) and done.stderr.count("\n") == bool(said)
    if "--out" in arguments:
        assert len(read_histories(tmp_path / "out.json").conversations[0].messages) == 7


def test_the_module_can_be_run(long):
    done = module("estimate", long)
    assert (done.returncode, done.stderr) == (0, "")
    assert f"about {size(load('long').messages)[0]:,} tokens" in done.stdout


def test_summaries_in_the_output_carry_the_phrase_once(run, tmp_path):
    run("compact", AGENT, "--out", "once.json")
    run("compact", "once.json", "--out", "twice.json", "--keep-recent", 0)
    for name in ("once.json", "twice.json"):
        if (tmp_path / name).exists():
            for message in read_histories(tmp_path / name).conversations[0].messages:
                assert str(message["content"]).count(SUMMARY_PREFIX) <= 1


# --- a target, a mask, what was given up ------------------------------------------------


def test_a_target_is_kept_or_nothing_is_done(run, long):
    code, out, _ = run("compact", AGENT, "--target", 3500, "--json")
    report = json.loads(out)
    assert code == 0 and 0 < report["after"] <= 3500
    code, _, err = run("compact", long, "--target", 20)
    assert code == 1 and "20 tokens cannot be reached" in err
    code, _, err = run("compact", long, "--min-gain", "10")
    assert code == 2 and "expected a share from 0 to below 1" in err
    code, _, err = run("compact", long, "--min-gain", "0.99")
    assert code == 1 and "the gain is too small" in err


def test_secrets_stay_out_of_summaries_unless_wanted(run, tmp_path):
    key = "sk-proj-" + "a1B2" * 10
    history = [
        {"role": "user", "content": f"The key is {key}. Call the API. " + "Words. " * 120},
        *[{"role": "assistant", "content": "ok"}] * 4,
    ]
    (tmp_path / "h.json").write_text(json.dumps(history))
    assert key not in run("compact", "h.json", "--json", "--keep-recent", 1)[1]
    with_it = json.loads(run("compact", "h.json", "--json", "--keep-recent", 1, "--no-mask")[1])
    assert key in with_it["summaries"][0]["text"]


def test_alternating_roles(run):
    report = json.loads(run("compact", AGENT, "--alternate", "--json")[1])
    roles = [m["role"] for m in report["messages"] if m["role"] in ("user", "assistant")]
    assert report["abandoned"] is None
    assert problems(report["messages"], alternate=True) == [], roles


def test_needed_shows_each_cut_method_beside_method(run):
    code, out, _ = run("needed", AGENT)
    assert code == 0 and "needed later" in out and "cut before message" in out
    for method in ("compact", "truncate", "clear results"):
        assert re.search(rf"^    {method} +\d+ %", out, re.MULTILINE), out
    code, out, _ = run("needed", AGENT, "--json")
    rows = json.loads(out)["rows"]
    assert code == 0 and {row["method"] for row in rows} >= {"compact", "truncate"}
    assert all(row["after"] is None or row["after"] <= row["budget"] for row in rows)


def test_probes_are_proposed_where_nothing_is_pinned(run, tmp_path):
    call = {"id": "c1", "type": "function"}
    call["function"] = {"name": "get_order", "arguments": '{"id": "W1234"}'}
    history = [
        {"role": "user", "content": "Where is my parcel?"},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c1", "content": '{"flight": "HAT136"}'},
    ]
    (tmp_path / "h.json").write_text(json.dumps(history))
    code, out, _ = run("probes", "h.json")
    assert code == 0 and "proposed since nothing is pinned" in out
    assert "HAT136 (in message 3)" in out and "Which flight came from get_order W1234?" in out
