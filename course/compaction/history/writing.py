"""Write histories back as text: what was Chat Completions in its own form, all else as it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from compaction.history.conversation import Conversation, HistoryFile, HistoryStream
from compaction.history.json_text import dump
from compaction.messages import Message

Result = tuple[Conversation, list[Message]]


def render_histories(source: HistoryFile, results: Sequence[list[Message]]) -> str:
    """Write one list of messages a conversation back as text, in the form of the source.

    >>> from compaction.history import parse_histories
    >>> source = parse_histories(b'{"id": 7, "messages": [{"role": "user", "content": "hi"}]}')
    >>> render_histories(source, [[{"role": "user", "content": "ho"}]])
    '{"id": 7, "messages": [{"role": "user", "content": "ho"}]}\\n'
    """
    return "".join(rendered(source, zip(source.conversations, results, strict=True)))


def rendered(source: HistoryFile | HistoryStream, results: Iterable[Result]) -> Iterator[str]:
    """Yield the text of a file piece by piece: each conversation with its new messages."""
    if source.form == "message lines":
        for _, messages in results:
            yield from (dump(message) + "\n" for message in messages)
    elif source.form == "conversation list":
        yield dump([_value(*result) for result in results], source.indent) + "\n"
    else:
        for result in results:
            yield dump(_value(*result), source.indent) + "\n"


def _value(conversation: Conversation, messages: list[Message]) -> Any:
    fields = conversation.fields
    return messages if fields is None else {**fields, "messages": messages}
