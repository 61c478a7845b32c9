"""Changes: which tool calls changed the world and succeeded, judged by call and result.

From messages to a list of changes, each with its object. Views, searches, plans and to-do
updates are none, whatever the tool is called; nor is what failed, was refused, was not run, or
was taken back later.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

from compaction.grouping import pair_results
from compaction.messages import Call, Message, calls_of, content_of
from compaction.probes import fold
from compaction.summary.outcome import took_place
from compaction.summary.shell import changing_steps

LONGEST_CHANGE = 120  # characters: the beginning of an edit says what and where


@dataclass(frozen=True)
class Change:
    """A change that took place: the message that made it, the objects, a long and a short line."""

    position: int
    objects: tuple[str, ...]
    text: str
    short: str


@dataclass(frozen=True)
class CallResult:
    """A tool call with its result, if there is one; ``position`` is the calling message's."""

    position: int
    call: Call
    result: Message | None
    result_position: int


_VERBS = frozenset(
    "edit write create patch apply replace delete remove rename move update insert add append save"
    " book cancel modify send transfer commit install uninstall push upload set put post merge"
    " deploy publish schedule reschedule exchange return refund charge pay order submit register"
    " assign close reopen approve enable disable start stop restart revoke grant change make"
    " reserve checkout upgrade downgrade reset undo str_replace strreplace multiedit notebookedit"
    " fix format copy mkdir touch".split()
)
_LOOKING = frozenset(
    "view read get list search find grep show open cat look fetch browse check query describe"
    " status diff preview count think plan todo todos calculate validate verify inspect"
    " lookup".split()
)
_PLANNING = re.compile(
    r"plan|to_?do|checklist|think|thought|reason|scratch|note_to_self", re.IGNORECASE
)
_SHELL = re.compile(
    r"^(?:.*[._-])?(?:bash|shell|sh|terminal|command|cmd|exec|execute|console|powershell|zsh)"
    r"(?:[._-].*)?$|run_command|run_in_terminal|execute_command|exec_command",
    re.IGNORECASE,
)
_COMMAND_KEYS = ("command", "cmd", "script", "commands", "input", "code")
_OBJECT_KEYS = (
    "path file_path filepath filePath file filename target_file target destination notebook_path"
    " new_path old_path uri url id name"
).split()
_WORDS = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")
_PATCHED = re.compile(
    r"\*\*\* (?:Update|Add|Delete) File: *(\S[^\n]*?)\s*(?:\n|\\n|$)|^\+\+\+ b/(\S+)", re.M
)
_NOTHING_TO_UNDO = re.compile(r"^\W*(?:error|failed|no )|not found|nothing to", re.IGNORECASE)
_TAKES_BACK = re.compile(
    r"\bgit (?:checkout(?: \S+)? --|restore|checkout) (?P<path>[\w./-]+)"
    r"|\bgit (?P<all>reset --hard|stash\b(?! list| show)|checkout \.)"
)


def call_results(messages: Sequence[Message]) -> Iterator[CallResult]:
    """Yield every tool call with its result, in the order of the calls."""
    owner, _ = pair_results(messages)
    answers: dict[tuple[int, str | None], list[int]] = {}
    for result, assistant in owner.items():
        answers.setdefault((assistant, messages[result].get("tool_call_id")), []).append(result)
    for position, message in enumerate(messages):
        for call in calls_of(message):
            waiting = answers.get((position, call.id))
            place = waiting.pop(0) if waiting else -1
            yield CallResult(position, call, messages[place] if place >= 0 else None, place)


def changes_of(pairs: Sequence[CallResult]) -> list[Change]:
    """Return the changes that took place and still stand, in order.

    >>> arguments = '{"path": "a.py", "old": "x", "new": "y"}'
    >>> call = {"id": "c1", "function": {"name": "edit_file", "arguments": arguments}}
    >>> history = [
    ...     {"role": "assistant", "tool_calls": [call]},
    ...     {"role": "tool", "tool_call_id": "c1", "content": "Replaced 1 occurrence."},
    ... ]
    >>> [change.short for change in changes_of(list(call_results(history)))]
    ['edit_file a.py']
    """
    found: list[Change] = []
    for pair in pairs:
        arguments = arguments_of(pair.call)
        command = shell_command(pair.call, arguments)
        if command is not None:
            found = _after_shell(found, pair, command)
        elif _is_undo(pair.call, arguments):
            if pair.result is not None and not _NOTHING_TO_UNDO.search(content_of(pair.result)):
                found = _without_last(found, _objects(pair.call, arguments))
        elif _changes_by_name(pair.call.name, arguments) and took_place(pair.result):
            objects = _objects(pair.call, arguments)
            short = f"{pair.call.name} {', '.join(objects)}".strip()[:LONGEST_CHANGE]
            text = _with_details(short, arguments, objects)
            found.append(Change(pair.position, objects, text, short))
    return found


def _is_undo(call: Call, arguments: Mapping[str, Any]) -> bool:
    return "undo" in call.name.lower() or str(arguments.get("command", "")).startswith("undo")


def _after_shell(found: list[Change], pair: CallResult, command: str) -> list[Change]:
    """Return the changes that stand after a shell command."""
    steps = changing_steps(command)
    if not steps or pair.result is None:
        return found
    went_well = took_place(pair.result, is_shell=True)
    back = _TAKES_BACK.search(command)
    if back and went_well:
        objects = () if back["all"] else (back["path"],)
        found = [c for c in found if objects and not _same_file(c.objects, objects)]
        steps = [step for step in steps if not _TAKES_BACK.search(step.text)]
    for step in steps:
        # When a chain failed at its end, the steps before the end were done.
        if went_well or not (step.is_last or _is_blamed(step.text, pair.result)):
            text = fold(step.text)[:LONGEST_CHANGE]
            found.append(Change(pair.position, step.objects, text, text))
    return found


def _is_blamed(step: str, result: Message) -> bool:
    """Say whether a failed chain's output names the step's program, or was not run at all."""
    text = str(result.get("content") or "")
    program = step.split(" ", 1)[0]
    wording = rf"^(?:\S+: )*{re.escape(program)}: |\b(?:denied|rejected|declined|not run|refused)\b"
    if program == "git":
        wording += r"|^(?:fatal|error): |nothing to commit"
    return bool(re.search(wording, text, re.MULTILINE)) or not text.strip()


def _same_file(objects: Sequence[str], others: Sequence[str]) -> bool:
    return any(
        a == b or a.endswith("/" + b) or b.endswith("/" + a) for a in objects for b in others
    )


def _without_last(found: list[Change], objects: Sequence[str]) -> list[Change]:
    for number in range(len(found) - 1, -1, -1):
        if not objects or _same_file(found[number].objects, objects):
            return found[:number] + found[number + 1 :]
    return found


def arguments_of(call: Call) -> dict[str, Any]:
    """Return a call's arguments as an object; ``{}`` when they are none."""
    try:
        arguments = json.loads(call.arguments)
    except (ValueError, RecursionError):
        return {}
    return arguments if isinstance(arguments, dict) else {}


def shell_command(call: Call, arguments: Mapping[str, Any]) -> str | None:
    """Return the command line of a call to a shell, None for any other tool.

    >>> shell_command(Call("c1", "shell", ""), {"command": ["bash", "-lc", "ls src"]})
    'ls src'
    """
    if not _SHELL.search(call.name):
        return None
    for key in _COMMAND_KEYS:
        value = arguments.get(key)
        if isinstance(value, str):
            return value
        if isinstance(value, list) and value and all(isinstance(part, str) for part in value):
            is_wrapped = len(value) > 2 and value[1] in ("-c", "-lc", "-ic")
            return value[2] if is_wrapped else " ".join(value)
    return None if arguments else call.arguments


def _changes_by_name(name: str, arguments: Mapping[str, Any]) -> bool:
    """Say whether a tool's name and the mode it was called in promise a change."""
    if _PLANNING.search(name) or arguments.get("dry_run") or arguments.get("dryRun"):
        return False
    mode = next(
        (
            m
            for k in ("command", "action", "operation", "mode", "method")
            if isinstance(m := arguments.get(k), str)
        ),
        "",
    )
    mode_words = [word.lower() for word in _WORDS.findall(mode)[:2]]
    if mode_words and mode_words[0] in _LOOKING:
        return False
    words = [word.lower() for word in _WORDS.findall(name)]
    first = next((word for word in words if word in _VERBS or word in _LOOKING), "")
    return first in _VERBS or (
        bool(mode_words) and mode_words[0] in _VERBS and first not in _LOOKING
    )


def _objects(call: Call, arguments: Mapping[str, Any]) -> tuple[str, ...]:
    """Return what a call works on: paths of a patch, else the arguments that name an object."""
    patched = [a or b for a, b in _PATCHED.findall(call.arguments)]
    if patched:
        return tuple(dict.fromkeys(patched))
    named = [arguments[key] for key in _OBJECT_KEYS if isinstance(arguments.get(key), str)]
    if not named:
        named = [
            v for k, v in arguments.items() if isinstance(v, str) and k.endswith(("id", "name"))
        ]
    if not named:
        named = [v for v in arguments.values() if isinstance(v, str) and len(v) <= 60]
    return tuple(fold(value)[:LONGEST_CHANGE] for value in named[:2])


_LONGEST_DETAIL = 40  # characters of an argument: what is longer is content, and no detail
_MOST_DETAILS = 8


def _with_details(short: str, arguments: Mapping[str, Any], objects: Sequence[str]) -> str:
    """Add a call's short arguments to the line that names it: what was booked, for whom."""
    line, seen = short, set(objects)
    for label, value in islice(leaves(arguments), 4 * _MOST_DETAILS):
        detail = fold(value)
        if detail in seen or not 0 < len(detail) <= _LONGEST_DETAIL:
            continue
        seen.add(detail)
        longer = f"{line}; {label} {detail}".replace(";  ", "; ")
        if len(longer) > LONGEST_CHANGE or len(seen) > _MOST_DETAILS:
            break
        line = longer
    return line


def leaves(
    data: Any, is_id: Callable[[str], bool] = lambda key: False
) -> Iterator[tuple[str, str]]:
    """Yield (label, text) of the leaves of JSON data, in order; a list's items have its label.

    A key that ``is_id`` says to be a value itself is yielded as well, and labels nothing.

    >>> list(leaves({"a": [1, "x"], "b": {"c": None, "d": 2.5}}))
    [('a', '1'), ('a', 'x'), ('d', '2.5')]
    """
    level: list[tuple[str, Any]] = [("", data)]
    while level:
        label, node = level.pop()
        if isinstance(node, dict):
            for key, value in reversed(node.items()):
                if is_id(str(key)):
                    level += [(label, value), (label, str(key))]
                else:
                    level.append((str(key), value))
        elif isinstance(node, list):
            level.extend((label, value) for value in reversed(node))
        elif node is not None and not isinstance(node, bool):
            yield label, str(node)


def object_of(call: Call, arguments: Mapping[str, Any]) -> str:
    """Return what a call is about, as one line: a shell's command, else the objects it names.

    >>> object_of(Call("c1", "read_file", '{"path": "a.py"}'), {"path": "a.py"})
    'a.py'
    """
    command = shell_command(call, arguments)
    if command is not None:
        return fold(command)
    return " ".join(_objects(call, arguments)[:1])


def merged(changes: Sequence[Change]) -> list[Change]:
    """Merge repeated edits of one object: the newest line stands for all of them.

    >>> edits = [Change(n, ("a.py",), f"edit a.py {n}", "edit a.py") for n in (1, 2, 3)]
    >>> [change.text for change in merged(edits)]
    ['edit a.py 3 (2 more before)']
    """
    newest: dict[tuple[str, ...], tuple[int, Change]] = {}
    for change in changes:
        key = (change.short.split(" ", 1)[0], *change.objects) if change.objects else (change.text,)
        times, _ = newest.pop(key, (0, change))
        newest[key] = times + 1, change
    return [
        change
        if times == 1
        else Change(
            change.position,
            change.objects,
            f"{change.text} ({times - 1} more before)",
            change.short,
        )
        for times, change in newest.values()
    ]
