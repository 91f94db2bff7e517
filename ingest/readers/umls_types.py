"""Semantic types of UMLS: names, tree numbers and groups, and finding the types that a user names.

The table ships as `umls_semantic_types.tsv`; a ``SemGroups.txt`` or ``SRDEF`` beside the base overrides it.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from importlib import resources

from ingest.io.lines import BadLine, read_lines
from ingest.io.report import make_excerpt
from ingest.io.source import ByteSource
from pearl_qdrant.errors import FormatError, SettingsError

SHIPPED = "umls_semantic_types.tsv"

MAX_TYPES = 1_000
"""Rows of a file that lists semantic types; UMLS has 127, and 54 relations beside them."""

MAX_LENGTH = 255
"""Characters of a name or tree number; those of UMLS have fewer than 50. A tree number gives a type for each dot."""

_MAX_ROW = 1 << 12  # characters of a row that are parsed
_N_NEAR = 3


@dataclass(frozen=True, slots=True)
class SemanticType:
    """One semantic type.

    Attributes:
        tui: Such as ``T047``.
        name: Such as ``Disease or Syndrome``.
        tree_number: Such as ``B2.2.1.2.1``; empty if unknown.
        group: Such as ``DISO``; empty if unknown.
        group_name: Such as ``Disorders``.
    """

    tui: str
    name: str = ""
    tree_number: str = ""
    group: str = ""
    group_name: str = ""

    def kb_types(self) -> Iterator[str]:
        """Native types of an entity of this type: TUI, name, tree number and those above it, group."""
        yield self.tui
        if self.name:
            yield self.name
        yield from tree_prefixes(self.tree_number)
        if self.group:
            yield self.group


def tree_prefixes(number: str) -> Iterator[str]:
    """A tree number and all those above it, lowest first: ``B2.2`` gives B2.2, B2, B."""
    while number:
        yield number
        head, dot, _ = number.rpartition(".")
        number = head if dot else number[:1] if len(number) > 1 else ""


class SemanticTypes:
    """The table of semantic types, by TUI."""

    def __init__(self, types: Iterable[SemanticType]) -> None:
        self._types = {found.tui: found for found in types}

    @classmethod
    def load(cls, sem_groups: ByteSource | None = None, srdef: ByteSource | None = None) -> SemanticTypes:
        """The shipped table, overridden by the files of the base.

        Args:
            sem_groups: ``SemGroups.txt``: group, its name, TUI and type, separated by bars, without a header.
            srdef: ``SRDEF``: rows that begin with ``STY`` hold TUI, type and tree number.

        Raises:
            FormatError: If one of the files has another form.
        """
        table = cls(_read_shipped())
        hint = "Is this a list of semantic types?"
        for _, cells in read_small_file(sem_groups, most=MAX_TYPES, hint=hint, width=4):
            group, group_name, tui, name = cells[:4]
            table._change(tui, name=name, group=group, group_name=group_name)
        for _, cells in read_small_file(srdef, most=MAX_TYPES, hint=hint, width=4):
            if cells[0] == "STY":
                table._change(cells[1], name=cells[2], tree_number=cells[3])
        return table

    def get(self, tui: str, *, name: str = "", tree_number: str = "") -> SemanticType:
        """A type by its TUI; one that is not in the table is made from the arguments."""
        return self._types.get(tui) or SemanticType(tui, name, tree_number)

    def resolve(self, wanted: Iterable[str]) -> frozenset[str]:
        """The requested types, as values of `SemanticType.kb_types`.

        Args:
            wanted: TUIs, type names, tree numbers, groups or their names; case does not matter.

        Raises:
            SettingsError: If one of them is unknown; lists similar ones.
        """
        known: dict[str, str] = {}
        for found in self._types.values():
            # Points have the abbreviation of a group as a type, not its name.
            for spelling in (*found.kb_types(), found.group):
                known.setdefault(spelling.casefold(), spelling)
        for found in self._types.values():
            known.setdefault(found.group_name.casefold(), found.group)
        known.pop("", None)
        return frozenset(known[_check(text.strip().casefold(), text, known)] for text in wanted)

    def _change(self, tui: str, *, name: str, group: str = "", group_name: str = "", tree_number: str = "") -> None:
        old = self.get(tui)
        self._types[tui] = replace(
            old,
            name=name or old.name,
            group=group or old.group,
            group_name=group_name or old.group_name,
            tree_number=tree_number or old.tree_number,
        )


def _check(folded: str, text: str, known: dict[str, str]) -> str:
    """The folded spelling, after a check that it is known."""
    if folded in known:
        return folded
    near = difflib.get_close_matches(folded, known, n=_N_NEAR, cutoff=0.5)
    near += [spelling for spelling in known if folded and folded in spelling and spelling not in near][:_N_NEAR]
    advice = f"Similar ones: {', '.join(known[spelling] for spelling in near)}. " if near else ""
    raise SettingsError(
        f"'{text}' is not a semantic type of UMLS. {advice}"
        "Give a TUI (T047), a type's name (Disease or Syndrome), a tree number (B2.2.1.2) or a group (DISO, Disorders)"
    )


@lru_cache(maxsize=1)
def _read_shipped() -> tuple[SemanticType, ...]:
    text = resources.files("ingest.readers").joinpath(SHIPPED).read_text(encoding="utf-8")
    return tuple(SemanticType(*line.split("\t")) for line in text.splitlines() if not line.startswith("#"))


def read_small_file(
    source: ByteSource | None, *, most: int, hint: str, width: int = 0
) -> Iterator[tuple[int, list[str]]]:
    """Line numbers and fields of a small file, blank lines left out; nothing for a file that is not there.

    Args:
        source: The file, or None.
        most: Rows that it may have.
        hint: Ends the error for a file with more, as in "Is it another file?".
        width: Fields that each row has at least.

    Raises:
        FormatError: If a line is not text or has too few fields, or there are too many.
    """
    n_rows = 0
    for number, line in read_lines(source) if source is not None else ():
        assert source is not None
        if isinstance(line, BadLine):
            raise FormatError(source.path, number, f"{line.reason}: {make_excerpt(line.text)!r}. Fetch the file again")
        if line.strip():
            n_rows += 1
            if n_rows > most:
                raise FormatError(source.path, number, f"has over {most:,} rows. {hint}")
            cells = [cell.strip() for cell in line[:_MAX_ROW].split("|")]
            if len(cells) < width:
                raise FormatError(source.path, number, f"expected {width} fields or more, found {len(cells)}")
            check_lengths(source.path, cells[:width])
            yield number, cells


def check_lengths(path: str, cells: Iterable[str]) -> None:
    """Refuse a cell that is too long for a name or number of a semantic type.

    Raises:
        FormatError: If one of the cells is too long.
    """
    longest = max(map(len, cells), default=0)
    if longest > MAX_LENGTH:
        raise FormatError(
            path, None, f"has a semantic type of {longest:,} characters (limit: {MAX_LENGTH}). Is the file damaged?"
        )
