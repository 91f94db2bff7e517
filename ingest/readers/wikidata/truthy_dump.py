"""Read items from the truthy N-Triples of Wikidata: only statements of the best rank, the rows of an item together.

::

    <http://www.wikidata.org/entity/Q42> <http://www.wikidata.org/prop/direct/P31> <http://www.wikidata.org/entity/Q5> .
    <http://www.wikidata.org/entity/Q42> <http://www.w3.org/2000/01/rdf-schema#label> "Douglas Adams"@en .

An unknown value is a blank node, and gives no class. This dump has no sitelinks (``DumpRdf`` of Wikibase excludes them
from its truthy form).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from ingest.io import limits
from ingest.io.byte_lines import lines_with
from ingest.io.report import ReadReport
from ingest.io.streams import ByteSource
from ingest.readers.rdf.triples import Fact, read_subjects
from ingest.readers.wikidata.items import INSTANCE_OF, NOT_AN_ITEM, SUBCLASS_OF, Item, item_number

ENTITY = "http://www.wikidata.org/entity/"
_DIRECT = "http://www.wikidata.org/prop/direct/"
_CLASS, _SUPERCLASS = _DIRECT + INSTANCE_OF, _DIRECT + SUBCLASS_OF
_LABEL = "http://www.w3.org/2000/01/rdf-schema#label"
_ALIAS = "http://www.w3.org/2004/02/skos/core#altLabel"
_DESCRIPTION = "http://schema.org/description"
_PREDICATES = (_CLASS, _SUPERCLASS, _LABEL, _ALIAS, _DESCRIPTION)

_EDGE = re.compile(
    rb"\s*<" + re.escape(ENTITY.encode()) + rb"(Q\d+)>\s+<" + re.escape(_SUPERCLASS.encode()) + rb">\s+<"
    + re.escape(ENTITY.encode()) + rb"(Q\d+)>\s*\."
)  # fmt: skip


def read_truthy_items(source: ByteSource, languages: Sequence[str], report: ReadReport) -> Iterator[Item]:
    """Items with the text of these languages; other subjects are counted. Raises as `read_subjects`."""
    for subject, facts in read_subjects(source, _PREDICATES, report, languages=languages):
        item_id = subject.removeprefix(ENTITY)
        if item_number(item_id) and len(item_id) < len(subject):
            yield _collect(item_id, facts)
        else:
            report.filter_out(NOT_AN_ITEM)


def read_truthy_edges(source: ByteSource) -> Iterator[tuple[int, tuple[int, ...]]]:
    """Numbers of the classes of a dump, each with one direct parent. Raises as `byte_lines`."""
    for line in lines_with(source, b"/prop/direct/P279>", max_bytes=limits.MAX_LINE_BYTES):
        match = _EDGE.match(line)
        if match is not None:
            lower, upper = item_number(match[1].decode()), item_number(match[2].decode())
            if lower and upper:
                yield lower, (upper,)


def _collect(item_id: str, facts: list[Fact]) -> Item:
    """The item of the rows of one subject."""
    labels: dict[str, str] = {}
    descriptions: dict[str, str] = {}
    aliases: dict[str, list[str]] = {}
    classes: dict[int, None] = {}
    superclasses: dict[int, None] = {}
    for predicate, value, language, _ in facts:
        if language is None:
            number = item_number(value.removeprefix(ENTITY))
            if number and predicate in (_CLASS, _SUPERCLASS):
                (classes if predicate == _CLASS else superclasses)[number] = None
        elif not language:
            continue
        elif predicate == _LABEL:
            labels.setdefault(language, value)
        elif predicate == _ALIAS:
            aliases.setdefault(language, []).append(value)
        elif predicate == _DESCRIPTION:
            descriptions.setdefault(language, value)
    first_line = facts[0][3]
    return Item(item_id, first_line, labels, aliases, descriptions, tuple(classes), tuple(superclasses))
