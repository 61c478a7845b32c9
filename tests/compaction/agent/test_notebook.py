"""The magics: one session in the kernel, the pictures of the lessons, faults in one line."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from IPython.core.error import UsageError
from IPython.core.interactiveshell import InteractiveShell
from IPython.utils.capture import capture_output

from compaction.agent import demo, notebook
from compaction.gateway import Gateway
from compaction.messages import problems

FIRST, SECOND = demo.TURNS[0].suggestion, demo.TURNS[1].suggestion

Run = Callable[[str], Any]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Run]:
    """Return a function that runs a cell in a shell of its own and returns what it showed."""
    monkeypatch.setenv("COMPACTION_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("MPLBACKEND", "agg")
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    InteractiveShell.clear_instance()
    shell = InteractiveShell.instance()
    shell.run_line_magic("load_ext", "compaction")

    def run_cell(source: str) -> Any:
        with capture_output() as captured:
            result = shell.run_cell(source)
        captured.error = result.error_in_exec
        return captured

    yield run_cell
    notebook.close()
    InteractiveShell.clear_instance()


def pictures(captured: Any) -> list[str]:
    """Return the alt texts of the pictures that a cell showed."""
    return [
        output.metadata["image/png"]["alt"]
        for output in captured.outputs
        if "image/png" in output.data
    ]


def test_a_session_in_the_kernel(run: Run) -> None:
    shown = run(f"%%agent --yes\n{FIRST}")
    assert shown.error is None and not pictures(shown)
    assert shown.stdout.startswith("compaction agent, offline demonstration\n")
    assert "  run: python -m unittest -v test_calc\n" in shown.stdout
    assert 'test expects a CalcError that says "divide by zero"' in shown.stdout.replace("\n", " ")
    agent = notebook.current()
    assert agent.history[1]["content"] == FIRST
    # The next cell goes on with the same session, and draws what was measured.
    shown = run(f"%%agent --plot\n{SECOND}")
    assert "offline demonstration" not in shown.stdout
    assert notebook.current() is agent
    [alt] = pictures(shown)
    assert "measurements in this turn, 1 of them over a line" in alt
    assert alt.removeprefix("Tokens at every growth point. ") in shown.stdout
    assert re.search(r"\* compacted \d+ -> \d+ messages, .* 2 probes kept", shown.stdout)
    assert problems(agent.history) == []


def test_budget_and_compact_show_table_line_and_picture(run: Run) -> None:
    run(f"%%agent --yes\n{FIRST}")
    run(f"%%agent\n{SECOND}")
    agent = notebook.current()
    shown = run("%budget")
    assert "project instruction file" in shown.stdout and "\x1b" not in shown.stdout
    about, at_most = agent.sizes()
    assert f"about {about:,}, at most {at_most:,} of 6,400 tokens" in shown.stdout
    [alt] = pictures(shown)
    assert "Over their allowance: system instructions" in alt
    assert "Over their allowance: system instructions" in shown.stdout.splitlines()[-1]
    before = len(agent.history)
    shown = run("%compact")
    assert re.match(rf"\* compacted {before} -> {len(agent.history)} messages", shown.stdout)
    [alt] = pictures(shown)
    assert f"{before} messages before, {len(agent.history)} after" in alt
    # Sooner or later a pass finds nothing to do, and says so without a picture.
    for _ in range(4):
        shown = run("%compact")
        if shown.stdout.startswith("* not compacted: "):
            break
    assert shown.stdout.startswith("* not compacted: ") and not pictures(shown)
    assert not pictures(run("%budget --no-plot"))


def test_the_magics_count_with_one_meter(run: Run) -> None:
    run("%%agent\nhello")
    agent = notebook.current()
    meter = agent.parts.counter
    assert agent.engine.counter is meter
    assert agent.engine.estimate() == meter.at_most(agent.history, agent.engine.tools)
    assert agent.sizes()[0] == meter.count(agent.history, agent.engine.tools)


def test_where_nobody_can_be_asked_commands_are_refused(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_input(question: str = "") -> str:
        raise RuntimeError("raw_input was called, but this frontend does not support it")

    monkeypatch.setattr("builtins.input", no_input)
    shown = run(f"%%agent\n{FIRST}")
    assert "nobody can be asked here; %%agent --yes allows commands" in shown.stdout
    assert "Without that command I cannot go on" in shown.stdout
    # In a notebook in front of a person the question is put, and a later cell may allow all.
    monkeypatch.setattr("builtins.input", lambda question="": "y")
    assert "divide by zero" in run("%%agent\ngo on").stdout
    assert "Ran 13 tests" in run(f"%%agent --yes\n{SECOND}").stdout


@pytest.mark.parametrize(
    ("cell", "complaint"),
    [
        ("%budget", "there is no session yet; a %%agent cell opens one"),
        ("%compact", "there is no session yet"),
        ("%budget --what", "unrecognized arguments: --what (%budget --help lists the options)"),
        ("%%agent --window x\nhi", "expected a positive number of tokens, got 'x' (%agent --help"),
        ("%%agent --model m\nhi", "--model needs a key in OPENAI_API_KEY"),
        ("%%agent --session 'a\nhi", "No closing quotation"),
        ("%%agent --resume\nhi", "there is no session to resume"),
        ("%%agent\n  ", "%%agent needs a message in the cell"),
    ],
)
def test_faults_are_one_line(run: Run, cell: str, complaint: str) -> None:
    shown = run(cell)
    assert isinstance(shown.error, UsageError)
    assert complaint in str(shown.error) and "\n" not in str(shown.error)


def test_options_count_when_a_session_begins(run: Run) -> None:
    run("%%agent --window 9000\nhello")
    first = notebook.current()
    assert first.window == 9000
    shown = run("%%agent --window 12000\nhello")
    assert "--new with these options begins another one" in str(shown.error)
    assert notebook.current() is first
    run("%%agent --new --window 12000\nhello")
    assert notebook.current().window == 12000 and notebook.current() is not first


def test_help_is_shown_and_opens_nothing(run: Run) -> None:
    shown = run("%agent --help")
    assert shown.error is None and "--base-url URL" in shown.stdout and "--plot" in shown.stdout
    with pytest.raises(LookupError, match="there is no session yet"):
        notebook.current()


def test_a_turn_that_failed_goes_on(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    # What may pass is asked again; here the first attempt is the last.
    monkeypatch.setattr("compaction.agent.asking.MAX_ATTEMPTS", 1)
    with Gateway(script=["Hello."], faults=["cut-stream"]) as gateway:
        options = f"--model scripted --base-url {gateway.base_url}"
        shown = run(f"%%agent {options}\nHi.")
        assert "the connection to the gateway failed" in shown.stdout
        assert "Hello." in run("%agent --continue").stdout
        assert notebook.current().history[-1]["content"] == "Hello."
        assert "nothing to go on with" in run("%agent --continue").stdout


def test_closing_stops_the_gateway(run: Run) -> None:
    run("%%agent\nhello")
    connection = notebook.current().connection
    notebook.close()
    notebook.close()
    assert connection.offline and connection._client is None


@pytest.mark.slow
def test_a_real_kernel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As a lesson runs: nbclient, nobody to ask, pictures with alt text."""
    import nbformat
    from nbclient import NotebookClient

    monkeypatch.setenv("COMPACTION_HOME", str(tmp_path / "home"))
    cells = [
        "%load_ext compaction",
        f"%%agent --yes --folder calc\n{FIRST}",
        f"%%agent --plot\n{SECOND}",
        "%budget",
        "%compact",
        "%%agent --window x\nhi",
    ]
    book = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])
    resources = {"metadata": {"path": str(tmp_path)}}
    NotebookClient(book, allow_errors=True, timeout=120, resources=resources).execute()
    outputs = [cell.outputs for cell in book.cells]

    def text(number: int) -> str:
        return "".join(o.text for o in outputs[number] if o.output_type == "stream")

    assert "project: " in text(1) and "divide by zero" in text(1)
    assert "* compacted " in text(2) and "2 probes kept" in text(2)
    assert "system instructions" in text(3) and "\x1b" not in text(3)
    for number in (2, 3, 4):
        shown = [output for output in outputs[number] if output.output_type == "display_data"]
        assert [o.metadata["image/png"]["alt"] != "" for o in shown] == [True]
    [complaint] = [o for o in outputs[5] if o.output_type != "display_data"]
    assert complaint.get("text", complaint.get("evalue", "")).count("\n") <= 1
    assert (tmp_path / "calc" / "calc.py").exists()
    # The kernel's end takes the gateway with it: nothing of this test still runs.
    listed = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=False)
    assert str(tmp_path / "calc") not in listed.stdout


def test_the_extension_names_itself_without_loading_anything() -> None:
    code = "import sys, compaction; print('IPython' in sys.modules, 'openai' in sys.modules)"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout == "False False\n"
