"""What the commands of training have in common: their material, and bases as sources of real positives."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from pearl_qdrant.cli.common.terminal import echo
from pearl_qdrant.settings import DEFAULT_MAX_ERRORS

if TYPE_CHECKING:
    from training.examples.sources import Example

F = TypeVar("F", bound=Callable[..., Any])

_PATH = click.Path(path_type=Path)

phrases_option: Callable[[F], F] = click.option(
    "--phrases",
    type=_PATH,
    multiple=True,
    metavar="PATH",
    help="Corpus folder, freq_phrase.txt, phrase_with_etype.txt or entities.jsonl; may be repeated.",
)

aliases_option: Callable[[F], F] = click.option(
    "--aliases",
    type=_PATH,
    multiple=True,
    metavar="PATH",
    help="Base of any format that ingest reads: names of one entity are positives; may be repeated.",
)

min_count_option: Callable[[F], F] = click.option(
    "--min-count", type=click.IntRange(1), default=2, show_default=True, help="Rarer phrases are left out."
)

max_errors_option: Callable[[F], F] = click.option(
    "--max-errors",
    type=click.IntRange(0),
    default=DEFAULT_MAX_ERRORS,
    show_default=True,
    help="Bad rows that all inputs together may have.",
)


def refuse_overwriting(out: Path, *inputs: Path | str | None) -> None:
    """Stop where a command would write over what it reads.

    Raises:
        click.UsageError: If `out` is one of the inputs that exist.
    """
    for path in inputs:
        if path is not None and Path(path).exists() and Path(path).resolve() == out.resolve():
            raise click.UsageError(f"{out} is an input of this command: write to another place.")


def read_material(
    phrases: Sequence[Path],
    aliases: Sequence[Path],
    *,
    typed_names: Sequence[Path] = (),
    min_count: int,
    max_errors: int,
) -> list[Example]:
    """Examples of both, in alphabetical order; says on stderr how many, and what was passed over."""
    from ingest.formats import open_reader
    from ingest.io.report import ReadReport
    from training.corpus.bases import base_key
    from training.corpus.typing.typed_lists import read_typed_names
    from training.data.training_files import base_examples, read_examples, type_examples

    if not phrases and not aliases and not typed_names:
        raise click.UsageError("There is nothing to learn from: give --phrases or --aliases.")
    report = ReadReport(max_errors=max_errors)
    examples = read_examples(phrases, report, min_count=min_count) if phrases else []
    for path in aliases:
        with open_reader([path]) as reader:
            examples += base_examples(reader.read(report), kb=base_key(path))
    examples += type_examples(row for path in typed_names for row in read_typed_names(path, report))
    examples.sort(key=lambda example: (example.name.casefold(), example.entity))
    passed_over = ", ".join(f"{count:,} {reason}" for reason, count in report.passed_over.items())
    echo(f"{len(examples):,} examples{f'; passed over: {passed_over}' if passed_over else ''}", err=True)
    return examples
