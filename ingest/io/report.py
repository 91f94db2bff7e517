"""The report of one pass over a base: counts, bad rows by reason, and rows that the options exclude.

A bad row is not an error: it is counted by reason and shown. Reading stops only after `ReadReport.max_errors` of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from ingest.io import limits, reasons
from pearl_qdrant.errors import TooManyErrorsError
from pearl_qdrant.records import Entity
from pearl_qdrant.settings import DEFAULT_MAX_ERRORS

MAX_BAD_SHARE = 0.01  # of the rows, that may be bad by default
MAX_EXAMPLES = 5  # Skipped rows kept for the report

_EXCERPT_LENGTH = 60


@dataclass(frozen=True, slots=True)
class Skip:
    """A skipped row.

    Attributes:
        reason: Why, such as ``no_name``; a key of `ReadReport.skipped`.
        path: The file; ``-`` is standard input.
        line: Line number from 1, after decompression; in Parquet and Arrow the row number.
        excerpt: The row's start, safe to print: control characters are escaped.
    """

    reason: str
    path: str
    line: int
    excerpt: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.reason}: {self.excerpt}"


@dataclass(frozen=True, slots=True)
class Conflict:
    """A row whose id an earlier row has with another name; both became one entity.

    Attributes:
        path, line: Of the later row, as in `Skip`.
        entity_id, first, name: The id, and the names of the earlier and the later row; safe to print.
    """

    path: str
    line: int
    entity_id: str
    first: str
    name: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: id '{self.entity_id}' is '{self.first}' in an earlier row, '{self.name}' here"


@dataclass(frozen=True, slots=True)
class ReadWarning:
    """Something about an input that is probably not as the user means it, and the arguments that would help."""

    message: str
    options: tuple[str, ...] = ()


@dataclass(slots=True)
class ReadReport:
    """Counts of one pass over a base; filled while it runs, complete when its iterator is exhausted.

    Attributes:
        max_errors: Rows that may be skipped; 0 stops at the first, None never stops.
        rows: Rows that are not blank, without the header; skipped ones included.
        entities: Entities that were read.
        names: Their names, canonical ones and aliases; one point each.
        merged_rows: Rows that were joined to an earlier row with the same id.
        conflicting_names: Merged rows whose canonical name differs from that of the first row; it became an alias.
        conflicts: The first few of them; a scan has them all, a read only those of adjacent rows.
        skipped: Skipped bad rows, by reason.
        filtered: Good rows that the options exclude (language, source, ...), by reason; these are no errors.
        examples: The first few bad rows.
        notes: How each file was understood, in words, for the user.
        warnings: What is probably not as the user means it.
        place: Path and line of the row that was read last, for later steps that find it bad, such as merging; line 0
            where rows have no place.
        run_place: Place of the first row of the run that was yielded last.
    """

    max_errors: int | None = DEFAULT_MAX_ERRORS
    rows: int = 0
    entities: int = 0
    names: int = 0
    merged_rows: int = 0
    conflicting_names: int = 0
    conflicts: list[Conflict] = field(default_factory=list, compare=False)
    skipped: dict[str, int] = field(default_factory=dict)
    filtered: dict[str, int] = field(default_factory=dict)
    examples: list[Skip] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    warnings: list[ReadWarning] = field(default_factory=list)
    place: tuple[str, int] = field(default=("", 0), compare=False)
    run_place: tuple[str, int] = field(default=("", 0), compare=False)

    @property
    def n_skipped(self) -> int:
        """The number of skipped bad rows."""
        return sum(self.skipped.values())

    @property
    def skip_counts(self) -> dict[str, int]:
        """Bad rows and excluded rows, by reason."""
        return {**self.filtered, **self.skipped}

    def filter_out(self, reason: str, count: int = 1) -> None:
        """Count good rows that the options exclude."""
        self.filtered[reason] = self.filtered.get(reason, 0) + count

    def skip(self, reason: str, *, path: str, line: int, text: str) -> None:
        """Count a bad row. Raises TooManyErrorsError if there are now more bad rows than `max_errors`."""
        self.skipped[reason] = self.skipped.get(reason, 0) + 1
        if len(self.examples) < MAX_EXAMPLES:
            self.examples.append(Skip(reason, path, line, make_excerpt(text)))
        if self.max_errors is not None and self.n_skipped > self.max_errors:
            counts = ", ".join(f"{reason} {count}" for reason, count in sorted(self.skipped.items()))
            message = (
                f"{reason}: {make_excerpt(text)}\n{self.n_skipped} bad rows ({counts}), and {self.max_errors} are "
                "allowed. Reading stopped at this row. Correct the rows, or allow more."
            )
            raise TooManyErrorsError(path, line, message, option="max_errors")

    def check_share(self) -> None:
        """Refuse a base of which a part would be missing: more than `MAX_BAD_SHARE` of its rows are bad.

        A few rows are always allowed, and any number that was given as `max_errors`, other than the default. Raises
        TooManyErrorsError if there are more; names the reasons and the first row.
        """
        n_bad = self.n_skipped
        is_allowed = n_bad <= MAX_BAD_SHARE * self.rows or n_bad < (3 if n_bad <= 0.2 * self.rows else 2)
        if self.max_errors != DEFAULT_MAX_ERRORS or is_allowed or not self.examples:
            return
        counts = ", ".join(f"{reason} {count:,}" for reason, count in sorted(self.skipped.items()))
        first = self.examples[0]
        message = (
            f"{first.reason}: {first.excerpt}\n{n_bad:,} of {self.rows:,} rows cannot be read ({counts}); this is the "
            f"first. A base that lacks more than {MAX_BAD_SHARE:.0%} of its rows is not loaded: correct them, or allow "
            f"{n_bad:,} of them."
        )
        raise TooManyErrorsError(first.path, first.line, message, option="max_errors")

    def skip_here(self, reason: str, text: str) -> None:
        """Count the row at `place` as bad. Raises as `skip`."""
        path, line = self.place
        self.skip(reason, path=path, line=line, text=text)

    def conflict(self, place: tuple[str, int], entity_id: str, first: str, name: str) -> None:
        """Count a row with the id of an earlier one and another name; its place is noted if it has one."""
        self.conflicting_names += 1
        if place[1] and len(self.conflicts) < MAX_EXAMPLES:
            self.conflicts.append(Conflict(*place, *map(make_excerpt, (entity_id, first, name))))

    def make_entity(
        self,
        entity_id: str,
        names: Sequence[str],
        kb_types: tuple[str, ...],
        types: tuple[str, ...],
        description: str | None = None,
        extra: Mapping[str, str] | None = None,
        popularity: float | None = None,
        languages: Mapping[str, str] | None = None,
    ) -> Entity:
        """An entity of the first `MAX_NAMES` names; if there are more, the row at `place` is bad. Raises as `skip`."""
        kept = tuple(names[: limits.MAX_NAMES])
        if len(kept) < len(names):
            self.skip_here(
                reasons.TOO_MANY_NAMES, f"{entity_id} has {len(names):,} names; {limits.MAX_NAMES:,} are kept"
            )
            among = set(kept)
            languages = {name: code for name, code in (languages or {}).items() if name in among}
        extra, languages = extra or {}, languages or {}
        return Entity(entity_id, kept[0], kept[1:], kb_types, types, description, extra, popularity, languages)


def make_excerpt(text: str) -> str:
    """The start of a text, with control characters escaped, so that a file cannot control the terminal."""
    escaped = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text[:_EXCERPT_LENGTH])
    return escaped + "…" if len(text) > _EXCERPT_LENGTH else escaped
