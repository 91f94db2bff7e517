"""Text in other encodings than UTF-8: found, converted, and said; and what a file is that is no text.

UTF-16 and UTF-32 are known by their mark or their NUL bytes. The encodings with one byte or several for a letter
(Windows-1252, Shift-JIS, ...) show themselves by bytes that are not UTF-8; charset-normalizer tells which one it is,
from the lines that have such bytes. A file that had valid UTF-8 beyond ASCII before is UTF-8 with damaged lines, and
stays as it is.

Lines end at newlines only: `str.splitlines` would also split at U+2028, U+0085, vertical tab and form feed, which
occur in names. A bad line is yielded as a `BadLine`, not raised.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache, partial
from importlib import resources
from itertools import chain
from typing import BinaryIO

from ingest.io import limits, reasons
from ingest.io.streams import ByteSource
from pearl_qdrant.errors import FormatError, OptionError

HEAD_BYTES = 1 << 16  # bytes examined to tell text from other files
_CONTROL = bytes(byte for byte in (*range(32), 127) if byte not in b"\t\n\r")


@lru_cache(maxsize=2)
def _other_files(what: str) -> list[tuple[re.Pattern[bytes], str]]:
    """How the ``bytes`` or ``text`` of files that are no tables begin, and what they are (`other_files.tsv`)."""
    text = resources.files("ingest.io").joinpath("other_files.tsv").read_text(encoding="utf-8")
    rows = (line.split("\t") for line in text.splitlines() if line.startswith(what))
    return [(re.compile(pattern.encode()), kind) for _, pattern, kind in rows]


def describe_text(head: bytes) -> str | None:
    """What a text that is no table looks like, with what to do; None if it is nothing known."""
    return next((kind for pattern, kind in _other_files("text") if pattern.search(head[: 1 << 13])), None)


def check_is_text(path: str, head: bytes) -> None:
    """Refuse a file that is clearly not text with newlines. Raises FormatError, which names the kind."""
    if not head:
        raise FormatError(path, None, "is empty")
    for pattern, kind in _other_files("bytes"):
        if pattern.match(head):
            raise FormatError(path, None, f"is not text but {kind}")
    if head[257:262] == b"ustar":
        raise FormatError(path, None, "is a tar archive. Unpack it: tar -xf")
    lines = head.split(b"\n")
    marked = next((name for mark, name in _BOMS[:-1] if head.startswith(mark)), None)
    if (wide := marked or wide_encoding(head)) is not None:
        kind = wide[:6].upper()
        raise FormatError(path, None, f"is {kind} text. Convert it: iconv -f {kind} -t UTF-8")
    if b"\0" in head and _is_mostly_binary(lines):
        raise FormatError(path, None, "is not text: it is full of NUL bytes. Is it a binary file?")
    if len(lines) == 1 and head.count(b"\r") > 1 and len({part.count(b"\t") for part in head.split(b"\r")[:-1]}) == 1:
        raise FormatError(path, None, r"ends its lines with \r alone. Convert it: tr '\r' '\n'")


def wide_encoding(head: bytes) -> str | None:
    """UTF-16 or UTF-32 without its mark: nearly all bytes but one of two or four are NUL in text in Latin letters."""
    for width, name, letter in ((4, "utf-32-le", 0), (4, "utf-32-be", 3), (2, "utf-16-le", 0), (2, "utf-16-be", 1)):
        n = len(head) // width
        nuls = min((head[i::width].count(0) for i in range(width) if i != letter), default=0)
        if n >= 4 and nuls > 0.6 * n and head[letter::width].count(0) < 0.01 * n:
            return name
    return None


def _is_mostly_binary(lines: list[bytes]) -> bool:
    """Whether most lines that are not blank have control characters. A few such lines are bad lines, not a bad file."""
    filled = [line for line in lines if line.strip()]
    return 2 * sum(len(line.translate(None, _CONTROL)) == len(line) for line in filled) < len(filled)


_CANDIDATES = (
    "cp1252 cp1250 cp1251 cp1253 cp1254 cp1255 cp1256 koi8_r cp932 gb18030 big5 euc_kr euc_jp mac_roman".split()
)
_LATIN = ("cp1252", "cp1250", "cp1254", "mac_roman")
# In Windows-1252 these stand beside letters only where the text is in another encoding.
_NOT_WESTERN = re.compile(r"[^\W\d_][¡-¿×÷ƒˆ˜†‡‰‹›Ÿ]|[¢-©¬-´¸¹¼-¾†‡][^\W\d_]")
_NO_LETTERS = re.compile(rb"[\t\r;,|0-9\"']+")
_UTF8_LETTER = re.compile(rb"[\xc2-\xdf][\x80-\xbf]|[\xe0-\xef][\x80-\xbf]{2}|[\xf0-\xf4][\x80-\xbf]{3}")
_HIGH = re.compile(rb"[\x80-\xff]+")
_ASCII_LETTERS = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
_WIDE = ("cp932", "euc_jp", "euc_kr", "big5", "gb18030")
_ONE_BYTE = [name for name in _CANDIDATES if name.startswith(("cp12", "koi8", "mac"))]
_BEYOND_ASCII = bytes(range(128, 256))
_LONGEST = 1 << 22  # bytes of a line that is looked at as a whole
_BOMS = (
    (b"\xff\xfe\0\0", "utf-32-le"),  # begins as that of UTF-16
    (b"\0\0\xfe\xff", "utf-32-be"),
    (b"\xff\xfe", "utf-16-le"),
    (b"\xfe\xff", "utf-16-be"),
    (b"\xef\xbb\xbf", "utf-8"),
)


def check_encoding(name: str) -> str:
    """The usual name of an encoding. Raises OptionError if there is none of that name."""
    try:
        "".encode(name)  # not a codec from bytes to bytes
        return codecs.lookup(name).name
    except (LookupError, UnicodeError):
        message = f"'{name}' is not an encoding. Give one such as utf-8, cp1252 or utf-16"
        raise OptionError("encoding", message) from None


class Utf8Source(ByteSource):
    """A source whose text comes as UTF-8, without a byte order mark, whatever its encoding. `found` is the one that was
    found, if it is not UTF-8; known when the part of the file was read that shows it.
    """

    def __init__(self, source: ByteSource, encoding: str | None = None) -> None:
        self.path, self._source, self._given = source.path, source, encoding
        self.found: str | None = None

    def chunks(self) -> Iterator[bytes]:
        """The text as UTF-8. Raises as `ByteSource.chunks`."""
        chunks = self._source.chunks()
        first = next(chunks, b"")
        while 0 < len(first) < 4 and (more := next(chunks, b"")):
            first += more
        encoding = self._given
        for mark, name in _BOMS:
            if first.startswith(mark) and encoding in (None, name, "utf-8", name[:6]):
                first, encoding = first[len(mark) :], name
                break
        else:
            encoding = encoding or wide_encoding(first[:HEAD_BYTES])
        if encoding not in (None, "utf-8"):
            self.found = encoding
            try:
                yield from _decode_all(chain((first,), chunks), encoding or "")
            except UnicodeError as error:
                message = f"is not text in {encoding} ({error}). Leave the encoding out"
                raise FormatError(self.path, None, message, option="encoding") from error
        elif self._given:
            yield first
            yield from chunks
        else:
            yield from self._watch(first, chunks)

    def _watch(self, first: bytes, chunks: Iterator[bytes]) -> Iterator[bytes]:
        """Pieces as they are, until bytes that are not UTF-8 show another encoding."""
        chunks = chain((first,) if first else (), chunks)
        for chunk in chunks:
            if chunk.isascii():
                yield chunk
                continue
            while b"\n" not in chunk and len(chunk) < _LONGEST and (more := next(chunks, b"")):
                chunk += more
            cut = chunk.rfind(b"\n") + 1 or len(chunk)  # whole lines, so that no letter is cut
            self.found = find_encoding(chunk[:cut]) if _decoded(chunk[:cut]) is None else None
            rest = chain((chunk,), chunks)
            yield from rest if self.found is None else _decode_all(rest, self.found)


class OpenSource(ByteSource):
    """A file that somebody else opened, which can be read once."""

    def __init__(self, file: BinaryIO, path: str) -> None:
        self.path, self._file = path, file

    def chunks(self) -> Iterator[bytes]:
        read = getattr(self._file, "read1", self._file.read)  # what a pipe has by now
        return iter(partial(read, HEAD_BYTES), b"")


def find_encoding(block: bytes) -> str | None:
    """The encoding of a text that is not all UTF-8; None if it is UTF-8 with some damaged lines, or no text."""
    from charset_normalizer import from_bytes

    lines = [line for line in block.split(b"\n") if not line.isascii()]
    bad = [line for line in lines if _decoded(line) is None]
    if len(bad) < 0.9 * len(lines) or any(b"\0" in line for line in bad):
        return None
    n_letters, text = 0, b"\n".join(bad)[:HEAD_BYTES]
    text, n_letters = _UTF8_LETTER.subn(b"", text)
    if n_letters > len(text) - len(text.translate(None, _BEYOND_ASCII)):  # damaged, as in a document of one line
        return None
    sample = _NO_LETTERS.sub(b" ", b"\n".join(bad)[:HEAD_BYTES])
    runs = _HIGH.findall(text)
    n_letters = len(text) - len(text.translate(None, _ASCII_LETTERS))
    is_latin = sum(len(run) == 1 for run in runs) > 0.9 * len(runs) and 4 * len(runs) < n_letters  # letters with marks
    best = from_bytes(sample, cp_isolation=_ONE_BYTE if is_latin else _CANDIDATES).best()
    if best is None:
        in_wide = ((name, _decoded(text, name) or "") for name in _WIDE)
        return next((name for name, found in in_wide if any(letter > "\u0370" for letter in found)), "cp1252")
    if best.encoding in _LATIN:
        western = sample.decode("cp1252", "replace")
        return best.encoding if "\ufffd" in western or _NOT_WESTERN.search(western) else "cp1252"
    return best.encoding


def _decoded(text: bytes, encoding: str = "utf-8") -> str | None:
    """A text that is wholly in an encoding; None if it is not."""
    with suppress(UnicodeDecodeError):
        return text.decode(encoding)
    return None


def _decode_all(chunks: Iterable[bytes], encoding: str) -> Iterator[bytes]:
    decoder = codecs.getincrementaldecoder(encoding)("replace")
    for chunk in chain(chunks, (b"",)):
        if text := decoder.decode(chunk, final=not chunk):
            yield text.encode("utf-8", "replace")


def check_decodable(path: str, encoding: str, head: bytes) -> None:
    """Refuse an encoding by which the head of a file is no text. Raises FormatError if most is replaced."""
    text = head.decode(encoding, "replace")
    if text.count("\ufffd") > len(text) / 10:
        raise FormatError(path, None, f"is not text in {encoding}. Leave the encoding out", option="encoding")


BOM = b"\xef\xbb\xbf"

_PREFIX_BYTES = 1 << 10


@dataclass(frozen=True, slots=True)
class BadLine:
    """A line that cannot be used: why, as a key of `ReadReport.skipped`, and its start, with invalid bytes replaced."""

    reason: str
    text: str


def read_lines(source: ByteSource) -> Iterator[tuple[int, str | BadLine]]:
    r"""Line numbers, from 1, and lines without their ending (``\n`` or ``\r\n``).

    A byte order mark at the start is dropped. Blank lines are yielded as they are. Raises FormatError if the file is
    empty, the content is not text, or the compressed data is damaged; the last with the line that was reached;
    InputError if reading fails.
    """
    for number, line in byte_lines(source, max_bytes=limits.MAX_LINE_BYTES):
        if isinstance(line, BadLine):
            yield number, line
            continue
        try:
            text = line.decode()
        except UnicodeDecodeError:
            yield number, BadLine(reasons.INVALID_UTF8, line.decode("utf-8", "replace"))
        else:
            yield number, BadLine(reasons.NUL_CHARACTER, text) if "\0" in text else text.removesuffix("\r")


def byte_lines(source: ByteSource, *, max_bytes: int) -> Iterator[tuple[int, bytes | BadLine]]:
    """Numbers from 1 and lines as bytes, without newline, of at most `max_bytes`. Raises as `read_lines`."""
    number, rest, is_long, is_begun = 0, b"", False, False
    try:
        for chunk in source.chunks():
            if not is_begun:
                check_is_text(source.path, chunk[:HEAD_BYTES])
                chunk, is_begun = chunk.removeprefix(BOM), True
            *lines, rest = (rest + chunk).split(b"\n")
            for line in lines:
                number += 1
                is_long = is_long or len(line) > max_bytes
                yield number, _too_long(line) if is_long else line
                is_long = False
            if is_long or len(rest) > max_bytes:
                rest, is_long = rest[:_PREFIX_BYTES], True
    except FormatError as error:
        if error.line is not None or not number:
            raise
        message = str(error).removeprefix(f"{source.path}: ")
        raise FormatError(source.path, number, f"after this line, {message}") from error
    if not is_begun:
        check_is_text(source.path, b"")
    if rest:
        yield number + 1, _too_long(rest) if is_long else rest


def _too_long(line: bytes) -> BadLine:
    return BadLine(reasons.LINE_TOO_LONG, line[:_PREFIX_BYTES].decode("utf-8", "replace"))
