"""Write a call as a person would: from its arguments, on one line."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import MISSING, dataclass, fields, is_dataclass
from typing import Any

from compaction.calibration import TokenMeter
from compaction.messages import Message, calls_of, content_of
from grader.checks.show import is_history, quote, show


@dataclass(frozen=True)
class Named:
    """An argument that reads better by a name than by its value; without words it is hidden."""

    value: Any
    words: str = ""


def bare(argument: Any) -> Any:
    """Return an argument's value, whether it has a name or not."""
    return argument.value if isinstance(argument, Named) else argument


def spell(args: Sequence[Any], kwargs: Mapping[str, Any]) -> str:
    """Write a call's arguments.

    >>> spell(["hello", 3], {"share": 0.5, "meter": Named(None)})
    '"hello", 3, share=0.5'
    """
    words = [written(arg) for arg in args]
    named = [(name, written(arg)) for name, arg in kwargs.items()]
    return ", ".join([word for word in words if word] + [f"{n}={w}" for n, w in named if w])


def written(argument: Any) -> str:
    """Write one argument: what made it, where that is short, else what it holds.

    >>> from compaction.calibration import Sample
    >>> written([Sample(0, 40, 10)])
    '[Sample(0, 40, 10)]'
    """
    if isinstance(argument, Named):
        return argument.words
    if isinstance(argument, str):
        return quote(argument)
    if isinstance(argument, TokenMeter):
        table = "" if not argument.samples else " that saw real usage"
        return f"TokenMeter({written(argument.coefficients)}){table}"
    if is_history(argument):
        return outline(argument)
    if isinstance(argument, list):
        return "[" + ", ".join(map(written, argument)) + "]"
    if is_dataclass(argument) and not isinstance(argument, type):
        return f"{type(argument).__name__}({', '.join(_fields(argument))})"
    if callable(argument):
        return str(getattr(argument, "__name__", "a function"))
    return show(argument)


def _fields(argument: Any) -> list[str]:
    """Write a dataclass's fields by position, without the defaults at the end."""
    values = [(field, getattr(argument, field.name)) for field in fields(argument)]
    while len(values) > 1 and values[-1][0].default is not MISSING:
        if values[-1][1] != values[-1][0].default:
            break
        values.pop()
    return [written(value) for _field, value in values]


def outline(messages: Sequence[Message], longest: int = 12, *, end: bool = False) -> str:
    """Say what a history is made of, in one line; its beginning, or its end, when it is long.

    >>> outline([{"role": "user", "content": "hi"}, {"role": "tool", "tool_call_id": "c1"}])
    '[user, tool c1]'
    """
    kinds = []
    for message in messages:
        made = calls_of(message)
        if made:
            kinds.append("assistant calls " + " and ".join(str(call.id) for call in made))
        elif message.get("role") == "tool":
            kinds.append(f"tool {message.get('tool_call_id')}")
        else:
            text = content_of(message)
            prefix = text.split("]")[0] + "] " if text.startswith("[") else ""
            kinds.append(prefix + str(message.get("role")))
    spare = len(kinds) - longest
    if spare > 0:
        left_out = [f"… {spare} more"]
        kinds = left_out + kinds[spare:] if end else kinds[:longest] + left_out
    return "[" + ", ".join(kinds) + "]"
