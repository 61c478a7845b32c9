"""Time the scripted gateway: how soon it answers, and what a request through it costs.

    python benchmarks/gateway.py [--repeats 5] [--requests 200] [--json]

The start is measured in fresh processes, from before the module is imported until the server
answers, because that is what a person waits for; then again where everything is loaded. Best and
median of the repeats are shown: the best is the program's, what lies above it the machine's. The
exit code is 1 when the best start from nothing takes 300 ms or more.
"""

from __future__ import annotations

import argparse
import http.client
import json
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from typing import NamedTuple

from compaction.gateway import Gateway

LIMIT_MS = 300
BODY = {"model": "scripted", "messages": [{"role": "user", "content": "hello"}]}
STREAMED = BODY | {"stream": True, "stream_options": {"include_usage": True}}
REPLY = "The guard is in place: divide raises ValueError for zero. " * 10

# The clock starts before the import and stops when a connection is answered.
FROM_NOTHING = """
import time
began = time.perf_counter()
from compaction.gateway import Gateway
gateway = Gateway().start()
import socket
host, port = gateway.base_url.split("/")[2].split(":")
with socket.create_connection((host, int(port)), timeout=10) as connection:
    connection.sendall(b"GET /v1/models HTTP/1.1\\r\\nHost: localhost\\r\\n\\r\\n")
    assert connection.recv(4096).startswith(b"HTTP/1.1 200")
print(1000 * (time.perf_counter() - began))
gateway.stop()
"""


class Timing(NamedTuple):
    """What was timed, and how long it took (milliseconds)."""

    name: str
    best_ms: float
    median_ms: float


def time_start_from_nothing() -> float:
    """Return the milliseconds from an empty process to the first answer."""
    command = [sys.executable, "-c", FROM_NOTHING]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    return float(done.stdout)


def time_start_and_stop() -> tuple[float, float]:
    """Return the milliseconds of a start and of a stop, with everything loaded."""
    gateway = Gateway()
    began = time.perf_counter()
    gateway.start()
    started = time.perf_counter()
    gateway.stop()
    return 1000 * (started - began), 1000 * (time.perf_counter() - started)


def time_request(connection: http.client.HTTPConnection, body: dict[str, object]) -> float:
    """Return the milliseconds from sending a request to the first bytes of its reply's body."""
    began = time.perf_counter()
    connection.request("POST", "/v1/chat/completions", json.dumps(body))
    response = connection.getresponse()
    response.read1(1)
    took = 1000 * (time.perf_counter() - began)
    response.read()
    return took


def measure(repeats: int, requests: int) -> list[Timing]:
    """Run everything and return the timings, the start from nothing first."""
    figures: dict[str, list[float]] = {}

    def take(name: str, value: float) -> None:
        figures.setdefault(name, []).append(value)

    for _ in range(repeats):
        take("start from nothing to the first answer", time_start_from_nothing())
    threads = threading.active_count()
    for _ in range(repeats):
        start_ms, stop_ms = time_start_and_stop()
        take("start, everything loaded", start_ms)
        take("stop", stop_ms)
    if threading.active_count() != threads:
        raise RuntimeError("a stopped gateway left a thread behind")
    with Gateway(after_script=REPLY) as gateway:
        host, port = gateway.base_url.split("/")[2].split(":")
        connection = http.client.HTTPConnection(host, int(port), timeout=10)
        asked: list[tuple[str, Callable[[], float]]] = [
            ("request, whole reply", lambda: time_request(connection, BODY)),
            ("request, first event of a stream", lambda: time_request(connection, STREAMED)),
        ]
        for _ in range(requests):
            for name, ask in asked:
                take(name, ask())
        connection.close()
    return [
        Timing(name, min(all_ms), statistics.median(all_ms)) for name, all_ms in figures.items()
    ]


def main(arguments: list[str] | None = None) -> int:
    """Print the timings; return 1 when the start from nothing is too slow."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--repeats", type=int, default=5, help="starts of each kind (5)")
    parser.add_argument("--requests", type=int, default=200, help="requests of each kind (200)")
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")
    options = parser.parse_args(arguments)
    if options.repeats < 1 or options.requests < 1:
        parser.error("expected at least 1 repeat and 1 request")
    timings = measure(options.repeats, options.requests)
    in_time = timings[0].best_ms < LIMIT_MS
    if options.json:
        report = {"limit_ms": LIMIT_MS, "in_time": in_time}
        print(json.dumps(report | {"timings": [timing._asdict() for timing in timings]}, indent=2))
    else:
        print(f"  {'':<40} {'best':>10} {'median':>10}")
        for name, best_ms, median_ms in timings:
            print(f"  {name:<40} {best_ms:>7.1f} ms {median_ms:>7.1f} ms")
        print(f"  the start is {'under' if in_time else 'NOT under'} {LIMIT_MS} ms")
    return 0 if in_time else 1


if __name__ == "__main__":
    sys.exit(main())
