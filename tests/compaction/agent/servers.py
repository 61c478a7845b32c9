"""A gateway that misbehaves as it is told: raw answers over loopback, one a request."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any

Answer = bytes | Callable[[socket.socket], None]


def answer(status: int, body: Any, *headers: str) -> bytes:
    """A whole response; a body that is no text becomes JSON."""
    text = body if isinstance(body, str) else json.dumps(body)
    kind = "text/html" if text.startswith("<") else "application/json"
    lines = [f"HTTP/1.1 {status} -", f"Content-Type: {kind}", "Connection: close", *headers]
    data = text.encode()
    return "\r\n".join([*lines, f"Content-Length: {len(data)}", "", ""]).encode() + data


def error(message: str, **fields: Any) -> dict[str, Any]:
    return {"error": {"message": message, **fields}}


def events(*chunks: Any, end: bool = True) -> bytes:
    """A stream of events; without its end it just stops."""
    head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n"
    lines = [f"data: {json.dumps(chunk)}\n\n" for chunk in chunks]
    return head + "".join([*lines, "data: [DONE]\n\n" * end]).encode()


def said(text: str, **usage: int) -> bytes:
    """A whole streamed reply."""
    delta = {"role": "assistant", "content": text}
    choice = {"index": 0, "delta": delta, "finish_reason": "stop"}
    chunks = [chunk(choice)]
    if usage:
        chunks.append({**chunk(), "usage": usage})
    return events(*chunks)


def chunk(*choices: dict[str, Any]) -> dict[str, Any]:
    shared = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m"}
    return {**shared, "choices": list(choices)}


def silence(connection: socket.socket) -> None:
    """Never answer."""
    with suppress(OSError):
        connection.recv(1)


class Misbehaving:
    """A server on loopback; ``answers`` are given in turn, the last one for ever.

    What is asked for with GET (the list of models) gets ``models``.
    """

    def __init__(self, *answers: Answer, models: Answer | None = None) -> None:
        self.answers = list(answers)
        self.models = models or answer(404, error("no such address"))
        self.requests: list[dict[str, Any]] = []
        self.times: list[float] = []
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.base_url = f"http://127.0.0.1:{self._socket.getsockname()[1]}/v1"

    def __enter__(self) -> Misbehaving:
        threading.Thread(target=self._serve, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()

    def texts(self) -> Iterable[str]:
        return [json.dumps(request, ensure_ascii=False) for request in self.requests]

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return
            threading.Thread(target=self._one, args=(connection,), daemon=True).start()

    def _one(self, connection: socket.socket) -> None:
        with connection, suppress(OSError), connection.makefile("rb") as file:
            method = file.readline().split()[0]
            length = 0
            while (line := file.readline().strip()) != b"":
                name, _, value = line.partition(b":")
                if name.lower() == b"content-length":
                    length = int(value)
            body = file.read(length)
            if method == b"GET":
                chosen = self.models
            else:
                self.requests.append(json.loads(body))
                self.times.append(time.monotonic())
                chosen = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
            if callable(chosen):
                chosen(connection)
            else:
                connection.sendall(chosen)
