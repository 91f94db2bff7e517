"""Calibrating the linker to a collection, on labelled pairs or on the base's own aliases.

    labels      pairs from a file; or aliases of the base, each held out of its entity
    NIL         mentions that the pairs call so; where there are none, entities are taken away, with their namesakes
    scored      once each: the fit works on their features
    fitted      slope, NIL bias, threshold (`fit_calibration.py`); on labelled pairs the coefficients too

Aliases of a base are easier than what people write: labelled pairs are worth more.
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
from pearl_qdrant.linking.calibration.samples import IntArray, Samples, collect
from pearl_qdrant.linking.ranking.model import Calibration, RankingModel, shipped_model
from pearl_qdrant.linking.ranking.stored_calibration import calibration_of, model_of
from pearl_qdrant.settings import DEFAULT_DEVICE, DEFAULT_NIL_SHARE, DEFAULT_PRECISION
from pearl_qdrant.store.open import StoreLike, use_store
from pearl_qdrant.store.protocol import Collection, Store
from pearl_qdrant.store.schema import LinkCalibration

MIN_MENTIONS = 50
"""Fewer say nothing about a precision of 95 %: with all of 19 right it is not yet reached."""

MAX_ALIASES = 5000

SourceOfLabels = Literal["pairs", "aliases"]


@dataclass(frozen=True, slots=True)
class CollectionFit:
    """A calibration for a collection.

    Attributes:
        fit: What was fitted, and what it is worth.
        source: What it was fitted on.
        precision: The target.
        replaced: What the collection had before.
    """

    fit: Fit
    source: SourceOfLabels
    precision: float
    replaced: LinkCalibration | None = None

    def to_manifest(self) -> LinkCalibration:
        """As the manifest keeps it, with what it was fitted on."""
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
    """Fit a calibration and store it in the collection: what `pearl-qdrant calibrate` does.

    Args:
        collection: Its name.
        labels: Mentions with their entities, or a file of them (`labels.read_pairs`); None: the base's own aliases.
        store: A store, a folder or a URL; by default what the environment names, as in `EntityLinker.open`.
        model: Instead of the one that the collection names, where that has moved.
        device: auto, cpu, cuda or cuda:N.
        dry_run: Whether nothing is stored.
        precision, nil_share, seed: As in `calibrate`.

    Raises:
        CollectionNotFoundError: If there is no such collection.
        FormatError: If the file of pairs cannot be read.
        CalibrationError, ValueError: As `calibrate`.
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
    """Fit a calibration; nothing is stored.

    Args:
        store: Where the collection is.
        collection: Open.
        encoder: The model that made it.
        labels: Mentions with their entities; None: the base's own aliases.
        precision: Of the links at the threshold, in (0, 1).
        nil_share: Share of NIL mentions that is expected in use, in [0, 1). By default that of the labels, or 0.2 where
            they have none.
        seed: Of all that is drawn.

    Raises:
        CalibrationError: If there are too few mentions, an id is unknown, the precision is out of reach, or the
            collection is not loaded completely.
        ValueError: If `precision` or `nil_share` is out of range.
    """
    if not 0 < precision < 1:
        raise ValueError(f"precision lies between 0 and 1, not {precision}")
    if nil_share is not None and not 0 <= nil_share < 1:
        raise ValueError(f"the share of NIL mentions lies in [0, 1), not {nil_share}")
    if collection.manifest.state != "ready":
        raise CalibrationError(
            f"Collection '{collection.name}' is not loaded completely. Run its pearl-qdrant ingest again: it goes on."
        )
    rng = np.random.default_rng(seed)
    given = list(labels) if labels is not None else None
    index = None
    if given is None:
        index = NameIndex(collection, n_aliases=MAX_ALIASES, rng=rng)
        given = list(index.aliases)
    _check_enough(collection, given, is_own=labels is None)
    if labels is not None:
        check_ids(collection, given)
    is_nil = np.array([label.entity_id is None for label in given])
    questions = [as_known(label) for label in given]
    if not is_nil.any() and nil_share != 0:
        index = index or NameIndex(collection, n_aliases=0, rng=rng)
        share = DEFAULT_NIL_SHARE if nil_share is None else nil_share
        is_nil = _make_nil(given, questions, index, share, rng)
    golds = [
        frozenset[str]() if nil else frozenset((str(label.entity_id),))
        for label, nil in zip(given, is_nil.tolist(), strict=True)
    ]
    shipped = shipped_model()
    scored = score_held_out(store, collection, encoder, questions, model=shipped)
    samples = _weighed(collect(scored, golds), nil_share)
    groups = _groups(given)
    before, model_before = _in_use(collection)
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
            f"gives {error.best:.3f}. Ask for less with --precision, or give more pairs."
        ) from error
    return CollectionFit(fitted, "aliases" if labels is None else "pairs", precision)


def _groups(labels: Sequence[Label]) -> IntArray:
    """A number for each label, the same for those of one entity, or of one mention without an entity; (n,)."""
    # Not by numpy, whose arrays of texts hold each of them in the space of the longest.
    keys = [label.entity_id or f"\0{label.mention}" for label in labels]
    numbers = {key: number for number, key in enumerate(sorted(set(keys)))}
    return np.array([numbers[key] for key in keys], dtype=np.int64)


def _in_use(collection: Collection) -> tuple[Calibration, RankingModel | None]:
    """What was fitted before; what comes with the package if nothing was, or by another version."""
    stored = collection.manifest.calibration
    try:
        return (Calibration(), None) if stored is None else (calibration_of(stored), model_of(stored))
    except CalibrationError:
        return Calibration(), None


def _check_enough(collection: Collection, labels: Sequence[Label], *, is_own: bool) -> None:
    n_known = sum(label.entity_id is not None for label in labels)
    if is_own and n_known < MIN_MENTIONS:
        raise CalibrationError(
            f"Collection '{collection.name}' has {n_known or 'no'} aliases, and at least {MIN_MENTIONS} are needed. "
            f"Give labelled pairs with --pairs: a mention, a tab and an entity id or NIL."
        )
    if len(labels) < MIN_MENTIONS or n_known < MIN_MENTIONS // 2:
        raise CalibrationError(
            f"There are {len(labels):,} pairs, {n_known:,} of them with an entity. At least {MIN_MENTIONS} are needed, "
            f"{MIN_MENTIONS // 2} with an entity; a thousand are better."
        )


def _make_nil(
    labels: Sequence[Label], questions: list[HeldOut], index: NameIndex, share: float, rng: np.random.Generator
) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """Take the entities of some labels away; which, (n,)."""
    is_nil = np.zeros(len(labels), dtype=np.bool_)
    is_nil[rng.permutation(len(labels))[: max(1, round(share * len(labels)))]] = True
    chosen = np.flatnonzero(is_nil).tolist()
    namesakes = index.namesakes([str(labels[i].entity_id) for i in chosen])
    for i in chosen:
        questions[i] = as_nil(labels[i], namesakes[str(labels[i].entity_id)])
    return is_nil


def _weighed(samples: Samples, nil_share: float | None) -> Samples:
    return samples if nil_share is None else samples.with_nil_share(nil_share)
