"""The offline demonstration: a small project with two faults, and a scripted model that mends it.

The model is a list of steps, no intelligence: but the files, the commands, the HTTP requests and
the compaction are real. It keeps nothing between two requests. Where it is in its script it reads
off the ids of the tool calls in the history, and what it says about the project it looks up in
the messages that it was sent, so that a fact which a compaction loses is lost to it too.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

from compaction import session
from compaction.agent.tools import REFUSED
from compaction.engine import NO_RESULT
from compaction.messages import Message, calls_of, content_of, text_of
from compaction.probes import Probe, fold, pinned_probes

WINDOW = 6_400
"""Tokens; small, so that a session of a few minutes has to compact twice."""

PROBES: list[Probe] = session.load("long").probes
"""The facts to look for: the pinned build command, and what the failing test expects."""

BUILD, ERROR_TEXT = (probe.fact for probe in PROBES)

# --- the project ----------------------------------------------------------------------------

_FILES = ("calc.py", "test_calc.py", "invoice.py", "test_invoice.py")


def lay_project(folder: Path) -> None:
    """Write the project's files into a folder; files that are there stay as they are."""
    source = files("compaction") / "data" / "calc"
    folder.mkdir(parents=True, exist_ok=True)
    for name in _FILES:
        if not (folder / name).exists():
            text = (source / f"{name}.txt").read_text(encoding="utf-8")
            (folder / name).write_text(text, encoding="utf-8")


def may_lay_project(folder: Path) -> bool:
    """Say whether a folder is empty or holds this project already."""
    return folder.is_dir() and (not any(folder.iterdir()) or (folder / _FILES[1]).is_file())


# --- the script -----------------------------------------------------------------------------

Say = Callable[[Sequence[Message]], str]


@dataclass(frozen=True)
class Turn:
    """What a person may ask next: a suggestion, and words by which a request is recognised."""

    suggestion: str
    words: str


TURNS = (
    Turn(
        f"A calc test fails. Find out why. Remember: build with `{BUILD}`.",
        r"calc|test|fail|why|find|bug|divi",
    ),
    Turn("Fix it, and run the tests again.", r"fix|mend|repair|guard|again|correct"),
    Turn("Does the invoice still work?", r"invoice|rest|other|still"),
    Turn(
        "How do I build it, and what did the first test expect?",
        r"build|expect|recall|what|how",
    ),
)

_GO_ON = re.compile(r"\b(?:go on|go ahead|continue|next|yes|ok|okay|please do)\b|^go$|^y$", re.I)


@dataclass(frozen=True)
class Step:
    """One reply: calls with a word before them, or the text that ends a turn."""

    turn: int
    say: str | Say
    calls: tuple[tuple[str, dict[str, Any]], ...] = ()


def _todo(done: int) -> tuple[str, dict[str, Any]]:
    items = ("find the cause", "guard divide", "check the invoice", "build")
    return "todo", {
        "items": [{"text": text, "done": number < done} for number, text in enumerate(items)]
    }


def _read(path: str) -> tuple[str, dict[str, Any]]:
    return "read_file", {"path": path}


def _edit(path: str, old: str, new: str) -> tuple[str, dict[str, Any]]:
    return "edit_file", {"path": path, "old": old, "new": new}


def _run(command: str) -> tuple[str, dict[str, Any]]:
    return "run_command", {"command": command}


def _cause(messages: Sequence[Message]) -> str:
    if not _stands(ERROR_TEXT, messages):
        return "The tests gave no hint of the cause."
    return (
        "`divide` in calc.py has no guard: Python's own ZeroDivisionError comes out, while the "
        f'test expects a CalcError that says "{ERROR_TEXT}". Shall I fix it?'
    )


def _outcome(passed: str, failed: str) -> Say:
    def say(messages: Sequence[Message]) -> str:
        results = [content_of(message) for message in messages if message.get("role") == "tool"]
        tested = next((text for text in reversed(results) if "[exit code" in text), "")
        return passed if "[exit code 0 " in tested else failed

    return say


def recall(messages: Sequence[Message]) -> str:
    """Say what the messages still hold of the two facts.

    >>> recall([{"role": "user", "content": "Remember: build with `pnpm build:calc`."}])
    'You build it with `pnpm build:calc`. What the first test expected is gone from my context.'
    """
    build = f"You build it with `{BUILD}`."
    error = f'The first test expected an error that says "{ERROR_TEXT}".'
    if not _stands(BUILD, messages):
        build = "How it is built is gone from my context."
    if not _stands(ERROR_TEXT, messages):
        error = "What the first test expected is gone from my context."
    return f"{build} {error}"


def _stands(fact: str, messages: Sequence[Message]) -> bool:
    return any(fold(fact) in fold(text_of(message)) for message in messages)


STEPS = (
    Step(0, "I read the module and its tests first.", (_todo(0),)),
    Step(0, "", (_read("calc.py"), _read("test_calc.py"))),
    Step(0, "Now the tests.", (_run("python -m unittest -v test_calc"),)),
    Step(0, _cause),
    Step(
        1,
        "I put the guard before the division.",
        (
            _edit(
                "calc.py",
                "    return cents // parts\n",
                "    if parts == 0:\n"
                f'        raise CalcError("{ERROR_TEXT}")\n'
                "    return cents // parts\n",
            ),
        ),
    ),
    Step(1, "", (_run("python -m unittest -v test_calc"),)),
    Step(1, "", (_todo(2),)),
    Step(
        1,
        _outcome(
            "All tests of calc pass. The invoice uses `divide` too: that is to be checked next.",
            "A test of calc still fails; look at the output above.",
        ),
    ),
    Step(2, "I look at who calls `divide`.", (_read("invoice.py"), _read("test_invoice.py"))),
    Step(2, "", (_run("python -m unittest -v test_invoice"),)),
    Step(
        2,
        "`average` divides by the number of lines, which may be 0.",
        (
            _edit(
                "invoice.py",
                "    return divide(net(lines), len(lines))\n",
                "    return divide(net(lines), len(lines)) if lines else 0\n",
            ),
        ),
    ),
    Step(2, "Once more, all tests together.", (_run("python -m unittest -v"),)),
    Step(2, "", (_todo(3),)),
    Step(
        2,
        _outcome(
            "All tests pass: an empty invoice now costs 0 on average. The build is left.",
            "A test still fails; look at the output above.",
        ),
    ),
    Step(3, recall),
)


def suggestion(messages: Sequence[Message]) -> str | None:
    """Return what a person may say next, so that the demonstration goes on; None at its end."""
    step = _next_step(messages)
    if step >= len(STEPS):
        return None
    if STEPS[step].turn == len(TURNS) - 1 and _was_said(recall(messages), messages):
        return None
    is_begun = step > 0 and STEPS[step - 1].turn == STEPS[step].turn
    return "Go on." if is_begun else TURNS[STEPS[step].turn].suggestion


def reply(body: dict[str, Any]) -> dict[str, Any] | str:
    """Answer a request of the agent: what the scripted gateway says, turn after turn."""
    messages = body["messages"]
    last = messages[-1]
    step = _next_step(messages)
    if last.get("role") == "tool":
        if _is_refusal(content_of(last)):
            return "Without that command I cannot go on. Say `go on`, and I ask again."
        if step >= len(STEPS):
            return _HELP_AT_THE_END
        return _answer(step, messages)
    return _to_person(content_of(last), step, messages)


def _to_person(text: str, step: int, messages: Sequence[Message]) -> dict[str, Any] | str:
    if "___" in text or text in [probe.question for probe in PROBES]:
        return recall(messages)
    if step >= len(STEPS):
        return _HELP_AT_THE_END
    turn = TURNS[STEPS[step].turn]
    if re.search(turn.words, text, re.IGNORECASE) or _GO_ON.search(text.strip()):
        return _answer(step, messages)
    pinned = pinned_probes([{"role": "user", "content": text}])
    if pinned:
        facts = ", ".join(f"`{probe.fact}`" for probe in pinned)
        return f"I keep that in the context: {facts}. The command /probes looks for it."
    following = suggestion(messages)
    return _HELP.format(suggestion=following) if following else _HELP_AT_THE_END


_HELP = (
    "I am a script, not a model, and this is all I can do: work on the calc project, one step "
    "after the other. The next thing to say is: {suggestion}\n"
    "The commands are real at any time: /budget, /compact, /probes, /tokens, /history. For a "
    "model that understands you, start the agent with --model NAME."
)
_HELP_AT_THE_END = (
    "My script ends here: both faults are mended. Look at /history, /budget and /probes, or start "
    "the agent with --model NAME for a model that works on your own project."
)


def _next_step(messages: Sequence[Message]) -> int:
    """Return the step that is due: the one after the last whose calls have all been answered.

    After the text that ends a turn comes the next turn, and a text leaves no id. So a text step
    is due only while the results of its turn are the last thing in the history.
    """
    done, answered = -1, True
    for message in messages:
        for call in calls_of(message):
            number = re.match(r"calc_(\d+)_", call.id or "")
            if number and int(number[1]) >= done:
                done = int(number[1])
    if done < 0:
        return 0
    results = [
        content_of(message)
        for message in messages
        if message.get("role") == "tool"
        and str(message.get("tool_call_id")).startswith(f"calc_{done}_")
    ]
    answered = bool(results) and not _is_refusal(results[-1])
    if not answered:
        return done
    due = done + 1
    ends_turn = due < len(STEPS) and not STEPS[due].calls
    if ends_turn and STEPS[due].turn < len(TURNS) - 1 and messages[-1].get("role") != "tool":
        return due + 1
    return due


def _is_refusal(result: str) -> bool:
    return result in (REFUSED, NO_RESULT)


def _was_said(text: str, messages: Sequence[Message]) -> bool:
    return any(content_of(m) == text for m in messages if m.get("role") == "assistant")


def _answer(step: int, messages: Sequence[Message]) -> dict[str, Any] | str:
    chosen = STEPS[step]
    if not chosen.calls:
        return chosen.say(messages) if callable(chosen.say) else chosen.say
    return {
        "content": chosen.say or None,
        "tool_calls": [
            # The id carries the step through every compaction: the newest calls are kept.
            {"id": f"calc_{step}_{len(messages)}_{index}", "name": name, "arguments": arguments}
            for index, (name, arguments) in enumerate(chosen.calls)
        ],
    }
