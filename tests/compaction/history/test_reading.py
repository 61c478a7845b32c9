"""Reading histories from values and lines, and refusing the rest in one line."""

from __future__ import annotations

import io
import json
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from compaction.files import write_whole
from compaction.history import (
    HistoryError,
    parse_histories,
    read_histories,
    read_history,
    read_tools,
    render_histories,
)
from tests.compaction.strategies import histories

A = {"role": "user", "content": "hello"}
B = {"role": "assistant", "content": "你好"}
TOOL = {"type": "function", "function": {"name": "f"}}


def dumps(value, **options):
    return json.dumps(value, ensure_ascii=False, **options)


def parsed(text, name="h.json"):
    return parse_histories(text if isinstance(text, bytes) else text.encode(), name)


def lists_of(source):
    return [conversation.messages for conversation in source.conversations]


# --- the forms ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "form", "expected"),
    [
        (dumps([A, B]), "list", [[A, B]]),
        (dumps([A, B], indent=2), "list", [[A, B]]),
        (dumps({"messages": [A, B]}), "object", [[A, B]]),
        (dumps({"model": "m", "messages": [A], "n": 1}, indent=1), "object", [[A]]),
        (dumps(A), "message lines", [[A]]),
        (dumps(A) + "\n" + dumps(B), "message lines", [[A, B]]),
        (dumps([A]) + "\n" + dumps([B, A]), "conversation lines", [[A], [B, A]]),
        (dumps({"messages": [A]}) + "\n" + dumps([B]), "conversation lines", [[A], [B]]),
        (dumps([[A], [B, A]]), "conversation list", [[A], [B, A]]),
        (dumps([{"messages": [A]}, {"id": 2, "messages": [B]}]), "conversation list", [[A], [B]]),
        # A role beside the messages does not make it a message.
        (dumps({"role": "user", "messages": [A]}), "object", [[A]]),
    ],
)
@pytest.mark.parametrize("ending", ["", "\n", "\r\n", "\n\n \t\n"])
@pytest.mark.parametrize("bom", [b"", b"\xef\xbb\xbf"], ids=["", "bom"])
@pytest.mark.parametrize("crlf", [False, True])
def test_every_form(text, form, expected, ending, bom, crlf):
    if crlf:
        text = text.replace("\n", "\r\n")
    source = parse_histories(bom + (text + ending).encode(), "h.json")
    assert source.form == form
    assert lists_of(source) == expected


def test_blank_lines_count_for_nothing():
    text = f"\n\r\n{dumps(A)}\n\n  \n{dumps(B)}\n"
    assert lists_of(parsed(text)) == [[A, B]]


def test_only_line_feeds_end_a_line():
    """U+2028, a form feed and their kind may stand raw inside a JSON text."""
    odd = {"role": "user", "content": "a\u2028b\u2029c\x85d"}
    assert lists_of(parsed(dumps(odd) + "\n" + dumps(A))) == [[odd, A]]


def test_unknown_fields_and_odd_contents_are_kept():
    odd = [
        {"role": "user", "content": ["text", {"type": "text", "text": "x"}], "name": "ann"},
        {"role": "assistant", "tool_calls": None, "content": None, "x": {"y": [1.5, None, True]}},
        {"role": "tool", "content": "an orphan without an id"},
        {"role": "developer", "content": ""},
        {"role": "system", "content": []},
    ]
    assert lists_of(parsed(dumps(odd))) == [odd]


def test_tools_may_lie_beside_the_messages():
    (conversation,) = parsed(dumps({"messages": [A], "tools": [TOOL]})).conversations
    assert conversation.tools == [TOOL]
    for other in ([], None, "text", ["name"], {"a": 1}):
        (conversation,) = parsed(dumps({"messages": [A], "tools": other})).conversations
        assert conversation.tools is None
    assert parsed(dumps([A])).conversations[0].tools is None


# --- what is refused ----------------------------------------------------------------------


def deep(levels):
    return "[" * levels + "]" * levels


REFUSED = [
    ("", "h.json: the file is empty; expected a JSON list of messages"),
    (" \n\t", "h.json: the file is empty"),
    (b"\xef\xbb\xbf", "h.json: the file is empty"),
    ("[]", "h.json: the list of messages is empty; expected at least one"),
    ('{"messages": []}', "h.json: the list of messages is empty"),
    ("{}", 'h.json: the object has no "messages"; expected a JSON list of messages'),
    ('{"messages": 7}', 'h.json: expected a list of messages, got a number as "messages"'),
    ('{"messages": null}', 'h.json: expected a list of messages, got null as "messages"'),
    ("7", "h.json: expected a list of messages, got a number"),
    ('"hello"', "h.json: expected a list of messages, got the text 'hello'"),
    ("null", "h.json: expected a list of messages, got null"),
    ("true", "h.json: expected a list of messages, got true or false"),
    # Malformed JSON.
    (
        "[1, 2",
        "h.json, line 1, column 6: malformed JSON: expecting ',' delimiter, but the text ends",
    ),
    ('[\n{"role": "user"\n"x"}]', "h.json, line 3, column 1: malformed JSON"),
    (
        '[{"role": "user" "x"}]',
        "h.json, line 1, column 18: malformed JSON: expecting ',' delimiter",
    ),
    ("[{'role': 'user'}]", "h.json, line 1, column 3: malformed JSON: expecting property name"),
    ('[{"role": "us', "h.json, line 1, column 11: malformed JSON: unterminated string"),
    ("hello", "h.json, line 1, column 1: malformed JSON: expecting value"),
    (
        dumps([A]) + " x",
        f"column {len(dumps([A])) + 2}: malformed JSON: expected the end of the file",
    ),
    (dumps([A], indent=1) + "\n[]", "malformed JSON: expected the end of the file"),
    ('[{"role": "user", "content": "a\nb"}]', "h.json, line 1, column 32: malformed JSON"),
    # Numbers that JSON does not have.
    ('[{"role": "user", "content": "x", "p": NaN}]', "h.json, line 1, column 40: malformed JSON"),
    (
        '[{"role": "user", "content": "NaN",\n"p": -Infinity}]',
        "h.json, line 2, column 6: malformed",
    ),
    (
        '[{"role": "user", "content": "", "p": 1e999}]',
        "column 39: malformed JSON: expected a finite",
    ),
    ('[{"role": "user", "content": "", "p": ' + "9" * 5000 + "}]", "column 39: malformed JSON"),
    # Nesting.
    (
        deep(200),
        "h.json, line 1, column 101: malformed JSON: expected at most 100 levels of nesting",
    ),
    (deep(50_000), "h.json, line 1, column 101: malformed JSON: expected at most 100 levels"),
    ('[{"role": "user", "x":\n' + deep(99) + "}]", "h.json, line 2, column 99: malformed JSON"),
    (
        dumps(A) + '\n{"role": "user", "x": ' + deep(150) + "}",
        "h.json, line 2, column 122: malformed",
    ),
    # Messages.
    ("[1]", "h.json, message 1 of 1: expected an object, got a number"),
    (dumps([A, "hi"]), "h.json, message 2 of 2: expected an object, got the text 'hi'"),
    (dumps([A, None, B]), "h.json, message 2 of 3: expected an object, got null"),
    (dumps([A, [B]]), "h.json, message 2 of 2: expected an object, got a list"),
    (dumps([[A], []]), "h.json, conversation 2 of 2: the list of messages is empty"),
    (
        dumps([{"messages": [A]}, {"messages": [7]}]),
        "h.json, conversation 2 of 2, message 1 of 1: expected an object, got a number",
    ),
    (dumps([{"content": "x"}]), "h.json, message 1 of 1: the message has no role; expected system"),
    (
        dumps([A, {"role": "bot", "content": "x"}]),
        "message 2 of 2: expected the role system, developer, user, assistant or tool, got 'bot'",
    ),
    (
        dumps([{"role": 3}]),
        "expected the role system, developer, user, assistant or tool, got a number",
    ),
    (dumps([{"role": None}]), "message 1 of 1: expected the role system"),
    (dumps([{"role": ["user"]}]), "got a list"),
    (dumps([{"role": "User", "content": "x"}]), "got 'User'"),
    (dumps([{"role": "x" * 500}]), "got 'xxxxxxxxx"),
    (dumps([{"role": "a\nb"}]), "got 'a\\nb'"),
    (
        dumps([{"role": "user", "content": 7}]),
        "message 1 of 1: expected text, a list of parts or null",
    ),
    (dumps([{"role": "user", "content": {"text": "x"}}]), "as content, got an object"),
    (dumps([{"role": "user", "content": False}]), "as content, got true or false"),
    (dumps([{"role": "user", "content": [7]}]), "as a part of the content, got a number"),
    (dumps([{"role": "assistant", "content": "", "tool_calls": "f"}]), "a list as tool_calls"),
    (dumps([{"role": "assistant", "content": "", "tool_calls": {}}]), "a list as tool_calls"),
    (
        dumps([{"role": "assistant", "content": "", "tool_calls": ["f"]}]),
        "an object as a tool call",
    ),
    # Lines.
    (dumps(A) + "\nx", "h.json, line 2, column 1: malformed JSON: expecting value"),
    (dumps(A) + "\n\n" + dumps(B)[:-1], f"h.json, line 3, column {len(dumps(B))}: malformed JSON"),
    (
        dumps(A) + "\n" + dumps(B) + " 7",
        f"h.json, line 2, column {len(dumps(B)) + 2}: malformed JSON: expected the end of",
    ),
    (dumps(A) + "\n7", "h.json, line 2: expected a message as on the lines before, got a number"),
    (
        dumps(A) + "\n[]",
        "h.json, line 2: expected a message as on the lines before, got a conversation",
    ),
    (
        dumps([A]) + "\n" + dumps(B),
        "h.json, line 2: expected a conversation as on the lines before",
    ),
    (dumps([A]) + "\n[]", "h.json, line 2: the list of messages is empty"),
    (
        dumps([A]) + '\n["x"]',
        "h.json, line 2, message 1 of 1: expected an object, got the text 'x'",
    ),
    (
        dumps([A]) + '\n{"messages": 3}',
        'h.json, line 2: expected a list of messages, got a number as "m',
    ),
    (dumps(A) + '\n{"role": "bot"}', "h.json, line 2: expected the role system"),
    (dumps(A) + '\n{"content": "x"}', "h.json, line 2: the message has no role"),
    (
        dumps(A, indent=1),
        'h.json: expected a JSON list of messages, {"messages": [...]}, or JSON lines, got a',
    ),
    # Encodings.
    (
        b"\xff\xfe[\x00",
        "h.json, line 1, byte 1: expected UTF-8 text, got the byte 0xff (it looks like UTF-16)",
    ),
    (
        b'[{"role": "user",\n"content": "\xe9"}]',
        "h.json, line 2, byte 13: expected UTF-8 text, got the byte 0xe9",
    ),
    (b"\xef\xbb\xbf\n\xff", "h.json, line 2, byte 1: expected UTF-8 text"),
]


@pytest.mark.parametrize(("text", "expected"), REFUSED, ids=range(len(REFUSED)))
def test_bad_input_is_refused_in_one_line(text, expected):
    with pytest.raises(HistoryError) as caught:
        parsed(text)
    message = str(caught.value)
    assert expected in message
    assert "\n" not in message and message.startswith("h.json") and len(message) < 250


def test_depth_at_the_limit_is_read():
    text = '[{"role": "user", "content": "x", "x": ' + deep(98) + "}]"
    assert len(parsed(text).conversations[0].messages) == 1


@pytest.mark.parametrize(
    ("make", "expected"),
    [
        (lambda folder: folder, "it is a folder; expected a file"),
        (lambda folder: folder / "missing.json", "no such file"),
        (lambda folder: folder / "missing" / "h.json", "no such file"),
        (lambda folder: f"{folder}/nul\0l.json", "null"),
    ],
)
def test_files_that_cannot_be_read(tmp_path, make, expected):
    with pytest.raises(HistoryError) as caught:
        read_histories(make(tmp_path))
    assert expected in str(caught.value) and "\n" not in str(caught.value)


def test_a_name_with_a_line_break_stays_on_one_line(tmp_path):
    with pytest.raises(HistoryError) as caught:
        read_histories(tmp_path / "a\nb.json")
    assert "\n" not in str(caught.value) and "a\\nb.json" in str(caught.value)


@given(st.binary(max_size=60))
def test_no_bytes_do_more_than_be_refused(data):
    try:
        source = parse_histories(data, "h.json")
    except HistoryError as error:
        assert "\n" not in str(error)
    else:
        assert all(conversation.messages for conversation in source.conversations)


@given(histories(), st.data())
def test_a_history_cut_short_is_refused_or_another_history(history, data):
    text = dumps(history, indent=1)
    cut = text[: data.draw(st.integers(0, len(text) - 1))]
    with pytest.raises(HistoryError):
        parse_histories(cut.encode("utf-8", "surrogatepass"))


# --- reading ------------------------------------------------------------------------------


def test_standard_input(monkeypatch):
    class Stdin:
        buffer = io.BytesIO(dumps([A]).encode())

    monkeypatch.setattr(sys, "stdin", Stdin)
    source = read_histories("-")
    assert (source.name, lists_of(source)) == ("standard input", [[A]])


def test_one_history_means_one(tmp_path):
    path = tmp_path / "h.jsonl"
    path.write_text(dumps(A) + "\n" + dumps(B), encoding="utf-8")
    assert read_history(path) == [A, B]
    path.write_text(dumps([A]) + "\n" + dumps([B]), encoding="utf-8")
    with pytest.raises(HistoryError, match="expected one history, got 2 conversations"):
        read_history(path)


@pytest.mark.parametrize("value", [[TOOL], {"tools": [TOOL], "model": "m"}])
def test_tools(tmp_path, value):
    path = tmp_path / "tools.json"
    path.write_text("\ufeff \n" + dumps(value) + "\n", encoding="utf-8")
    assert read_tools(path) == [TOOL]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("7", "expected a JSON list of tool schemas, got a number"),
        ("{}", "expected a JSON list of tool schemas, got an object"),
        ('["f"]', "tool 1 of 1: expected an object, got the text 'f'"),
        ("[{}] x", "malformed JSON: expected the end of the file after the list of tools"),
        ("", "malformed JSON"),
        (deep(5000), "100 levels"),
    ],
)
def test_bad_tools(tmp_path, text, expected):
    path = tmp_path / "tools.json"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(HistoryError) as caught:
        read_tools(path)
    assert expected in str(caught.value) and str(path) in str(caught.value)


# --- writing back -------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        dumps([A, B]) + "\n",
        dumps([A, B], indent=2) + "\n",
        dumps([A, B], indent="\t") + "\n",
        dumps({"id": 7, "messages": [A], "tools": [TOOL]}, indent=1) + "\n",
        dumps(A) + "\n" + dumps(B) + "\n",
        dumps([A]) + "\n" + dumps({"messages": [B], "id": "ü"}) + "\n",
        dumps([[A], {"id": 1, "messages": [B]}][:1]) + "\n",
        dumps([{"id": 1, "messages": [B]}, {"messages": [A]}], indent=1) + "\n",
    ],
)
def test_rendering_the_same_messages_gives_the_same_text(text):
    source = parsed(text)
    assert render_histories(source, lists_of(source)) == text


def test_rendering_keeps_the_other_fields_of_each_object():
    source = parsed(dumps({"id": 1, "messages": [A]}) + "\n" + dumps([B]))
    text = render_histories(source, [[B, B], [A]])
    assert [json.loads(line) for line in text.splitlines()] == [{"id": 1, "messages": [B, B]}, [A]]


def test_a_lone_surrogate_comes_back_as_it_was(tmp_path):
    odd = {"role": "user", "content": "a\ud800b\udc00"}
    source = parsed(json.dumps([odd]))
    path = tmp_path / "out.json"
    write_whole(path, render_histories(source, lists_of(source)))
    assert lists_of(read_histories(path)) == [[odd]]


@given(
    st.lists(histories(most=3), min_size=1, max_size=3),
    st.sampled_from(["list", "lines", "messages"]),
)
def test_reading_what_was_written_gives_the_same_histories(found, form):
    if form == "list":
        text = json.dumps(found[0])
    elif form == "messages":
        text = "\n".join(map(json.dumps, found[0]))
    else:
        text = "\n".join(map(json.dumps, found))
    source = parsed(text)
    again = parsed(render_histories(source, lists_of(source)).encode())
    assert lists_of(again) == lists_of(source)
    assert lists_of(source) == (found if form == "lines" else found[:1])
