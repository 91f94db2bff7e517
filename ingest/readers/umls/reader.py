"""Read UMLS in its Rich Release Format: an entity for each CUI, with names from MRCONSO.RRF.

`ingest.readers.umls.rows` describes the rows, `ingest.readers.umls.files` where files are searched. These are read:

- ``MRCONSO.RRF``, one row for each atom (a name in a source), 18 columns: CUI LAT TS LUI STT SUI ISPREF AUI SAUI SCUI
  SDUI SAB TTY CODE STR SRL SUPPRESS CVF; `ingest.readers.umls.atoms` decides which atoms are used and which name is
  preferred;
- ``MRSTY.RRF``, if present: semantic types. The native types of an entity are, for each semantic type, its TUI, its
  name, its tree number and all tree numbers above it, and its semantic group;
- ``MRDEF.RRF``, if present: one definition, of an atom that was read, is the description;
- ``MRRANK.RRF``, ``SemGroups.txt`` and ``SRDEF``, if present, and the columns that ``MRFILES.RRF`` lists.

`Entity.extra` has ``sab``, the sources of its names in alphabetical order, joined by commas, and ``srl``, the lowest
restriction level among them. Good rows that the options exclude are counted in `ReadReport.filtered` under the first
reason that applies: ``other_language``, ``suppressed``, ``other_source``, ``restricted``, ``semantic_type``.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence

from ingest.base.reader_base import ReaderBase
from ingest.base.type_map import TypeMap
from ingest.io.report import ReadReport, make_excerpt
from ingest.io.streams import ByteSource
from ingest.readers.umls.atoms import UNKNOWN_LEVEL, AtomFilter, Atoms, Ranks
from ingest.readers.umls.files import UmlsFiles, is_umls
from ingest.readers.umls.index import DefinitionIndex, TypeIndex
from ingest.readers.umls.options import UmlsOptions
from ingest.readers.umls.rows import Layout, make_keys, read_blocks
from ingest.readers.umls.small_files import read_small_file
from ingest.readers.umls.types import SemanticTypes
from pearl_qdrant.errors import FormatError
from pearl_qdrant.records import Entity

__all__ = ["UmlsOptions", "UmlsReader", "is_umls"]

SEMANTIC_TYPE = "semantic_type"

MAX_SMALL_ROWS = 20_000
"""Rows of MRRANK.RRF and of MRFILES.RRF, which have some 1,000 and 100."""

_MAX_SMALL_BYTES = 1 << 12  # of such a row that are parsed
_LEVELS = tuple("0123456789")

COLUMNS = {
    "MRCONSO": "CUI LAT TS LUI STT SUI ISPREF AUI SAUI SCUI SDUI SAB TTY CODE STR SRL SUPPRESS CVF".split(),
    "MRSTY": "CUI TUI STN STY ATUI CVF".split(),
    "MRDEF": "CUI AUI ATUI SATUI SAB DEF SUPPRESS CVF".split(),
}
_NEEDED = {
    "MRCONSO": "CUI LAT TS STT ISPREF AUI SAB TTY STR SRL SUPPRESS".split(),
    "MRSTY": "CUI TUI STN STY".split(),
    "MRDEF": "CUI AUI SAB DEF SUPPRESS".split(),
}


class UmlsReader(ReaderBase):
    """A UMLS release; a `Reader`."""

    def __init__(
        self,
        paths: Sequence[str | os.PathLike[str]],
        options: UmlsOptions | None = None,
        *,
        type_map: TypeMap | None = None,
        limit: int | None = None,
    ) -> None:
        """Find and open the files.

        Args:
            paths: The META folder or one above it, an archive, or files: MRCONSO.RRF, and MRSTY.RRF and others with
                it.
            options: What is read; by default English names that are not suppressed.
            type_map: From native types to coarse ones; the shipped one by default.
            limit: See `ReaderBase`.

        Raises:
            FormatError: If a file is missing, damaged, or not of the format.
            SettingsError: If a semantic type is not known.
        """
        self._options = options or UmlsOptions()
        super().__init__(type_map=type_map, limit=limit)
        self._files = UmlsFiles(paths)
        self.held.callback(self._files.close)
        try:
            sources = self._files.sources
            self._conso = sources["MRCONSO"]
            self._types = SemanticTypes.load(sources.get("SEMGROUPS"), sources.get("SRDEF"))
            self._wanted = self._types.resolve(self._options.semantic_types)
            if self._wanted and "MRSTY" not in sources:
                message = (
                    "there is no MRSTY.RRF beside it, which is needed to select semantic types. Add it to the paths"
                )
                raise FormatError(self._conso.path, None, message)
            self._layouts, self._n_promised = _read_layouts(sources.get("MRFILES"))
            self._ranks = _read_ranks(sources.get("MRRANK"))
        except BaseException:
            self.close()
            raise

    def read_rows(self, report: ReadReport) -> Iterator[Entity]:
        """One entity for each run of atoms."""
        sources, options = self._files.sources, self._options
        self._note(report)
        types = TypeIndex.read(sources.get("MRSTY"), self._layouts["MRSTY"], self._types, report)
        definitions = DefinitionIndex.read(
            sources.get("MRDEF"), self._layouts["MRDEF"], report, sabs=options.sabs, suppress=options.suppress
        )
        # There are few combinations of types: each is mapped and compared with the options once.
        combinations = [(kb_types, self.type_map.map_types(kb_types)) for kb_types in types.kb_types]
        unwanted = {
            place
            for place, (kb_types, _) in enumerate(combinations)
            if self._wanted and self._wanted.isdisjoint(kb_types)
        }
        atom_filter = AtomFilter(options, self._ranks)
        n_skipped = report.n_skipped
        report.rows += n_skipped
        n_before = report.rows
        for block in read_blocks(self._conso, self._layouts["MRCONSO"], report):
            report.rows += len(block) + report.n_skipped - n_skipped
            n_skipped = report.n_skipped
            atoms = atom_filter.choose(block, report)
            if atoms is None:
                continue
            keys = make_keys(atoms.ids)
            chosen = _choose_definitions(definitions, atoms, definitions.find(keys)) if len(definitions) else {}
            places = types.find(keys)
            yield from _make_entities(atoms, places, chosen, combinations, unwanted, report)
            n_skipped = report.n_skipped  # names beyond the limit of an entity are not rows
        report.rows += report.n_skipped - n_skipped
        n_rows = report.rows - n_before
        if self._n_promised not in (None, n_rows):
            message = f"MRFILES.RRF states {self._n_promised:,} rows, but there are {n_rows:,}. Is the file complete?"
            report.notes.append(f"{self._conso.path}: {message}")
        for sab in options.sabs:
            if sab.encode() not in atom_filter.seen_sabs:
                seen = ", ".join(make_excerpt(seen.decode()) for seen in sorted(atom_filter.seen_sabs)) or "none"
                report.notes.append(f"{self._conso.path}: no row of source {sab} (there are: {seen})")

    def _note(self, report: ReadReport) -> None:
        options, path = self._options, self._conso.path
        languages = ", ".join(options.languages) or "all"
        others = ", ".join(sorted(set(self._files.sources) - {"MRCONSO"})) or "nothing"
        report.notes.append(f"{path}: UMLS, languages: {languages}; with it: {others}")
        if "MRSTY" not in self._files.sources:
            report.notes.append(f"{path}: there is no MRSTY.RRF beside it, so no entity has a type")


def _make_entities(
    atoms: Atoms,
    places: list[int],
    definitions: dict[int, str],
    combinations: list[tuple[tuple[str, ...], tuple[str, ...]]],
    unwanted: set[int],
    report: ReadReport,
) -> Iterator[Entity]:
    """One entity for each run of atoms of a block.

    Args:
        atoms: The runs.
        places: Index of each run's types in `combinations`, (runs,).
        definitions: By run, if there is one.
        combinations: Native and coarse types.
        unwanted: Indices of the combinations that the options exclude.
        report: Counts excluded rows.
    """
    bounds, all_names, all_sabs = atoms.bounds, atoms.names, atoms.sabs
    aliases: tuple[str, ...]
    n_left_out = 0
    ids = b"|".join(atoms.ids).decode().split("|")
    find_definition = definitions.get
    for run, (id_, place, level) in enumerate(zip(ids, places, atoms.levels, strict=True)):
        first, after = bounds[run], bounds[run + 1]
        if place in unwanted:
            n_left_out += after - first
            continue
        kb_types, types = combinations[place]
        sab, n_sources = all_sabs[first], 1
        if after - first == 1:
            name, aliases = all_names[first], ()
        else:
            names = report.bound_names(id_, tuple(dict.fromkeys(all_names[first:after])))
            name, aliases = names[0], names[1:]
            sabs = set(all_sabs[first:after])
            if len(sabs) > 1:
                sab, n_sources = ",".join(sorted(sabs)), len(sabs)
        extra = {"sab": sab} if level == UNKNOWN_LEVEL else {"sab": sab, "srl": _LEVELS[level]}
        yield Entity(id_, name, aliases, kb_types, types, find_definition(run), extra, float(n_sources))
    if n_left_out:
        report.filter_out(SEMANTIC_TYPE, n_left_out)


def _choose_definitions(
    definitions: DefinitionIndex, atoms: Atoms, rows: tuple[list[int], list[int]]
) -> dict[int, str]:
    """The definition of each run that has one."""
    chosen: dict[int, str] = {}
    runs = [(run, *found) for run, found in enumerate(zip(*rows, strict=True)) if found[0] < found[1]]
    if not runs:
        return chosen
    auis = atoms.block.cells("AUI", atoms.rows)
    for run, first, after in runs:
        text = definitions.choose(first, after, auis[atoms.bounds[run] : atoms.bounds[run + 1]])
        if text is not None:
            chosen[run] = text
    return chosen


def _read_layouts(mrfiles: ByteSource | None) -> tuple[dict[str, Layout], int | None]:
    """Columns of each table, from the third field of MRFILES.RRF or the usual ones, and the rows of MRCONSO.RRF.

    The number of rows comes from the fifth field; None if MRFILES.RRF does not state it.
    """
    columns = dict(COLUMNS)
    n_rows = None
    for number, cells in _read_small(mrfiles):
        table = cells[0].removesuffix(".RRF") if len(cells) > 2 else ""
        if table in columns:
            columns[table] = cells[2].split(",")
            missing = [name for name in _NEEDED[table] if name not in columns[table]]
            if missing and mrfiles is not None:
                message = f"lists no column {', '.join(missing)} for {cells[0]} (it has: {cells[2]})"
                raise FormatError(mrfiles.path, number, message)
            if table == "MRCONSO" and len(cells) > 4 and cells[4].isascii() and cells[4].isdigit():
                n_rows = int(cells[4][:18])
    names_in = {"MRCONSO": "STR"}
    return {table: Layout(tuple(names), "CUI", names_in.get(table)) for table, names in columns.items()}, n_rows


def _read_ranks(mrrank: ByteSource | None) -> Ranks:
    """MRRANK.RRF: rank, source, term type, SUPPRESS."""
    ranks = {}
    for number, cells in _read_small(mrrank):
        if len(cells) < 3 or not (cells[0].isascii() and cells[0].isdigit()):
            path = "MRRANK.RRF" if mrrank is None else mrrank.path
            raise FormatError(path, number, "expected a rank, a source and a term type. Is this MRRANK.RRF?")
        ranks[cells[1].encode(), cells[2].encode()] = int(cells[0][:9])
    return ranks


def _read_small(source: ByteSource | None) -> Iterator[tuple[int, list[str]]]:
    """Line numbers and fields of a small file that is optional."""
    for number, line in read_small_file(source, most=MAX_SMALL_ROWS, hint="Is it another file?"):
        yield number, line[:_MAX_SMALL_BYTES].split("|")
