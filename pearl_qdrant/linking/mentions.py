"""What a mention is before it is looked for: text, without what went wrong on its way."""

from __future__ import annotations

import re

MAX_CHARACTERS = 10_000
"""Of a mention. The longest honest ones are names of chemicals and laboratory tests, with some thousand."""

_MAYBE_MISREAD = re.compile("[\u00c2-\u00f4][\u0080-\u00bf\u0152-\u2122]")
"""What a letter of UTF-8 looks like where its bytes were read as Windows-1252."""


def clean_mention(mention: object) -> str:
    """The text of a mention that can be encoded and searched for.

    Args:
        mention: A string; anything else, text that is no valid Unicode, and what is too long to be a mention gives "":
            no entity has such a name.

    Returns:
        The mention without white space around it, and with UTF-8 that was read as Windows-1252 or Latin-1 put right
        ("Ry\u00c5\u00abky\u00c5\u00ab" is "Ry\u016bky\u016b").
    """
    if not isinstance(mention, str) or is_too_long(mention):
        return ""
    try:
        mention.encode("utf-8")
    except UnicodeEncodeError:
        return ""
    return (_read_again(mention) if _MAYBE_MISREAD.search(mention) else mention).strip()


def is_too_long(mention: object) -> bool:
    """Whether a string is longer than any name, without the white space around it."""
    return isinstance(mention, str) and len(mention) > MAX_CHARACTERS and len(mention.strip()) > MAX_CHARACTERS


def check_are_many(mentions: object) -> None:
    """Refuse one string where many are asked for.

    Raises:
        TypeError: If it is one.
    """
    if isinstance(mentions, (str, bytes)):
        raise TypeError("mentions is one string, whose letters would be linked one by one: give a list, or use link")


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
