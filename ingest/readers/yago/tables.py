"""Facts from the files beside the leading ones, read before them and once for all passes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import repeat

from ingest.base.merge import batches
from ingest.io.report import MAX_EXAMPLES, ReadReport
from ingest.readers.rdf.triples import RDF_TYPE, Fact, Subject, read_subjects
from ingest.readers.yago.entities import SAME_AS, SUBCLASS_OF, WANTED, find_wikidata_id
from ingest.readers.yago.files import Role, YagoFile
from ingest.readers.yago.join import Combinations, LaterRows, Table
from ingest.readers.yago.names import ClassTree, local_name
from pearl_qdrant.errors import TooManyErrorsError

_LONGEST_ID = len("Q4294967295")

Joined = tuple[list[Fact], list[str], int]
"""Further rows of a subject, the IRIs of its classes, and the number of its Wikidata id (0 for none)."""

_NOTHING: Joined = [], [], 0


class Tables:
    """Types, Wikidata ids and further names by subject, and the classes.

    Attributes:
        classes: The classes of all files.
        later_path: The path of what `rest` yields, for errors.
    """

    def __init__(self, files: Sequence[YagoFile], languages: Sequence[str]) -> None:
        """Keep the files; nothing is read before `load`."""
        self.classes = ClassTree(())
        self._languages = languages
        self._of: dict[Role, list[YagoFile]] = {}
        for file in files:
            self._of.setdefault(file.role, []).append(file)
        self.later_path = ", ".join(file.source.path for file in self._of.get(Role.LABELS, ()))
        if Role.FULL_TYPES in self._of and Role.CLASSES in self._of:
            # The simple types are ancestors of the full ones.
            self._of.pop(Role.SIMPLE_TYPES, None)
        self._types: Table | None = None
        self._numbers: Table | None = None
        self._rows: LaterRows | None = None
        self._combinations = Combinations()
        self._report: ReadReport | None = None

    def load(self, report: ReadReport) -> None:
        """Read the files at the first call; add their counts to the report at each call.

        Raises:
            FormatError, InputError: As `read_subjects`.
            TooManyErrorsError: If there are more bad rows than the report allows.
        """
        if self._report is None:
            own = ReadReport(max_errors=report.max_errors, on_skip=report.on_skip)
            self._load_classes(own)
            self._load_types(own)
            self._load_numbers(own)
            self._load_rows(own)
            self._report = own
        _add(report, self._report)
        if self._rows is not None:
            self._rows.start()

    def rest(self) -> Iterator[Subject]:
        """Rows, by subject, that `join` has not used since `load`."""
        return self._rows.rest() if self._rows else iter(())

    def join(self, subjects: Iterable[Subject]) -> Iterator[tuple[Subject, Joined]]:
        """Subjects in their order, each with its joined facts; looked up in batches."""
        if self._rows is None and self._types is None and self._numbers is None:
            yield from zip(subjects, repeat(_NOTHING), strict=False)
            return
        for batch in batches(subjects, lambda subject: sum([len(fact[1]) for fact in subject[1]])):
            yield from zip(batch, self._find([subject for subject, _ in batch]), strict=True)

    def _find(self, subjects: Sequence[str]) -> Iterator[Joined]:
        n = len(subjects)
        rows = self._rows.find(subjects) if self._rows else repeat(list[Fact](), n)
        combinations = self._types.find(subjects) if self._types else [[]] * n
        numbers = self._numbers.find(subjects) if self._numbers else [[]] * n
        for more, combination, number in zip(rows, combinations, numbers, strict=True):
            classes = self._combinations.classes(combination) if combination else []
            yield more, classes, number[0] if number else 0

    def close(self) -> None:
        """Remove temporary files."""
        if self._rows is not None:
            self._rows.close()

    def _read(self, roles: Iterable[Role], predicates: Iterable[str], report: ReadReport) -> Iterator[Subject]:
        """Rows of all files with one of these roles."""
        for role in roles:
            for file in self._of.get(role, ()):
                report.notes.append(f"{file.source.path}: {role.value}")
                yield from read_subjects(file.source, set(predicates), report, languages=self._languages)

    def _load_classes(self, report: ReadReport) -> None:
        # Bad rows of a whole file are counted when it is read for its names.
        whole = self._read((Role.WHOLE,), (SUBCLASS_OF,), ReadReport(max_errors=None))
        alone = self._read((Role.CLASSES,), (SUBCLASS_OF,), report)
        self.classes = ClassTree(
            (local_name(subject), local_name(fact[1]))
            for subjects in (alone, whole)
            for subject, facts in subjects
            for fact in facts
        )

    def _load_types(self, report: ReadReport) -> None:
        table = Table()
        for subject, facts in self._read((Role.FULL_TYPES, Role.SIMPLE_TYPES), (RDF_TYPE,), report):
            classes = tuple([fact[1] for fact in facts if fact[2] is None])
            table.add(subject, self._combinations.number(classes))
        table.finish()
        self._types = table if len(table) else None

    def _load_numbers(self, report: ReadReport) -> None:
        table = Table()
        for subject, facts in self._read((Role.SAME_AS,), (SAME_AS,), report):
            for fact in facts:
                item = find_wikidata_id(fact[1])
                number = int(item[1:]) if 1 < len(item) <= _LONGEST_ID else 0
                if 0 < number < 1 << 32:
                    table.add(subject, number)
        table.finish()
        self._numbers = table if len(table) else None

    def _load_rows(self, report: ReadReport) -> None:
        if Role.LABELS not in self._of:
            return
        self.close()
        self._rows = LaterRows()
        for subject, facts in self._read((Role.LABELS,), WANTED, report):
            self._rows.add(subject, facts)
        self._rows.finish()


def _add(report: ReadReport, found: ReadReport) -> None:
    """Add the counts of one report to another."""
    report.rows += found.rows
    for reason, count in found.filtered.items():
        report.filter_out(reason, count)
    for reason, count in found.skipped.items():
        report.skipped[reason] = report.skipped.get(reason, 0) + count
    report.examples.extend(found.examples[: MAX_EXAMPLES - len(report.examples)])
    report.notes.extend(found.notes)
    if report.max_errors is not None and report.n_skipped > report.max_errors and report.examples:
        last = report.examples[-1]
        message = f"{last.reason}: {last.excerpt}\n{report.n_skipped} bad rows, and {report.max_errors} are allowed."
        raise TooManyErrorsError(last.path, last.line, message, option="max_errors")
