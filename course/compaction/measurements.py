"""Recorded measurements that the lessons show: exact token counts, and usage of real requests.

Nothing here is estimated. ``benchmarks/record_tokenizers.py`` writes the token counts;
``data/README.md`` says where every figure comes from.
"""

from __future__ import annotations

import csv
import hashlib
import io
import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from importlib.resources import files
from types import MappingProxyType
from typing import NamedTuple

from compaction.calibration import Sample
from compaction.tokens import Chars, count_chars

PIECE_MARK = "%%%% "
"""A line that begins so opens a new piece; the rest of the line is the piece's name."""


@dataclass(frozen=True)
class Family:
    """One family of models that share a vocabulary, and who counted with it.

    ``checked_with`` names a second, independent tokenizer with the same vocabulary, or is "".
    """

    id: str
    models: str
    vocabulary: str
    vocabulary_size: int
    counted_with: str
    checked_with: str


@dataclass(frozen=True)
class Piece:
    """A piece of text and what it costs, exactly, in every family (family id -> tokens)."""

    id: str
    kind: str
    text: str
    tokens: Mapping[str, int]

    @property
    def chars(self) -> Chars:
        """The CJK and the other characters of the text."""
        return count_chars(self.text)


@dataclass(frozen=True)
class TokenizerCounts:
    """The whole record: families, and pieces ordered by kind."""

    families: tuple[Family, ...]
    pieces: tuple[Piece, ...]

    @property
    def kinds(self) -> tuple[str, ...]:
        """The kinds of text, each once, in the order of the record."""
        return tuple(dict.fromkeys(piece.kind for piece in self.pieces))

    def samples(self, family: str, kinds: Collection[str] | None = None) -> list[Sample]:
        """Return one calibration sample a piece, for all kinds or only the given ones.

        Raises ``KeyError`` for a family or a kind that the record does not hold.

        >>> tokenizer_counts().samples("o200k", ["chinese"])[0].tokens > 0
        True
        """
        for kind in kinds or ():
            if kind not in self.kinds:
                raise KeyError(f"no kind {kind!r}; there are {', '.join(self.kinds)}")
        return [
            Sample(*piece.chars, piece.tokens[family])
            for piece in self.pieces
            if kinds is None or piece.kind in kinds
        ]


class Request(NamedTuple):
    """One real request: what it added to the request before, and the prompt tokens billed.

    Characters are those of the messages added, so system prompt and tool schemas are in
    ``prompt_tokens`` only. Cached tokens are included. ``call`` numbers the requests of a
    session. A new ``segment`` begins after a real compaction; its first request lacks the
    characters that were retained.
    """

    session: str
    segment: int
    call: int
    new_messages: int
    new_cjk_chars: int
    new_other_chars: int
    prompt_tokens: int
    model: str


def tokenizer_counts(more: bool = False) -> TokenizerCounts:
    """Load the exact token counts and the texts that were counted.

    The lessons' figures are of six families and seventeen kinds of text; with ``more`` there are
    three families and ten kinds besides.

    Raises ``ValueError`` when a text is no longer the one that was counted.

    >>> counts = tokenizer_counts()
    >>> [family.id for family in counts.families]
    ['cl100k', 'o200k', 'qwen3', 'deepseek', 'mistral', 'llama3']
    >>> len(tokenizer_counts(more=True).families)
    9
    >>> counts.pieces[0].id
    'english/request'
    """
    record = json.loads(_read("tokenizer_counts.json"))
    listed = record["families"] + (record["more_families"] if more else [])
    families = tuple(Family(**family) for family in listed)
    pieces = []
    for kind in record["kinds"] + (record["more_kinds"] if more else []):
        texts = split_pieces(_read("tokenizer_texts", f"{kind['kind']}.txt"))
        if list(texts) != [piece["name"] for piece in kind["pieces"]]:
            raise ValueError(f"{kind['kind']}.txt: other pieces than the ones counted; {_AGAIN}")
        for piece in kind["pieces"]:
            text, identity = texts[piece["name"]], f"{kind['kind']}/{piece['name']}"
            if sha256_of(text) != piece["sha256"]:
                raise ValueError(f"{identity}: another text than the one counted; {_AGAIN}")
            tokens = MappingProxyType({f.id: piece["tokens"][f.id] for f in families})
            pieces.append(Piece(identity, kind["kind"], text, tokens))
    return TokenizerCounts(families, tuple(pieces))


def usage_by_call() -> list[Request]:
    """Load the figures of the real requests of two long coding-agent sessions, in order.

    >>> rows = usage_by_call()
    >>> len(rows), rows[1].prompt_tokens
    (896, 33638)
    """
    rows = csv.DictReader(io.StringIO(_read("usage_by_call.csv")))
    return [
        Request(
            row["session"],
            int(row["segment"]),
            int(row["call"]),
            int(row["new_messages"]),
            int(row["new_cjk_chars"]),
            int(row["new_other_chars"]),
            int(row["prompt_tokens"]),
            row["model"],
        )
        for row in rows
    ]


def split_pieces(text: str) -> dict[str, str]:
    r"""Split a file of pieces at its mark lines; the line end before a mark is not counted.

    Raises ``ValueError`` for text before the first mark, a name used twice or an empty piece.

    >>> split_pieces("%%%% one\nfirst\n\n%%%% two\nsecond\n")
    {'one': 'first\n', 'two': 'second'}
    """
    pieces: dict[str, str] = {}
    before, *parts = ("\n" + text).split("\n" + PIECE_MARK)
    if before.strip():
        raise ValueError(f"text before the first {PIECE_MARK.strip()} line")
    for part in parts:
        name, _, body = part.partition("\n")
        if name in pieces:
            raise ValueError(f"two pieces are called {name!r}")
        if not body.strip():
            raise ValueError(f"the piece {name!r} is empty")
        pieces[name] = body
    if pieces:
        pieces[name] = body.removesuffix("\n")  # the end of the file
    return pieces


def sha256_of(text: str) -> str:
    """Return the SHA-256 of the text's UTF-8 bytes, in hexadecimal digits."""
    return hashlib.sha256(text.encode()).hexdigest()


_AGAIN = "run benchmarks/record_tokenizers.py"


def _read(*path: str) -> str:
    # Text mode, so that a checkout with CRLF line ends gives the same characters.
    return files("compaction").joinpath("data", *path).read_text(encoding="utf-8")
