"""Markup that is no text: HTML and Markdown are covered, and headings begin sections.

A tag is covered by signs of the same length, so that every offset of what remains is one of the original: line ends for
a tag that ends a paragraph, else signs without width, which a name may have inside (`H<sub>2</sub>O`).
"""

from __future__ import annotations

import re
from html import unescape
from html.parser import HTMLParser

from pearl_qdrant.linking.options import Markup

COVER = "\u2060"
"""Word joiner: ends a word, but is no gap."""

WITHIN_WORD = "\u00ad"
"""Soft hyphen: part of the word around it."""

HEADING_END = "\x1e"
"""Ends a heading, and with it a sentence."""

Heading = tuple[int, str]
"""Offset of a heading, and its text."""

_HIDDEN = frozenset("script style template svg math".split())
_HEADINGS = frozenset("h1 h2 h3 h4 h5 h6".split())
_INLINE = frozenset(
    "a abbr acronym b bdi bdo big cite code data del dfn em font i ins kbd label mark q s samp small span strike strong"
    " sub sup time tt u var wbr".split()
)
_BETWEEN_LETTERS = re.compile(rf"(?<=\w){COVER}+(?=\w)")

_MARKDOWN = re.compile(
    r"^ {0,3}(?P<fence>```+|~~~+).*?(?:^ {0,3}(?P=fence)|\Z)"
    r"|(?P<break>^ {0,3}(?:\#{1,6}[ \t]+|[=-]{3,}[ \t\r]*$|[-*+][ \t]+|\d{1,9}[.)][ \t]+))"
    r"|^ {0,3}(?:>[ \t]?)+|^ {0,3}\[[^\]\n]+\]:[^\n]*|[ \t]\#+[ \t\r]*$"
    r"|!?\[(?=[^\[\]\n]*\][(\[])|(?<=\S)\](?:\([^()\n]*\)|\[[^\[\]\n]*\])"
    r"|(?<=\S)[*~`]+|[*~`]+(?=\S)|(?<!\w)_+(?=\S)|(?<=\S)_+(?!\w)|\\(?=[!-/:-@\[-`{-~])",
    re.MULTILINE | re.DOTALL,
)
_MARKDOWN_HEADING = re.compile(
    r"^ {0,3}\#{1,6}[ \t]+([^\n]*?)[ \t\r#]*$|^([^\s#>][^\n]*)\n {0,3}(?:=+|-{3,})[ \t\r]*$", re.MULTILINE
)
_LABEL = re.compile(
    r"^[ \t]*([A-Z][\w/&-]*(?: [\w/&-]+){0,5}):(?=\s|\Z)|^[ \t]*([A-Z][A-Z /&-]{3,60})[ \t\r]*$", re.MULTILINE
)


def cover(text: str, markup: Markup | None) -> tuple[str, list[Heading]]:
    """A text without its markup, of the same length, and its headings.

    Args:
        text: The text.
        markup: How it is written. A plain text has a heading in each line in capitals, and at the start of each line
            that begins with some words and a colon (`Family history:`).
    """
    if markup is None:
        return text, [(found.start(), (found[1] or found[2]).strip()) for found in _LABEL.finditer(text)]
    headings = []
    if markup == "markdown":
        headings = [(found.start(), found[1] or found[2]) for found in _MARKDOWN_HEADING.finditer(text)]
        text = _MARKDOWN.sub(lambda found: ("\n" if found["break"] else COVER) * len(found[0]), text)
        covered = list(text)
        for start, title in headings:
            end = text.find("\n", start + len(title))
            covered[end : end + 1] = HEADING_END * (end >= 0)
        text = "".join(covered)
    html = _Html(text)
    covered_text = _BETWEEN_LETTERS.sub(lambda found: WITHIN_WORD * len(found[0]), "".join(html.shown))
    return covered_text, sorted(headings + html.headings)


class _Html(HTMLParser):
    """What a page shows, with the same offsets.

    Attributes:
        shown: The characters that are shown; others are covered.
        headings: Its headings.
    """

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=False)
        self.shown = [COVER] * len(text)
        self.headings: list[Heading] = []
        self._lines = [0, *(found.end() for found in re.finditer("\n", text))]
        self._hidden = ""
        self._heading: int | None = None
        self.feed(text)
        self.close()

    def _at(self) -> int:
        line, column = self.getpos()
        return self._lines[line - 1] + column

    def handle_data(self, data: str) -> None:
        if not self._hidden:
            self.shown[self._at() : self._at() + len(data)] = data

    def handle_entityref(self, name: str) -> None:
        character = unescape(f"&{name};")
        self.handle_data(character if character != f"&{name};" else f"&{name}")

    def handle_charref(self, name: str) -> None:
        self.handle_data(unescape(f"&#{name};"))

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self._break(tag)
        if tag in _HIDDEN:
            self._hidden = self._hidden or tag
        elif tag in _HEADINGS:
            self._heading = self._at()

    def handle_endtag(self, tag: str) -> None:
        if tag == self._hidden:
            self._hidden = ""
        if tag in _HEADINGS and self._heading is not None:
            title = "".join(self.shown[self._heading : self._at()]).replace(COVER, "")
            self.headings.append((self._heading, " ".join(title.split())))
            self._heading = None
        self._break(tag)

    def _break(self, tag: str) -> None:
        """Let a tag that is not within a line end the paragraph."""
        if tag not in _INLINE:
            self.shown[self._at() : self._at() + 2] = "\n\n"
