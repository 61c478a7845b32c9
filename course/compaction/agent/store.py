"""Where the agent's sessions are kept: one JSON file each, written whole after every message.

A session file is a history like any other, an object with ``messages`` and ``tools``, so that
``python -m compaction budget FILE`` reads it; what else the agent needs is listed under
``agent``. Keys are never in it.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from compaction.calibration import Sample
from compaction.feature_meter import vector_of_tools
from compaction.feature_model import FeatureSample
from compaction.files import write_whole
from compaction.history import (
    Conversation,
    HistoryError,
    HistoryFile,
    read_histories,
    render_histories,
)
from compaction.messages import Message
from compaction.probes import Probe

VERSION = 1

KEY = "[key]"
"""What replaces a key."""

PRIVATE = 0o600
"""The permissions of what the agent writes down: histories hold whole files."""

MAX_SAMPLES = 200
"""How many usage samples a file keeps, the newest ones."""

AnySample = Sample | FeatureSample
"""A sample of either meter: two terms, or features."""

MAX_NUMBER = 10**9
"""More characters or tokens than this are a damaged file, and too much for a float's arithmetic."""


@dataclass(frozen=True)
class Saved:
    """A session as its file holds it; ``window`` in tokens, ``folder`` is the project's.

    ``demo`` marks the offline demonstration, which has a project and a script of its own.
    ``running`` is the id of the tool call whose command runs: where a file holds one, the agent
    ended while it ran.
    """

    messages: list[Message]
    folder: str
    window: int
    model: str
    base_url: str | None = None
    demo: bool = False
    probes: list[Probe] = field(default_factory=list)
    samples: list[AnySample] = field(default_factory=list)
    running: str | None = None


def write_session(
    path: Path,
    saved: Saved,
    tools: Sequence[Mapping[str, Any]] | None = None,
    secrets: Iterable[str] = (),
) -> None:
    """Write a session file for its owner's eyes alone, whole or not at all; raises InputError.

    The texts in ``secrets`` (keys) are struck out, wherever the history holds them.
    """
    agent = {
        "version": VERSION,
        "folder": saved.folder,
        "window": saved.window,
        "model": saved.model,
        "base_url": saved.base_url,
        "demo": saved.demo,
        "probes": [asdict(probe) for probe in saved.probes],
        "samples": [list(sample) for sample in map(_fields, saved.samples[-MAX_SAMPLES:])],
        "running": saved.running,
    }
    fields: dict[str, Any] = {"messages": saved.messages, "tools": list(tools or [])}
    fields["agent"] = agent
    file = HistoryFile(str(path), "object", [Conversation(saved.messages, fields)], " ")
    text = render_histories(file, [saved.messages])
    for secret in secrets:
        for spelled in (json.dumps(secret), json.dumps(secret, ensure_ascii=False)):
            text = text.replace(spelled[1:-1], KEY)
    write_whole(path, text, mode=PRIVATE)


def read_session(path: Path) -> Saved:
    """Read a session file; raises HistoryError, naming the file and what was expected."""
    found = read_histories(path)
    fields = found.conversations[0].fields or {}
    agent = fields.get("agent")
    if len(found.conversations) != 1 or not isinstance(agent, dict):
        raise HistoryError(
            f"{found.name}: expected a session of the agent; /load reads other histories"
        )

    def value(name: str, kind: type, default: Any = None) -> Any:
        given = agent.get(name, default)
        if not isinstance(given, kind) or (kind is int and isinstance(given, bool)):
            raise HistoryError(f'{found.name}: "agent": "{name}" is no {kind.__name__}')
        return given

    if not 1 <= value("window", int) <= MAX_NUMBER:
        raise HistoryError(f'{found.name}: "agent": "window" must be at least 1, at most 10^9')
    try:
        probes = [
            Probe(str(p["fact"]), str(p.get("question", ""))) for p in value("probes", list, [])
        ]
        samples = [_sample(numbers) for numbers in value("samples", list, [])]
    except (TypeError, KeyError, IndexError, ValueError, AttributeError) as error:
        raise HistoryError(
            f'{found.name}: "agent": expected lists of probes and samples'
        ) from error
    if not value("folder", str) or "\0" in value("folder", str):
        raise HistoryError(f'{found.name}: "agent": "folder" names no folder')
    base_url, running = agent.get("base_url"), agent.get("running")
    return Saved(
        messages=found.conversations[0].messages,
        folder=value("folder", str),
        window=value("window", int),
        model=value("model", str),
        base_url=base_url if isinstance(base_url, str) else None,
        demo=value("demo", bool, False),
        probes=probes,
        samples=samples,
        running=running if isinstance(running, str) else None,
    )


def _fields(sample: AnySample) -> tuple[Any, ...]:
    if isinstance(sample, Sample):
        return sample.cjk, sample.other, sample.tokens
    return list(sample.features), sample.tokens


def _sample(numbers: Any) -> AnySample:
    if not isinstance(numbers[0], list):
        return Sample(*map(_size, numbers))
    features, tokens = numbers
    if len(features) != len(vector_of_tools(None)):
        raise ValueError(f"{len(features)} features")
    if not all(abs(float(number)) <= MAX_NUMBER for number in features):
        raise ValueError("a feature beyond all counts")
    return FeatureSample(tuple(map(float, features)), _size(tokens))


def _size(number: Any) -> int:
    size = int(number)
    if not 0 <= size <= MAX_NUMBER:
        raise ValueError(f"{size} characters or tokens")
    return size


# --- the default place ----------------------------------------------------------------------


def home() -> Path:
    """Return the agent's own folder: ``COMPACTION_HOME``, else ``.compaction`` at home."""
    return Path(os.environ.get("COMPACTION_HOME") or Path.home() / ".compaction")


def make_private(folder: Path) -> Path:
    """Make a folder that only its owner may read."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    return folder


def typed_lines_file() -> Path:
    """Return the file that keeps what was typed at the prompt, for its owner's eyes alone."""
    file = make_private(home()) / "typed"
    with suppress(OSError):
        os.close(os.open(file, os.O_CREAT | os.O_APPEND, PRIVATE))
        file.chmod(PRIVATE)
    return file


def new_session_file(folder: Path) -> Path:
    """Return a fresh name for the session of a project folder, in the default place."""
    words = "".join(c if c.isalnum() else "-" for c in folder.name).strip("-") or "session"
    stamp = time.strftime("%Y-%m-%d-%H%M%S")
    make_private(home())
    return make_private(home() / "sessions") / f"{stamp}-{words}-{os.getpid()}.json"


def latest_session_file() -> Path:
    """Return the session file written last; raises HistoryError when there is none."""
    files = (home() / "sessions").glob("*.json")
    latest = max(files, key=lambda file: file.stat().st_mtime, default=None)
    if latest is None:
        raise HistoryError(f"{home() / 'sessions'}: there is no session to resume")
    return latest
