"""Mentions as they arrive.

- Cleaned before they are searched: white space, broken Unicode, wrongly decoded UTF-8, excessive length.
- In batches that are bounded in number and in total length, from plain and from asynchronous iterables.
- From files line by line: UTF-8 with or without a byte order mark, in constant memory.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterable, AsyncIterator, Iterable, Iterator
from typing import BinaryIO

from pearl_qdrant.errors import FormatError
from pearl_qdrant.settings import MAX_LINE_BYTES

MAX_CHARACTERS = 10_000
"""Maximum length of a mention. The longest real names, of chemicals and laboratory tests, have a few thousand."""

BATCH_CHARACTERS = 1 << 18
"""A batch ends with the mention that reaches this length. A thousand ordinary mentions have a tenth of it."""

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


_STAND_FOR_NOTHING = frozenset(
    "n/a na n.a. n.a nan none null nil unknown unk unspecified undefined missing tbd tba tbc "
    "- -- --- — – _ . ... … ? ?? ??? * / #n/a".split()
) | {"not available", "not applicable", "not specified", "not known", "no data", "to be determined", "to be announced"}

_TITLES = frozenset("mr mrs ms miss dr prof sir madam mme herr frau señor señora".split())

_NUMBER = re.compile(r"[\d\s.,:/%+\-–]*\d[\d\s.,:/%+\-–]*")


def stands_for_nothing(mention: str) -> bool:
    """Whether a cell holds what people write where there is no name: `n/a`, `-`, `unknown`."""
    return mention.strip().casefold() in _STAND_FOR_NOTHING


def is_no_name(mention: object) -> bool:
    """Whether a string is no name by itself: what stands for nothing, a title alone, a number alone."""
    if not isinstance(mention, str):
        return False
    text = mention.strip()
    if len(text) > _LONGEST_OF_NOTHING:
        return False
    return stands_for_nothing(text) or text.casefold().rstrip(".") in _TITLES or bool(_NUMBER.fullmatch(text))


_LONGEST_OF_NOTHING = 24


def check_are_many(mentions: object) -> None:
    """Refuse a single string in place of a list. Raises TypeError if `mentions` is a string."""
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


def take(mentions: Iterator[str], n: int) -> list[str]:
    """The next mentions: at most `n`, fewer where they are long, none at the end."""
    batch = []
    length = 0
    for mention in mentions:
        batch.append(mention)
        length += n_characters(mention)
        if len(batch) == n or length >= BATCH_CHARACTERS:
            break
    return batch


async def take_async(mentions: Iterable[str] | AsyncIterable[str], n: int) -> AsyncIterator[list[str]]:
    """Batches as `take` makes them; a plain iterable is read in a thread, since it may block."""
    if not isinstance(mentions, AsyncIterable):
        iterator = iter(mentions)
        while batch := await asyncio.to_thread(take, iterator, n):
            yield batch
        return
    batch = []
    length = 0
    async for mention in mentions:
        batch.append(mention)
        length += n_characters(mention)
        if len(batch) == n or length >= BATCH_CHARACTERS:
            yield batch
            batch, length = [], 0
    if batch:
        yield batch


def n_characters(mention: object) -> int:
    """Length of a mention; 0 for anything that is not text."""
    return len(mention) if isinstance(mention, str) else 0


def read_text_lines(file: BinaryIO, name: str) -> Iterator[tuple[int, str]]:
    r"""Yield line numbers, from 1, and lines without their ending (``\n`` or ``\r\n``). Raises FormatError at a line
    that is not UTF-8, or longer than `MAX_LINE_BYTES`.
    """
    number = 0
    while line := file.readline(MAX_LINE_BYTES + 1):
        number += 1
        if len(line) > MAX_LINE_BYTES and not line.endswith(b"\n"):
            raise FormatError(name, number, f"longer than {MAX_LINE_BYTES:,} bytes. Is this a text with short lines?")
        try:
            text = line.decode("utf-8-sig" if number == 1 else "utf-8")
        except UnicodeDecodeError as error:
            raise FormatError(name, number, "not UTF-8. Convert the file, as with iconv") from error
        yield number, text.rstrip("\r\n")
