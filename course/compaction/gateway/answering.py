"""What each request gets: in go method, path and body, out comes an answer for the wire.

A request for a reply is checked, meets its faults, takes its reply from a script, and is written
down in ``seen`` before anything is sent.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from compaction.gateway.faults import REFUSING, ArmedFault, Fault, Kind
from compaction.gateway.replies import (
    EVENT_STREAM,
    JSON,
    Answer,
    carries_usage,
    error_answer,
    html_answer,
    stream_events,
    usage_field,
    whole_body,
)
from compaction.gateway.script import Reply, Script, check_reply, message_of
from compaction.gateway.summaries import drop_heading, is_summary_request, summarize_quoted
from compaction.gateway.too_long import too_long
from compaction.gateway.usage import scripted_usage
from compaction.gateway.validate import Refusal, check_request, read_json
from compaction.messages import Message, text_of

CHAT, MODELS = "/v1/chat/completions", "/v1/models"
_ROUTES = {CHAT: "POST", MODELS: "GET"}

Taken = list[tuple[Script, Reply]]
"""Replies taken from their scripts for one request, to be put back where they do not arrive."""


@dataclass(frozen=True)
class SeenRequest:
    """A request as the gateway saw it, and how it answered.

    ``body`` is None when it was not a JSON object; ``usage`` is what the reply carried, if any;
    ``faults`` names the faults that it met. Headers, and so keys, are never kept.
    """

    method: str
    path: str
    kind: Kind
    body: dict[str, Any] | None
    status: int
    reply: Message | None = None
    usage: dict[str, int] | None = None
    faults: tuple[str, ...] = ()


def give_back(taken: Taken) -> None:
    """Put replies that did not arrive back at the head of their scripts."""
    while taken:
        script, reply = taken.pop()
        script.put_back(reply)


def _in_place_of_a_reply(shared: Mapping[str, Any], faults: Sequence[str]) -> Any:
    """Return what comes under status 200 instead of a reply; None where the reply itself comes."""
    if "error-event" in faults:
        error = {"message": "The server is overloaded.", "type": "server_error", "code": 503}
        return {"error": error}
    if "empty-choices" in faults:
        return {**shared, "object": "chat.completion", "choices": []}
    return None


class Answering:
    """The scripts and faults of a gateway, and the answers that they make; see ``Gateway``."""

    def __init__(
        self,
        script: Iterable[Reply],
        summaries: Iterable[Reply],
        after_script: Reply,
        models: Sequence[str],
        *,
        retry_after_s: float,
        slow_s: float,
        window: int | None,
        too_long: str,
    ) -> None:
        check_reply(after_script, "after_script")
        self.script = Script(script, "reply")
        self.faults: list[ArmedFault] = []
        self.seen: list[SeenRequest] = []
        self._summaries = Script(summaries, "summary")
        self._after_script = after_script
        self._models = tuple(models)
        self._retry_after_s = retry_after_s
        self._slow_s = slow_s
        self._window = window
        self._too_long = too_long
        self._served = 0

    def arm(self, faults: Iterable[Fault | str]) -> None:
        """Let requests from now on meet faults."""
        armed = [Fault.parse(fault) if isinstance(fault, str) else fault for fault in faults]
        self.faults.extend(map(ArmedFault, armed))

    def answer(self, method: str, path: str, raw: bytes, taken: Taken) -> Answer:
        """Return the answer to a request; what was taken from a script is added to ``taken``."""
        try:
            if path == CHAT and method == "POST":
                return self._answer_chat(raw, taken)
            return self._answer_other(method, path)
        except Refusal as refusal:
            self._record(method, path, "other", None, refusal.status)
            return error_answer(refusal)
        except Exception as error:  # whatever it is, the client must not wait for ever
            text = f"The gateway failed: {type(error).__name__}: {error}"
            self._record(method, path, "other", None, 500)
            return error_answer(Refusal(500, text, type="server_error"))

    def _answer_other(self, method: str, path: str) -> Answer:
        route = MODELS if path.startswith(f"{MODELS}/") else path
        if route not in _ROUTES:
            raise Refusal(404, f"Invalid URL ({method} {path}).")
        if method != _ROUTES[route]:
            allowed = {"Allow": _ROUTES[route]}
            message = f"{method} is not allowed on {path}; use {_ROUTES[route]}."
            raise Refusal(405, message, code="method_not_supported", headers=allowed)
        models = [
            {"id": model, "object": "model", "created": 0, "owned_by": "compaction"}
            for model in self._models
        ]
        body: dict[str, Any] = {"object": "list", "data": models}
        if path != route:
            wanted = path.removeprefix(f"{MODELS}/")
            if wanted not in self._models:
                message = f"The model '{wanted}' does not exist here."
                raise Refusal(404, message, param="model", code="model_not_found")
            body = models[self._models.index(wanted)]
        self._record(method, path, "other", None, 200)
        return Answer(200, JSON, json.dumps(body).encode())

    def _answer_chat(self, raw: bytes, taken: Taken) -> Answer:
        body: dict[str, Any] | None = None
        kind: Kind = "other"
        faults: tuple[str, ...] = ()
        try:
            body = read_json(raw)
            check_request(body)
            kind = "summary" if is_summary_request(body["messages"]) else "turn"
            self._check_length(body)
            faults = self._meet_faults(kind, body)
            if "html-error" in faults:
                self._record("POST", CHAT, kind, body, 502, faults=faults)
                return html_answer(502, "Bad gateway")
            message = self._reply_to(kind, body, faults, taken)
        except Refusal as refusal:
            self._record("POST", CHAT, kind, body, refusal.status, faults=faults)
            return error_answer(refusal)
        usage = usage_field(body, message, faults)
        told = usage.get("usage")
        self._record("POST", CHAT, kind, body, 200, reply=message, usage=told, faults=faults)
        return self._on_the_wire(body, message, usage, faults, taken)

    def _on_the_wire(
        self,
        body: dict[str, Any],
        message: Message,
        usage: dict[str, Any],
        faults: tuple[str, ...],
        taken: Taken,
    ) -> Answer:
        """Return a reply as it goes out: whole or streamed, slow or cut, or broken."""
        self._served += 1
        shared = {
            "id": f"chatcmpl-{self._served}",
            "created": int(time.time()),
            "model": body["model"],
        }
        broken = _in_place_of_a_reply(shared, faults)
        if broken is not None:
            give_back(taken)
            if not body.get("stream"):
                return Answer(200, JSON, json.dumps(broken).encode())
            event = b"data: " + json.dumps(broken).encode() + b"\n\n"
            return Answer(200, EVENT_STREAM, events=(event, b"data: [DONE]\n\n"))
        delay_s = self._slow_s if "slow" in faults else 0.0
        cut = "cut-stream" in faults
        if not body.get("stream"):
            whole = whole_body(shared, message, usage)
            return Answer(200, JSON, body=whole, delay_s=delay_s, cut=cut)
        events = tuple(stream_events(shared, message, usage, asked=carries_usage(body)))
        return Answer(
            200,
            EVENT_STREAM,
            events=events,
            whole_after=len(events) - (2 if usage else 1),
            delay_s=delay_s,
            cut=cut,
        )

    def _check_length(self, body: dict[str, Any]) -> None:
        """Refuse a request that is longer than the window."""
        if self._window is not None:
            tokens = scripted_usage(body["messages"], body.get("tools"))
            if tokens > self._window:
                raise too_long(self._too_long, tokens, self._window)

    def _meet_faults(self, kind: Kind, body: dict[str, Any]) -> tuple[str, ...]:
        """Return the names of the faults that this request meets; a refusing one comes alone."""
        with_usage = carries_usage(body)
        refusing = [armed for armed in self.faults if armed.fault.name in REFUSING]
        for armed in refusing:
            if armed.meets(kind, with_usage):
                return (armed.fault.name,)
        others = [armed for armed in self.faults if armed not in refusing]
        return tuple(armed.fault.name for armed in others if armed.meets(kind, with_usage))

    def _reply_to(
        self,
        kind: Kind,
        body: dict[str, Any],
        faults: tuple[str, ...],
        taken: Taken,
    ) -> Message:
        if "rate-limit" in faults:
            wait = f"{self._retry_after_s:g}"
            raise Refusal(
                429,
                f"Too many requests: the rate limit is reached. Try again in {wait} s.",
                type="requests",
                code="rate_limit_exceeded",
                headers={"Retry-After": wait},
            )
        if "server-error" in faults:
            text = "The server failed while it worked on the request. Try again."
            raise Refusal(500, text, type="server_error")
        if "tool-call-summary" in faults:
            call = {"name": "read_file", "arguments": {"path": "calc.py"}}
            return message_of({"tool_calls": [call]}, body)
        script = self._summaries if kind == "summary" else self.script
        reply = script.take()
        if reply is not None:
            taken.append((script, reply))
        try:
            if reply is None and kind == "summary":
                reply = summarize_quoted(text_of(body["messages"][-1]))
            message = message_of(self._after_script if reply is None else reply, body)
        except Exception as error:  # a script is code too; its fault must not end the server
            give_back(taken)
            text = f"The script failed: {type(error).__name__}: {error}"
            raise Refusal(500, text, type="server_error") from error
        if "missing-heading" in faults and message["content"]:
            message["content"] = drop_heading(message["content"])
        return message

    def _record(
        self,
        method: str,
        path: str,
        kind: Kind,
        body: dict[str, Any] | None,
        status: int,
        *,
        reply: Message | None = None,
        usage: dict[str, int] | None = None,
        faults: tuple[str, ...] = (),
    ) -> None:
        # Recorded before anything is sent: whoever holds the answer finds the request here.
        self.seen.append(SeenRequest(method, path, kind, body, status, reply, usage, faults))
