"""The server: HTTP on loopback in a thread of its own, one request after the other."""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TextIO, cast

from compaction.gateway.faults import FAULTS, REFUSING, ArmedFault, Fault, Kind
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
from compaction.gateway.script import (
    SCRIPT_OVER,
    Reply,
    Script,
    check_reply,
    message_of,
    read_script,
)
from compaction.gateway.summaries import drop_heading, is_summary_request, summarize_quoted
from compaction.gateway.too_long import WORDINGS, too_long
from compaction.gateway.usage import scripted_usage
from compaction.gateway.validate import Refusal, check_request, read_json
from compaction.messages import Message, text_of

if TYPE_CHECKING:
    import argparse
    import asyncio

    from tornado.http1connection import HTTP1Connection
    from tornado.httputil import HTTPServerRequest

HOST = "127.0.0.1"
MODEL = "scripted"
"""The model that ``/v1/models`` lists; requests may name any."""

_ROUTES = {"/v1/chat/completions": "POST", "/v1/models": "GET"}
_STOP_TIMEOUT_S = 5.0


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


def _give_back(taken: list[tuple[Script, Reply]]) -> None:
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


class Gateway:
    """An OpenAI-compatible server on loopback that takes its replies from a script.

    ``script``: replies to turns, consumed in order; after the last one every turn is answered
    with ``after_script``, never with an error. ``summaries``: replies to summary requests;
    after the last one, or without any, the extractive summariser answers. ``faults``: Fault
    objects or their short forms. A callable reply runs in the server's thread and must be quick;
    when it raises, the client gets status 500 with the exception's text, now and on a retry.

    A request of more than ``window`` tokens, counted as its usage is, is refused as too long in
    the words of ``too_long``: "openai", "vllm", "anthropic" and so on.

    Any API key and model is accepted; limits and sampling parameters are checked, and change
    nothing. ``start`` raises OSError when the port is taken; a reply that is not valid raises
    ScriptError here.

    >>> with Gateway(script=["Hello."]) as gateway:
    ...     gateway.base_url.startswith("http://127.0.0.1:")
    True
    """

    def __init__(
        self,
        script: Iterable[Reply] = (),
        *,
        summaries: Iterable[Reply] = (),
        faults: Iterable[Fault | str] = (),
        after_script: Reply = SCRIPT_OVER,
        port: int = 0,
        models: Sequence[str] = (MODEL,),
        retry_after_s: float = 1.0,
        slow_s: float = 2.0,
        chunk_delay_s: float = 0.0,
        window: int | None = None,
        too_long: str = "openai",
    ) -> None:
        if too_long not in WORDINGS:
            raise ValueError(f"too_long must be one of {', '.join(WORDINGS)}, not {too_long!r}")
        check_reply(after_script, "after_script")
        self._script = Script(script, "reply")
        self._summaries = Script(summaries, "summary")
        self._after_script = after_script
        self._faults: list[ArmedFault] = []
        self.add_faults(*faults)
        self._models = tuple(models)
        self._retry_after_s = retry_after_s
        self._slow_s = slow_s
        self._chunk_delay_s = chunk_delay_s
        self._window = window
        self._too_long = too_long
        self._wanted_port = port
        self._port: int | None = None
        self._seen: list[SeenRequest] = []
        self._served = 0
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stopping: asyncio.Event | None = None

    # What a test or a lesson asks and says.

    @property
    def base_url(self) -> str:
        """The address to hand to a client, such as ``http://127.0.0.1:40123/v1``."""
        if self._port is None:
            raise RuntimeError("the gateway has no address before it has started")
        return f"http://{HOST}:{self._port}/v1"

    @property
    def requests(self) -> list[SeenRequest]:
        """All requests so far, in order of arrival, each with the answer it was given."""
        return list(self._seen)

    @property
    def remaining(self) -> int:
        """How many replies of the script have not been given yet."""
        return len(self._script)

    @property
    def running(self) -> bool:
        """Whether the server answers."""
        return self._thread is not None and self._thread.is_alive()

    def add_replies(self, *replies: Reply) -> None:
        """Append replies to the script, also while the server runs."""
        self._script.add(*replies)

    def add_faults(self, *faults: Fault | str) -> None:
        """Arm faults, also while the server runs; they count requests from now on."""
        armed = [Fault.parse(fault) if isinstance(fault, str) else fault for fault in faults]
        self._faults.extend(map(ArmedFault, armed))

    # Starting and stopping.

    def start(self) -> Gateway:
        """Listen on loopback and answer in a thread of its own; return when it answers."""
        if self.running:
            raise RuntimeError("the gateway is already running")
        from tornado.netutil import bind_sockets

        try:
            sockets = bind_sockets(self._wanted_port, HOST)
        except OSError as error:
            message = f"cannot listen on {HOST}:{self._wanted_port}: {error.strerror}"
            raise OSError(error.errno, message) from error
        self._port = sockets[0].getsockname()[1]
        ready = threading.Event()
        self._thread = threading.Thread(
            target=self._run, args=(sockets, ready), name=f"gateway-{self._port}", daemon=True
        )
        self._thread.start()
        ready.wait()
        if self._loop is None:
            raise RuntimeError("the gateway's thread ended before it could answer")
        return self

    def stop(self) -> None:
        """Stop answering, close every connection and end the thread; safe to call twice."""
        thread, loop, stopping = self._thread, self._loop, self._stopping
        if thread is None:
            return
        if loop is not None and stopping is not None and not loop.is_closed():
            loop.call_soon_threadsafe(stopping.set)
        thread.join(_STOP_TIMEOUT_S)
        self._thread = self._loop = self._stopping = None

    def __enter__(self) -> Gateway:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _run(self, sockets: list[Any], ready: threading.Event) -> None:
        import asyncio

        # A selector loop everywhere: tornado cannot listen on the default one of Windows.
        try:
            with asyncio.Runner(loop_factory=asyncio.SelectorEventLoop) as runner:
                runner.run(self._listen(sockets, ready))
        finally:
            ready.set()  # whatever happened, nobody waits for this thread for ever

    async def _listen(self, sockets: list[Any], ready: threading.Event) -> None:
        import asyncio

        from tornado.httpserver import HTTPServer

        self._loop, self._stopping = asyncio.get_running_loop(), asyncio.Event()
        tasks: set[asyncio.Task[None]] = set()

        def accept(request: HTTPServerRequest) -> None:
            task = asyncio.create_task(self._serve(request))
            tasks.add(task)
            task.add_done_callback(tasks.discard)

        server = HTTPServer(accept)
        server.add_sockets(sockets)
        ready.set()
        await self._stopping.wait()
        server.stop()
        for task in list(tasks):
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await server.close_all_connections()

    # One request.

    async def _serve(self, request: HTTPServerRequest) -> None:
        method, path = request.method or "", request.path
        taken: list[tuple[Script, Reply]] = []
        try:
            if path == "/v1/chat/completions" and method == "POST":
                answer = self._answer_chat(request.body, taken)
            else:
                answer = self._answer_other(method, path)
        except Refusal as refusal:
            self._record(method, path, "other", None, refusal.status)
            answer = error_answer(refusal)
        except Exception as error:  # whatever it is, the client must not wait for ever
            text = f"The gateway failed: {type(error).__name__}: {error}"
            self._record(method, path, "other", None, 500)
            answer = error_answer(Refusal(500, text, type="server_error"))
        delivered = False
        if answer.cut:
            # Before the client can see the cut, so that its next request finds the reply.
            _give_back(taken)
        try:
            delivered = await self._send(request, answer)
        finally:
            if not delivered:
                _give_back(taken)

    def _answer_other(self, method: str, path: str) -> Answer:
        route = "/v1/models" if path.startswith("/v1/models/") else path
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
            wanted = path.removeprefix("/v1/models/")
            if wanted not in self._models:
                message = f"The model '{wanted}' does not exist here."
                raise Refusal(404, message, param="model", code="model_not_found")
            body = models[self._models.index(wanted)]
        self._record(method, path, "other", None, 200)
        return Answer(200, JSON, json.dumps(body).encode())

    def _answer_chat(self, raw: bytes, taken: list[tuple[Script, Reply]]) -> Answer:
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
                path = "/v1/chat/completions"
                self._record("POST", path, kind, body, 502, faults=faults)
                return html_answer(502, "Bad gateway")
            message = self._reply_to(kind, body, faults, taken)
        except Refusal as refusal:
            self._record("POST", "/v1/chat/completions", kind, body, refusal.status, faults=faults)
            return error_answer(refusal)
        usage = usage_field(body, message, faults)
        self._record(
            "POST",
            "/v1/chat/completions",
            kind,
            body,
            200,
            reply=message,
            usage=usage.get("usage"),
            faults=faults,
        )
        self._served += 1
        shared = {
            "id": f"chatcmpl-{self._served}",
            "created": int(time.time()),
            "model": body["model"],
        }
        broken = _in_place_of_a_reply(shared, faults)
        if broken is not None:
            _give_back(taken)
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
        refusing = [armed for armed in self._faults if armed.fault.name in REFUSING]
        for armed in refusing:
            if armed.meets(kind, with_usage):
                return (armed.fault.name,)
        others = [armed for armed in self._faults if armed not in refusing]
        return tuple(armed.fault.name for armed in others if armed.meets(kind, with_usage))

    def _reply_to(
        self,
        kind: Kind,
        body: dict[str, Any],
        faults: tuple[str, ...],
        taken: list[tuple[Script, Reply]],
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
        script = self._summaries if kind == "summary" else self._script
        reply = script.take()
        if reply is not None:
            taken.append((script, reply))
        try:
            if reply is None and kind == "summary":
                reply = summarize_quoted(text_of(body["messages"][-1]))
            message = message_of(self._after_script if reply is None else reply, body)
        except Exception as error:  # a script is code too; its fault must not end the server
            _give_back(taken)
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
        self._seen.append(SeenRequest(method, path, kind, body, status, reply, usage, faults))

    async def _send(self, request: HTTPServerRequest, answer: Answer) -> bool:
        """Send an answer; return whether the reply in it went out whole."""
        import asyncio
        from http.client import responses

        from tornado.httputil import HTTPHeaders, ResponseStartLine
        from tornado.iostream import StreamClosedError

        connection = cast("HTTP1Connection", request.connection)
        gone = asyncio.Event()
        connection.set_close_callback(gone.set)

        async def wait(delay_s: float) -> None:
            try:
                await asyncio.wait_for(gone.wait(), delay_s)
            except TimeoutError:
                return
            raise StreamClosedError

        start_line = ResponseStartLine("HTTP/1.1", answer.status, responses[answer.status])
        headers = HTTPHeaders(answer.headers)
        chunks = list(answer.events)
        if not chunks:
            headers["Content-Length"] = str(len(answer.body))
            # In two halves, so that the connection can be cut between them.
            middle = len(answer.body) // 2
            chunks = [answer.body[:middle], answer.body[middle:]] if answer.cut else [answer.body]
        if request.method == "HEAD":
            chunks = []  # it asks for the headers alone
        sent = 0
        try:
            if answer.delay_s:
                await wait(answer.delay_s)
            await connection.write_headers(start_line, headers)
            for chunk in chunks:
                if answer.cut and sent >= max(1, len(chunks) // 2):
                    connection.close()
                    return False
                await connection.write(chunk)
                sent += 1
                if self._chunk_delay_s and answer.events:
                    await wait(self._chunk_delay_s)
            connection.finish()
        except StreamClosedError:
            pass
        return sent >= answer.whole_after


def serve(
    script: Iterable[Reply] = (),
    *,
    port: int = 0,
    faults: Iterable[Fault | str] = (),
    out: TextIO | None = None,
    **options: Any,
) -> int:
    """Run a gateway until Ctrl-C, print its base URL first, and return the exit code 0.

    ``options`` are those of Gateway. Raises OSError when the port is taken, ScriptError and
    ValueError for a script or a fault that is not valid.
    """
    out = sys.stdout if out is None else out
    with Gateway(script, port=port, faults=faults, **options) as gateway:
        print(f"scripted gateway at {gateway.base_url} (Ctrl-C stops it)", file=out, flush=True)
        try:
            while gateway.running:
                time.sleep(0.5)
        except KeyboardInterrupt:
            print("stopped", file=out, flush=True)
    return 0


def _tokens(text: str) -> int:
    from argparse import ArgumentTypeError

    if not text.isdecimal() or int(text) < 1:
        raise ArgumentTypeError(f"expected a number of tokens from 1 on, got {text!r}")
    return int(text)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what ``python -m compaction gateway`` takes to its parser."""
    from argparse import ArgumentTypeError

    def fault(text: str) -> Fault:
        try:
            return Fault.parse(text)
        except ValueError as error:
            raise ArgumentTypeError(str(error)) from error

    def port(text: str) -> int:
        if not text.isdecimal() or int(text) > 65535:
            raise ArgumentTypeError(f"expected a port number, 0 to 65535, got {text!r}")
        return int(text)

    parser.add_argument(
        "--script", metavar="FILE", help="a JSON list of replies, each a text or a message"
    )
    parser.add_argument(
        "--summaries",
        metavar="FILE",
        help="the same for summary requests (default: sentences copied from the stretch)",
    )
    parser.add_argument(
        "--port", type=port, default=0, help="the port on 127.0.0.1 (default: a free one)"
    )
    parser.add_argument(
        "--window",
        metavar="TOKENS",
        type=_tokens,
        help="refuse longer requests, as a model's window does (default: none is too long)",
    )
    parser.add_argument(
        "--too-long",
        metavar="WORDING",
        choices=tuple(WORDINGS),
        default="openai",
        help=f"in whose words such a request is refused: {', '.join(WORDINGS)} (default: openai)",
    )
    parser.add_argument(
        "--fault",
        metavar="FAULT",
        type=fault,
        action="append",
        default=[],
        help="let requests meet a fault: NAME the next one, NAME*2 the next two, NAME/3 every "
        "third; then @turn or @summary for these only; may be repeated",
    )
    modes = "\n".join(f"  {name:<18} {about}" for name, about in FAULTS.items())
    parser.epilog = f"faults:\n{modes}\n\n{parser.epilog or ''}".rstrip()


def run(options: argparse.Namespace) -> int:
    """Serve what the command line asks for until Ctrl-C; raises ScriptError and OSError."""
    return serve(
        read_script(options.script) if options.script else (),
        summaries=read_script(options.summaries) if options.summaries else (),
        port=options.port,
        faults=options.fault,
        window=options.window,
        too_long=options.too_long,
    )
