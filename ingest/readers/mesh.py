"""Read MeSH as XML: descriptors (desc2025.xml) and supplementary concepts (supp2025.xml).

The id is the unique identifier (D000001); the canonical name is the preferred one; the terms of all concepts of the
record are aliases. Types are the tree numbers with all above them (``C04.588`` gives C04.588, C04, C), and for
supplementary concepts the headings that they are mapped to. The scope note is the description.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any
from xml.etree.ElementTree import Element, ParseError, XMLPullParser

from ingest.base.reader import Reader
from ingest.io import limits
from ingest.io.report import NO_ID, NO_NAME, ReadReport
from ingest.io.source import ByteSource
from ingest.readers.umls import tree_prefixes
from pearl_qdrant.errors import FormatError
from pearl_qdrant.records import Entity

if TYPE_CHECKING:
    from ingest.base.format import PathLike
    from ingest.base.type_map import TypeMap
    from ingest.formats import ReadOptions

_RECORDS = {"DescriptorRecord": "Descriptor", "SupplementalRecord": "SupplementalRecord"}


class MeshReader(Reader):
    """MeSH in one or several files; a `Reader`. A row of its report is a record."""

    def __init__(self, paths: Sequence[PathLike], options: ReadOptions, type_map: TypeMap | None = None) -> None:
        super().__init__(type_map=type_map, limit=options.limit)
        self._sources = self.open_sources(paths)

    def read_rows(self, report: ReadReport) -> Iterator[Entity]:
        """One entity for each record of all files."""
        for source in self._sources:
            before = report.rows
            for line, record in _records(source):
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
        id_ = _text(record, f"{kind}UI")
        names = [_text(record, f"{kind}Name/String")]
        names += [_string(one) for one in record.iterfind("ConceptList/Concept/TermList/Term/String")]
        names = list(dict.fromkeys(filter(None, names)))
        if not id_ or not names:
            report.skip_here(NO_NAME if id_ else NO_ID, id_ or " ".join(names))
            return None
        native = [
            one for number in record.iterfind("TreeNumberList/TreeNumber") for one in tree_prefixes(_string(number))
        ]
        native += [
            _string(one).lstrip("*")
            for one in record.iterfind("HeadingMappedToList/*/DescriptorReferredTo/DescriptorUI")
        ]
        kb_types = tuple(dict.fromkeys(native))[: limits.MAX_KB_TYPES]
        notes = record.iterfind("ConceptList/Concept[@PreferredConceptYN='Y']/ScopeNote")
        description = next((text for note in notes if (text := _string(note))), None) or _text(record, "Note") or None
        names_in = report.bound_names(id_, names)
        return Entity(
            id_, names_in[0], names_in[1:], kb_types, self.type_map.map_types(kb_types), description, {}, None
        )


def _records(source: ByteSource) -> Iterator[tuple[int, Element]]:
    """The line after each record, and the record; what was read is let go. Raises FormatError if the XML is damaged,
    declares entities, or has a record of more bytes than one may have.
    """
    parser: Any = XMLPullParser(("start", "end"))
    line, n_bytes, path = 1, 0, list[Element]()
    try:
        for chunk in chain(source.chunks(), (None,)):
            if chunk is None:
                parser.close()
                return
            if b"<!ENTITY" in chunk or n_bytes > limits.MAX_ITEM_BYTES:
                message = f"declares an entity, or has a record of over {limits.MAX_ITEM_BYTES:,} bytes. Is it MeSH?"
                raise FormatError(source.path, line, message)
            parser.feed(chunk)
            line, n_bytes = line + chunk.count(b"\n"), n_bytes + len(chunk)
            for event, element in parser.read_events():
                if event == "start":
                    path.append(element)
                    continue
                path.pop()
                if element.tag in _RECORDS:
                    n_bytes = 0
                    yield line, element
                    for above in path:
                        above.clear()
    except ParseError as error:
        raise FormatError(source.path, line, f"is damaged or cut off ({error}). Fetch it again") from error


def _string(element: Element) -> str:
    return " ".join((element.text or "").split())


def _text(record: Element, path: str) -> str:
    found = record.find(path)
    return "" if found is None else _string(found)
