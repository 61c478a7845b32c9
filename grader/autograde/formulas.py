"""Texts that no spreadsheet takes for a formula."""

from __future__ import annotations

import unicodedata


def without_formula(text: str) -> str:
    """Return a text with an apostrophe before it where a spreadsheet would calculate.

    Full-width signs are read as plain ones by some, and blanks before a sign are skipped.

    >>> without_formula("=HYPERLINK(0)"), without_formula("＝1+1"), without_formula("a=b")
    ("'=HYPERLINK(0)", "'＝1+1", 'a=b')
    """
    sign = unicodedata.normalize("NFKC", text.lstrip())[:1]
    return f"'{text}" if (sign and sign in "=+-@|%") or text[:1] in ("\t", "\r") else text
