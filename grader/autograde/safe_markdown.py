"""A learner's Markdown as HTML that looks the same and does nothing in anybody's browser.

nbgrader's pages show HTML in Markdown as it is. So what a learner wrote is rendered here, by
markdown-it-py with HTML switched off, and cleaned by nh3. What comes out is one line of HTML in
which no character means anything to a Markdown parser: whoever reads it again finds the same.
"""

from __future__ import annotations

import html
import re
from collections.abc import Mapping
from functools import cache
from typing import Any

MAX_CHARS = 20_000
"""A longer text is no answer in five sentences: it is shown as it was typed, not rendered."""

_PICTURES = {"image/png", "image/jpeg", "image/gif", "image/webp"}
_DATA_PICTURE = re.compile(r"data:image/(?:png|jpeg|gif|webp);base64,[A-Za-z0-9+/=]*")
_WEB = re.compile(r"(?:https?://|mailto:)", re.IGNORECASE)
_TAGS = {
    "a", "blockquote", "br", "code", "del", "div", "em", "h1", "h2", "h3", "h4", "h5", "h6", "hr",
    "img", "li", "ol", "p", "pre", "s", "strong", "table", "tbody", "td", "th", "thead", "tr", "ul",
}  # fmt: skip
_ATTRIBUTES = {"a": {"href", "title"}, "img": {"src", "alt", "title"}, "ol": {"start"}}
# MathJax takes these for links, styles and more of HTML.
_ACTIVE_TEX = re.compile(r"\\(?=(?:href|require|style|class|cssId|url|unicode|html)\b)")
_PIECE = re.compile(r'<[^"<>]*(?:"[^"]*"[^"<>]*)*>|[^<]+|<')
_MARKDOWN = re.compile(r"[!#$()*+\-:=@\[\\\]^_`{|}~]")


def safe_html(
    text: str, attachments: Mapping[Any, Any] | None = None, *, renders: bool = True
) -> str:
    """Return Markdown as one line of HTML without anything active.

    ``attachments`` are the pictures of a notebook's cell; they become part of the page. Other
    pictures become links, since a page that loads them tells their owner who looks. Without
    ``renders``, and where it is too long, the text is shown as it was typed.

    >>> safe_html("*a* [b](javascript:x)")
    '<div><p><em>a</em> <a rel="noopener noreferrer">b</a></p>&#10;</div>'
    """
    text = _ACTIVE_TEX.sub("\\\\\u200b", text.encode(errors="replace").decode())
    if not renders or len(text) > MAX_CHARS:
        made = f"<pre>{html.escape(text)}</pre>"
    else:
        made = str(_parser().render(text, {"pictures": pictures(attachments or {})}))
    return _without_markdown(_clean(f"<div>{made}</div>"))


def pictures(attachments: Mapping[Any, Any]) -> dict[str, str]:
    """Return the pictures among a cell's attachments as data addresses, by name."""
    found = {}
    for name, bundle in attachments.items():
        for kind, data in bundle.items() if isinstance(bundle, dict) else ():
            address = f"data:{kind};base64,{''.join(data.split())}" if isinstance(data, str) else ""
            if kind in _PICTURES and _DATA_PICTURE.fullmatch(address):
                found[str(name)] = address
    return found


@cache
def _parser() -> Any:
    from markdown_it import MarkdownIt

    parser: Any = MarkdownIt("commonmark", {"html": False})
    parser.enable(["table", "strikethrough"])
    parser.validateLink = lambda url: True  # what stays is decided below, by a list of our own
    parser.add_render_rule("image", _picture)
    return parser


def _picture(renderer: Any, tokens: Any, index: int, options: Any, env: Any) -> str:
    """Render a picture that came with the cell, or a link to one that lies elsewhere."""
    token = tokens[index]
    source = str(token.attrs.get("src", ""))
    alt = html.escape(renderer.renderInlineAsText(token.children or [], options, env))
    if source.startswith("attachment:"):
        source = env["pictures"].get(source.removeprefix("attachment:"), "")
    if _DATA_PICTURE.fullmatch(source):
        return f'<img src="{source}" alt="{alt}">'
    shown = f"{alt} (a picture that is elsewhere)".strip()
    return f'<a href="{html.escape(source)}">{shown}</a>' if _WEB.match(source) else shown


def _clean(made: str) -> str:
    import nh3

    return nh3.clean(
        made,
        tags=_TAGS,
        attributes=_ATTRIBUTES,
        attribute_filter=_attribute,
        url_schemes={"http", "https", "mailto", "data"},
        link_rel="noopener noreferrer",
    )


def _attribute(tag: str, name: str, value: str) -> str | None:
    """Keep an address only where it leads to the web, or is a picture itself."""
    if (tag, name) == ("a", "href"):
        return value if _WEB.match(value) else None
    if (tag, name) == ("img", "src"):
        return value if _DATA_PICTURE.fullmatch(value) else None
    return value


def _without_markdown(made: str) -> str:
    """Return HTML on one line, in whose text nothing is left that Markdown would read."""
    return "".join(map(_quoted, _PIECE.findall(made))).replace("\r", "").replace("\n", "&#10;")


def _quoted(piece: str) -> str:
    if piece.startswith("<"):
        # In a tag only what could begin code or a formula; addresses stay readable.
        return re.sub(r"[`$\\]", _reference, piece)
    return _MARKDOWN.sub(_reference, piece)


def _reference(match: re.Match[str]) -> str:
    return f"&#{ord(match[0])};"
