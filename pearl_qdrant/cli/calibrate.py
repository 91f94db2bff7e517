"""The command `pearl-qdrant calibrate`."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from pearl_qdrant.cli import shared
from pearl_qdrant.cli.setting import set_option
from pearl_qdrant.cli.shared import Target
from pearl_qdrant.cli.terminal import ask as ask_line
from pearl_qdrant.cli.terminal import echo, echo_json, echo_result, table_lines

if TYPE_CHECKING:
    from pearl_qdrant.linking.calibration.calibrate import CollectionFit, Label
    from pearl_qdrant.linking.calibration.metrics import Reliability
    from pearl_qdrant.linking.learned import Learned, LearnedBatch


@click.command()
@click.option(
    "--labelled",
    type=click.Path(path_type=Path, dir_okay=False),
    help="TSV of mentions and entity ids; NIL or empty for no entity.  [default: mentions made from the base's names]",
)
@click.option(
    "--ask",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    metavar="MENTIONS",
    help="Ask for the right entities of some of the mentions in this file, one a line, and add them to --labelled.",
)
@click.option("--dry-run", is_flag=True, help="Print the result without storing it.")
@shared.yes_option("Store it even if it makes right links fewer or loses exact names.")
@click.option("--reset", is_flag=True, help="Remove the stored calibration: the defaults count again.")
@shared.target_options()
@set_option("CalibrateSettings")
@shared.json_option
def calibrate(  # long: help has its examples
    target: Target,
    labelled: Path | None,
    ask: Path | None,
    dry_run: bool,
    reset: bool,
    yes: bool,
    settings: dict[str, Any],
    as_json: bool,
) -> None:
    """Fit the linker's probabilities and threshold to a collection; with --labelled its ranking too.

    Without --labelled, mentions of every kind are made from the names of the base: exact names, slips, other spellings,
    names in a few words, and mentions without an entity. Real mentions with their entities give a better fit. The
    ranking keeps its default coefficients unless fitted ones do better on mentions that they were not fitted on.
    What changes is shown by kind; a calibration that makes it worse is not stored without --yes.

    \b
    pearl-qdrant calibrate --collection umls --dry-run
    pearl-qdrant calibrate --collection umls --labelled labelled.tsv --set precision=0.98
    pearl-qdrant calibrate --collection umls --ask column.txt --labelled labelled.tsv
    """
    from pearl_qdrant.linking.calibration.calibrate import (
        WorseCalibrationError,
        calibrate_collection,
        reset_calibration,
    )

    if reset and (labelled or settings or yes or ask or dry_run):
        raise click.UsageError("--reset removes a calibration and takes no option of a fit.")
    if ask is not None and labelled is None:
        raise click.UsageError("--ask needs --labelled, the file that gets the answers.")
    (name,) = target.names
    if reset:
        removed = reset_calibration(name, store=target.store) is not None
        text = "the calibration was removed" if removed else "there was no calibration"
        record = {"collection": name, "removed": removed}
        echo_result(record, f"{name}: {text}; the defaults count", as_json=as_json)
        return
    if ask is not None and labelled is not None:
        _ask(settings.get("questions", 30), target, ask, labelled)
        return
    figure, precision = settings.get("figure"), settings.get("precision")
    if figure is not None:  # what would keep it from being drawn is reported before the fit
        from training.evaluation.figures import check_matplotlib

        check_matplotlib()
        shared.check_folder_of(figure, "figure")
    labels = None if labelled is None else _read_labels(labelled)
    try:
        found = calibrate_collection(name, labels, **target.opening(), force=yes, precision=precision, dry_run=dry_run)
    except WorseCalibrationError as error:
        if not as_json:
            echo(*_as_text(_as_record(name, error.found, stored=False)))
        raise
    _print(name, found, stored=not dry_run, as_json=as_json)
    if figure is not None:
        _draw(figure, name, found)


def _ask(n: int, target: Target, mentions: Path, pairs: Path) -> None:
    """Ask for the entities of the mentions that would tell most, and add each answer to the file of pairs at once."""
    from pearl_qdrant.linking.calibration.calibrate import MIN_PAIRS, choose_to_label
    from pearl_qdrant.linking.mentions import read_text_lines

    known = {label.mention for label in _read_labels(pairs)} if pairs.exists() else set()
    with mentions.open("rb") as file:
        texts = [line for _, line in read_text_lines(file, str(mentions)) if line not in known]
    with target.open() as linker:
        links = choose_to_label(linker, texts, n)
    with pairs.open("a", encoding="utf-8") as file_of_pairs:
        for number, link in enumerate(links, 1):
            echo("", f"{number} of {len(links)}: {link.mention}", err=True)
            for rank, one in enumerate(link.candidates, 1):
                description = f", {one.description}" if one.description else ""
                echo(f"  {rank}  {one.canonical_name} ({one.entity_id}{description}) {one.probability:.2f}", err=True)
            answer = ask_line("number, id, 0 for none of the base, Enter to skip, q to stop")
            if answer == "q":
                break
            if answer:
                by_rank = {str(rank): one.entity_id for rank, one in enumerate(link.candidates, 1)} | {"0": "NIL"}
                file_of_pairs.write(f"{' '.join(link.mention.split())}\t{by_rank.get(answer, answer)}\n")
                file_of_pairs.flush()
    n_pairs = len(_read_labels(pairs))
    command = f"pearl-qdrant calibrate --collection {target.names[0]} --labelled {pairs}"
    echo(f"{pairs} has {n_pairs:,} pairs; with {MIN_PAIRS} of them: {command}")


def _print(name: str, found: CollectionFit, *, stored: bool, as_json: bool) -> None:
    """Print a fit, and on stderr what it replaces."""
    if found.replaced is not None and stored:
        old = found.replaced.model_dump()
        echo(
            f"This replaces the calibration fitted on {old.get('fitted_on', 'labels')} "
            f"({old.get('mentions', '?')} mentions).",
            err=True,
        )
    record = _as_record(name, found, stored=stored)
    echo_result(record, *_as_text(record), as_json=as_json)


def _read_labels(pairs: Path) -> list[Label]:
    """The pairs of a file; a named pipe without a writer is reported."""
    from ingest.io.streams import warn_while_waiting
    from pearl_qdrant.linking.calibration.calibrate import read_pairs

    with warn_while_waiting(str(pairs)):
        return read_pairs(pairs)


def _draw(path: Path, name: str, found: CollectionFit) -> None:
    from training.evaluation.figures import draw_reliability

    answers = {"before": found.fit.answers_before, "after, cross-fitted": found.fit.answers_after}
    draw_reliability(path, answers, title=name)
    echo(f"drew {path}", err=True)


def _as_record(name: str, found: CollectionFit, *, stored: bool) -> dict[str, Any]:
    fitted = found.fit.calibration
    return {
        "collection": name,
        "fitted_on": found.source,
        "mentions": found.fit.after.n,
        "nil_mentions": found.fit.n_nil,
        "nil_share": round(found.fit.nil_share, 4),
        "found": found.fit.n_found,
        "target_precision": found.precision,
        "slope": round(fitted.slope, 4),
        "nil_bias": round(fitted.nil_bias, 4),
        "threshold": round(fitted.threshold, 4),
        "ranking_fitted": found.fit.model is not None,
        "before": _figures(found.fit.before),
        "after": _figures(found.fit.after),
        "changes": [asdict(change) for change in found.changes],
        "is_worse": found.is_worse,
        "stored": stored,
    }


def _figures(figures: Reliability) -> dict[str, Any]:
    """Rounded figures; undefined ones are None."""
    named = {key: getattr(figures, key) for _, key in _ROWS}
    shown: dict[str, Any] = {key: round(value, 4) if math.isfinite(value) else None for key, value in named.items()}
    return {**shown, "ece_interval": [round(bound, 4) for bound in figures.ece_interval]}


_WHEN = ("before", "after")

_ROWS = (
    ("first candidate is right", "first_accuracy"),
    ("ECE of the answer, NIL too", "ece"),
    ("Brier score", "brier"),
    ("AUROC", "auroc"),
    ("ECE of the first candidate", "first_ece"),
    ("AUROC of the first candidate", "first_auroc"),
    ("threshold", "threshold"),
    ("coverage", "coverage"),
    ("precision", "precision"),
    ("F1 of NIL", "nil_f1"),
)


def _as_text(record: dict[str, Any]) -> list[str]:
    """The lines of a record: a table of figures before and after, and the fitted values."""
    of = "pairs" if record["fitted_on"] == "pairs" else "mentions made from the base"
    head = f"{record['collection']}: {record['mentions']:,} {of}, {record['nil_mentions']:,} of them NIL "
    head += f"(weighted to {record['nil_share']:.0%}); the entity is among the candidates of {record['found']:,}"
    lines = [head, f"{'':28}{'before':>22}  {'after, cross-fitted':>22}"]
    for label, key in _ROWS:
        before, after = (_cell(record[when], key) for when in ("before", "after"))
        lines.append(f"{label:<28}{before:>22}  {after:>22}")
    reached = record["after"]["precision"]
    if reached is not None and record["target_precision"] is not None and reached < record["target_precision"]:
        lines.append(
            f"{reached:.1%} of the links are right on mentions that the threshold was not chosen on, below the target "
            f"of {record['target_precision']:.1%}: use more pairs, or a higher --set precision="
        )
    if (record["slope"], record["nil_bias"]) == (1, 0):
        lines.append("slope and NIL bias: unchanged defaults, fitted values did no better")
    lines += ["", f"{'kind of mention':18}{'n':>6}{'right / wrong / NIL, %':>25}  {'after, cross-fitted':>22}"]
    for change in record["changes"]:
        cells = [" /".join(f"{100 * change[when][key]:6.1f}" for key in ("right", "wrong", "nil")) for when in _WHEN]
        lines.append(f"{change['kind']:18}{change['n']:>6,}{cells[0]:>25}  {cells[1]:>22}")
    lines.append("")
    if record["is_worse"]:
        lines.append("this is worse: exact names are lost, or right minus wrong links fall")
    stored = "stored" if record["stored"] else "not stored"
    if record["fitted_on"] == "pairs":
        coefficients = (
            "fitted to the pairs" if record["ranking_fitted"] else "unchanged defaults, fitted values did no better"
        )
        lines.append(f"coefficients of the ranking: {coefficients}")
    lines.append(f"slope {record['slope']}, NIL bias {record['nil_bias']}, threshold {record['threshold']}: {stored}")
    return lines


def _cell(figures: dict[str, Any], key: str) -> str:
    value = figures[key]
    if value is None:
        return "-"
    low, high = figures["ece_interval"]
    return f"{value:.3f} ({low:.3f} to {high:.3f})" if key == "ece" else f"{value:.3f}"


@click.command()
@click.option(
    "--labelled",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help="Mentions with their entities: TSV (NIL or empty for no entity), or .jsonl with documents.",
)
@shared.yes_option("Learn mentions that were learned already, too.")
@click.option("--list", "is_list", is_flag=True, help="List what was learned, one batch a line.")
@click.option("--undo", metavar="BATCH", help="Undo a batch, by its number in the list.")
@shared.target_options()
@set_option("LearnSettings")
@shared.json_option
def learn(
    labelled: Path | None,
    yes: bool,
    is_list: bool,
    undo: str | None,
    target: Target,
    settings: dict[str, Any],
    as_json: bool,
) -> None:
    """Learn what names mean from labelled mentions; effective at once.

    Each file becomes a batch of counts, which is kept with the collection, also when the base is updated or loaded
    again with --restart. A name that was learned is linked by its counts first, and by the model where they are few.

    \b
    pearl-qdrant learn --collection news --labelled labelled.tsv
    pearl-qdrant learn --collection news --labelled documents.jsonl --set add_aliases=3
    pearl-qdrant learn --collection news --list
    pearl-qdrant learn --collection news --undo 2
    """
    if (labelled is not None) + is_list + (undo is not None) != 1:
        raise click.UsageError("Give one of --labelled, --list and --undo.")
    if labelled is None and (settings or yes):
        raise click.UsageError("--yes and --set are for --labelled.")
    (name,) = target.names
    if is_list:
        _list(name, target.store, as_json=as_json)
        return
    from ingest.io.streams import warn_while_waiting

    with target.open(read_only=False) as linker:
        if undo is not None:
            _print_undo(linker.undo_learned(int(undo) if undo.isdecimal() and len(undo) < 8 else undo), as_json=as_json)
            return
        assert labelled is not None
        with warn_while_waiting(str(labelled)):
            found = linker.learn(labelled, again=yes, **settings)
    _print_learned(name, found, as_json=as_json)


def _list(name: str, store: str, *, as_json: bool) -> None:
    from pearl_qdrant.linking.learned import learned_batches

    batches = learned_batches(name, store=store)
    if as_json:
        for batch in batches:
            echo_json(_batch_record(batch))
    elif batches:
        echo(*table_lines(_COLUMNS, _rows(batches), numbers=("batch", "mentions", "names", "NIL", "aliases")))
    else:
        echo(f"{name} has learned nothing yet.", err=True)


_COLUMNS = ("batch", "time", "kind", "mentions", "names", "NIL", "aliases", "state", "source")


def _rows(batches: Iterable[LearnedBatch]) -> Iterable[tuple[str, ...]]:
    """The cells of each batch; those that share a number are shown by their keys."""
    listed = list(batches)
    numbers = [batch.number for batch in listed]
    for batch in listed:
        kind = batch.kind if batch.undoes is None else f"undo of {batch.undoes}"
        state = "counts" if batch.is_effective else "undone"
        counts = (batch.mentions, batch.names, batch.nil_mentions, len(batch.aliases))
        label = str(batch.number) if numbers.count(batch.number) == 1 else batch.key
        yield (label, batch.time, kind, *(f"{n:,}" for n in counts), state, batch.source)


def _batch_record(batch: LearnedBatch) -> dict[str, Any]:
    record = asdict(batch)
    del record["digest"]
    return record


def _print_undo(batch: LearnedBatch, *, as_json: bool) -> None:
    if as_json:
        echo_json(_batch_record(batch))
    else:
        echo(f"Undid batch {batch.undoes}; this is batch {batch.number}.", err=True)


def _print_learned(name: str, found: Learned, *, as_json: bool) -> None:
    if as_json:
        echo_json({**_batch_record(found.batch), "skipped": found.skipped, "unknown_ids": list(found.unknown_ids)})
        return
    batch = found.batch
    echo(
        f"{name}: batch {batch.number}: {batch.mentions:,} mentions, {batch.nil_mentions:,} of them without an entity; "
        f"{batch.names:,} distinct; names added to entities: {len(batch.aliases):,}",
        err=True,
    )
    if found.skipped:
        shown = ", ".join(one[:80] for one in found.unknown_ids[:3])
        echo(
            f"left out: {found.skipped:,} mentions of {len(found.unknown_ids):,} entities that {name} does not have, "
            f"e.g. {shown}",
            err=True,
        )
