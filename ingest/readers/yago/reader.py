"""Read YAGO 4 (N-Triples) and YAGO 4.5 (Turtle), as downloaded.

    4.5  yago.zip, or a folder: yago-facts.ttl, yago-taxonomy.ttl, yago-labels.ttl, yago-beyond-wikipedia.ttl, ...
    4    a folder or files: yago-wd-labels.nt.gz, yago-wd-full-types.nt.gz, yago-wd-class.nt.gz, yago-wd-sameAs.nt.gz

The fields of an `Entity`:

- `entity_id`: the local name of the IRI, unchanged (``Paris``, ``Caf_u00e9___u0028_bar_u0029_``).
- Names: rdfs:label and schema:alternateName in the requested languages, and those without a language tag. The
  canonical name is the label in the first requested language that has one; if there are several, the smallest in code
  point order. Otherwise it is an alternate name, chosen in the same way. Otherwise it is the local name as text, if the
  entity has types; the report notes the number of these. Subjects with neither name nor type are excluded.
- `kb_types`: its classes by local name, then their ancestors, nearest first, without ``Thing``. Names of classes keep
  their Wikidata id (``Human_settlement_Q486972``), without which two classes could have the same name.
  `types`: for each class, the coarse types of the nearest class above it that has any.
- `description`: rdfs:comment or schema:description; `extra`: ``wikidata_id`` from owl:sameAs.

Instances that stand for "some member of a class" are excluded, and so are blank nodes. In YAGO 4, entities are taken
from the file of names: one with types alone is not read. Of the two files of types in YAGO 4, only the full one is read
if the classes are present too. `yago-wd-facts`, `yago-meta` and the schema of YAGO 4.5 are not used.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ingest.base.reader_base import ReaderBase
from ingest.base.type_map import TypeMap
from ingest.io.report import ReadReport
from ingest.readers.rdf.triples import read_subjects
from ingest.readers.yago.entities import WANTED, EntityMaker
from ingest.readers.yago.files import Role, open_files
from ingest.readers.yago.tables import Tables

if TYPE_CHECKING:
    from pearl_qdrant.records import Entity


@dataclass(frozen=True, slots=True)
class YagoOptions:
    """What is read of a YAGO download.

    Attributes:
        languages: Languages of names and descriptions; the first that an entity has gives its canonical name.
        include_beyond: Read entities without a Wikipedia page too, if their files are present.
    """

    languages: tuple[str, ...] = ("en",)
    include_beyond: bool = True


class YagoReader(ReaderBase):
    """A YAGO download; a `Reader`."""

    def __init__(
        self,
        paths: Sequence[str | os.PathLike[str]],
        options: YagoOptions | None = None,
        *,
        type_map: TypeMap | None = None,
        limit: int | None = None,
    ) -> None:
        """Find the files and open them.

        Args:
            paths: A folder, a zip, or files, which may be in different places.
            options: What is read of them.
            type_map: From classes to coarse types; the shipped one by default.
            limit: See `ReaderBase`.

        Raises:
            FormatError: If a path cannot be opened, or no file has names.
            ValueError: If there is no path, or no language.
        """
        self._options = options or YagoOptions()
        if not self._options.languages:
            raise ValueError("no language was given. Give at least one, such as YagoOptions(languages=('en',))")
        super().__init__(type_map=type_map, limit=limit)
        self._tables: Tables | None = None
        try:
            self._files = open_files(paths, include_beyond=self._options.include_beyond, held=self.held)
        except BaseException:
            self.close()
            raise
        roles = {file.role for file in self._files}
        has_facts = bool(roles & {Role.FACTS, Role.WHOLE})
        leading = (Role.FACTS, Role.WHOLE) if has_facts else (Role.LABELS,)
        self._leading = [file for file in self._files if file.role in leading]
        self._joined = [file for file in self._files if file.role not in leading or file.role is Role.WHOLE]

    def read_rows(self, report: ReadReport) -> Iterator[Entity]:
        """One entity for each run of facts about it."""
        tables, maker = self._prepare(report)
        yield from self._make_entities(maker, tables, report)

    def read_runs(self, report: ReadReport) -> Iterator[Entity]:
        """Entities in the order of the input; see `Reader.read_runs`."""
        tables, maker = self._prepare(report)
        yield from self.join_runs(self._make_entities(maker, tables, report), report)
        report.notes.extend(maker.notes())  # also where the limit ends the pass early

    def _prepare(self, report: ReadReport) -> tuple[Tables, EntityMaker]:
        """The tables of the other files, loaded, and what makes entities with them."""
        if self._tables is None:
            self._tables = Tables(self._joined, self._options.languages)
            self.held.callback(self._tables.close)
        self._tables.load(report)
        return self._tables, EntityMaker(self._tables.classes, self.type_map, self._options.languages, report)

    def _make_entities(self, maker: EntityMaker, tables: Tables, report: ReadReport) -> Iterator[Entity]:
        """Entities of the leading files, with the facts of the other files."""
        for file in self._leading:
            report.notes.append(f"{file.source.path}: {file.role.value}")
            subjects = read_subjects(file.source, WANTED, report, languages=self._options.languages)
            for (subject, facts), (more, classes, number) in tables.join(subjects):
                report.place = file.source.path, facts[0][3]
                entity = maker.make(subject, facts + more if more else facts, classes, number)
                if entity is not None:
                    yield entity
        for subject, facts in tables.rest():
            report.place = tables.later_path, facts[0][3]
            entity = maker.make(subject, facts, (), 0)
            if entity is not None:
                yield entity
