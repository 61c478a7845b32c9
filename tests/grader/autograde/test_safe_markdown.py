"""What a learner wrote does nothing in a browser, however it is written, and looks the same."""

from __future__ import annotations

from html.parser import HTMLParser

import pytest
from hypothesis import given
from hypothesis import strategies as st
from nbconvert.filters.markdown_mistune import markdown2html_mistune

from grader.autograde.safe_markdown import MAX_CHARS, safe_html

PICTURE = "data:image/png;base64,iVBORw0KGgo="
TAGS = set(
    "a blockquote br code del div em h1 h2 h3 h4 h5 h6 hr img li ol p pre s strong table tbody td "
    "th thead tr ul".split()
)


class Seen(HTMLParser):
    """Tags, addresses and text of a page."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.addresses: list[tuple[str, str]] = []
        self.others: list[str] = []
        self.text = ""
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        for name, value in attrs:
            if name in ("href", "src"):
                self.addresses.append((tag, value or ""))
            elif name not in ("alt", "title", "rel", "start", "class", "id", "target", "style"):
                self.others.append(name)

    def handle_data(self, data: str) -> None:
        self.text += data


ACTIVE = (
    "<script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    "<svg/onload=alert(1)>",
    "[a](javascript:alert(1))",
    "[a](JaVaScRiPt:alert(1))",
    "[a](java&#115;cript:alert(1))",
    "[a](&#x6A;avascript&colon;alert(1))",
    "[a]( <javascript:alert(1)> )",
    "[a](java\tscript:alert(1))",
    "[a]\n\n[a]: javascript:alert(1)",
    "[a][b]\n\n> [b]:\n>   javascript:alert(1)",
    "- [a][b]\n\n  [b]: <javascript:alert(1)>",
    "<javascript:alert(1)>",
    "\\[a](javascript:alert(1)) \\<script>alert(1)\\</script>",
    "`` ` `` [a](javascript:alert(1)) `` ` ``",
    "```\n[a](javascript:alert(1))\n\n<script>alert(1)</script>\n```",
    "[a](data:text/html,<script>alert(1)</script>)",
    f"[a]({PICTURE})",
    "![a](data:image/svg+xml;base64,PHN2Zz4=)",
    "![a](https://spy.example/pixel.png)",
    "![a](//spy.example/pixel.png)",
    "![a][b]\n\n[b]: https://spy.example/pixel.png",
    "[a](vbscript:x) [b](file:///etc/passwd) [c](//spy.example)",
    '[a](https://x.org "\\" onmouseover=\\"alert(1)")',
    '![a" onerror="alert(1)](x)',
    "<a\nhref='javascript:alert(1)'>x</a>",
    "<!-- <script>alert(1)</script> -->",
    "&lt;script&gt;alert(1)&lt;/script&gt;",
    "$$\n[a](javascript:alert(1))\n$$ <script>alert(1)</script>",
    "| [a](javascript:x) | <b onclick=x>b</b> |\n|---|---|\n| 1 | 2 |",
    "<style>body{display:none}</style><form action=https://x.org><input name=q></form>",
    '[a](http://x.org/"><script>alert(1)</script>)',
    "\ud800<script>alert(1)</script>",
)


def assert_harmless(page: str) -> None:
    seen = Seen(page)
    assert set(seen.tags) <= TAGS | {"span"}, set(seen.tags) - TAGS
    for tag, address in seen.addresses:
        if tag == "img":
            assert address.startswith("data:image/") and "svg" not in address, address
        else:
            assert address.startswith(("https://", "http://", "mailto:", "#")), address
    assert not seen.others, seen.others


@pytest.mark.parametrize("text", ACTIVE, ids=range(len(ACTIVE)))
def test_nothing_active_is_left_in_nbgrader_s_pages(text: str) -> None:
    made = safe_html(text)
    assert_harmless(made)
    assert_harmless(markdown2html_mistune(made))  # as nbgrader's pages show the cell


@given(st.lists(st.sampled_from([*ACTIVE, "\n\n", "> ", "- ", "`", "$", "*", "    "]), max_size=5))
def test_nor_when_they_are_mixed(parts: list[str]) -> None:
    made = safe_html("".join(parts))
    assert "\n" not in made
    assert_harmless(made)
    assert_harmless(markdown2html_mistune(made))


def test_an_answer_looks_as_it_was_meant() -> None:
    text = "Two *terms*, one for CJK:\n\n1. `a * cjk`\n2. [see](https://x.org)\n\n$a_1 < b$ & so on"
    seen = Seen(markdown2html_mistune(safe_html(text)))
    assert [tag for tag in seen.tags if tag in ("em", "ol", "li", "code", "a")] == [
        "em", "ol", "li", "code", "li", "a",
    ]  # fmt: skip
    assert ("a", "https://x.org") in seen.addresses
    assert "a * cjk" in seen.text and "$a_1 < b$ & so on" in seen.text


def test_code_keeps_its_empty_lines() -> None:
    seen = Seen(markdown2html_mistune(safe_html("```\ndef f():\n\n\n    return [1]\n```")))
    assert "def f():\n\n\n    return [1]\n" in seen.text


def test_a_cell_s_own_picture_is_shown_and_no_other() -> None:
    attachments = {
        "a.png": {"image/png": "iVBORw0K\nGgo="},
        "b.svg": {"image/svg+xml": "PHN2Zz4="},
        "c.png": {"image/png": '"><script>'},
        "d": 3,
    }
    made = safe_html("".join(f"![x](attachment:{name})" for name in attachments), attachments)
    assert Seen(made).addresses == [("img", PICTURE)]


def test_formulas_open_no_links() -> None:
    assert "\\href" not in Seen(safe_html(r"$\href{javascript:alert(1)}{x}$")).text


@pytest.mark.parametrize("piece", ["[", "![", "*a_", "> ", "- ", "`", "<", "[a](", "| a ", "\\"])
def test_what_is_too_long_is_shown_as_it_was_typed(piece: str) -> None:
    text = piece * (1_000_000 // len(piece))
    made = safe_html(text)
    assert made.startswith("<div><pre>") and len(text) > MAX_CHARS
    assert_harmless(made)
