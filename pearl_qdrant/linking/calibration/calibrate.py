"""Calibrates the linker to a collection, on labelled pairs or on aliases of the base.

    labels      pairs from a file; or aliases of the base, each held out of its entity
    NIL         those that the pairs mark; without any, some entities are excluded with all that share their names
    score       every mention once; the fit works on its features
    fit         slope, NIL bias, threshold (`platt_scaling.py`); on labelled pairs the coefficients too

Aliases of a base are easier than what people write, so labelled pairs give a better calibration.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import numpy as np

from pearl_qdrant.encoder.loading import load_encoder
from pearl_qdrant.encoder.protocol import Encoder
from pearl_qdrant.errors import CalibrationError
from pearl_qdrant.linking.calibration.held_out import HeldOut, score_held_out
from pearl_qdrant.linking.calibration.labels import Label, NameIndex, as_known, as_nil, check_ids, read_pairs
from pearl_qdrant.linking.calibration.platt_scaling import Fit, UnreachablePrecisionError, fit
from pearl_qdrant.linking.calibration.samples import IntArray, collect
from pearl_qdrant.linking.ranking.model import Calibration, RankingModel, shipped_model
from pearl_qdrant.linking.ranking.stored_calibration import calibration_of, model_of
from pearl_qdrant.settings import DEFAULT_DEVICE, DEFAULT_NIL_SHARE, DEFAULT_PRECISION
from pearl_qdrant.store.open import StoreLike, use_store
from pearl_qdrant.store.protocol import Collection, Store
from pearl_qdrant.store.schema import LinkCalibration

MIN_MENTIONS = 50
"""Fewer mentions cannot show a precision of 95 %."""

MAX_ALIASES = 5000
"""Size of the sample of aliases."""

SourceOfLabels = Literal["pairs", "aliases"]


@dataclass(frozen=True, slots=True)
class CollectionFit:
    """A calibration fitted to a collection.

    Attributes:
        fit: The fitted parameters with their figures.
        source: The kind of labels.
        precision: The target precision.
        replaced: The previous calibration of the collection.
    """

    fit: Fit
    source: SourceOfLabels
    precision: float
    replaced: LinkCalibration | None = None

    def to_manifest(self) -> LinkCalibration:
        """The record that the manifest stores."""
        fitted, model = self.fit.calibration, self.fit.model
        features, nil_features = (None, None) if model is None else model.by_name()
        return LinkCalibration.model_validate(
            {
                "slope": fitted.slope,
                "nil_bias": fitted.nil_bias,
                "threshold": fitted.threshold,
                "features": features,
                "nil_features": nil_features,
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
    precision: float = DEFAULT_PRECISION,
    nil_share: float | None = None,
    dry_run: bool = False,
    seed: int = 0,
) -> CollectionFit:
    """Fit a calibration and store it in the collection, as `pearl-qdrant calibrate` does.

    Args:
        collection: Name of the collection.
        labels: Mentions with their entities, or a file of them (`labels.read_pairs`); None for aliases of the base.
        store: A store, a folder or a URL; by default from the environment, as in `EntityLinker.open`.
        model: Replaces the model that the collection names, for example if its folder moved.
        device: auto, cpu, cuda or cuda:N.
        precision, nil_share, seed: As for `calibrate`.
        dry_run: Whether to skip storing.

    Raises:
        CollectionNotFoundError: If the collection does not exist.
        FormatError: If the file of pairs cannot be read.
        CalibrationError, ValueError: As for `calibrate`.
    """
    given = read_pairs(Path(labels)) if isinstance(labels, (str, os.PathLike)) else labels
    with use_store(store) as opened:
        target = opened.open(collection)
        manifest = target.manifest
        encoder = load_encoder(model or manifest.model, device=device, pooling=manifest.pooling, prefix=manifest.prefix)
        found = calibrate(opened, target, encoder, given, precision=precision, nil_share=nil_share, seed=seed)
        found = replace(found, replaced=manifest.calibration)
        if not dry_run:
            changed = target.read_manifest().model_copy(update={"calibration": found.to_manifest()})
            target.write_manifest(changed)
    return found


def calibrate(
    store: Store,
    collection: Collection,
    encoder: Encoder,
    labels: Sequence[Label] | None = None,
    *,
    precision: float = DEFAULT_PRECISION,
    nil_share: float | None = None,
    seed: int = 0,
) -> CollectionFit:
    """Fit a calibration without storing it.

    Args:
        store: The store of the collection.
        collection: An open collection.
        encoder: The model that encoded it.
        labels: Mentions with their entities; None for aliases of the base.
        precision: Target precision of links, in (0, 1).
        nil_share: Expected share of NIL mentions, in [0, 1). By default the share in the labels, or 0.2 if they have
            none.
        seed: Seed of all random choices.

    Raises:
        CalibrationError: If there are too few mentions, an id is unknown, no threshold reaches the precision, or the
            collection is not loaded completely.
        ValueError: If `precision` or `nil_share` is out of range.
    """
    _check_arguments(collection, precision, nil_share)
    rng = np.random.default_rng(seed)
    known = _prepare(collection, labels, nil_share, rng)
    shipped = shipped_model()
    samples = collect(score_held_out(store, collection, encoder, known.mentions, model=shipped), known.right_ids)
    if nil_share is not None:
        samples = samples.with_nil_share(nil_share)
    groups = _groups(known.labels)
    before, model_before = _previous(collection)
    try:
        fitted = fit(
            samples,
            precision=precision,
            before=before,
            groups=groups,
            rng=rng,
            model_before=model_before,
            shipped=None if labels is None else shipped,
        )
    except UnreachablePrecisionError as error:
        raise CalibrationError(
            f"No threshold gives links of precision {precision:g} on these {len(samples):,} mentions; the best one "
            f"gives {error.best:.3f}. Use a lower precision, or more pairs.",
            option="precision",
        ) from error
    return CollectionFit(fitted, "aliases" if labels is None else "pairs", precision)


def _check_arguments(collection: Collection, precision: float, nil_share: float | None) -> None:
    if not 0 < precision < 1:
        raise ValueError(f"precision must be between 0 and 1, not {precision}")
    if nil_share is not None and not 0 <= nil_share < 1:
        raise ValueError(f"the share of NIL mentions must be in [0, 1), not {nil_share}")
    if collection.manifest.state != "ready":
        raise CalibrationError(
            f"Collection '{collection.name}' is not loaded completely. Run its pearl-qdrant ingest again; it resumes."
        )


@dataclass(frozen=True, slots=True)
class _KnownMentions:
    """Mentions with right answers, n of each.

    Attributes:
        labels: The labels.
        mentions: Their mentions, with the points to exclude for each.
        right_ids: Right entity ids of each; empty for NIL.
    """

    labels: list[Label]
    mentions: list[HeldOut]
    right_ids: list[frozenset[str]]


def _prepare(
    collection: Collection, labels: Sequence[Label] | None, nil_share: float | None, rng: np.random.Generator
) -> _KnownMentions:
    """The labels, or aliases of the base; some become NIL if none is."""
    index = None
    if labels is None:
        index = NameIndex(collection, n_aliases=MAX_ALIASES, rng=rng)
        given = list(index.aliases)
    else:
        given = list(labels)
    _check_enough(collection, given, is_own=labels is None)
    if labels is not None:
        check_ids(collection, given)
    mentions = [as_known(label) for label in given]
    is_nil = [label.entity_id is None for label in given]
    if not any(is_nil) and nil_share != 0:
        index = index or NameIndex(collection, n_aliases=0, rng=rng)
        share = DEFAULT_NIL_SHARE if nil_share is None else nil_share
        for i, mention in _exclude_entities(given, index, share, rng).items():
            mentions[i], is_nil[i] = mention, True
    right_ids = [
        frozenset[str]() if nil else frozenset((str(label.entity_id),))
        for label, nil in zip(given, is_nil, strict=True)
    ]
    return _KnownMentions(given, mentions, right_ids)


def _exclude_entities(
    labels: Sequence[Label], index: NameIndex, share: float, rng: np.random.Generator
) -> dict[int, HeldOut]:
    """A random share of the labels as NIL mentions, by row: their entities are excluded."""
    n_excluded = max(1, round(share * len(labels)))
    chosen = sorted(rng.permutation(len(labels))[:n_excluded].tolist())
    same_name_ids = index.same_name_ids([str(labels[i].entity_id) for i in chosen])
    return {i: as_nil(labels[i], same_name_ids[str(labels[i].entity_id)]) for i in chosen}


def _groups(labels: Sequence[Label]) -> IntArray:
    """A group number for each label, (n,): one per entity, or per mention without an entity."""
    # Not with numpy strings: an array of them reserves the length of the longest string for each.
    keys = [label.entity_id or f"\0{label.mention}" for label in labels]
    numbers = {key: number for number, key in enumerate(sorted(set(keys)))}
    return np.array([numbers[key] for key in keys], dtype=np.int64)


def _previous(collection: Collection) -> tuple[Calibration, RankingModel | None]:
    """The stored calibration; the default one if there is none, or another version stored it."""
    stored = collection.manifest.calibration
    try:
        return (Calibration(), None) if stored is None else (calibration_of(stored), model_of(stored))
    except CalibrationError:
        return Calibration(), None


def _check_enough(collection: Collection, labels: Sequence[Label], *, is_own: bool) -> None:
    """Raise a CalibrationError if there are too few labels."""
    n_known = sum(label.entity_id is not None for label in labels)
    if is_own and n_known < MIN_MENTIONS:
        raise CalibrationError(
            f"Collection '{collection.name}' has {n_known or 'no'} aliases, and at least {MIN_MENTIONS} are needed. "
            f"Use labelled pairs: a mention, a tab and an entity id or NIL.",
            option="pairs",
        )
    if len(labels) < MIN_MENTIONS or n_known < MIN_MENTIONS // 2:
        raise CalibrationError(
            f"There are {len(labels):,} pairs, {n_known:,} of them with an entity. At least {MIN_MENTIONS} are needed, "
            f"{MIN_MENTIONS // 2} of them with an entity; a thousand are better."
        )
