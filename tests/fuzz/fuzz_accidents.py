"""What may happen to a base on its way: repetition without end, accidents to its bytes, wrappers around it."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import zstandard
from hypothesis import strategies as st

Strategy = st.SearchStrategy
T = TypeVar("T")

MOST_BYTES = 1 << 18
"""Of a file, before it is compressed; one in many is larger."""


def mostly(usual: Strategy[T], rare: Strategy[T], times: int = 3) -> Strategy[T]:
    """The usual one `times` times as often as the other; `one_of` gives equal weight to each."""
    return st.sampled_from([True] * times + [False]).flatmap(lambda is_usual: usual if is_usual else rare)


COUNTS = st.sampled_from([1] * 12 + [2, 3, 10, 100, 3_000, 40_000])
_SIZES = st.sampled_from([MOST_BYTES] * 30 + [1 << 21])


def _fill(pieces: Sequence[tuple[bytes, int]], most: int) -> bytes:
    """Each piece repeated by its count, up to `most` bytes together."""
    parts, room = list[bytes](), most
    for piece, count in pieces:
        part = piece * min(count, room // max(1, len(piece)) + 1)
        parts.append(part)
        room -= len(part)
        if room <= 0:
            break
    return b"".join(parts)


def repeated(piece: Strategy[bytes], *, min_size: int = 0, max_size: int = 30) -> Strategy[bytes]:
    """Some pieces, most of them once, a few very often."""
    return st.builds(_fill, st.lists(st.tuples(piece, COUNTS), min_size=min_size, max_size=max_size), _SIZES)


_SINGLE = b"x|\t\n \\\"{}[]<>():;,.#!=@_-'\r0\x7f\xc3\xff"  # hypothesis likes what stands first
CRUMBS = st.sampled_from(
    [
        *(bytes([byte]) for byte in _SINGLE),
        *(b"\xed\xa0\x80", "é".encode(), "\u2028".encode(), "\u202e".encode(), "😀".encode(), b"\r\n", b"\x1b[31m"),
        *(b"\\|", b'\\"', b"<<", b" ! ", b"^^", b"\\u00e9", b"\\U0001F600", b"\\ud800", b"\\n"),
        *(b"null", b"[]", b"{}", b"-1", b"1e999", b"9" * 30, b"\xef\xbb\xbf", b"@en", b"_:b", b"^^<x>", b" a "),
        *(b"is_a: ", b"synonym: ", b"[Term]\n", b"name: ", b"P279", b"Q5", b"rdfs:subClassOf", b"@prefix p: <x> .\n"),
    ]
)
TEXT = st.one_of(
    st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=12).map(str.encode),
    st.sampled_from([b"Paris", b"name", b"a|b", b"a\\|b\\\\", b"x" * 300, b" ", b""]),
    st.lists(CRUMBS, max_size=4).map(b"".join),
)


@dataclass(frozen=True)
class Accident:
    """Something that happens to the bytes of a file, at one or two places given as parts of its length."""

    what: str
    place: float
    other: float
    crumb: bytes
    count: int

    def happen(self, content: bytes) -> bytes:
        """The content afterwards."""
        first, last = sorted((int(self.place * len(content)), int(self.other * len(content))))
        if self.what == "cut":
            return content[:first]
        if self.what == "drop":
            return content[:first] + content[last:]
        if self.what == "flip":
            return (
                content[:first]
                + bytes(byte ^ 1 << self.count % 8 for byte in content[first : first + 1])
                + content[first + 1 :]
            )
        if self.what == "nul":
            return content[:first] + b"\0" + content[first:]
        if self.what == "insert":
            count = min(self.count, MOST_BYTES // max(1, len(self.crumb)))
            return content[:first] + self.crumb * count + content[first:]
        if self.what == "repeat":
            piece = content[first:last][: 1 << 12]
            return content[:first] + piece * min(self.count, MOST_BYTES // max(1, len(piece))) + content[first:]
        lines = content.splitlines(keepends=True) or [b""]
        line, swapped = int(self.place * (len(lines) - 1)), int(self.other * (len(lines) - 1))
        if self.what == "lines":
            lines[line:line] = lines[line : line + 1] * min(self.count, MOST_BYTES // max(1, len(lines[line])))
        elif self.what == "turns":
            pair = [lines[line], lines[swapped]]
            lines[line:line] = pair * min(self.count, MOST_BYTES // max(1, len(pair[0]) + len(pair[1])))
        elif self.what == "word":
            words = lines[line].split(b"\t") if b"\t" in lines[line] else lines[line].split(b"|")
            words[self.count % len(words)] = self.crumb * min(self.count, MOST_BYTES // max(1, len(self.crumb)))
            lines[line] = (b"\t" if b"\t" in lines[line] else b"|").join(words)
        else:
            lines[line], lines[swapped] = lines[swapped], lines[line]
        return b"".join(lines)


ACCIDENTS = st.lists(
    st.builds(
        Accident,
        st.sampled_from("swap lines turns word word insert repeat flip drop nul cut".split()),
        st.floats(0, 1),
        st.floats(0, 1),
        mostly(CRUMBS, TEXT),
        COUNTS,
    ),
    max_size=5,
)


def damage(content: bytes, accidents: Sequence[Accident]) -> bytes:
    """The content after all accidents."""
    for accident in accidents:
        content = accident.happen(content)
    return content


def damaged(files: Mapping[str, bytes]) -> Strategy[dict[str, bytes]]:
    """A base with accidents to some of its files, or files missing."""

    def build(all_accidents: list[list[Accident]], missing: int) -> dict[str, bytes]:
        found = {name: damage(files[name], one) for name, one in zip(files, all_accidents, strict=True)}
        if 0 <= missing < len(files) and len(files) > 1:
            del found[list(files)[missing]]
        return found

    sound = st.just(list[Accident]())
    return st.builds(
        build,
        st.tuples(*(mostly(sound, ACCIDENTS, 2) if len(files) > 1 else ACCIDENTS for _ in files)).map(list),
        st.sampled_from([-1] * 10 + list(range(len(files)))),
    )


_COMPRESS = {
    "gzip": lambda data: gzip.compress(data, 1, mtime=0),
    "bzip2": lambda data: bz2.compress(data, 1),
    "xz": lambda data: lzma.compress(data, preset=0),
    "zstd": lambda data: zstandard.ZstdCompressor(level=1).compress(data),
}


def _compress(content: bytes, how: Sequence[str], n_parts: int) -> bytes:
    """The content in several streams one after the other; perhaps compressed twice."""
    for name in how:
        size = max(1, len(content) // n_parts)
        content = b"".join(_COMPRESS[name](content[i : i + size]) for i in range(0, len(content), size))
    return content


_COMPRESSIONS = st.sampled_from([*[[]] * 12, *([name] for name in _COMPRESS), ["gzip", "xz"]])
WRAPPER = st.tuples(_COMPRESSIONS, st.sampled_from([1, 1, 1, 2, 50, 2_000]), mostly(st.just([]), ACCIDENTS, 9))


def wrap(content: bytes, wrapper: tuple[list[str], int, list[Accident]]) -> bytes:
    """The content compressed, if it is, and what happened to that."""
    how, n_parts, accidents = wrapper
    return damage(_compress(content, how, n_parts), accidents) if how else content


def pack(files: Mapping[str, bytes], method: int = zipfile.ZIP_DEFLATED) -> bytes:
    """A zip archive."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", method) as file:
        for name, content in files.items():
            file.writestr(zipfile.ZipInfo(name), content, method)
    return buffer.getvalue()


ARCHIVE = st.tuples(
    st.sampled_from([0] * 8 + [1, 1, 1, 2, 2, 6]),
    st.sampled_from([zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED]),
    mostly(st.just([]), ACCIDENTS, 4),
)


def archived(files: dict[str, bytes], archive: tuple[int, int, list[Accident]]) -> dict[str, bytes]:
    """The files, or nested archives of them, which may be damaged."""
    depth, method, accidents = archive
    for i in range(depth):
        files = {"2099AA.nlm" if i < depth - 1 else "base.zip": pack(files, method)}
    return {name: damage(content, accidents) for name, content in files.items()} if depth else files
