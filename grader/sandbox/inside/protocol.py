"""Carry plain values over a pipe between the checks and a learner's code, and call across it.

The checks and the sandboxed program both use this file. A frame is four bytes of length and a
JSON text. Numbers, texts, True, False, None and lists are JSON's own; everything else is an
object with one tag that says what it is. Values are rebuilt from data alone, into exact types
and the library's own types, so nothing that a learner's object does can reach the other side.

A function cannot cross, so a number crosses in its place, and the other side gets a function
that calls back over the pipe.
"""

from __future__ import annotations

import enum
import json
import math
import os
import struct
import sys
from collections.abc import Callable
from dataclasses import fields
from typing import Any

KNOWN = {
    "Call": "compaction.messages",
    "Chars": "compaction.tokens",
    "Coefficients": "compaction.tokens",
    "Compaction": "compaction.summary",
    "Decision": "compaction.engine",
    "Fit": "compaction.calibration",
    "Group": "compaction.grouping",
    "Packing": "compaction.documents",
    "Probe": "compaction.probes",
    "ProbeReport": "compaction.probes",
    "Room": "compaction.engine",
    "Row": "compaction.budget",
    "Sample": "compaction.calibration",
    "Size": "compaction.calibration",
}
"""The library's types that may cross (dataclasses, named tuples, enumerations), by module."""

MAX_DEPTH = 60
"""Lists in lists in lists: deeper than any value of the course, and than any recursion limit."""

MAX_INT_BITS = 100_000
MAX_ODD_KEYS = 1000
"""Keys of one dict that are not text; more of them could be chosen to collide when hashed."""

MAX_NESTING = 16
"""Calls from one side that wait for each other."""

_LENGTH = struct.Struct("!I")
_PLAIN_INT = 2**53
_ERROR_CHARS = 4000


class PipeEnd(Exception):
    """Nothing more can be asked over this pipe."""


class ProtocolError(PipeEnd):
    """Data that is not valid: not JSON, a tag nobody knows, too deep, an answer out of turn."""


class TooLong(ProtocolError):
    """A frame that announces more bytes than are allowed; ``length`` is how many."""

    def __init__(self, length: int) -> None:
        super().__init__(f"a frame of {length:,} bytes")
        self.length = length


class Unsendable(Exception):
    """A value that cannot cross as it is; the text says why, for a person."""


class Foreign:
    """In the place of a value of a type that may not cross; its class has the type's name."""


def foreign(type_name: str) -> Foreign:
    """Return a stand-in for a value of another type.

    >>> type(foreign("Trick")).__name__
    'Trick'
    """
    name = "".join(c if c.isalnum() else "_" for c in type_name[:40])
    # A class costs a kilobyte: an answer full of new names gets one name for the rest of them.
    if name not in _foreign_types and len(_foreign_types) >= _MAX_FOREIGN_TYPES:
        name = "foreign"
    if name not in _foreign_types:
        _foreign_types[name] = type(name, (Foreign,), {})
    return _foreign_types[name]()


_MAX_FOREIGN_TYPES = 500
_foreign_types: dict[str, type[Foreign]] = {}


# --- values -----------------------------------------------------------------------------

Export = Callable[[object], int]
Import = Callable[[str, int, Any], object]


def encode(value: object, export: Export | None = None) -> Any:
    """Return a value as JSON-ready data; ``export`` gives functions and counters a number.

    >>> encode(("a", [1, float("inf")]))
    {'tuple': ['a', [1, {'float': 'inf'}]]}

    A value of any other type becomes its type's name. Raises Unsendable for a value that is
    nested too deep (or in itself) and for a whole number of too many digits.

    >>> encode({1, 2})
    {'other': 'set'}
    """
    return _encode(value, export, 0)


def _encode(value: object, export: Export | None, depth: int) -> Any:
    # Always `is`: even a type can come with an __eq__ of the learner's.
    kind = type(value)
    if value is None or kind is bool or kind is str:
        return value
    if kind is int:
        return _encode_int(value)  # type: ignore[arg-type]
    if kind is float:
        return value if math.isfinite(value) else {"float": repr(value)}  # type: ignore[arg-type]
    if depth >= MAX_DEPTH:
        raise Unsendable("nested too deep")
    depth += 1
    if kind is list:
        return [_encode(item, export, depth) for item in value]  # type: ignore[attr-defined]
    if kind is dict:
        return _encode_dict(value, export, depth)  # type: ignore[arg-type]
    if kind is tuple:
        return {"tuple": [_encode(item, export, depth) for item in value]}  # type: ignore[attr-defined]
    known = _known(kind)
    if known is not None:
        return _encode_known(value, known, export, depth)
    if export is not None:
        tagged = _encode_callable(value, export, depth)
        if tagged is not None:
            return tagged
    return {"other": _type_name(kind)}


def _encode_dict(value: dict[Any, Any], export: Export | None, depth: int) -> Any:
    if all(type(key) is str for key in value):
        return {"keys": {key: _encode(item, export, depth) for key, item in value.items()}}
    pairs = value.items()
    return {"dict": [[_encode(k, export, depth), _encode(v, export, depth)] for k, v in pairs]}


def _encode_int(value: int) -> Any:
    if -_PLAIN_INT <= value <= _PLAIN_INT:
        return value
    if value.bit_length() > MAX_INT_BITS:
        raise Unsendable(f"a whole number of {value.bit_length()} bits")
    return {"int": hex(value)}


def _encode_known(value: object, name: str, export: Export | None, depth: int) -> Any:
    if isinstance(value, enum.Enum):
        return {"is": name, "member": value.name}
    if isinstance(value, tuple):
        parts = list(tuple.__iter__(value))
    else:
        held = object.__getattribute__(value, "__dict__")
        parts = [held.get(field) for field in _fields(type(value))]
    return {"is": name, "of": [_encode(part, export, depth) for part in parts]}


def _encode_callable(value: object, export: Export, depth: int) -> Any:
    if _is_fresh_meter(value):
        return {"meter": _encode(value.coefficients, None, depth)}  # type: ignore[attr-defined]
    if callable(value):
        return {"call": export(value)}
    if callable(getattr(value, "count", None)) and not isinstance(value, str | list | tuple):
        table = getattr(value, "coefficients", None)
        return {"counter": export(value), "coefficients": _encode(table, None, depth)}
    return None


def _is_fresh_meter(value: object) -> bool:
    """Say whether a value is a meter that has seen no usage: then its table is all of it."""
    module = sys.modules.get("compaction.calibration")
    if module is None or type(value) is not module.TokenMeter:
        return False
    return not value.samples and value._anchor is None  # type: ignore[attr-defined]


def _type_name(kind: type) -> str:
    name = type.__dict__["__name__"].__get__(kind)
    return str(name)[:40]


def _known(kind: type) -> str | None:
    """Return the name under which a type crosses, if it is the library's own."""
    name = _type_name(kind)
    module = sys.modules.get(KNOWN.get(name, ""))
    return name if module is not None and module.__dict__.get(name) is kind else None


def _fields(kind: type) -> tuple[str, ...]:
    names = getattr(kind, "_fields", None) or [field.name for field in fields(kind)]  # type: ignore[arg-type]
    return tuple(names)


def decode(data: Any, imported: Import | None = None) -> Any:
    """Return the value that the data describes, of exact types and the library's own.

    ``imported`` makes what takes the place of a function or a counter of the other side.

    >>> decode({"is": "Chars", "of": [2, 6]})
    Chars(cjk=2, other=6)

    Raises ProtocolError for data that describes nothing.

    >>> decode({"is": "Popen", "of": ["sh"]})
    Traceback (most recent call last):
    ...
    grader.sandbox.inside.protocol.ProtocolError: no type called 'Popen' may cross
    """
    return _decode(data, imported, 0)


def _decode(data: Any, imported: Import | None, depth: int) -> Any:
    if data is None or isinstance(data, bool | str | int | float):
        return data
    if depth >= MAX_DEPTH:
        raise ProtocolError("nested too deep")
    depth += 1
    if isinstance(data, list):
        return [_decode(item, imported, depth) for item in data]
    tag = next(iter(data), None)
    content = data.get(tag)
    if tag == "keys" and isinstance(content, dict):
        return {key: _decode(item, imported, depth) for key, item in content.items()}
    if tag == "dict":
        return _decode_dict(content, imported, depth)
    if tag == "tuple" and isinstance(content, list):
        return tuple([_decode(item, imported, depth) for item in content])
    if tag == "is":
        return _decode_known(data, imported, depth)
    if tag == "int" and isinstance(content, str) and len(content) <= MAX_INT_BITS // 4 + 4:
        return _decode_int(content)
    if tag == "float" and content in ("inf", "-inf", "nan"):
        return float(content)
    if tag == "other" and isinstance(content, str):
        return foreign(content)
    if tag == "meter":
        return _fresh_meter(_decode(content, None, depth))
    if tag in ("call", "counter") and type(content) is int and imported is not None:
        table = _decode(data.get("coefficients"), None, depth)
        return imported(tag, content, table)
    raise ProtocolError(f"nobody knows what {str(tag)[:40]!r} means here")


def _decode_dict(content: Any, imported: Import | None, depth: int) -> dict[Any, Any]:
    if not isinstance(content, list):
        raise ProtocolError("a dict that is no list of pairs")
    made: dict[Any, Any] = {}
    odd_keys = 0
    for pair in content:
        if not isinstance(pair, list) or len(pair) != 2:
            raise ProtocolError("a dict that is no list of pairs")
        key = _decode(pair[0], imported, depth)
        if type(key) is not str:
            odd_keys += 1
            if odd_keys > MAX_ODD_KEYS:
                raise ProtocolError(f"a dict with more than {MAX_ODD_KEYS} keys that are not text")
        try:
            made[key] = _decode(pair[1], imported, depth)
        except TypeError:
            raise ProtocolError("a dict with a key that cannot be one") from None
    return made


def _decode_known(data: Any, imported: Import | None, depth: int) -> Any:
    name, parts, member = data.get("is"), data.get("of"), data.get("member")
    kind = known_type(name) if isinstance(name, str) else None
    if kind is None:
        raise ProtocolError(f"no type called {str(name)[:40]!r} may cross")
    if issubclass(kind, enum.Enum):
        if not isinstance(member, str) or member not in kind.__members__:
            raise ProtocolError(f"no such {name}")
        return kind[member]
    if not isinstance(parts, list) or len(parts) != len(_fields(kind)):
        raise ProtocolError(f"a {name} without its fields")
    values = [_decode(part, imported, depth) for part in parts]
    try:
        return kind(*values)
    except Exception as error:  # some of the library's types refuse what makes no sense
        raise ProtocolError(f"not a valid {name}: {error}"[:200]) from None


def known_type(name: str) -> type | None:
    """Return the library's type of this name; None when no such type may cross.

    >>> known_type("Group").__module__
    'compaction.grouping'
    """
    if name not in KNOWN:
        return None
    try:
        module = __import__(KNOWN[name], fromlist=[name])
    except ImportError:
        return None
    kind = getattr(module, name, None)
    return kind if isinstance(kind, type) else None


def _decode_int(content: str) -> int:
    try:
        return int(content, 16)
    except ValueError:
        raise ProtocolError("not a valid whole number") from None


def _fresh_meter(table: Any) -> Any:
    from compaction.calibration import TokenMeter
    from compaction.tokens import Coefficients

    if type(table) is not Coefficients:
        raise ProtocolError("a meter without its table")
    return TokenMeter(table)


# --- frames -----------------------------------------------------------------------------


def pack(message: dict[str, Any]) -> bytes:
    """Return a message as one frame.

    >>> pack({"id": 1})
    b'\\x00\\x00\\x00\\x08{"id":1}'
    """
    # surrogatepass: half a surrogate pair is a character of a Python text, but not of UTF-8.
    body = _write_json(message).encode("utf-8", "surrogatepass")
    return _LENGTH.pack(len(body)) + body


def unpack(body: bytes) -> dict[str, Any]:
    """Return the message in a frame's body; raise ProtocolError when there is none."""
    try:
        message = _read_json(body.decode("utf-8", "surrogatepass"))
    except (ValueError, RecursionError, MemoryError) as error:
        raise ProtocolError(f"no JSON: {str(error)[:100]}") from None
    if not isinstance(message, dict):
        raise ProtocolError("no message")
    return message


def _refuse(constant: str) -> None:
    raise ValueError(constant)


# Taken now: a learner's code may patch the module json, and is honest all the same.
_write_json = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode
_read_json = json.JSONDecoder(parse_constant=_refuse).decode


def frame_length(head: bytes) -> int:
    """Return the length (bytes) of the body that follows the first four bytes of a frame."""
    length: int = _LENGTH.unpack(head)[0]
    return length


HEAD_BYTES = _LENGTH.size


def read_exactly(size: int, more: Callable[[], bytes], came: bytearray) -> bytes:
    """Take exactly so many bytes off the front of ``came``; ``more`` brings what is lacking.

    >>> read_exactly(3, lambda: b"cdef", came := bytearray(b"ab")), came
    (b'abc', bytearray(b'def'))

    Raises EOFError when ``more`` brings nothing.
    """
    while len(came) < size:
        data = more()
        if not data:
            raise EOFError("it has ended")
        came += data
    taken = bytes(came[:size])
    del came[:size]
    return taken


def read_message(
    more: Callable[[], bytes], came: bytearray, most_bytes: int = 2**32
) -> dict[str, Any]:
    """Read one frame and return its message; raise TooLong when it has more bytes than allowed."""
    length = frame_length(read_exactly(HEAD_BYTES, more, came))
    if length > most_bytes:
        raise TooLong(length)
    return unpack(read_exactly(length, more, came))


# --- calling across ---------------------------------------------------------------------


class Peer:
    """One end of the pipe: asks the other end, and serves it while it waits for the answer.

    ``send`` and ``receive`` carry one message each; ``serve`` answers the requests that are not
    calls of an exported function (none, outside).
    """

    def __init__(
        self,
        send: Callable[[dict[str, Any]], None],
        receive: Callable[[], dict[str, Any]],
        max_calls: int | None = None,
    ) -> None:
        self._send = send
        self._receive = receive
        self._exported: list[object] = []
        self._numbers: dict[int, int] = {}
        self._depth = 0
        self._max_calls = max_calls
        self._served = 0

    def ask(self, request: dict[str, Any]) -> dict[str, Any]:
        """Send a request and return its answer; serve the other side's calls in between."""
        if self._depth >= MAX_NESTING:
            raise ProtocolError(f"more than {MAX_NESTING} calls wait for each other")
        # Drawn, so that an answer cannot be written before its question.
        ticket = int.from_bytes(os.urandom(6), "big")
        self._depth += 1
        try:
            self._send({**request, "id": ticket})
            while True:
                message = self._receive()
                if "answer" in message:
                    if message["answer"] != ticket:
                        raise ProtocolError("an answer to nothing that was asked")
                    return message
                self.serve(message)
        finally:
            self._depth -= 1

    def serve(self, message: dict[str, Any]) -> None:
        """Answer one request of the other side: a call of something exported to it."""
        number, ticket = message.get("call"), message.get("id")
        if type(number) is not int or not 0 <= number < len(self._exported):
            raise ProtocolError("a call of nothing that was handed over")
        self._served += 1
        if self._max_calls is not None and self._served > self._max_calls:
            raise ProtocolError(f"more than {self._max_calls} calls back")
        self._send({"answer": ticket, **self.outcome(self._exported[number], message)})

    def outcome(self, function: object, message: dict[str, Any]) -> dict[str, Any]:
        """Call a function (of a counter: its ``count``) as a message asks; return what came."""
        args, kwargs = self.decode(message.get("args")), self.decode(message.get("kwargs"))
        if not isinstance(args, list) or not isinstance(kwargs, dict):
            raise ProtocolError("a call without arguments")
        called = function if callable(function) else function.count  # type: ignore[attr-defined]
        try:
            value = called(*args, **kwargs)
        except PipeEnd:
            raise
        except Exception as error:
            return {"error": [type(error).__name__, str(error)[:_ERROR_CHARS]]}
        return {"value": encode(value)}

    def forget(self) -> None:
        """Forget what was handed over: a function lives as long as the call it was given to."""
        self._exported.clear()
        self._numbers.clear()
        self._served = 0

    def encode(self, value: object) -> Any:
        """Return a value as data; hand over the functions in it."""
        return encode(value, self._export)

    def decode(self, data: Any) -> Any:
        """Return the value of data; functions in it call back."""
        return decode(data, self._import)

    def _export(self, value: object) -> int:
        number = self._numbers.get(id(value))
        if number is None:
            number = self._numbers[id(value)] = len(self._exported)
            self._exported.append(value)  # keeps it alive, so its id stays its own
        return number

    def _import(self, kind: str, number: int, table: Any) -> object:
        def call(*args: Any, **kwargs: Any) -> Any:
            request = {"call": number, "args": self.encode(list(args))}
            return self.result(self.ask({**request, "kwargs": self.encode(kwargs)}))

        return call if kind == "call" else RemoteCounter(call, table)

    def result(self, message: dict[str, Any]) -> Any:
        """Return the value in an answer, or raise the error in it under its own name."""
        if "error" in message:
            raise remote_error(message["error"])
        return self.decode(message.get("value"))


class RemoteCounter:
    """A counter on the other side of the pipe; ``coefficients`` is its table, if it has one."""

    def __init__(self, count: Callable[..., Any], coefficients: Any) -> None:
        self.count = count
        if coefficients is not None:
            self.coefficients = coefficients


def remote_error(told: Any) -> Exception:
    """Return an exception of the other side: of the same built-in class, or one of its name."""
    if not isinstance(told, list) or len(told) != 2 or not all(isinstance(t, str) for t in told):
        raise ProtocolError("not a valid error")
    name, text = told[0][:80], told[1][:_ERROR_CHARS]
    kind = _RAISED.get(name)
    if kind is None:
        word = "".join(c if c.isalnum() or c == "_" else "_" for c in name)
        kind = type(word or "Error", (Exception,), {})
    return kind(text)


_RAISED: dict[str, type[Exception]] = {
    kind.__name__: kind
    for kind in (
        ArithmeticError,
        AssertionError,
        AttributeError,
        ConnectionError,
        IndexError,
        KeyError,
        LookupError,
        NotImplementedError,
        OSError,
        RecursionError,
        RuntimeError,
        TimeoutError,
        TypeError,
        ValueError,
        ZeroDivisionError,
    )
}
