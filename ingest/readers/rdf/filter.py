"""Cutting the wanted rows out of a block of triples, for all rows at once.

    ex:A <TAB> rdfs:label <TAB> "name"@en <TAB> .

A row is told by its second word: where the first separators of each line are is found for all lines together, and then
the word's length and last two bytes decide whether it may be wanted. Of what is left, a row of the common form (single
words, one literal without escapes at most, nothing after the dot) is cut at its separators and its closing quote, and
all of them are decoded together. What is of another form, a row or not, is left to the caller. No row is lost: what is
passed over has three words, the second not wanted, and a dot at the end.
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
    """Finds the lines of a block that have to be looked at, and cuts them."""

    def __init__(self, words: Iterable[str]) -> None:
        """Look for rows whose second word is one of these; each has at least one character."""
        spelled = [word.encode() for word in words]
        keys = [len(word) << 16 | word[-1] << 8 | (word[-2] if len(word) > 1 else _SPACE) for word in spelled]
        self._keys = np.array(sorted(set(keys)), dtype=np.int64)

    def cut(self, block: bytes) -> Rows:
        """The lines that may be wanted rows, or are no rows.

        Args:
            block: Lines joined by newlines, the last one without; no NUL.
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
        # Unlike a row: an empty first or second word, no third one, no dot at the end, a prefix, a row about a row.
        is_row = (word_start - 1 > starts) & (length > 0) & (word_end + 2 < ends)
        is_row &= characters[ends - 1] == _DOT
        is_row &= (characters[starts] != _AT) & ((characters[starts] != _LESS) | (_at(characters, starts + 1) != _LESS))
        wanted = np.flatnonzero(~is_row | np.isin(keys, self._keys))
        bounds = starts[wanted], separators[first[wanted]], word_end[wanted], separators[first[wanted] + 2]
        is_cut = _cut(characters, is_row[wanted], *bounds, ends[wanted])
        return Rows(block, characters, wanted, starts, ends, is_cut)


class Rows:
    r"""The lines that were found: iterates over number, subject, predicate, object, and what follows the object.

    Numbers are those of the lines in the block, from 0. An object is a word, or the text of a literal after a quote
    (``"name``); what follows is ``@en\t.`` or ``.``. A line of another form has four empty fields.
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
        """Take over the lines; those that are cut have newlines instead of their separators in `characters`."""
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
        """A line as it stands."""
        return self._block[self._starts[number] : self._ends[number]]

    def lines_after(self, number: int) -> list[bytes]:
        """All lines from the next one on."""
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
    """Put newlines between the fields of the rows of the common form; returns which ones are.

    Args:
        characters: The block, to be changed.
        is_row: Which lines are rows at all, (n,).
        starts: Of the lines, (n,).
        first: Their first separators, (n,), and so on; those that a row does not have lie beyond its end.
        second: The second ones.
        third: The third ones.
        ends: Their newlines, (n,).
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
    """Where there is a space or a tab, rather than another control character."""
    found = _at(characters, places)
    blank: npt.NDArray[np.bool_] = (found == _SPACE) | (found == _TAB)
    return blank


def _at(characters: npt.NDArray[np.uint8], places: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """The bytes at some places; of a place before the first or after the last, that one."""
    found: npt.NDArray[np.int64] = characters.take(places, mode="clip").astype(np.int64)
    return found
