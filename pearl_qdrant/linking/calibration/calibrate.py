"""Calibrates the linker to a collection, on labelled pairs or on mentions made from the names of the base.

    labels      pairs from a file; or everyday mentions of every kind, made from the names (`linking.mention_kinds`)
    NIL         those that the labels mark; without any, some entities are excluded with all that share their names
    score       every mention once; the fit works on its features
    fit         slope and NIL bias, or on labelled pairs the coefficients; the threshold (`platt_scaling.py`)
    compare     what becomes of each kind of mention before and after; a calibration that makes it worse is not stored

Made mentions are easier than what people write, so labelled pairs give a better calibration.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, cast

import numpy as np

from pearl_qdrant.encoder.protocol import Encoder
from pearl_qdrant.errors import CalibrationError
from pearl_qdrant.linking.adaptation import Adaptation
from pearl_qdrant.linking.calibration.held_out import IntArray, Samples, collect, score_held_out
from pearl_qdrant.linking.calibration.labels import (
    KnownMentions,
    Label,
    check_made,
    from_labels,
    from_names,
    read_pairs,
    with_learned,
)
from pearl_qdrant.linking.calibration.metrics import KindChange, changes_by_kind, gain_of_links, loses_exact_names
from pearl_qdrant.linking.calibration.platt_scaling import Fit, fit
from pearl_qdrant.linking.linker import EntityLinker
from pearl_qdrant.linking.mentions import read_text_lines
from pearl_qdrant.linking.ranking.model import Calibration, RankingModel, shipped_model
from pearl_qdrant.linking.state import calibration_of, encoder_of, model_of
from pearl_qdrant.settings import DEFAULT_DEVICE, DEFAULT_PRECISION
from pearl_qdrant.store.open import StoreLike, use_store
from pearl_qdrant.store.protocol import Collection, Store
from pearl_qdrant.store.schema import LinkCalibration

ALLOWED_FALL, ERRORS = 0.02, 2.0
"""Share of the mentions by which right minus wrong links may fall, and standard errors of that difference by which it
may fall, too: what thirty mentions do not tell from nothing."""


@dataclass(frozen=True, slots=True)
class CollectionFit:
    """A calibration fitted to a collection for a target precision, with what becomes of each kind of mention.

    Attributes:
        is_worse: Whether the change is a loss: an exact name is lost, or there are fewer right minus wrong links
            although the links before were precise enough.
        replaced: The previous calibration of the collection.
    """

    fit: Fit
    source: Literal["pairs", "names"]
    precision: float | None
    changes: tuple[KindChange, ...] = ()
    is_worse: bool = False
    replaced: LinkCalibration | None = None

    def to_manifest(self) -> LinkCalibration:
        """The record that the manifest stores."""
        fitted, model = self.fit.calibration, self.fit.model
        coefficients = {} if model is None else model.by_name()
        return LinkCalibration.model_validate(
            {
                "slope": fitted.slope,
                "nil_bias": fitted.nil_bias,
                "threshold": fitted.threshold,
                **coefficients,
                "fitted_on": self.source,
                "mentions": self.fit.after.n,
                "nil_share": round(self.fit.nil_share, 4),
                "target_precision": self.precision,
                "ece": round(self.fit.after.ece, 4),
            }
        )


def calibrate_collection(
    collection: str,
    labels: str | os.PathLike[str] | Sequence[Label] | None = None,
    *,
    store: StoreLike = None,
    model: str | None = None,
    device: str = DEFAULT_DEVICE,
    precision: float | None = None,
    nil_share: float | None = None,
    dry_run: bool = False,
    force: bool = False,
    seed: int = 0,
    learned: bool = False,
) -> CollectionFit:
    """Fit a calibration and store it in the collection, as `pearl-qdrant calibrate` does.

    Args:
        labels: Mentions with their entities, or a file of them (`labels.read_pairs`); None for mentions made from the
            names of the base.
        store, device: As in `EntityLinker.open`.
        model: Replaces the model that the collection names, for example if its folder moved.
        precision, nil_share, seed: As for `calibrate`.
        dry_run: Whether to skip storing.
        force: Whether to store a calibration that makes it worse, too.
        learned: Whether mentions that the collection learned or accepted are labels, too.

    Raises:
        CollectionNotFoundError, FormatError: If the collection does not exist, or the file cannot be read.
        WorseCalibrationError: If it makes it worse, and neither `dry_run` nor `force` is set. Nothing is stored then.
        CalibrationError, ValueError: As for `calibrate`.
    """
    given = read_pairs(Path(labels)) if isinstance(labels, (str, os.PathLike)) else labels
    with use_store(store) as opened:
        target = opened.open(collection)
        if learned:
            given = with_learned(target, given or ())
        manifest = target.manifest
        encoder = encoder_of(manifest, model, device=device)
        found = calibrate(opened, target, encoder, given, precision=precision, nil_share=nil_share, seed=seed)
        found = replace(found, replaced=manifest.calibration)
        if found.is_worse and not (dry_run or force):
            raise WorseCalibrationError(found)
        if not dry_run:
            changed = target.read_manifest().model_copy(update={"calibration": found.to_manifest()})
            target.write_manifest(changed)
    return found


def adapt_collection(
    collection: str,
    mentions: str | os.PathLike[str] | Iterable[str],
    *,
    store: StoreLike = None,
    model: str | None = None,
    device: str = DEFAULT_DEVICE,
    dry_run: bool = False,
) -> Adaptation:
    """Adapt a collection to mentions without labels, as `pearl-qdrant calibrate --mentions` does.

    The bias of NIL is stored in the collection, on top of the calibration that it has: every later link uses it.

    Args:
        mentions: The strings of one source, or a file of them, one a line; see `linking.adaptation`.
        store, model, device, dry_run: As for `calibrate_collection`.

    Raises:
        CollectionNotFoundError, FormatError: If the collection does not exist, or the file cannot be read.
        CalibrationError: If there are fewer than 200 distinct mentions.
    """
    if isinstance(mentions, (str, os.PathLike)):
        with Path(mentions).open("rb") as file:
            mentions = [line for _, line in read_text_lines(file, str(mentions))]
    with use_store(store) as opened:
        target = opened.open(collection)
        manifest = target.manifest
        encoder = encoder_of(manifest, model, device=device)
        linker = EntityLinker(opened, [target], encoder)
        found = linker.adapt(mentions)
        if not dry_run:
            old = target.read_manifest().calibration
            calibration = linker.calibration.with_bias(found.nil_bias)
            changed = LinkCalibration.model_validate(
                {
                    **({} if old is None else old.model_dump()),
                    "slope": calibration.slope,
                    "nil_bias": calibration.nil_bias,
                    "threshold": calibration.threshold,
                    "fitted_on": "mentions without labels",
                    "mentions": found.mentions,
                    "nil_share": found.nil_share,
                }
            )
            target.write_manifest(target.read_manifest().model_copy(update={"calibration": changed}))
    return found


def reset_calibration(collection: str, *, store: StoreLike = None) -> LinkCalibration | None:
    """Remove the calibration of a collection and return it, as `pearl-qdrant calibrate --reset` does.

    Raises CollectionNotFoundError if the collection does not exist.
    """
    with use_store(store) as opened:
        target = opened.open(collection)
        manifest = target.read_manifest()
        if manifest.calibration is not None:
            target.write_manifest(manifest.model_copy(update={"calibration": None}))
        return manifest.calibration


class WorseCalibrationError(CalibrationError):
    """A calibration, `found`, was not stored, because it makes it worse."""

    def __init__(self, found: CollectionFit) -> None:
        if loses_exact_names(found.changes):
            why = "it loses names of the base that are linked today"
        else:
            why = f"right minus wrong links fall by {-_gain(found.fit)[0]:.1%} of the mentions"
        super().__init__(
            f"This calibration makes it worse: {why}. It was not stored. Use another precision or more pairs, or store "
            f"it all the same.",
            option="force",
        )
        self.found = found


def calibrate(
    store: Store,
    collection: Collection,
    encoder: Encoder,
    labels: Sequence[Label] | None = None,
    *,
    precision: float | None = None,
    nil_share: float | None = None,
    seed: int = 0,
) -> CollectionFit:
    """Fit a calibration without storing it. Raises CalibrationError if there are too few mentions, an id is unknown, no
    threshold reaches the precision, or the collection is not loaded completely; ValueError if `precision` or
    `nil_share` is out of range.

    Args:
        labels: Mentions with their entities; None for mentions made from the names of the base.
        precision: Target precision of links, in (0, 1). None: the default threshold of the fitted probabilities, which
            answers most mentions rightly; for mentions made from the base 0.95, of which most are easy.
        nil_share: Expected share of NIL mentions, in [0, 1). By default the share in the labels, or 0.2 if they have
            none.
    """
    wanted = DEFAULT_PRECISION if precision is None and labels is None else precision
    _check_arguments(collection, wanted, nil_share)
    rng = np.random.default_rng(seed)
    control = from_names(collection, rng)
    known = control if labels is None else from_labels(collection, labels, nil_share, rng)
    if labels is None:
        check_made(collection, known)
    shipped = shipped_model()
    samples = _score(store, collection, encoder, known, shipped)
    if nil_share is not None:
        samples = samples.with_nil_share(nil_share)
    stored = collection.manifest.calibration
    before, model_before = Calibration(), cast("RankingModel | None", None)
    if stored is not None:
        with suppress(CalibrationError):  # another version stored it
            before, model_before = calibration_of(stored), model_of(stored)
    fitted = fit(
        samples,
        precision=wanted,
        before=before,
        groups=_groups(known.labels),
        rng=rng,
        model_before=model_before,
        shipped=None if labels is None else shipped,
    )
    thresholds = {"threshold_before": before.threshold, "threshold_after": fitted.calibration.threshold}
    changes = changes_by_kind(known.kinds, fitted.answers_before, fitted.answers_after, **thresholds)
    if labels is not None:
        # What a fit to labelled pairs changes for mentions made from the base, which it did not see.
        of_control = _score(store, collection, encoder, control, shipped)
        old = of_control if model_before is None else of_control.scored_by(model_before)
        new = of_control if fitted.model is None else of_control.scored_by(fitted.model)
        answers = new.answers(fitted.calibration)
        changes += changes_by_kind(control.kinds, old.answers(before), answers, **thresholds)
    # Right minus wrong links may not fall if the links before were precise enough.
    gain, error = _gain(fitted)
    was_precise = wanted is None or fitted.before.precision >= wanted
    is_worse = loses_exact_names(changes) or (was_precise and gain < -max(ALLOWED_FALL, ERRORS * error))
    return CollectionFit(fitted, "names" if labels is None else "pairs", wanted, changes, is_worse)


def _score(
    store: Store, collection: Collection, encoder: Encoder, known: KnownMentions, shipped: RankingModel
) -> Samples:
    scored = score_held_out(store, collection, encoder, known.mentions, model=shipped)
    return replace(collect(scored, known.right_ids), weights=np.array(known.weights))


def _gain(fitted: Fit) -> tuple[float, float]:
    """What right minus wrong links gain for the mentions of a fit, and its standard error."""
    thresholds = fitted.before.threshold, fitted.calibration.threshold
    return gain_of_links(fitted.answers_before, fitted.answers_after, *thresholds)


def _check_arguments(collection: Collection, precision: float | None, nil_share: float | None) -> None:
    if precision is not None and not 0 < precision < 1:
        raise ValueError(f"precision must be between 0 and 1, not {precision}")
    if nil_share is not None and not 0 <= nil_share < 1:
        raise ValueError(f"the share of NIL mentions must be in [0, 1), not {nil_share}")
    if collection.manifest.state != "ready":
        raise CalibrationError(
            f"Collection '{collection.name}' is not loaded completely. Run its pearl-qdrant ingest again; it resumes."
        )


def _groups(labels: Sequence[Label]) -> IntArray:
    """A group number for each label, (n,): one per entity, or per mention without an entity."""
    # Not with numpy strings, each of which reserves the length of the longest one.
    keys = [label.entity_id or f"\0{label.mention}" for label in labels]
    numbers = {key: number for number, key in enumerate(sorted(set(keys)))}
    return np.array([numbers[key] for key in keys], dtype=np.int64)
