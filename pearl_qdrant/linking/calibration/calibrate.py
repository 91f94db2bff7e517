"""Calibrates the linker to a collection, on labelled pairs or on mentions made from the names of the base.

    labels      pairs from a file; or everyday mentions of every kind, made from the names (`linking.mention_kinds`)
    NIL         those that the labels mark; without any, some entities are excluded with all that share their names
    score       every mention once; the fit works on its features
    fit         slope and NIL bias, or on labelled pairs the coefficients; the threshold (`platt_scaling.py`)
    compare     what becomes of each kind of mention before and after; a calibration that makes it worse is not stored

Made mentions are easier than what people write, so labelled pairs give a better calibration. `choose_to_label` finds
the mentions of a list whose answers would tell most: those that are nearly decided either way.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Literal, NamedTuple, cast

import numpy as np

from pearl_qdrant.encoder.protocol import Encoder
from pearl_qdrant.errors import CalibrationError
from pearl_qdrant.linking.calibration import metrics
from pearl_qdrant.linking.calibration.platt_scaling import Fit, fit
from pearl_qdrant.linking.editing import names_by_entity
from pearl_qdrant.linking.learned.learning import learned_pairs, read_labelled, unknown_ids
from pearl_qdrant.linking.linker import EntityLinker
from pearl_qdrant.linking.mention_kinds import KINDS, NamedEntity, NameOwners, make_mentions
from pearl_qdrant.linking.mentions import clean_mention
from pearl_qdrant.linking.options import LinkOptions
from pearl_qdrant.linking.ranking.model import Calibration, RankingModel, shipped_model
from pearl_qdrant.linking.state import calibration_of, encoder_of, model_of
from pearl_qdrant.records import Link
from pearl_qdrant.settings import DEFAULT_DEVICE, DEFAULT_NIL_SHARE, DEFAULT_PRECISION
from pearl_qdrant.store.open import StoreLike, use_store
from pearl_qdrant.store.protocol import Collection, Store
from pearl_qdrant.store.schema import LinkCalibration, NamePoint


class Label(NamedTuple):
    """A mention with its right entity, or None if the base does not have it."""

    mention: str
    entity_id: str | None


def read_pairs(path: Path) -> list[Label]:
    """Pairs of mention and entity id from a file; each counts once. Format and errors as for `read_labelled`."""
    return list(dict.fromkeys(Label(one.mention, one.entity_id) for one in read_labelled(path)))


MAX_ENTITIES = 5000  # size of the random sample of entities that mentions are made from


def sample_entities(collection: Collection, rng: np.random.Generator) -> tuple[list[NamedEntity], NameOwners]:
    """A random sample of the entities with their names, and the owners of all names, from one pass. Takes 32 bytes a
    name: names and ids are kept as 64-bit hashes.
    """
    sample: list[str] = []
    n_seen = 0

    def pairs() -> Iterator[tuple[str, str]]:
        nonlocal n_seen
        for point in collection.scroll():
            if point.is_canonical:
                # Reservoir sampling: entity number n replaces a random one with probability MAX_ENTITIES / n.
                n_seen += 1
                place = len(sample) if len(sample) < MAX_ENTITIES else int(rng.integers(n_seen))
                if place < MAX_ENTITIES:
                    sample[place : place + 1] = [point.entity_id]
            yield point.entity_id, point.name

    owners = NameOwners(pairs())
    found = names_by_entity(collection, sample)
    entities = []
    for entity_id in sample:
        points = sorted(found.get(entity_id, ()), key=lambda point: (not point.is_canonical, point.name))
        # A name that cleaning changes could not be found by its own string.
        names = tuple(point.name for point in points if clean_mention(point.name) == point.name)
        if names and points[0].is_canonical and names[0] == points[0].name:
            entities.append(NamedEntity(entity_id, names, points[0].types))
    return entities, owners


MIN_MENTIONS = 50  # fewer made mentions cannot show a precision of 95 %
MIN_PAIRS = 30  # labelled pairs with which the fit helped on every curated set
PER_KIND = 200  # mentions of each kind that are made from the base


class KnownMention(NamedTuple):
    """A labelled or made mention with its right answer, its kind (`KINDS`, or "labelled") and its weight."""

    label: Label
    right_id: str | None  # None for NIL, though the label may have an entity
    kind: str = "labelled"
    weight: float = 1.0
    excludes: Callable[[NamePoint], bool] | None = None  # names that it must not find; None: it may find all


def from_names(collection: Collection, rng: np.random.Generator) -> list[KnownMention]:
    """Mentions of every kind from the names of the base, weighted by the shares of the kinds."""
    entities, owners = sample_entities(collection, rng)
    made = make_mentions(entities, owners, per_kind=PER_KIND, seed=int(rng.integers(1 << 30))) if entities else []
    counts = Counter(one.kind for one in made)
    shares = {kind.name: kind.share for kind in KINDS}
    mean = sum(shares[kind] for kind in counts) / max(1, len(made))
    weights = {kind: shares[kind] / n / mean for kind, n in counts.items()}
    return [
        KnownMention(Label(one.mention, one.entity_id), one.entity_id, one.kind, weights[one.kind], one.excludes_point)
        for one in made
    ]


def _is_one_of(hashed_ids: frozenset[int], point: NamePoint) -> bool:
    return hash(point.entity_id) in hashed_ids


def from_labels(
    collection: Collection, labels: Sequence[Label], nil_share: float | None, rng: np.random.Generator
) -> list[KnownMention]:
    """The labelled mentions; some become NIL if none is."""
    given = list(labels)
    n_known = sum(label.entity_id is not None for label in given)
    if len(given) < MIN_PAIRS or n_known < MIN_PAIRS // 2:
        raise CalibrationError(
            f"There are {len(given):,} pairs, {n_known:,} of them with an entity. At least {MIN_PAIRS} are needed, "
            f"{MIN_PAIRS // 2} of them with an entity; a thousand are better."
        )
    wanted = {label.entity_id for label in given if label.entity_id is not None}
    if unknown := sorted(unknown_ids(collection, wanted)):
        shown = ", ".join(key[:80] for key in unknown[:3])
        raise CalibrationError(
            f"{len(unknown):,} of {len(wanted):,} entity ids are not in collection '{collection.name}', e.g. {shown}. "
            f"Are they ids of this base? Use NIL for a mention without an entity."
        )
    known = [KnownMention(label, label.entity_id) for label in given]
    if n_known == len(given) and nil_share != 0:
        # A random share becomes NIL: its entities are excluded, with all that share their names.
        share = DEFAULT_NIL_SHARE if nil_share is None else nil_share
        chosen = sorted(rng.permutation(len(given))[: max(1, round(share * len(given)))].tolist())
        owners = NameOwners((point.entity_id, point.name) for point in collection.scroll())
        for i in chosen:
            ids = owners.sharing_names_with(str(given[i].entity_id))
            known[i] = known[i]._replace(right_id=None, excludes=partial(_is_one_of, ids))
    return known


def check_made(collection: Collection, made: Sequence[KnownMention]) -> None:
    """Raise a CalibrationError if the base gives too few mentions."""
    if len(made) < MIN_MENTIONS or sum(one.right_id is not None for one in made) < MIN_MENTIONS // 2:
        raise CalibrationError(
            f"The names of collection '{collection.name}' give {len(made)} mentions, and at least "
            f"{MIN_MENTIONS} are needed. Use labelled pairs: a mention, a tab and an entity id or NIL.",
            option="pairs",
        )


READ, SPREAD = 20_000, 3
"""Distinct mentions that are linked, of more the first; those that are asked are every third of three times as many
that are nearest to the threshold."""


def choose_to_label(
    linker: EntityLinker, mentions: Iterable[str], n: int, options: LinkOptions | None = None
) -> list[Link]:
    """The n links of the mentions of one source whose right answers would help a calibration most, least certain first.
    Fewer come if there are fewer that no rule decides. Raises ValueError if n is less than 1.
    """
    if n < 1:
        raise ValueError(f"at least one mention can be asked, not {n}")
    distinct = dict.fromkeys(filter(None, map(clean_mention, mentions)))
    chosen = options or LinkOptions()
    threshold = linker.calibration.threshold if chosen.threshold is None else chosen.threshold
    open_links = [
        link for link in linker.link_batch(list(islice(distinct, READ)), chosen) if link.candidates and not link.rule
    ]
    # Equally far ones in an order that does not depend on that of the list.
    nearest = sorted(open_links, key=lambda one: (abs((one.candidates[0].probability or 0) - threshold), one.mention))
    return nearest[: SPREAD * n][:: max(1, min(SPREAD, len(nearest) // n))][:n]


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
    changes: tuple[metrics.KindChange, ...] = ()
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


@dataclass(frozen=True, slots=True)
class CalibrationData:
    """What a calibration is fitted to, where pairs alone do not say it.

    Attributes:
        labels: Mentions with their entities, or a file of them (`read_pairs`); None for mentions made from the names of
            the base.
        learned: Whether mentions that the collection learned or accepted are labels, too.
        nil_share: Expected share of NIL mentions, in [0, 1). By default the share in the labels, or 0.2 if they have
            none.
        seed: Seed of the random draws.
    """

    labels: str | os.PathLike[str] | Sequence[Label] | None = None
    learned: bool = False
    nil_share: float | None = None
    seed: int = 0

    def read(self, collection: Collection) -> Sequence[Label] | None:
        """The labels, each once, of entities that the collection has where it learned them. Raises FormatError if the
        file cannot be read.
        """
        given = read_pairs(Path(self.labels)) if isinstance(self.labels, (str, os.PathLike)) else self.labels
        if not self.learned:
            return given
        pairs = learned_pairs(collection)
        unknown = unknown_ids(collection, {entity_id for _, entity_id in pairs if entity_id is not None})
        learned = [Label(mention, entity_id) for mention, entity_id in pairs if entity_id not in unknown]
        return list(dict.fromkeys([*(given or ()), *learned]))


def calibrate_collection(
    collection: str,
    labels: CalibrationData | str | os.PathLike[str] | Sequence[Label] | None = None,
    *,
    store: StoreLike = None,
    model: str | None = None,
    device: str = DEFAULT_DEVICE,
    precision: float | None = None,
    dry_run: bool = False,
    force: bool = False,
) -> CollectionFit:
    """Fit a calibration and store it in the collection, as `pearl-qdrant calibrate` does.

    Args:
        labels: Mentions with their entities, or a file of them, or a record with these and more; None for mentions made
            from the names of the base.
        store, device: As in `EntityLinker.open`.
        model: Replaces the model that the collection names, for example if its folder moved.
        precision: As for `calibrate`.
        dry_run: Whether to skip storing.
        force: Whether to store a calibration that makes it worse, too.

    Raises:
        CollectionNotFoundError, FormatError: If the collection does not exist, or the file cannot be read.
        WorseCalibrationError: If it makes it worse, and neither `dry_run` nor `force` is set. Nothing is stored then.
        CalibrationError, ValueError: As for `calibrate`.
    """
    data = labels if isinstance(labels, CalibrationData) else CalibrationData(labels)
    with use_store(store) as opened:
        target = opened.open(collection)
        manifest = target.manifest
        encoder = encoder_of(manifest, model, device=device)
        found = replace(calibrate(opened, target, encoder, data, precision), replaced=manifest.calibration)
        if found.is_worse and not (dry_run or force):
            raise WorseCalibrationError(found)
        if not dry_run:
            changed = target.read_manifest().model_copy(update={"calibration": found.to_manifest()})
            target.write_manifest(changed)
    return found


def reset_calibration(collection: str, *, store: StoreLike = None) -> LinkCalibration | None:
    """Remove the calibration of a collection and return it, as `pearl-qdrant calibrate --reset` does. Raises
    CollectionNotFoundError if the collection does not exist.
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
        if metrics.loses_exact_names(found.changes):
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
    data: CalibrationData,
    precision: float | None = None,
) -> CollectionFit:
    """Fit a calibration without storing it. Raises CalibrationError if there are too few mentions, an id is unknown, no
    threshold reaches the precision, or the collection is not loaded completely; ValueError if `precision` or
    `nil_share` is out of range.

    Args:
        precision: Target precision of links, in (0, 1). None: the default threshold of the fitted probabilities, which
            answers most mentions rightly; for mentions made from the base 0.95, of which most are easy.
    """
    labels, nil_share = data.read(collection), data.nil_share
    wanted = DEFAULT_PRECISION if precision is None and labels is None else precision
    _check_arguments(collection, wanted, nil_share)
    rng = np.random.default_rng(data.seed)
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
        groups=_groups([one.label for one in known]),
        rng=rng,
        model_before=model_before,
        shipped=None if labels is None else shipped,
    )
    thresholds = {"threshold_before": before.threshold, "threshold_after": fitted.calibration.threshold}
    changes = metrics.changes_by_kind(
        [one.kind for one in known], fitted.answers_before, fitted.answers_after, **thresholds
    )
    if labels is not None:
        # What a fit to labelled pairs changes for mentions made from the base, which it did not see.
        of_control = _score(store, collection, encoder, control, shipped)
        old = of_control if model_before is None else of_control.scored_by(model_before)
        new = of_control if fitted.model is None else of_control.scored_by(fitted.model)
        answers = new.answers(fitted.calibration)
        changes += metrics.changes_by_kind([one.kind for one in control], old.answers(before), answers, **thresholds)
    # Right minus wrong links may not fall if the links before were precise enough.
    gain, error = _gain(fitted)
    was_precise = wanted is None or fitted.before.precision >= wanted
    is_worse = metrics.loses_exact_names(changes) or (was_precise and gain < -max(ALLOWED_FALL, ERRORS * error))
    return CollectionFit(fitted, "names" if labels is None else "pairs", wanted, changes, is_worse)


def _score(
    store: Store, collection: Collection, encoder: Encoder, known: Sequence[KnownMention], shipped: RankingModel
) -> metrics.Samples:
    held_out = [metrics.HeldOut(one.label.mention, one.excludes) for one in known]
    gold = [frozenset(() if one.right_id is None else (one.right_id,)) for one in known]
    scored = metrics.score_held_out(store, collection, encoder, held_out, model=shipped)
    return replace(metrics.collect(scored, gold), weights=np.array([one.weight for one in known]))


def _gain(fitted: Fit) -> tuple[float, float]:
    """What right minus wrong links gain for the mentions of a fit, and its standard error."""
    thresholds = fitted.before.threshold, fitted.calibration.threshold
    return metrics.gain_of_links(fitted.answers_before, fitted.answers_after, *thresholds)


def _check_arguments(collection: Collection, precision: float | None, nil_share: float | None) -> None:
    if precision is not None and not 0 < precision < 1:
        raise ValueError(f"precision must be between 0 and 1, not {precision}")
    if nil_share is not None and not 0 <= nil_share < 1:
        raise ValueError(f"the share of NIL mentions must be in [0, 1), not {nil_share}")
    if collection.manifest.state != "ready":
        raise CalibrationError(
            f"Collection '{collection.name}' is not loaded completely. Run its pearl-qdrant ingest again; it resumes."
        )


def _groups(labels: Sequence[Label]) -> metrics.IntArray:
    """A group number for each label, (n,): one per entity, or per mention without an entity."""
    # Not with numpy strings, each of which reserves the length of the longest one.
    keys = [label.entity_id or f"\0{label.mention}" for label in labels]
    numbers = {key: number for number, key in enumerate(sorted(set(keys)))}
    return np.array([numbers[key] for key in keys], dtype=np.int64)
