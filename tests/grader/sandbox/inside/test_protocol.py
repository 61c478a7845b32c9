"""Only plain data crosses the pipe, and all of it arrives as it was."""

from __future__ import annotations

import json
import math
import threading
from collections.abc import Callable
from queue import Queue
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from compaction.calibration import TokenMeter
from compaction.engine import Decision
from compaction.grouping import Group
from compaction.probes import ProbeReport
from compaction.tokens import Chars, Coefficients
from grader.checks.values import CHOICES, FIELDS, plain
from grader.sandbox.inside import protocol

# --- values -----------------------------------------------------------------------------

# Half a surrogate pair is a character of a Python text too: a learner can return it.
TEXTS = st.text(alphabet=st.characters(), max_size=20)
ATOMS = st.none() | st.booleans() | st.integers() | st.floats() | TEXTS
OURS = (
    st.builds(Chars, st.integers(), st.integers())
    | st.builds(Coefficients, st.floats(), st.floats())
    | st.builds(Group, st.integers(), st.integers(), TEXTS)
    | st.sampled_from(Decision)
)
KEYS = st.booleans() | st.integers() | TEXTS | st.tuples(st.integers(), TEXTS)
VALUES = st.recursive(
    ATOMS | OURS,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.lists(inner, max_size=4).map(tuple)
        | st.dictionaries(KEYS, inner, max_size=4)
        | st.builds(ProbeReport, inner, inner, inner)
    ),
    max_leaves=20,
)


def crossed(value: Any) -> Any:
    """Send a value through a frame."""
    frame = protocol.pack({"value": protocol.encode(value)})
    length = protocol.frame_length(frame[: protocol.HEAD_BYTES])
    assert length == len(frame) - protocol.HEAD_BYTES
    return protocol.decode(protocol.unpack(frame[protocol.HEAD_BYTES :])["value"])


@given(VALUES)
def test_what_crosses_arrives_as_it_was(value: Any) -> None:
    # By repr: types and the sign of zero count, and NaN is not equal to itself.
    assert repr(crossed(value)) == repr(value)


def test_every_type_that_a_check_reads_may_cross() -> None:
    for kind in [*FIELDS, *CHOICES]:
        assert protocol.known_type(kind.__name__) is kind


def test_every_known_type_is_there() -> None:
    for name in protocol.KNOWN:
        assert protocol.known_type(name) is not None


class Trick(int):
    """Equals everything."""

    def __eq__(self, other: object) -> bool:
        return True

    __hash__ = int.__hash__


class Bomb:
    """Would do harm when it is unpickled."""

    def __reduce__(self) -> tuple[Any, ...]:
        return (print, ("harm",))


@pytest.mark.parametrize("value", [Trick(3), Bomb(), {1}, b"x", range(3), 1j, iter([])])
def test_any_other_type_crosses_as_its_name_only(value: object) -> None:
    arrived = crossed(value)
    assert isinstance(arrived, protocol.Foreign)
    assert type(arrived).__name__ == type(value).__name__
    with pytest.raises(Exception, match=f"returned a.* {type(value).__name__}") as error:
        plain(arrived)
    assert type(error.value).__name__ == "Misfit"


def test_a_type_of_the_same_name_is_another_type() -> None:
    other = type("Group", (tuple,), {})()
    assert protocol.encode(other) == {"other": "Group"}


def test_names_of_types_cannot_fill_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(protocol, "_foreign_types", {})
    for number in range(3 * protocol._MAX_FOREIGN_TYPES):
        protocol.foreign(f"Type{number}")
    assert len(protocol._foreign_types) <= protocol._MAX_FOREIGN_TYPES + 1


def test_values_that_cannot_cross_say_why() -> None:
    inside_itself: list[Any] = []
    inside_itself.append(inside_itself)
    with pytest.raises(protocol.Unsendable, match="nested too deep"):
        protocol.encode(inside_itself)
    with pytest.raises(protocol.Unsendable, match="a whole number of 200001 bits"):
        protocol.encode(1 << 200_000)
    assert crossed(1 << 90_000) == 1 << 90_000


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from(
                ("dict", "tuple", "is", "of", "member", "int", "float", "other", "meter", "call")
            )
            | st.text(max_size=3),
            inner | st.sampled_from(list(protocol.KNOWN)),
            max_size=3,
        )
    ),
    max_leaves=15,
)


@given(JSON)
def test_any_data_is_a_plain_value_or_refused(data: Any) -> None:
    try:
        value = protocol.decode(data)
    except protocol.ProtocolError:
        return
    try:
        plain(value)
    except Exception as error:
        assert type(error).__name__ == "Misfit"


@pytest.mark.parametrize(
    "data",
    [
        {"is": "Popen", "of": []},
        {"is": "Group", "of": [1, 2]},
        {"is": "Group", "of": [1, 2, "recent", 4]},
        {"is": "Group"},
        {"is": ["Group"], "of": []},
        {"is": "Decision", "of": ["send"]},
        {"is": "Decision", "member": "mro"},
        {"is": "TokenMeter", "of": []},
        {"meter": 3},
        {"call": 1},
        {"counter": 1},
        {"dict": {"a": 1}},
        {"dict": [[1, 2, 3]]},
        {"dict": [[[1], 2]]},
        {"dict": [[{"tuple": [n, 0]}, 0] for n in range(protocol.MAX_ODD_KEYS + 1)]},
        {"int": "0x" + "f" * protocol.MAX_INT_BITS},
        {"int": "os"},
        {"float": "1.0"},
        {"unknown": 1},
        {},
    ],
)
def test_data_that_describes_nothing_is_refused(data: Any) -> None:
    with pytest.raises(protocol.ProtocolError):
        protocol.decode(data)


def test_deep_data_is_refused() -> None:
    data: Any = 1
    for _ in range(protocol.MAX_DEPTH + 1):
        data = [data]
    with pytest.raises(protocol.ProtocolError, match="nested too deep"):
        protocol.decode(data)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"\xff\xfe",
        b"[1]",
        b"nothing",
        b'{"a": NaN}',
        b'{"a": Infinity}',
        b'{"a": ' + b"9" * 5000 + b"}",
        b'{"a": ' + b"[" * 100_000 + b"]" * 100_000 + b"}",
    ],
)
def test_frames_without_a_message_are_refused(body: bytes) -> None:
    with pytest.raises(protocol.ProtocolError):
        protocol.unpack(body)


def test_numbers_keep_their_type() -> None:
    assert [type(crossed(value)) for value in (1, 1.0, True)] == [int, float, bool]
    assert math.copysign(1, crossed(-0.0)) == -1
    assert json.loads(protocol.pack({"v": protocol.encode(2**60)})[4:]) == {
        "v": {"int": hex(2**60)}
    }


# --- calling across ---------------------------------------------------------------------


class Other:
    """The other end of a pipe, in a thread: it calls functions by their name."""

    def __init__(self, functions: dict[str, Callable[..., Any]], **options: Any) -> None:
        there: Queue[dict[str, Any]] = Queue()
        back: Queue[dict[str, Any]] = Queue()
        self.here = protocol.Peer(there.put, lambda: back.get(timeout=10), **options)
        self._peer = protocol.Peer(back.put, lambda: there.get(timeout=10))
        self._there, self._back, self._functions = there, back, functions
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            message = self._there.get()
            if "name" not in message:
                return
            function = self._functions[message["name"]]
            self._back.put({"answer": message["id"], **self._peer.outcome(function, message)})

    def call(self, name: str, *args: Any, **kwargs: Any) -> Any:
        request = {"name": name, "args": self.here.encode(list(args))}
        return self.here.result(self.here.ask({**request, "kwargs": self.here.encode(kwargs)}))


def test_a_call_with_functions_in_it_calls_back() -> None:
    other = Other({"twice": lambda f, x, more=0: f(f(x)) + more})
    assert other.call("twice", lambda x: [*x, len(x)], [7], more=[0]) == [7, 1, 2, 0]


def test_functions_cross_both_ways() -> None:
    def group(messages: list[Any], pinned: Callable[[Any], bool]) -> list[bool]:
        return [pinned(message) for message in messages]

    other = Other({"run": lambda group: group([1, 2, 3], lambda message: message > 1)})
    assert other.call("run", group) == [False, True, True]


def test_errors_come_back_under_their_own_name() -> None:
    def fail() -> None:
        raise LookupError("the script has no further summary")

    def report(function: Callable[[], None]) -> list[str]:
        try:
            function()
        except LookupError as error:
            return [type(error).__name__, str(error)]
        return []

    other = Other({"report": report, "fail": lambda: 1 // 0})
    assert other.call("report", fail) == ["LookupError", "the script has no further summary"]
    with pytest.raises(ZeroDivisionError):
        other.call("fail")


def test_an_error_that_nobody_knows_keeps_its_name() -> None:
    error = protocol.remote_error(["Sum mary; Error", "no heading"])
    assert (type(error).__name__, str(error)) == ("Sum_mary__Error", "no heading")
    assert not isinstance(protocol.remote_error(["SystemExit", ""]), SystemExit)
    with pytest.raises(protocol.ProtocolError):
        protocol.remote_error({"SystemExit": 1})


MESSAGES = [{"role": "user", "content": "hello"}]


def test_a_fresh_meter_crosses_as_its_table() -> None:
    meter = TokenMeter(Coefficients(1.0, 0.5))
    other = Other({"kind": lambda meter: [type(meter).__name__, meter.count(MESSAGES)]})
    assert other.call("kind", meter) == ["TokenMeter", meter.count(MESSAGES)]


def test_a_meter_that_has_seen_usage_is_asked_over_the_pipe() -> None:
    meter = TokenMeter()
    meter.observe(MESSAGES, 90)
    other = Other({"count": lambda meter: [meter.count(MESSAGES), meter.coefficients.other]})
    assert other.call("count", meter) == [90, 0.25]


def test_a_counter_without_a_table_has_none_there() -> None:
    class Counter:
        def count(self, messages: list[Any]) -> int:
            return len(messages)

    other = Other({"ask": lambda c: [c.count([1, 2]), getattr(c, "coefficients", "none")]})
    assert other.call("ask", Counter()) == [2, "none"]


def test_calls_back_are_limited() -> None:
    def nag(function: Callable[[], None]) -> None:
        while True:
            function()

    other = Other({"nag": nag}, max_calls=20)
    with pytest.raises(protocol.ProtocolError, match="more than 20 calls back"):
        other.call("nag", lambda: None)


def test_calls_that_wait_for_each_other_are_limited() -> None:
    def deeper(back: Callable[..., Any]) -> Any:
        return back(lambda: deeper(back))

    other = Other({"deeper": deeper})
    with pytest.raises(protocol.ProtocolError, match="wait for each other"):
        other.call("deeper", lambda further: further())


@pytest.mark.parametrize(
    "message",
    [
        {"answer": 0, "value": 1},
        {"answer": None, "value": 1},
        {"answer": True, "value": 1},
        {"call": 0},
        {"call": -1},
        {"call": True},
        {"call": "0"},
        {},
    ],
)
def test_what_nobody_asked_for_ends_the_talk(message: dict[str, Any]) -> None:
    peer = protocol.Peer(lambda sent: None, lambda: message)
    with pytest.raises(protocol.ProtocolError):
        peer.ask({"name": "estimate"})


def test_what_was_handed_over_can_be_forgotten() -> None:
    sent: list[dict[str, Any]] = []
    peer = protocol.Peer(sent.append, dict)
    number = peer.encode(len)["call"]
    call = {"call": number, "id": 1, "args": ["four"], "kwargs": {"dict": []}}
    peer.serve(call)
    assert sent == [{"answer": 1, "value": 4}]
    peer.forget()
    with pytest.raises(protocol.ProtocolError, match="nothing that was handed over"):
        peer.serve(call)


def test_a_call_without_arguments_is_refused() -> None:
    peer = protocol.Peer(lambda sent: None, dict)
    with pytest.raises(protocol.ProtocolError, match="without arguments"):
        peer.outcome(len, {"args": 3, "kwargs": {"dict": []}})


def test_the_end_of_the_pipe_is_no_answer_of_a_callback() -> None:
    def gone() -> None:
        raise protocol.PipeEnd("gone")

    peer = protocol.Peer(lambda sent: None, dict)
    with pytest.raises(protocol.PipeEnd, match="gone"):
        peer.outcome(gone, {"args": [], "kwargs": {"dict": []}})
