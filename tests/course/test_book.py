"""The web book builds without a warning, and whoever reads it offline finds every page."""

from __future__ import annotations

import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

ROOT = Path(__file__).resolve().parents[2]


class Page(HTMLParser):
    """What a page links to, what it loads, what can be jumped to, and pictures without a text."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.links: list[str] = []
        self.loaded: list[str] = []
        self.anchors: set[str] = set()
        self.silent_pictures: list[str] = []
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        self.anchors |= {given[name] for name in ("id", "name") if name in given}
        if tag == "a" and "href" in given:
            self.links.append(given["href"])
        if tag == "link" and given.get("rel") in ("stylesheet", "preload", "icon"):
            self.loaded.append(given["href"])
        if "src" in given:
            self.loaded.append(given["src"])
        if tag == "img" and not given.get("alt"):
            self.silent_pictures.append(given["src"])


@pytest.fixture(scope="module")
def book(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The book, built as `make book` does it."""
    pytest.importorskip("sphinx", reason="the web book needs: pip install -e '.[book]'")
    folder = tmp_path_factory.mktemp("book")
    command = [sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going", "-c", "course/book"]
    done = subprocess.run(
        [*command, ".", str(folder)], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return folder


@pytest.mark.slow
def test_every_link_leads_somewhere_and_nothing_is_loaded_from_elsewhere(book: Path) -> None:
    pages = {path: Page(path) for path in book.rglob("*.html")}
    assert len(pages) > 25  # lessons, labs, guides, reference
    broken, foreign = [], []
    for path, page in pages.items():
        here = path.relative_to(book)
        foreign += [(here, url) for url in page.loaded if urlsplit(url).scheme not in ("", "data")]
        for url in [*page.links, *page.loaded]:
            parts = urlsplit(url)
            if parts.scheme or parts.netloc:
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            if not target.is_file():
                broken.append((here, url))
            elif parts.fragment and target in pages:
                known = pages[target].anchors
                if unquote(parts.fragment) not in known:
                    broken.append((here, url))
    assert not foreign
    assert not broken


@pytest.mark.slow
def test_every_picture_has_a_text(book: Path) -> None:
    silent = {
        str(path.relative_to(book)): page.silent_pictures
        for path in book.glob("course/*.html")
        if (page := Page(path)).silent_pictures
    }
    assert not silent


@pytest.mark.slow
def test_the_book_can_be_searched_offline(book: Path) -> None:
    index = (book / "searchindex.js").read_text(encoding="utf-8")
    assert "compaction" in index
    assert (book / "search.html").is_file()
