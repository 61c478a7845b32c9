"""The client's side: a summariser that asks a model, in parts where one request cannot hold all."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Literal

from compaction.messages import Message, text_of
from compaction.tokens import estimate

if TYPE_CHECKING:
    from openai import OpenAI

_SMALLEST_PART = 400
"""Characters of a message below which it is not cut in two."""


def summarize_with(
    client: OpenAI,
    model: str,
    *,
    language: Literal["auto", "en", "zh"] = "auto",
    timeout_s: float | None = None,
    observe: Callable[[list[Message], Any], object] | None = None,
    room_tokens: int | None = None,
    count: Callable[[list[Message]], int] | None = None,
) -> Callable[..., str]:
    """Return a summariser that asks a model through the ``openai`` client, one request a stretch.

    The stretch goes out as data inside ``summary_prompt``, without tools. A request of more than
    ``room_tokens`` (by ``count``, else the two-term estimate), or one that the gateway refuses as
    too long, is made in parts, whose summaries are joined under the four headings. The client's
    errors pass through; SummaryError is raised for a reply that is not finished text (a tool call,
    nothing but thoughts, or cut off at its length limit), so that ``compact`` abandons and says
    why. ``observe`` is called with the messages sent and the reply's usage, which may be None:
    what a compaction costs is part of the account. Under a target the summariser is told its
    share, and the request names it.
    """
    from compaction.engine import Reply, ReplyError, read_overflow, reply_with  # for a client only

    options: dict[str, Any] = {} if timeout_s is None else {"timeout": timeout_s}
    ask = reply_with(client, model, **options)

    def summarize(messages: list[Message], max_tokens: int | None = None) -> str:
        from compaction.summary import language_of

        chosen = language_of(messages) if language == "auto" else language
        summaries = list(summaries_of(messages, chosen, max_tokens))
        return summaries[0] if len(summaries) == 1 else join_summaries(summaries, chosen)

    def summaries_of(
        messages: Sequence[Message], chosen: str, max_tokens: int | None
    ) -> Iterator[str]:
        from compaction.summary import summary_prompt

        prompt = summary_prompt(messages, chosen, max_tokens=max_tokens)
        sent: list[Message] = [{"role": "user", "content": prompt}]
        halves = _halves(messages)
        in_parts = room_tokens is not None and bool(halves) and size_of(sent) > room_tokens
        if not in_parts:
            try:
                yield summary_in(sent)
                return
            except Exception as error:
                if read_overflow(error) is None or not halves:
                    raise
        for half in halves:
            yield from summaries_of(half, chosen, max_tokens and max(1, max_tokens // 2))

    def size_of(sent: list[Message]) -> int:
        return count(sent) if count is not None else estimate(str(sent[0]["content"]))

    def summary_in(sent: list[Message]) -> str:
        try:
            reply = ask(sent, None)
        except ReplyError as error:
            if error.body is not None:
                raise
            raise _summary_error(f"{error} instead of a summary") from error
        assert isinstance(reply, Reply)
        if observe is not None:
            observe(sent, reply.usage)
        if reply.message.get("tool_calls"):
            raise _summary_error("the model answered with a tool call instead of a summary")
        if reply.finish_reason == "length":
            raise _summary_error("the summary was cut off at the reply's length limit")
        if reply.is_empty:
            gave = "gave an empty reply" if len(reply.message) <= 2 else "only thought aloud"
            raise _summary_error(f"the model {gave} instead of a summary")
        return reply.text

    return summarize


def _summary_error(reason: str) -> Exception:
    from compaction.summary import SummaryError

    return SummaryError(reason)


def _halves(messages: Sequence[Message]) -> list[list[Message]]:
    """Return a stretch in two parts of about one size; a single message is cut within its text."""
    texts = [text_of(message) for message in messages]
    if len(messages) > 1:
        total, before = sum(map(len, texts)), 0
        for position, text in enumerate(texts[:-1], start=1):
            before += len(text)
            if 2 * before >= total or position == len(messages) - 1:
                return [list(messages[:position]), list(messages[position:])]
    if not texts or len(texts[0]) < _SMALLEST_PART:
        return []
    middle = len(texts[0]) // 2
    middle = texts[0].rfind("\n", middle // 2, middle) + 1 or middle
    shared: Message = {
        key: messages[0][key] for key in ("role", "tool_call_id") if key in messages[0]
    }
    return [[{**shared, "content": half}] for half in (texts[0][:middle], texts[0][middle:])]


def join_summaries(summaries: Sequence[str], language: str = "en") -> str:
    r"""Return summaries of consecutive parts as one, each line once under its heading.

    >>> part = "Confirmed facts:\n- {}\nChanges already made:\nnone\nUnfinished items:\nnone\n"
    >>> part += "Key paths and commands:\n- calc.py"
    >>> print(join_summaries([part.format("a"), part.format("b")]))
    Confirmed facts:
    - a
    - b
    Changes already made:
    none
    Unfinished items:
    none
    Key paths and commands:
    - calc.py
    """
    from compaction.summary import KEYS, parse_summary, render_summary, tidy_summary

    parsed = [parse_summary(tidy_summary(summary)) for summary in summaries]
    nothing = "无" if language == "zh" else "none"
    joined = {}
    for key in KEYS:
        lines = dict.fromkeys(line for body in parsed for line in body[key].splitlines())
        said = [line for line in lines if line.strip(" -*.。").lower() not in ("none", "无", "")]
        joined[key] = "\n".join(said) or nothing
    return render_summary(joined, language)
