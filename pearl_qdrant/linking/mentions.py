"""Cleans mentions before they are searched: white space, broken Unicode, wrongly decoded UTF-8, excessive length."""

from __future__ import annotations

import re

MAX_CHARACTERS = 10_000
"""Maximum length of a mention. The longest real names, of chemicals and laboratory tests, have a few thousand."""

_MAYBE_MISREAD = re.compile("[\u00c2-\u00f4][\u0080-\u00bf\u0152-\u2122]")
"""Looks like a UTF-8 letter whose bytes were decoded as Windows-1252."""


def clean_mention(mention: object) -> str:
    """The text of a mention in a form that can be encoded and searched.

    Args:
        mention: A string. Anything else, invalid Unicode, and text too long to be a name give "", which no entity is
            called.

    Returns:
        The mention without surrounding white space. UTF-8 that was decoded as Windows-1252 or Latin-1 is repaired:
        "Ry\u00c5\u00abky\u00c5\u00ab" becomes "Ry\u016bky\u016b".
    """
    if not isinstance(mention, str) or is_too_long(mention):
        return ""
    try:
        mention.encode("utf-8")
    except UnicodeEncodeError:
        return ""
    return (_repaired(mention) if _MAYBE_MISREAD.search(mention) else mention).strip()


def is_too_long(mention: object) -> bool:
    """Whether a string, without surrounding white space, is longer than any name."""
    return isinstance(mention, str) and len(mention) > MAX_CHARACTERS and len(mention.strip()) > MAX_CHARACTERS


def check_are_many(mentions: object) -> None:
    """Refuse a single string in place of a list.

    Raises:
        TypeError: If `mentions` is a string.
    """
    if isinstance(mentions, (str, bytes)):
        raise TypeError("mentions is one string, whose letters would be linked one by one: pass a list, or use link")


def _repaired(text: str) -> str:
    """The text decoded as UTF-8 from its Windows-1252 bytes, or unchanged if they are not valid UTF-8."""
    try:
        return b"".join(_byte(character) for character in text).decode("utf-8")
    except (UnicodeEncodeError, UnicodeDecodeError):
        return text


def _byte(character: str) -> bytes:
    try:
        return character.encode("cp1252")
    except UnicodeEncodeError:
        return character.encode("latin-1")  # Windows-1252 does not define five of the 256 bytes
