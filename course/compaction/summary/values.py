"""Values: the identifier-shaped words and short phrases that later steps of the work use.

From text to its values. What counts as one is the definition by which facts needed later are
measured (``compaction.needed``): ids, paths, dotted names, numbers of three digits and more,
addresses, hashes, flags, and quoted phrases.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any

from compaction.messages import calls_of, content_of

LONGEST_VALUE = 120
PHRASE_LENGTHS = range(4, 61)

_WORD = re.compile(
    # a number with thousands separators, else a run of the characters that identifiers use;
    # a colon belongs only inside a time or before the slashes of an address
    r"\d{1,3}(?:,\d{3})+(?:\.\d+)?(?![\w,])|(?:[A-Za-z0-9_@./+~#-]|(?<=\d):(?=\d)|:(?=//))+"
)
_QUOTED = re.compile(r'`([^`\n]{4,60})`|"([^"\n]{4,60})"')
_LINE_NUMBER = re.compile(r"^\s*\d+(?=[\s:|→-])", re.MULTILINE)
_TWO_LETTERS = re.compile(r"[A-Za-z]{2}")
_DOTTED = re.compile(r"[A-Za-z]\.[A-Za-z]")
_CAPITAL_INSIDE = re.compile(r"[a-z][A-Z]")
_PATH_BEGINNINGS = ("/", "~/", "./", "../")


def values_in(text: str) -> list[str]:
    """Return the distinct values of a text, in the order in which they first appear.

    >>> values_in("Book HAT136 for sara_doe_496, see src/calc.py.")
    ['HAT136', 'sara_doe_496', 'src/calc.py']
    >>> values_in("run `pnpm build:calc`, and/or wait 10 s")
    ['pnpm build:calc']
    """
    found: list[str] = []
    for chunk in dict.fromkeys(text.split()):
        found += _values_of_chunk(chunk) if len(chunk) <= LONGEST_VALUE else _values_of(chunk)
    if '"' in text or "`" in text:
        for match in _QUOTED.finditer(text):
            found += phrases_in(match[1] or match[2])
    return list(dict.fromkeys(found))


def _values_of(chunk: str) -> tuple[str, ...]:
    """Return the values of a text without white space: no value goes across any."""
    return tuple(value for word in _WORD.findall(chunk) if (value := _value_of(word)))


_values_of_chunk = lru_cache(maxsize=1 << 16)(_values_of)  # histories repeat their words


def phrases_in(text: str) -> list[str]:
    """Return the text itself, white space folded, when it is a phrase of two words or more.

    >>> phrases_in("make  all"), phrases_in("make"), phrases_in("1 2")
    (['make all'], [], [])
    """
    folded = " ".join(text.split()) if len(text) <= 4 * PHRASE_LENGTHS.stop else ""
    is_phrase = " " in folded and len(folded) in PHRASE_LENGTHS and _TWO_LETTERS.search(folded)
    return [folded] if is_phrase else []


def _value_of(word: str) -> str:
    """Return a word without the punctuation at its ends when it is a value, else ``""``."""
    value = word if word.startswith(_PATH_BEGINNINGS) else word.strip("./+~#:@")
    value = value.rstrip("./+~#:@-")
    if not value.startswith("--"):
        value = value.lstrip("-")
    return value if len(value) <= LONGEST_VALUE and is_value(value) else ""


def is_value(word: str) -> bool:
    """Say whether a word is identifier-shaped.

    >>> [word for word in "1286 12 E1234 os.path a@b.org --dry and/or".split() if is_value(word)]
    ['1286', 'E1234', 'os.path', 'a@b.org', '--dry']
    """
    digits = sum(c.isdigit() for c in word)
    letters = sum(c.isalpha() for c in word)
    if digits and not letters:
        return digits >= 3
    if len(word) < 4:
        return False
    if digits and letters:
        return True
    if word.startswith("--") or ("@" in word and "." in word):
        return letters >= 2
    if "/" in word:
        is_rooted = word.startswith(("/", "~", "."))
        return is_rooted or word.count("/") > 1 or "." in word or "_" in word
    if "_" in word.strip("_"):
        return True
    if _DOTTED.search(word):
        return len(word) >= 5 and max(map(len, word.split("."))) >= 2
    return bool(_CAPITAL_INSIDE.search(word))


def argument_texts(arguments: object) -> Iterator[str]:
    """Yield the leaves of a call's arguments as text; raw text that is not JSON, whole.

    >>> sorted(argument_texts('{"path": "a.py", "lines": [1, 2], "all": true}'))
    ['1', '2', 'a.py']
    """
    if isinstance(arguments, str):
        try:
            arguments = json.loads(arguments)
        except (ValueError, RecursionError):
            yield str(arguments)
            return
    level: list[object] = [arguments]
    while level:
        node = level.pop()
        if isinstance(node, dict):
            level.extend(node.values())
        elif isinstance(node, list):
            level.extend(node)
        elif node is not None and not isinstance(node, bool):
            yield str(node)


def without_line_numbers(text: str) -> str:
    """Return a listing without the numbers of its lines: they are the listing's, not facts.

    >>> without_line_numbers("  117: total = 4200")
    ': total = 4200'
    """
    return _LINE_NUMBER.sub("", text)


def written_values(message: Mapping[str, Any]) -> set[str]:
    """Return the values that a message holds: of its content, and of its calls' arguments."""
    content = content_of(message)
    if message.get("role") == "tool":
        content = without_line_numbers(content)
    found = set(values_in(content))
    for call in calls_of(message):
        for text in argument_texts(call.arguments):
            found.update(values_in(text), phrases_in(text))
    return found
