"""What a mention is before it is looked for: text, without what went wrong on its way."""

from __future__ import annotations

import re

_MAYBE_MISREAD = re.compile("[\u00c2-\u00f4][\u0080-\u00bf\u0152-\u2122]")
"""What a letter of UTF-8 looks like where its bytes were read as Windows-1252."""


def clean_mention(mention: object) -> str:
    """The text of a mention that can be encoded and searched for.

    Args:
        mention: A string; anything else, and text that is no valid Unicode, gives "": no entity has such a name.

    Returns:
        The mention without white space around it, and with UTF-8 that was read as Windows-1252 or Latin-1 put right
        ("Ry\u00c5\u00abky\u00c5\u00ab" is "Ry\u016bky\u016b").
    """
    if not isinstance(mention, str):
        return ""
    try:
        mention.encode("utf-8")
    except UnicodeEncodeError:
        return ""
    return (_read_again(mention) if _MAYBE_MISREAD.search(mention) else mention).strip()


def _read_again(text: str) -> str:
    """Text whose bytes are read as UTF-8, if they are that; the text itself otherwise."""
    try:
        return b"".join(_byte(character) for character in text).decode("utf-8")
    except (UnicodeEncodeError, UnicodeDecodeError):
        return text


def _byte(character: str) -> bytes:
    try:
        return character.encode("cp1252")
    except UnicodeEncodeError:
        return character.encode("latin-1")  # five bytes that Windows-1252 leaves open
