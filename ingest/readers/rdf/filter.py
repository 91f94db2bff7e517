"""Find the rows with some predicates in a block of triples, and split them, for all rows at once.

    ex:A <TAB> rdfs:label <TAB> "name"@en <TAB> .

The second word of a row decides. The first separators of all lines are found together; then the length of the second
word and its last two bytes show whether the row may be wanted. Such a row is split at its separators and its closing
quote if it has the common form: single words, at most one literal without escapes, nothing after the dot. All of them
are decoded together. Lines of another form are left to the caller. No row is lost: a skipped line has three words, of
which the second is not wanted, and a dot at the end.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import repeat
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import numpy.typing as npt

_NEWLINE, _SPACE, _TAB, _DOT, _QUOTE, _LESS, _AT, _BACKSLASH = b'\n \t."<@\\'
_NO_FIELDS = b"\n\n\n"


class RowFilter:
    """Finds the lines of a block that may be wanted, and splits them."""

    def __init__(self, words: Iterable[str]) -> None:
        """Select rows whose second word is one of these; each has at least one character."""
        spelled = [word.encode() for word in words]
        keys = [len(word) << 16 | word[-1] << 8 | (word[-2] if len(word) > 1 else _SPACE) for word in spelled]
        self._keys = np.array(sorted(set(keys)), dtype=np.int64)

    def cut(self, block: bytes) -> Rows:
        """The lines that may be wanted rows, or are not rows.

        Args:
            block: Lines joined by newlines, without one at the end and without NUL.
        """
        characters = np.frombuffer(bytearray(block + b"\n"), dtype=np.uint8)
        separators = np.flatnonzero(characters <= _SPACE)
        last = np.flatnonzero(characters[separators] == _NEWLINE)
        ends = separators[last]
        starts = np.append(0, ends[:-1] + 1)
        first = np.append(0, last[:-1] + 1)
        separators = np.append(separators, (len(characters), len(characters)))
        word_start, word_end = separators[first] + 1, separators[first + 1]
        length = word_end - word_start
        before_last = np.where(length > 1, _at(characters, word_end - 2), _SPACE)
        keys = length << 16 | _at(characters, word_end - 1) << 8 | before_last
        # Not a row: an empty first or second word, no third word, no dot at the end, a prefix, a row about a row.
        is_row = (word_start - 1 > starts) & (length > 0) & (word_end + 2 < ends)
        is_row &= characters[ends - 1] == _DOT
        is_row &= (characters[starts] != _AT) & ((characters[starts] != _LESS) | (_at(characters, starts + 1) != _LESS))
        wanted = np.flatnonzero(~is_row | np.isin(keys, self._keys))
        bounds = starts[wanted], separators[first[wanted]], word_end[wanted], separators[first[wanted] + 2]
        is_cut = _cut(characters, is_row[wanted], *bounds, ends[wanted])
        return Rows(block, characters, wanted, starts, ends, is_cut)


class Rows:
    r"""The selected lines: iterates over number, subject, predicate, object, and the rest after the object.

    The number is that of the line in the block, from 0. An object is a word, or the text of a literal after a quote
    (``"name``); the rest is ``@en\t.`` or ``.``. A line of another form has four empty fields.
    """

    def __init__(
        self,
        block: bytes,
        characters: npt.NDArray[np.uint8],
        wanted: npt.NDArray[np.int64],
        starts: npt.NDArray[np.int64],
        ends: npt.NDArray[np.int64],
        is_cut: npt.NDArray[np.bool_],
    ) -> None:
        """Keep the lines; split lines have newlines instead of separators in `characters`."""
        self._block = block
        self._starts, self._ends = starts, ends
        self._numbers = wanted.tolist()
        text = characters.tobytes()
        places = zip(starts[wanted].tolist(), ends[wanted].tolist(), is_cut.tolist(), strict=True)
        try:
            joined = b"\n".join([text[start:end] if is_whole else _NO_FIELDS for start, end, is_whole in places])
            self._fields = iter(joined.decode("utf-8").split("\n"))
        except UnicodeDecodeError:
            self._fields = repeat("")

    def __iter__(self) -> Iterator[tuple[int, str, str, str, str]]:
        fields = self._fields
        return zip(self._numbers, fields, fields, fields, fields)  # noqa: B905 - the last of no rows is one field

    def line(self, number: int) -> bytes:
        """A line as it is in the file."""
        return self._block[self._starts[number] : self._ends[number]]

    def lines_after(self, number: int) -> list[bytes]:
        """All lines after this one."""
        return self._block[self._ends[number] + 1 :].split(b"\n") if number + 1 < len(self._ends) else []


def _cut(
    characters: npt.NDArray[np.uint8],
    is_row: npt.NDArray[np.bool_],
    starts: npt.NDArray[np.int64],
    first: npt.NDArray[np.int64],
    second: npt.NDArray[np.int64],
    third: npt.NDArray[np.int64],
    ends: npt.NDArray[np.int64],
) -> npt.NDArray[np.bool_]:
    """Put newlines between the fields of rows of the common form; returns which rows have it.

    Args:
        characters: The block, which is changed.
        is_row: Whether each line is a row, (n,).
        starts: Starts of the lines, (n,).
        first, second, third: Positions of the separators, (n,); missing ones are beyond the end of the row.
        ends: Newlines of the lines, (n,).
    """
    beyond = np.full(3, len(characters))
    quotes = np.append(np.flatnonzero(characters == _QUOTE), beyond)
    quote = np.searchsorted(quotes, starts)
    opening, closing, next_quote = quotes[quote], quotes[quote + 1], quotes[quote + 2]
    is_literal = (opening == second + 1) & (closing < ends) & (next_quote > ends)
    is_word = (opening > ends) & (third == ends - 2) & (third > second + 1)
    is_cut = is_row & (is_literal | is_word) & _is_blank(characters, first) & _is_blank(characters, second)
    is_cut &= is_literal | _is_blank(characters, third)
    escapes = np.flatnonzero(characters == _BACKSLASH)
    if len(escapes):
        is_cut &= np.searchsorted(escapes, starts) == np.searchsorted(escapes, ends)
    places = np.concatenate((first, second, np.where(is_literal, closing, third)))
    characters[places[np.tile(is_cut, 3)]] = _NEWLINE
    return np.asarray(is_cut, dtype=np.bool_)


def _is_blank(characters: npt.NDArray[np.uint8], places: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
    """Whether there is a space or a tab, and not another control character."""
    found = _at(characters, places)
    blank: npt.NDArray[np.bool_] = (found == _SPACE) | (found == _TAB)
    return blank


def _at(characters: npt.NDArray[np.uint8], places: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """The bytes at these positions; a position outside gives the nearest byte."""
    found: npt.NDArray[np.int64] = characters.take(places, mode="clip").astype(np.int64)
    return found
