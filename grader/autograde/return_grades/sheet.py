"""A table as a platform exported it: what is not changed is written as it was read.

Encoding, separator, quotes, line ends and the line ``sep=;`` are kept, unknown columns too.
"""

from __future__ import annotations

import csv
import io
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from grader.errors import BadInput


@dataclass
class Sheet:
    """A table: ``rows`` with the titles first, and how its file is written."""

    path: Path
    rows: list[list[str]]
    encoding: str
    separator: str
    ends: str
    says_separator: bool
    quotes_all: bool

    @property
    def titles(self) -> list[str]:
        """The first line."""
        return self.rows[0]

    def column(self, *titles: str) -> int | None:
        """Return the place of the first of these titles that is there, in any case."""
        folded = [title.strip().casefold() for title in self.titles]
        found = (folded.index(t.casefold()) for t in titles if t.casefold() in folded)
        return next(found, None)

    def needed(self, *titles: str) -> int:
        """Return a column's place. Raises BadInput where it is not there."""
        place = self.column(*titles)
        if place is None:
            told = ", ".join(self.titles)
            raise BadInput(f"{self.path}: no column {' or '.join(titles)}; there are: {told}")
        return place

    def cell(self, row: list[str], place: int | None) -> str:
        """Return a cell's text; "" where the row is too short or there is no such column."""
        return row[place].strip() if place is not None and place < len(row) else ""

    def put(self, row: list[str], place: int, text: str) -> None:
        """Change a cell."""
        row += [""] * (place + 1 - len(row))
        row[place] = text

    def number(self, value: float) -> str:
        """Return a number as this table writes them: with a comma where the others have one."""
        text = f"{round(value, 4):g}"
        comma = any(re.fullmatch(r"\d+,\d+", c.strip()) for row in self.rows[1:] for c in row)
        return text.replace(".", ",") if comma else text

    def data(self) -> bytes:
        """Return the table as the bytes of a file."""
        out = io.StringIO()
        if self.says_separator:
            out.write(f"sep={self.separator}{self.ends}")
        form: dict[str, Any] = {"delimiter": self.separator, "lineterminator": self.ends}
        if self.quotes_all:
            csv.writer(out, quoting=csv.QUOTE_ALL, **form).writerows(self.rows)
        else:
            csv.writer(out, **form).writerows(self.rows)
        return out.getvalue().encode(self.encoding)


def read_sheet(path: Path) -> Sheet:
    """Read a table that a platform exported. Raises BadInput for what is not one."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise BadInput(f"{path}: expected the file that you downloaded: {error.strerror}") from None
    if data[:2] in (b"\xff\xfe", b"\xfe\xff"):
        encoding = "utf-16"
    else:
        encoding = "utf-8-sig" if data.startswith(b"\xef\xbb\xbf") else "utf-8"
    try:
        text = data.decode(encoding)
    except UnicodeDecodeError:
        raise BadInput(f"{path}: not text in UTF-8 or UTF-16; download it again as CSV") from None
    ends = "\r\n" if "\r\n" in text else "\n"
    told = re.match(r'"?sep=(.)"?\r?\n', text)
    text = text[told.end() :] if told else text
    first = text.partition("\n")[0]
    separator = told.group(1) if told else max(",;\t", key=first.count)
    try:
        rows = list(csv.reader(io.StringIO(text, newline=""), delimiter=separator, strict=True))
    except csv.Error as error:
        raise BadInput(f"{path}: not a table: {error}") from None
    rows = [row for row in rows if row]
    if len(rows) < 2:
        raise BadInput(f"{path}: expected a line of titles and a line for each learner")
    quotes_all = first.count('"') >= 2 * len(rows[0])
    return Sheet(path, rows, encoding, separator, ends, bool(told), quotes_all)
