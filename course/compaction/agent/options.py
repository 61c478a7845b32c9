"""From options to a session: which model, which project, which file, whose functions."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from compaction.agent.agent import Agent
from compaction.agent.connection import TIMEOUT_S, Connection, connect, connect_offline
from compaction.agent.functions import own_functions, parts_of
from compaction.agent.listener import THRESHOLD, WINDOW, Listener
from compaction.agent.lock import SessionLock
from compaction.agent.store import Saved, latest_session_file, new_session_file, read_session
from compaction.agent.tools import RESULT_CHARACTERS, TIME_LIMIT_S, Toolbox
from compaction.engine import Prices
from compaction.history import HistoryError
from compaction.probes import Probe

if TYPE_CHECKING:
    import argparse

CHUNK_DELAY_S = 0.008
"""Pause between two pieces of a reply of the demonstration, so that it can be read as it comes."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what ``python -m compaction agent`` takes to its parser."""
    from argparse import ArgumentTypeError

    def number(least: float, most: float, what: str, kind: type = float) -> Callable[[str], Any]:
        def read(text: str) -> Any:
            try:
                value = kind(text)
            except ValueError:
                value = least - 1
            if not least <= value <= most:
                raise ArgumentTypeError(f"expected {what}, got {text!r}")
            return value

        return read

    model = parser.add_argument_group("a real model (without these: the offline demonstration)")
    model.add_argument(
        "--model", metavar="NAME", help="the model to ask; the key is OPENAI_API_KEY"
    )
    model.add_argument(
        "--base-url",
        metavar="URL",
        help="an OpenAI-compatible gateway, with --model (default: OPENAI_BASE_URL)",
    )
    model.add_argument(
        "--folder",
        metavar="DIR",
        help="the project to work in (default: this folder; offline a scratch folder)",
    )
    parser.add_argument(
        "--window",
        metavar="N",
        type=number(1, 10**9, "a positive number of tokens", int),
        help=f"the context window in tokens (default: {WINDOW}, offline {_demo_window()})",
    )
    parser.add_argument(
        "--reserve",
        metavar="TOKENS",
        type=number(0, 10**9, "a number of tokens", int),
        help="tokens kept free for the reply, which may then have so many "
        "(default: a quarter of the window, at most 16,384, and no limit is sent)",
    )
    parser.add_argument(
        "--threshold",
        metavar="SHARE",
        type=number(0.05, 1, "a share from 0.05 to 1"),
        default=THRESHOLD,
        help=f"the share of the window at which it compacts (default: {THRESHOLD})",
    )
    parser.add_argument("--yes", action="store_true", help="run every command without asking")
    parser.add_argument(
        "--time-limit",
        metavar="S",
        type=number(0.1, 86_400, "a number of seconds"),
        default=TIME_LIMIT_S,
        help=f"how long a command may run (default: {TIME_LIMIT_S:g} s)",
    )
    parser.add_argument(
        "--timeout",
        metavar="S",
        type=number(0.1, 3_600, "a number of seconds"),
        default=TIMEOUT_S,
        help=f"how long a gateway may be silent (default: {TIMEOUT_S:g} s)",
    )
    parser.add_argument("--session", metavar="FILE", help="keep the session in this file")
    parser.add_argument(
        "--resume",
        metavar="FILE",
        nargs="?",
        const="",
        help="go on with a session: the one in FILE or in --session, else the latest",
    )
    parser.add_argument(
        "--fork", action="store_true", help="with --resume: go on with a copy, in a new file"
    )
    parser.add_argument(
        "--no-mask",
        dest="masks",
        action="store_false",
        help="let keys, tokens and passwords into summaries (default: they are hidden there)",
    )
    parser.add_argument(
        "--functions", metavar="FOLDER", help="run on your own functions, from your notebooks"
    )
    parser.add_argument(
        "--prices",
        metavar=("INPUT", "CACHED", "OUTPUT"),
        nargs=3,
        type=number(0, 10**6, "a price"),
        help="prices of a million tokens; then each pass says when it has paid for itself",
    )


def _demo_window() -> int:
    from compaction.agent import demo

    return demo.WINDOW


def open_agent(options: argparse.Namespace, listener: Listener) -> Agent:
    """Return the session that the options ask for.

    Raises HistoryError for options that clash, and for a session that another agent has open.
    """
    try:
        prices = Prices(*options.prices) if options.prices else None
    except ValueError as error:
        raise HistoryError(f"--prices: {error}") from error
    with ExitStack() as undo:  # what was taken is given back where a later step fails
        resumed, save_to = _session_files(options)
        lock = SessionLock(save_to) if save_to else None
        if lock:
            undo.callback(lock.release)
        saved = read_session(resumed) if resumed else None
        own: dict[str, Callable[..., Any]] = {}
        if options.functions:
            own, lines = own_functions(options.functions)
            for line in lines:
                listener.note(line)
        connection, folder, is_demo = _way_to_a_model(options, saved)
        window = options.window or (
            saved.window if saved else _demo_window() if is_demo else WINDOW
        )
        if options.reserve is not None and options.reserve >= window:
            raise HistoryError(
                f"--reserve: {options.reserve} leaves nothing of a window of {window} tokens"
            )
        toolbox = Toolbox(
            folder,
            allow=listener.allow,
            time_limit_s=options.time_limit,
            # A result must leave room for others: at most about a fifth of the window.
            limit=min(RESULT_CHARACTERS, max(2_000, round(0.7 * window))),
            secrets=connection.secrets,
        )
        if save_to is None:
            save_to = new_session_file(toolbox.folder)
            lock = SessionLock(save_to)
        undo.pop_all()
    return Agent(
        connection,
        toolbox,
        listener,
        window=window,
        threshold=options.threshold,
        reserve=options.reserve,
        history=saved.messages if saved else None,
        probes=saved.probes if saved else demo_probes() if is_demo else (),
        samples=saved.samples if saved else (),
        parts=parts_of(own),
        save_to=save_to,
        lock=lock,
        running=saved.running if saved else None,
        demo=is_demo,
        prices=prices,
        masks=options.masks,
    )


def _session_files(options: argparse.Namespace) -> tuple[Path | None, Path | None]:
    """Return the session's file to go on with, if any, and the one to keep it in, if named."""
    named = Path(options.session) if options.session else None
    if options.fork and options.resume is None:
        raise HistoryError("--fork copies a session: it needs --resume")
    if named is not None and named.exists() and (options.resume is None or options.fork):
        raise HistoryError(f"{named}: the file exists; --resume goes on with it")
    if options.resume is None:
        return None, named
    if options.resume and named is not None and not options.fork:
        raise HistoryError("--resume FILE and --session FILE name two files; give one of them")
    if options.resume:
        resumed = Path(options.resume)
    else:
        resumed = named if named is not None and not options.fork else latest_session_file()
    if not resumed.exists():
        read_session(resumed)  # says so
    return resumed, named if options.fork else resumed


def _way_to_a_model(
    options: argparse.Namespace, saved: Saved | None
) -> tuple[Connection, Path, bool]:
    """Return the connection, the project's folder, and whether this is the demonstration."""
    key = os.environ.get("OPENAI_API_KEY")
    base_url = options.base_url or os.environ.get("OPENAI_BASE_URL")
    model = options.model
    if saved is not None and not saved.demo:
        model, base_url = model or saved.model, base_url or saved.base_url
    if model is None:
        if options.base_url is not None:
            raise HistoryError("--base-url needs --model, the model to ask")
        return _demonstration(options.folder, saved)
    if base_url is not None and urlsplit(base_url).scheme not in ("http", "https"):
        raise HistoryError("--base-url: expected an address that begins with http:// or https://")
    if base_url is None and not key:
        raise HistoryError(
            "--model needs a key in OPENAI_API_KEY, or the --base-url of a gateway without keys"
        )
    folder = Path(options.folder or (saved.folder if saved else "."))
    if not folder.is_dir():
        raise HistoryError(f"{folder}: there is no such folder; --folder names another one")
    # A window that a person gives, or that the session knows, is not asked for.
    asks_window = options.window is None and saved is None
    return connect(model, base_url, key, options.timeout, asks_window), folder, False


def _demonstration(named: str | None, saved: Saved | None) -> tuple[Connection, Path, bool]:
    from compaction.agent import demo

    folder = Path(named or (saved.folder if saved else tempfile.mkdtemp(prefix="calc-")))
    if folder.exists() and not demo.may_lay_project(folder):
        raise HistoryError(
            f"{folder}: expected a new or an empty folder for the demonstration's project; "
            "--model lets a model work in this one"
        )
    demo.lay_project(folder)
    return connect_offline(demo.reply, chunk_delay_s=CHUNK_DELAY_S), folder, True


def demo_probes() -> list[Probe]:
    """Return the facts that the demonstration looks for besides those that the person pins."""
    from compaction.agent import demo

    return demo.PROBES
