"""The client's side: a summariser that asks a model."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal

from compaction.messages import Message

if TYPE_CHECKING:
    from openai import OpenAI


def summarize_with(
    client: OpenAI,
    model: str,
    *,
    language: Literal["auto", "en", "zh"] = "auto",
    timeout_s: float | None = None,
    observe: Callable[[list[Message], Any], object] | None = None,
) -> Callable[..., str]:
    """Return a summariser that asks a model through the ``openai`` client, one request a stretch.

    The stretch goes out as data inside ``summary_prompt``, without tools. The client's errors
    pass through; SummaryError is raised for a reply that is no finished text (a tool call,
    nothing, or cut off at its length limit), so that ``compact`` abandons and says why.
    ``observe`` is called with the messages sent and the reply's usage, which may be None:
    what a compaction costs is part of the account. Under a target the summariser is told its
    share, and the request names it.
    """

    def summarize(messages: list[Message], max_tokens: int | None = None) -> str:
        from compaction.summary import SummaryError, language_of, summary_prompt

        chosen = language_of(messages) if language == "auto" else language
        prompt = summary_prompt(messages, chosen, max_tokens=max_tokens)
        sent: list[Any] = [{"role": "user", "content": prompt}]
        options: dict[str, Any] = {} if timeout_s is None else {"timeout": timeout_s}
        response = client.chat.completions.create(model=model, messages=sent, **options)
        if observe is not None:
            observe(sent, response.usage)
        choice = response.choices[0] if response.choices else None
        if choice is None or choice.message is None:
            raise SummaryError("the model gave no reply instead of a summary")
        if choice.message.tool_calls:
            raise SummaryError("the model answered with a tool call instead of a summary")
        if choice.finish_reason == "length":
            raise SummaryError("the summary was cut off at the reply's length limit")
        content = choice.message.content
        if not isinstance(content, str) or not content.strip():
            raise SummaryError("the model gave an empty reply instead of a summary")
        return content

    return summarize
