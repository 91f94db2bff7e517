"""What one pass over a base finds: counts, bad rows by reason, and what is left out on purpose.

A bad row is not an error: it is counted by reason and shown, and reading stops only past `ReadReport.max_errors`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from ingest.io import limits
from pearl_qdrant.errors import TooManyErrorsError
from pearl_qdrant.settings import DEFAULT_MAX_ERRORS

NO_NAME = "no_name"
NO_ID = "no_id"
TOO_FEW_COLUMNS = "too_few_columns"
TOO_MANY_COLUMNS = "too_many_columns"
INVALID_UTF8 = "invalid_utf8"
NUL_CHARACTER = "nul_character"
LINE_TOO_LONG = "line_too_long"
TOO_MANY_NAMES = "too_many_names"
TOO_MANY_ROWS = "too_many_rows"

MAX_EXAMPLES = 5
"""Skipped rows kept for the report."""

_EXCERPT_LENGTH = 60


@dataclass(frozen=True, slots=True)
class Skip:
    """A row that was passed over.

    Attributes:
        reason: Why, as in ``no_name``; a key of `ReadReport.skipped`.
        path: The file; ``-`` is standard input.
        line: Line number from 1, after decompression.
        excerpt: The row's start, safe to print: control characters are escaped.
    """

    reason: str
    path: str
    line: int
    excerpt: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.reason}: {self.excerpt}"


@dataclass(slots=True)
class ReadReport:
    """What one pass over a base found; filled while it runs, complete when its iterator is exhausted.

    Attributes:
        max_errors: Rows that may be skipped; 0 stops at the first, None never stops.
        on_skip: Called with each skipped row.
        rows: Rows with something in them, the header apart; skipped ones included.
        entities: Entities that came out.
        names: Their names, canonical ones and aliases; one point each.
        merged_rows: Rows whose id had come before, so that they were joined to that entity.
        conflicting_names: Merged rows with another canonical name than the rows they joined; it became an alias.
        skipped: Bad rows passed over, by reason.
        filtered: Good rows that the reader's options leave out (language, source, ...), by reason; no errors.
        examples: The first few of the bad rows.
        notes: How each file was understood, in words, for the person who runs it.
        place: Path and line of the row that was read last, for who finds fault with it later, as merging does.
    """

    max_errors: int | None = DEFAULT_MAX_ERRORS
    on_skip: Callable[[Skip], None] | None = None
    rows: int = 0
    entities: int = 0
    names: int = 0
    merged_rows: int = 0
    conflicting_names: int = 0
    skipped: dict[str, int] = field(default_factory=dict)
    filtered: dict[str, int] = field(default_factory=dict)
    examples: list[Skip] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    place: tuple[str, int] = field(default=("", 0), compare=False)

    @property
    def n_skipped(self) -> int:
        """Bad rows passed over, for whatever reason."""
        return sum(self.skipped.values())

    @property
    def passed_over(self) -> dict[str, int]:
        """Bad rows, and those left out on purpose, by reason."""
        return {**self.filtered, **self.skipped}

    def leave_out(self, reason: str, count: int = 1) -> None:
        """Count good rows that the options leave out."""
        self.filtered[reason] = self.filtered.get(reason, 0) + count

    def skip(self, reason: str, *, path: str, line: int, text: str) -> None:
        """Count a bad row.

        Raises:
            TooManyErrorsError: If that is one more than `max_errors` allows.
        """
        self.skipped[reason] = self.skipped.get(reason, 0) + 1
        is_one_too_many = self.max_errors is not None and self.n_skipped > self.max_errors
        is_example = len(self.examples) < MAX_EXAMPLES
        if not (is_example or is_one_too_many or self.on_skip):  # of millions of bad rows few are shown
            return
        found = Skip(reason, path, line, make_excerpt(text))
        if is_example:
            self.examples.append(found)
        if self.on_skip is not None:
            self.on_skip(found)
        if is_one_too_many:
            counts = ", ".join(f"{reason} {count}" for reason, count in sorted(self.skipped.items()))
            message = f"{reason}: {found.excerpt}\n{self.n_skipped} bad rows ({counts}), and --max-errors is "
            message += f"{self.max_errors}. Nothing of this row on was read. Correct the rows, or allow more"
            raise TooManyErrorsError(path, line, message)

    def skip_here(self, reason: str, text: str) -> None:
        """Count the row at `place` as a bad one. Raises as `skip`."""
        path, line = self.place
        self.skip(reason, path=path, line=line, text=text)

    def bound_names(self, entity_id: str, names: Sequence[str]) -> tuple[str, ...]:
        """The first `MAX_NAMES` of an entity's names; if there are more, the row at `place` is counted as a bad one.

        Raises:
            TooManyErrorsError: As `skip`.
        """
        if len(names) <= limits.MAX_NAMES:
            return tuple(names)
        self.skip_here(TOO_MANY_NAMES, f"{entity_id} has {len(names):,} names; {limits.MAX_NAMES:,} are kept")
        return tuple(names[: limits.MAX_NAMES])


def make_excerpt(text: str) -> str:
    """The start of a text, with control characters escaped, so that a terminal does not obey a file."""
    escaped = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text[:_EXCERPT_LENGTH])
    return escaped + "…" if len(text) > _EXCERPT_LENGTH else escaped
