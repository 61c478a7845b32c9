"""The server: HTTP on loopback in a thread of its own, one request after the other."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, cast

from compaction.gateway.answering import Answering, SeenRequest, Taken, give_back
from compaction.gateway.faults import Fault
from compaction.gateway.replies import Answer
from compaction.gateway.script import SCRIPT_OVER, Reply
from compaction.gateway.too_long import WORDINGS

if TYPE_CHECKING:
    import asyncio

    from tornado.http1connection import HTTP1Connection
    from tornado.httputil import HTTPServerRequest

HOST = "127.0.0.1"
MODEL = "scripted"
"""The model that ``/v1/models`` lists; requests may name any."""

_STOP_TIMEOUT_S = 5.0


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
        self._answering = Answering(
            script,
            summaries,
            after_script,
            models,
            retry_after_s=retry_after_s,
            slow_s=slow_s,
            window=window,
            too_long=too_long,
        )
        self.add_faults(*faults)
        self._chunk_delay_s = chunk_delay_s
        self._wanted_port = port
        self._port: int | None = None
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
        return list(self._answering.seen)

    @property
    def remaining(self) -> int:
        """How many replies of the script have not been given yet."""
        return len(self._answering.script)

    @property
    def running(self) -> bool:
        """Whether the server answers."""
        return self._thread is not None and self._thread.is_alive()

    def add_replies(self, *replies: Reply) -> None:
        """Append replies to the script, also while the server runs."""
        self._answering.script.add(*replies)

    def add_faults(self, *faults: Fault | str) -> None:
        """Arm faults, also while the server runs; they count requests from now on."""
        self._answering.arm(faults)

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
        taken: Taken = []
        answer = self._answering.answer(request.method or "", request.path, request.body, taken)
        delivered = False
        if answer.cut:
            # Before the client can see the cut, so that its next request finds the reply.
            give_back(taken)
        try:
            delivered = await self._send(request, answer)
        finally:
            if not delivered:
                give_back(taken)

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
