"""Check a request as strictly as a real gateway does; a refusal is an error object."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from compaction.messages import problems


class Refusal(Exception):
    """A request that is answered with an error object instead of a reply."""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        param: str | None = None,
        code: str | None = None,
        type: str = "invalid_request_error",
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.headers = dict(headers or {})
        error: dict[str, Any] = {"message": message, "type": type, "param": param, "code": code}
        self.body = {"error": error}


# The optional parameters that are checked, and what each must be. All may be null. What is not
# listed is accepted and ignored, as most compatible gateways do.
_PARAMETERS: dict[str, tuple[type, ...]] = {
    "stream": (bool,),
    "stream_options": (dict,),
    "tools": (list,),
    "tool_choice": (str, dict),
    "parallel_tool_calls": (bool,),
    "max_tokens": (int,),
    "max_completion_tokens": (int,),
    "n": (int,),
    "temperature": (int, float),
    "top_p": (int, float),
    "stop": (str, list),
    "seed": (int,),
}
_KINDS = {
    bool: "a boolean",
    int: "an integer",
    float: "a decimal",
    str: "a string",
    list: "an array",
    dict: "an object",
    type(None): "null",
}


def kind_of(value: object) -> str:
    return _KINDS.get(type(value), f"a {type(value).__name__}")


def read_json(body: bytes) -> dict[str, Any]:
    try:
        value = json.loads(body)
    except json.JSONDecodeError as error:
        place = f"line {error.lineno}, column {error.colno}"
        raise Refusal(400, f"The body is not valid JSON ({error.msg}, {place}).") from error
    except (ValueError, RecursionError) as error:
        raise Refusal(400, "The body is not valid JSON in UTF-8.") from error
    if not isinstance(value, dict):
        raise Refusal(400, f"The body must be a JSON object, not {kind_of(value)}.")
    return value


def check_request(body: dict[str, Any]) -> None:
    """Raise a refusal with status 400 for what a real gateway would not accept."""
    for name, expected in (("model", str), ("messages", list)):
        if body.get(name) is None:
            message = f"Missing required parameter: '{name}'."
            raise Refusal(400, message, param=name, code="missing_required_parameter")
        _check_type(name, body[name], (expected,))
    if not body["model"]:
        raise Refusal(400, "You must name a model: 'model' is empty.", param="model")
    for name, kinds in _PARAMETERS.items():
        if body.get(name) is not None:
            _check_type(name, body[name], kinds)
    _check_messages(body["messages"])
    _check_values(body)
    _check_tools(body)


def _check_type(name: str, value: object, expected: tuple[type, ...]) -> None:
    if (isinstance(value, bool) and bool not in expected) or not isinstance(value, expected):
        wanted = " or ".join(_KINDS[kind] for kind in expected)
        message = f"Invalid type for '{name}': expected {wanted}, got {kind_of(value)} instead."
        raise Refusal(400, message, param=name, code="invalid_type")


_PAIRING_RULES = {
    "tool result '": "a message with role 'tool' must respond to a preceding message with"
    " 'tool_calls'",
    "tool call '": "an assistant message with 'tool_calls' must be followed by tool messages that"
    " respond to each 'tool_call_id'",
}
_SHOWN_PROBLEMS = 5


def _check_messages(messages: list[Any]) -> None:
    found = problems(messages)
    if not found:
        return
    rules = [rule for kind, rule in _PAIRING_RULES.items() if found[0].startswith(kind)]
    named = "; ".join(found[:_SHOWN_PROBLEMS])
    if len(found) > _SHOWN_PROBLEMS:
        named += f"; and {len(found) - _SHOWN_PROBLEMS} more"
    message = ": ".join(["Invalid parameter 'messages'", *rules, named]) + "."
    raise Refusal(400, message, param="messages")


def _check_values(body: dict[str, Any]) -> None:
    for name in ("max_tokens", "max_completion_tokens"):
        if body.get(name) is not None and body[name] < 1:
            message = f"Invalid '{name}': expected at least 1, got {body[name]}."
            raise Refusal(400, message, param=name, code="integer_below_min_value")
    for name, highest in (("temperature", 2), ("top_p", 1)):
        if body.get(name) is not None and not 0 <= body[name] <= highest:
            message = f"Invalid '{name}': expected 0 to {highest}, got {body[name]}."
            raise Refusal(400, message, param=name, code="decimal_out_of_range")
    if body.get("n") not in (None, 1):
        raise Refusal(400, "This gateway gives one choice: 'n' must be 1.", param="n")
    if body.get("stream_options") is not None and not body.get("stream"):
        message = "'stream_options' is only allowed together with 'stream': true."
        raise Refusal(400, message, param="stream_options")


def _check_tools(body: dict[str, Any]) -> None:
    tools = body.get("tools")
    if tools == []:
        message = "Invalid 'tools': expected at least one tool, got an empty array."
        raise Refusal(400, message, param="tools", code="empty_array")
    for position, tool in enumerate(tools or []):
        place = f"tools[{position}]"
        _check_type(place, tool, (dict,))
        if tool.get("type") != "function":
            continue  # other kinds of tool exist; their form is their maker's affair
        _check_type(f"{place}.function", tool.get("function"), (dict,))
        name = tool["function"].get("name")
        _check_type(f"{place}.function.name", name, (str,))
        if not re.fullmatch(r"[A-Za-z0-9_-]{1,64}", name):
            field = f"{place}.function.name"
            message = f"Invalid '{field}': expected up to 64 letters, digits, '_' and '-'."
            raise Refusal(400, message, param=field, code="invalid_value")
    if body.get("tool_choice") not in (None, "none") and not tools:
        message = "'tool_choice' is only allowed when 'tools' are given."
        raise Refusal(400, message, param="tool_choice")
