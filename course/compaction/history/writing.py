"""Write histories back as text, in the form in which they came."""

from __future__ import annotations

from collections.abc import Sequence

from compaction.history.conversation import HistoryFile
from compaction.history.json_text import dump
from compaction.messages import Message


def render_histories(source: HistoryFile, results: Sequence[list[Message]]) -> str:
    """Write one list of messages a conversation back as text, in the form of the source.

    >>> source = parse_histories(b'{"id": 7, "messages": [{"role": "user", "content": "hi"}]}')
    >>> render_histories(source, [[{"role": "user", "content": "ho"}]])
    '{"id": 7, "messages": [{"role": "user", "content": "ho"}]}\\n'
    """
    if source.form == "message lines":
        return "".join(dump(message) + "\n" for message in results[0])
    values = [
        messages if conversation.fields is None else {**conversation.fields, "messages": messages}
        for conversation, messages in zip(source.conversations, results, strict=True)
    ]
    return "".join(dump(value, source.indent) + "\n" for value in values)
