"""Read UMLS and RxNorm in Rich Release Format (RRF): an entity for each CUI or RXCUI, with names from MRCONSO.RRF.

RRF is UTF-8, one row a line; each field ends with a bar; there is no quoting and no header. ``MRCONSO.RRF`` has a row
for each atom (a name in a source), ``MRSTY.RRF`` the semantic types of the ids, ``MRDEF.RRF`` definitions of atoms,
``MRRANK.RRF`` which source and term type come first. All but the first may be missing; those of RxNorm are named
RXNCONSO.RRF and so on.

The order of the names of an id, best first: requested language, TS=P before S, STT=PF before others, ISPREF=Y before N,
the source RXNORM, the rank of source and term type, then the string and the AUI. So the canonical name does not depend
on the order of the rows. Good rows that the options exclude are counted under the first reason that applies:
``other_language``, ``suppressed``, ``other_source``, ``restricted``, ``semantic_type``.

Types and definitions wait in a temporary SQLite database; memory does not grow with the release.
"""

from __future__ import annotations

import difflib
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from importlib import resources
from itertools import groupby
from operator import itemgetter
from xml.etree.ElementTree import Element

from ingest.base.format import PathLike, ReadOptions
from ingest.base.languages import OF_UMLS, language_code
from ingest.base.reader import Reader, RowStore
from ingest.base.type_map import TypeMap
from ingest.io import limits, reasons
from ingest.io.encoding import BadLine, read_lines
from ingest.io.report import ReadReport, make_excerpt
from ingest.io.streams import STDIN, ByteSource, list_inputs, open_source
from ingest.readers.converted import read_elements, text_of
from ingest.readers.signs import UMLS_PACKED, last_part, umls_table_of, umls_table_of_rows
from pearl_qdrant.errors import FormatError, SettingsError
from pearl_qdrant.records import Entity

SHIPPED = "umls_semantic_types.tsv"

_N_NEAR = 3


def tree_prefixes(number: str) -> Iterator[str]:
    """A tree number and all those above it, lowest first: ``B2.2`` gives B2.2, B2, B."""
    while number:
        yield number
        head, dot, _ = number.rpartition(".")
        number = head if dot else number[:1] if len(number) > 1 else ""


@lru_cache(maxsize=1)
def shipped_types() -> tuple[list[str], ...]:
    """Rows of the table of semantic types that ships: TUI (``T047``), name, tree number, group (``DISO``), its name."""
    text = resources.files("ingest.readers").joinpath(SHIPPED).read_text(encoding="utf-8")
    return tuple(line.split("\t") for line in text.splitlines() if not line.startswith("#"))


def _kb_types(tui: str, name: str, number: str, group: str = "") -> tuple[str, ...]:
    """Native types of an entity of a semantic type: TUI, name, tree number and those above it, group."""
    return tuple(filter(None, (tui, name, *tree_prefixes(number), group)))


@lru_cache(maxsize=1)
def semantic_types() -> Mapping[str, tuple[str, ...]]:
    """The native types of each semantic type of the table that ships, by TUI."""
    return {row[0]: _kb_types(*row[:4]) for row in shipped_types()}


def resolve_types(wanted: Iterable[str]) -> frozenset[str]:
    """Requested semantic types (TUIs, type names, tree numbers, groups or their names; case does not matter), as native
    types. Raises SettingsError if one of them is unknown; lists similar ones.
    """
    known = {name.casefold(): group for *_, group, name in shipped_types()}  # points have the abbreviation
    known |= {spelling.casefold(): spelling for found in semantic_types().values() for spelling in found}
    result = set()
    for text in wanted:
        folded = text.strip().casefold()
        if folded not in known:
            near = difflib.get_close_matches(folded, known, n=_N_NEAR, cutoff=0.5)
            near += [spelling for spelling in known if folded and folded in spelling and spelling not in near][:_N_NEAR]
            advice = f"Similar ones: {', '.join(known[spelling] for spelling in near)}. " if near else ""
            raise SettingsError(
                f"'{text}' is not a semantic type of UMLS. {advice}Give a TUI (T047), a type's name (Disease or "
                "Syndrome), a tree number (B2.2.1.2) or a group (DISO, Disorders)"
            )
        result.add(known[folded])
    return frozenset(result)


DEFINITION_SOURCES = ("MSH", "NCI", "SNOMEDCT_US", "HPO", "GO", "CSP", "MEDLINEPLUS")
"""Sources of definitions, preferred first; the others follow by name."""

_ISO_OF = {code: language for language, code in OF_UMLS.items()}  # of NOR, which is nb, nn and no, the last one

COLUMNS = {
    "MRCONSO": "CUI LAT TS LUI STT SUI ISPREF AUI SAUI SCUI SDUI SAB TTY CODE STR SRL SUPPRESS CVF".split(),
    "MRSTY": "CUI TUI STN STY ATUI CVF".split(),
    "MRDEF": "CUI AUI ATUI SATUI SAB DEF SUPPRESS CVF".split(),
    "MRRANK": "RANK SAB TTY SUPPRESS".split(),
}
_MAIN, _NAME_AT = "MRCONSO", 14
_SPACES = " \t\r\v\f"  # stripped from names; spaces of other scripts may be part of them
_RXNORM_SYNONYMS = frozenset(("SY", "TMSY", "PSN", "ET"))  # kinds of RxNorm atoms that are no normal form of the name
_MAX_DEFINITIONS = 256  # of an id
_MAX_TYPES = 64  # of an id
_NO_LEVEL = "~"  # sorts behind all digits

_Atom = tuple[tuple[object, ...], str, str, str, str, str]
"""A key by which the best one comes first, then name, language, source, level and AUI."""


def umls_language(code: str) -> str:
    """The three-letter code of UMLS for a language given by ISO 639-1, 639-2 or that code; ``en-GB`` is ``ENG``. Raises
    SettingsError if it is none of these.
    """
    plain = code.strip().replace("_", "-").partition("-")[0]
    known = OF_UMLS.get(language_code(plain), plain.upper())
    if len(known) == 3 and known.isascii() and known.isalpha():
        return known
    message = f"'{code}' is not a language of UMLS. Give a code of three letters (ENG), or one of: {', '.join(OF_UMLS)}"
    raise SettingsError(message)


class UmlsReader(Reader):
    """A release; a `Reader`."""

    def __init__(self, paths: Sequence[PathLike], options: ReadOptions, type_map: TypeMap | None = None) -> None:
        """Find and open the files: the META folder or one above it, a zip archive, or MRCONSO.RRF and others with it.
        Raises FormatError if a file is missing, damaged, or not of the format; SettingsError if an option makes no
        sense, or a semantic type is not known.
        """
        super().__init__(type_map=type_map, limit=options.limit)
        self._languages = tuple(dict.fromkeys(map(umls_language, options.languages or ("en",))))
        self._sabs = tuple(dict.fromkeys(sab.strip().upper() for sab in options.sabs))
        self._srl_max = options.srl_max
        try:
            self._sources = _find_files(paths)
            for source in self._sources.values():
                self.held.callback(source.close)
            self._wanted = resolve_types(options.semantic_types)
            if self._wanted and "MRSTY" not in self._sources:
                message = "there is no MRSTY.RRF beside it, which is needed to select semantic types. Add it"
                raise FormatError(self._sources["MRCONSO"].path, None, message)
            self._ranks = self._read_ranks()
        except BaseException:
            self.close()
            raise

    def read_rows(self, report: ReadReport) -> Iterator[Entity]:
        path = self._sources["MRCONSO"].path
        others = ", ".join(sorted(set(self._sources) - {"MRCONSO"})) or "nothing"
        report.notes.append(f"{path}: UMLS, languages: {', '.join(self._languages)}; with it: {others}")
        if "MRSTY" not in self._sources:
            report.notes.append(f"{path}: there is no MRSTY.RRF beside it, so no entity has a type")
        self._kb_types_of: dict[str, tuple[str, ...]] = {}
        self._types_of = lru_cache(maxsize=4_096)(
            lambda tuis: self.find_types(one for tui in tuis for one in self._kb_types_of[tui])
        )
        with RowStore() as types, RowStore() as definitions:
            types.add(self._read_types(report))
            definitions.add(self._read_definitions(report))
            seen_sabs: set[str] = set()
            for cui, atoms in groupby(self._read("MRCONSO", report), itemgetter(0)):
                chosen = self._choose(atoms, seen_sabs, report)
                entity = self._make_entity(cui, chosen, types, definitions, report) if chosen else None
                if entity is not None:
                    yield entity
        for sab in self._sabs:
            if sab not in seen_sabs:
                seen = ", ".join(map(make_excerpt, sorted(seen_sabs))) or "none"
                report.notes.append(f"{path}: no row of source {sab} (there are: {seen})")

    def _choose(self, atoms: Iterable[list[str]], seen_sabs: set[str], report: ReadReport) -> list[_Atom]:
        """The atoms of an id that the options include, best first."""
        sabs, languages = self._sabs, self._languages
        chosen: list[_Atom] = []
        for n_rows, row in enumerate(atoms, 1):
            _, lat, ts, _, stt, _, ispref, aui, _, _, _, sab, tty, _, name, srl, suppress, _ = row
            if n_rows > limits.MAX_ROWS:
                report.skip_here(reasons.TOO_MANY_ROWS, "|".join(row))
                continue
            if lat not in languages:
                report.filter_out(reasons.OTHER_LANGUAGE)
                continue
            if suppress != "N":
                report.filter_out(reasons.SUPPRESSED)
                continue
            if sabs:
                seen_sabs.add(sab)
                if sab not in sabs:
                    report.filter_out(reasons.OTHER_SOURCE)
                    continue
            level = srl if len(srl) == 1 and srl.isascii() and srl.isdigit() else _NO_LEVEL
            if self._srl_max is not None and (level == _NO_LEVEL or int(level) > self._srl_max):
                report.filter_out(reasons.RESTRICTED)
                continue
            rank = -self._ranks.get((sab, tty), -1)
            origin = (sab != "RXNORM", sab == "RXNORM" and tty in _RXNORM_SYNONYMS)
            key = (languages.index(lat), ts != "P", stt != "PF", ispref != "Y", *origin, rank, name, aui)
            chosen.append((key, name.strip(_SPACES), _ISO_OF.get(lat, lat.lower()), sab, level, aui))
        chosen.sort(key=itemgetter(0))
        return chosen

    def _make_entity(
        self, cui: str, atoms: list[_Atom], types: RowStore, definitions: RowStore, report: ReadReport
    ) -> Entity | None:
        """The entity of some atoms; None if it is of another semantic type."""
        tuis = tuple(sorted(set(types.find(cui, _MAX_TYPES)))) if self._kb_types_of else ()
        kb_types, coarse = self._types_of(tuis)
        if self._wanted and self._wanted.isdisjoint(kb_types):
            report.filter_out(reasons.SEMANTIC_TYPE, len(atoms))
            return None
        sabs = sorted({sab for *_, sab, _, _ in atoms})
        level = min(level for *_, level, _ in atoms)
        languages: dict[str, str] = {}
        for _, name, language, *_ in atoms:
            languages.setdefault(name, language)  # the first requested one of each
        extra = {"sab": ",".join(sabs)} | ({} if level == _NO_LEVEL else {"srl": level})
        description = self._find_definition(cui, {aui for *_, aui in atoms}, definitions)
        return report.make_entity(
            cui, list(languages), kb_types, coarse, description, extra, float(len(sabs)), languages
        )

    def _find_definition(self, cui: str, auis: set[str], definitions: RowStore) -> str | None:
        """The best definition of an id that belongs to one of the atoms or to none: by source, then the shorter one."""
        rows = definitions.find(cui, _MAX_DEFINITIONS) if "MRDEF" in self._sources else ()
        return min((row for row in rows if not row[-1] or row[-1] in auis), default=[None, None])[-2]

    def _read_types(self, report: ReadReport) -> Iterator[tuple[str, str]]:
        """Ids and TUIs of MRSTY; what a TUI means is kept."""
        for cui, tui, number, name, *_ in self._read("MRSTY", report):
            if tui and tui not in self._kb_types_of:
                found = semantic_types().get(tui) or _kb_types(tui, name, number)
                self._kb_types_of[tui] = found[: limits.MAX_KB_TYPES]
            if tui:
                yield cui, tui

    def _read_definitions(self, report: ReadReport) -> Iterator[tuple[str, object]]:
        """Ids and definitions of MRDEF, the least is the best: place and name of its source, length, text, AUI."""
        order = list(self._sabs or DEFINITION_SOURCES)
        for cui, aui, _, _, sab, text, suppress, _ in self._read("MRDEF", report):
            text = text.strip()
            if text and suppress == "N" and (not self._sabs or sab in self._sabs):
                place = order.index(sab) if sab in order else len(order)
                yield cui, (place, sab, len(text), text, aui)

    def _read_ranks(self) -> Mapping[tuple[str, str], int]:
        """The rank of each source and term type; the highest one is the best."""
        ranks: dict[tuple[str, str], int] = {}
        for rank, sab, tty, _ in self._read("MRRANK", ReadReport(max_errors=None)):
            if not rank[:9].isdecimal():
                raise FormatError(self._sources["MRRANK"].path, None, f"'{make_excerpt(rank)}' is no rank")
            ranks[sab, tty] = int(rank[:9])
        return ranks

    def _read(self, table: str, report: ReadReport) -> Iterator[list[str]]:
        """The fields of each sound row of a file, if it is there; the rows of MRCONSO, and all bad ones, count."""
        source = self._sources.get(table)
        if source is None:
            return
        is_main, width = table == _MAIN, len(COLUMNS[table])
        name_at = _NAME_AT if is_main else 0
        n_good = n_bad = 0
        for number, line in read_lines(source):
            report.place = source.path, number
            if isinstance(line, BadLine):
                report.rows += 1
                report.skip_here(line.reason, line.text)
                continue
            cells = line.split("|")
            if len(cells) == width + 1 and not cells[-1] and cells[0].strip(_SPACES) and cells[name_at].strip(_SPACES):
                n_good += 1
                report.rows += is_main
                yield cells[:-1]
            elif line.strip():
                n_bad += 1
                if not n_good and n_bad >= 100:
                    break
                report.rows += 1
                report.skip_here(_find_fault(cells, width), line)
        if not n_good:
            what = f"has no sound row (expected {width} fields, each followed by a bar)"
            raise FormatError(source.path, None, f"{what}. Is this an unmodified RRF file?")


def _find_fault(cells: list[str], width: int) -> str:
    if len(cells) != width + 1 or cells[-1]:
        return reasons.TOO_FEW_COLUMNS if len(cells) <= width else reasons.TOO_MANY_COLUMNS
    return reasons.NO_NAME if cells[0].strip(_SPACES) else reasons.NO_ID


# Files


def _find_files(paths: Sequence[PathLike]) -> dict[str, ByteSource]:
    """The files of a release, open, by table; MRCONSO is among them, and each is found once."""
    if not paths:
        raise ValueError("nothing to read: no path was given")
    sources: dict[str, ByteSource] = {}
    for path in (os.fspath(path) for path in paths):
        for table, name in sorted(_tables_in(path), key=lambda one: (one[0], one[1].count("/"))):
            known = sources.get(table)
            if known is None:
                sources[table] = open_source(name)
            elif known.path.count("/") == name.count("/") or not known.path.startswith(path):
                raise FormatError(
                    name, None, f"{table} was found twice: also {known.path}. Name the files of one release"
                )
    if "MRCONSO" not in sources:
        raise FormatError(os.fspath(paths[0]), None, "there is no MRCONSO.RRF, which has the names. Add it")
    return sources


def _tables_in(path: str) -> list[tuple[str, str]]:
    """The tables that a path shows, each with the path of its file."""
    if path == STDIN:
        raise FormatError(path, None, "UMLS is read from files: name the META folder, an archive, or MRCONSO.RRF")
    names = list_inputs(path)
    found = [(table, name) for name in names if (table := umls_table_of(name))]
    if names == [path] and not found and (table := umls_table_of_rows(open_source(path).head(1 << 16))):
        found = [(table, path)]
    packed = next((name for name in map(last_part, names) if UMLS_PACKED.fullmatch(name)), None)
    if names != [path] and packed is not None and "MRCONSO" not in dict(found):
        message = (
            f"holds a packed release ({packed}). Unpack its .nlm files, which are zip archives, and join the "
            "parts: cat MRCONSO.RRF.a?.gz | gunzip > MRCONSO.RRF"
        )
        raise FormatError(path, None, message)
    if not found and names == [path]:
        message = "is not a file of UMLS: expected rows as in MRCONSO.RRF, 18 fields, each followed by a bar"
        raise FormatError(path, 1, message)
    if not found:
        raise FormatError(
            path, None, "has no MRCONSO.RRF, and no other file of UMLS. Name the META folder of the release"
        )
    return found


_RECORDS = {"DescriptorRecord": "Descriptor", "SupplementalRecord": "SupplementalRecord"}


class MeshReader(Reader):
    """MeSH in one or several files; a `Reader`. A row of its report is a record."""

    def __init__(self, paths: Sequence[PathLike], options: ReadOptions, type_map: TypeMap | None = None) -> None:
        super().__init__(type_map=type_map, limit=options.limit)
        self._sources = self.open_sources(paths)

    def read_rows(self, report: ReadReport) -> Iterator[Entity]:
        for source in self._sources:
            before = report.rows
            for line, record in read_elements(source, lambda path: path[-1] in _RECORDS):
                report.rows += 1
                report.place = source.path, line
                entity = self._make_entity(record, report)
                if entity is not None:
                    yield entity
            if report.rows == before:
                raise FormatError(source.path, None, "has no record of MeSH")
            report.notes.append(f"{source.path}: MeSH, {report.rows - before:,} records")

    def _make_entity(self, record: Element, report: ReadReport) -> Entity | None:
        kind = _RECORDS[record.tag]
        id_ = text_of(record.find(f"{kind}UI"))
        names = [text_of(record.find(f"{kind}Name/String"))]
        names += [text_of(one) for one in record.iterfind("ConceptList/Concept/TermList/Term/String")]
        names = list(dict.fromkeys(filter(None, names)))
        if not id_ or not names:
            report.skip_here(reasons.NO_NAME if id_ else reasons.NO_ID, id_ or " ".join(names))
            return None
        native = [
            one for number in record.iterfind("TreeNumberList/TreeNumber") for one in tree_prefixes(text_of(number))
        ]
        native += [
            text_of(one).lstrip("*")
            for one in record.iterfind("HeadingMappedToList/*/DescriptorReferredTo/DescriptorUI")
        ]
        kb_types, types = self.find_types(native)
        notes = record.iterfind("ConceptList/Concept[@PreferredConceptYN='Y']/ScopeNote")
        description = (
            next((text for note in notes if (text := text_of(note))), None) or text_of(record.find("Note")) or None
        )
        return report.make_entity(id_, names, kb_types, types, description)
