"""Ask a model through the faults of the line: what may pass is asked again, and said so."""

from __future__ import annotations

import itertools
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any, TypeVar

from compaction.agent.listener import Listener
from compaction.engine import ReplyError

PATIENCE_S = 10.0
"""After this time without a word the person is told that it takes long; then after twice it."""

MAX_ATTEMPTS = 5
"""How often a request is made that fails for a reason that may pass."""

ASK_AGAIN_FOR_S = 180.0
"""No attempt begins later than this after the first."""

LONGEST_WAIT_S = 60.0
"""A gateway that asks for a longer wait is told to the person instead."""

_FIRST_WAIT_S = 0.5  # then twice as long each time

Answer = TypeVar("Answer")


def ask_patiently(
    ask: Callable[[Callable[[], None]], Answer],
    listener: Listener,
    reason: Callable[[BaseException], str],
) -> Answer:
    """Return what ``ask`` returns, asked again after a fault that may pass.

    ``ask`` is given a function to call at the first word of the answer; until then a long silence
    is named. ``reason`` says in one line why something failed. Ctrl-C ends every wait. Raises what
    the last attempt raised.
    """
    began_s = time.monotonic()
    for attempt in itertools.count(1):
        silence = _Silence(listener)
        try:
            return ask(silence.end)
        except Exception as error:
            wait_s = retry_wait_s(error, attempt)
            if wait_s is None or time.monotonic() + wait_s - began_s > ASK_AGAIN_FOR_S:
                raise
            line = f"{reason(error)}; asking again in {wait_s:.3g} s"
        finally:
            silence.end()
        if wait_s >= PATIENCE_S:
            line += " (Ctrl-C stops the waiting)"
        listener.note(line)
        time.sleep(wait_s)
    raise AssertionError("the loop ends by returning or raising")


class _Silence:
    """Names a silence that lasts: after ``PATIENCE_S``, then each time it has doubled."""

    def __init__(self, listener: Listener) -> None:
        self._listener = listener
        self._is_over = threading.Event()
        threading.Thread(target=self._watch, name="silence", daemon=True).start()

    def end(self) -> None:
        """There is a word, or nothing is waited for any more."""
        self._is_over.set()

    def _watch(self) -> None:
        began_s, patience_s = time.monotonic(), PATIENCE_S
        while not self._is_over.wait(began_s + patience_s - time.monotonic()):
            line = f"the gateway is slow: no word for {patience_s:g} s (Ctrl-C stops the waiting)"
            with suppress(Exception):  # a closed terminal is met elsewhere
                self._listener.note(line)
            patience_s *= 2


def retry_wait_s(error: BaseException, attempt: int) -> float | None:
    """Return how long to wait before a failed request is made again; None when that is of no use.

    A gateway that is busy says how long, in seconds or as a date; failures of the gateway (5xx),
    of the connection and of the time limit are waited out for half a second, then twice as long
    each time. So are replies that broke off, or were none. ``attempt`` counts from 1.

    >>> retry_wait_s(ValueError("no number"), 1) is None
    True
    """
    if attempt >= MAX_ATTEMPTS:
        return None
    growing_s = _FIRST_WAIT_S * 2 ** (attempt - 1)
    if isinstance(error, ReplyError):
        return growing_s if error.may_pass else None
    openai: Any = sys.modules.get("openai")  # only when it is loaded can the error be its own
    if openai is None or not isinstance(error, openai.APIError):
        return None
    if isinstance(error, openai.APIConnectionError):  # a time-out is one, too
        return growing_s
    if isinstance(error, openai.APIStatusError):
        if error.status_code not in (408, 409, 429) and error.status_code < 500:
            return None
        if error.code == "insufficient_quota":  # no waiting fills an account
            return None
        asked_s = _asked_wait_s(error.response.headers)
        wait_s = growing_s if asked_s is None else asked_s
        return wait_s if wait_s <= LONGEST_WAIT_S else None
    return growing_s if _may_pass(str(error.code or ""), error.message) else None


def _asked_wait_s(headers: Any) -> float | None:
    """Return how long a gateway asks to wait; None where it does not say."""
    asked = headers.get("Retry-After")
    if asked is None:
        return None
    with suppress(ValueError):
        return max(0.0, float(asked))
    with suppress(ValueError):
        until = parsedate_to_datetime(asked)
        until = until if until.tzinfo else until.replace(tzinfo=UTC)
        return max(0.0, (until - datetime.now(UTC)).total_seconds())
    return None


def _may_pass(code: str, message: str) -> bool:
    """Whether an error that came inside a stream is the gateway's own trouble."""
    if code.isdigit():
        return code in ("408", "429") or code >= "500"
    words = f"{code} {message}".lower()
    return any(word in words for word in ("overload", "rate limit", "server error", "unavailable"))
