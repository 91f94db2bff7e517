"""`reencode_collection` and `rollback_collection`: another model for the names that are stored, without downtime.

    1. A hidden version is made, and filled with the names of the current one (`names.py`).
    2. Its graph is built, and a sample of its names is searched.
    3. Passes bring what writers changed meanwhile, until little is left.
    4. If asked for, everyday mentions are answered with both models, and a worse one is not taken.
    5. Writers wait for the last pass, and the version becomes current in one step.

Readers keep the version that they opened, with its model, until they reload.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import cache, partial

import numpy as np
import numpy.typing as npt

from pearl_qdrant.encoder.protocol import Encoder, FloatArray, ModelInfo
from pearl_qdrant.errors import CollectionNotFoundError, OptionError, StoreError
from pearl_qdrant.linking.calibration.calibrate import sample_entities
from pearl_qdrant.linking.collection_statistics import CollectionStatistics
from pearl_qdrant.linking.mention_kinds import KINDS, MadeMention, make_mentions
from pearl_qdrant.linking.mention_stream import MentionStream
from pearl_qdrant.linking.options import LinkOptions
from pearl_qdrant.linking.ranking.model import Calibration, baseline_similarity, shipped_model
from pearl_qdrant.linking.ranking.scoring import decide
from pearl_qdrant.settings import DEFAULT_DEVICE
from pearl_qdrant.store.administration import check_complete
from pearl_qdrant.store.open import StoreLike, use_store
from pearl_qdrant.store.protocol import Collection, Store, Version, new_version
from pearl_qdrant.store.schema import Manifest, NamePoint, Quantization
from pearl_qdrant.transfer.names import BULK_NAMES, Inventory, OnProgress, catch_up, first_rows, no_progress

MOVE_WAIT_S = 600.0  # how long the switch waits for a writer of an embedded collection
FEW_CHANGES = 500  # with fewer changes in a pass, writers are asked to wait for the last one
MOST_PASSES = 5
SAMPLE = 200  # names whose own vector is searched
LEAST_RECALL = 0.95  # share of these that must be found first; with a graph of these parameters it is 0.99 or more

EVERYDAY_MENTIONS = 1000
"""They take some seconds and show a difference of two models with a standard error of about a point."""


@dataclass(frozen=True, slots=True)
class EverydayKind:
    """Right answers to one kind of mention, before and after, in percent."""

    kind: str
    mentions: int
    before: float
    after: float


@dataclass(frozen=True, slots=True)
class EverydayChange:
    """What another model changes for everyday mentions of a collection.

    Attributes:
        kinds: The kinds that the names give mentions of.
        error: Standard error of the difference of the means, in points; mentions are compared one by one.
    """

    kinds: tuple[EverydayKind, ...]
    error: float

    @property
    def mentions(self) -> int:
        return sum(one.mentions for one in self.kinds)

    @property
    def before(self) -> float:
        """Right answers with the model before: the mean over the kinds, in percent; 0 without mentions."""
        return sum(one.before for one in self.kinds) / max(1, len(self.kinds))

    @property
    def after(self) -> float:
        """The same with the new model."""
        return sum(one.after for one in self.kinds) / max(1, len(self.kinds))

    @property
    def fall(self) -> float:
        """By how many points the mean is lower with the new model; negative if it is higher."""
        return self.before - self.after


def compare_everyday(before: tuple[Collection, Encoder], after: tuple[Collection, Encoder], n: int) -> EverydayChange:
    """Answer at most `n` everyday mentions, equally many of each kind, in two versions of a collection. They are linked
    at the linker's defaults: a calibration belongs to one model. The figure is that of `pearl-qdrant evaluate --task
    everyday`: the share of right answers, NIL included, as the mean over the kinds. The version before gives the names;
    each comes with its model.
    """
    entities, owners = sample_entities(before[0], np.random.default_rng(0))
    made = make_mentions(entities, owners, per_kind=max(1, n // len(KINDS))) if entities else []
    first, second = (_is_right(collection, encoder, made) for collection, encoder in (before, after))
    return summarise(made, first, second)


def summarise(
    made: Sequence[MadeMention], before: npt.NDArray[np.bool_], after: npt.NDArray[np.bool_]
) -> EverydayChange:
    """Make the figures of n mentions that were answered twice: (n,) each says whether that was right."""
    kinds: list[EverydayKind] = []
    variance = 0.0
    for kind in KINDS:
        rows = [row for row, one in enumerate(made) if one.kind == kind.name]
        if rows:
            first, second = before[rows].astype(np.float64), after[rows].astype(np.float64)
            kinds.append(EverydayKind(kind.name, len(rows), 100 * float(first.mean()), 100 * float(second.mean())))
            variance += float((second - first).var()) / len(rows)
    return EverydayChange(tuple(kinds), 100 * variance**0.5 / max(1, len(kinds)))


def _is_right(collection: Collection, encoder: Encoder, made: Sequence[MadeMention]) -> npt.NDArray[np.bool_]:

    def exclude(number: int, point: NamePoint) -> bool:
        return made[number].excludes(point.entity_id, point.name)

    statistics = CollectionStatistics([collection])
    stream = MentionStream(encoder, statistics, shipped_model(), baseline_similarity(encoder), None)
    options, calibration = LinkOptions(), Calibration()
    query = stream.link_query(options)
    answers = []
    for one in stream.score((each.mention for each in made), query, exclude, lambda: None):
        link = decide(one, calibration, options.most_candidates, calibration.threshold, options.on_tie)
        answers.append(link.entity_id)
    return np.array([answer == one.entity_id for answer, one in zip(answers, made, strict=True)], dtype=np.bool_)


@dataclass(frozen=True, slots=True)
class ReencodeResult:
    """What `reencode_collection` or `rollback_collection` did.

    Attributes:
        model_before, model: The models before and now.
        encoded: Names that were encoded by this call; the others were encoded by an earlier one.
        recall: Share of a sample of names that a search for their own vector finds first; None if nothing was encoded.
        switched: Whether another version is current now. If not, it was encoded with this model already, or the new
            model answers everyday mentions worse: `everyday` is None in the first case alone.
        seconds: Time of all of it.
        switch_seconds: The part of it in which writers had to wait.
        everyday: Everyday mentions with both models, if asked for.
    """

    collection: str
    model_before: str
    model: str
    names: int
    encoded: int
    recall: float | None
    switched: bool
    seconds: float
    switch_seconds: float
    everyday: EverydayChange | None = None


def reencode_collection(  # long: most of it is what its arguments mean
    name: str,
    *,
    model: str,
    store: StoreLike = None,
    device: str = DEFAULT_DEVICE,
    wait_s: float | None = None,
    everyday: int | None = None,
    max_fall: float = 0.0,
    on_progress: OnProgress = no_progress,
) -> ReencodeResult:
    """Encode the names of a collection again with another model, and switch to it without downtime. With the same model
    this brings a collection of an older release to the form in which new ones keep their vectors.

    Readers and writers go on meanwhile. The version before it stays, for `rollback_collection`, until
    `prune_collection`. A calibration belongs to its model, so the new version has none; what was learned stays. If the
    call is killed, the same call goes on.

    Args:
        name: The collection.
        model, device: Shipped name, folder or hub id; auto, cpu, cuda or cuda:N.
        store, wait_s: As for `pull_collection`.
        everyday: Answer about so many everyday mentions, made from the names, with both models before the switch;
            `EVERYDAY_MENTIONS` take some seconds. None: answer none.
        max_fall: Then switch only if the mean of the right answers falls by at most so many points, >= 0. Otherwise the
            version stays hidden, complete, and the same call with a larger `max_fall` switches to it.
        on_progress: Called from time to time with (names compared, all names).

    Raises:
        CollectionNotFoundError, IncompleteError: If there is no such collection, or a load of it did not finish.
        ModelError: If the model cannot be loaded, or for everyday mentions the one before.
        OptionError: If `everyday` or `max_fall` is out of range.
        StoreLockedError: If another process, or this one, keeps an embedded collection open for writing.
        StoreError: If the store fails, or the new version is not as it must be. Then the old one stays current.
    """
    from pearl_qdrant.encoder.loading import load_encoder

    if everyday is not None and everyday < 1:
        raise OptionError("everyday", f"At least one everyday mention must be answered, not {everyday}.")
    if not max_fall >= 0:
        raise OptionError("max_fall", f"The mean may fall by 0 points or more, not by {max_fall}.")
    encoder = load_encoder(model, device=device)
    with use_store(store, wait_s=wait_s) as opened:
        with closing(opened.open(name, read_only=True)) as current:
            before = current.manifest
            kept = before.kept_as(opened.quantization).quantization
            if before.is_of(encoder.info) and before.quantization == kept:
                return ReencodeResult(name, before.model, before.model, before.names, 0, None, False, 0.0, 0.0)
        version = next((one.id for one in opened.versions(name) if _fits(one, encoder.info, kept)), None)
        if version is None:
            version = new_version()
            fields = ("collection", "kb", "kb_version", "type_map_version")
            same = {field: getattr(before, field) for field in fields}
            manifest = Manifest.for_model(encoder.info, **same, quantization=kept)
            opened.create(manifest, version=version, made_by="reencode").close()
        work = _Reencoding(opened, name, version, lambda: encoder, on_progress)
        if everyday is not None:
            work.mentions, work.max_fall, work.encoder_before = everyday, max_fall, _encoder_of(before, device)
        return work.run()


def rollback_collection(
    name: str,
    *,
    store: StoreLike = None,
    device: str = DEFAULT_DEVICE,
    wait_s: float | None = None,
    on_progress: OnProgress = no_progress,
) -> ReencodeResult:
    """Make the version before the current one current again; arguments and errors as for `reencode_collection`.

    Names that were added or deleted since are brought to it first, encoded with its model. A second rollback goes back
    to the version that this one left. OptionError if there is no version before the current one.
    """
    with use_store(store, wait_s=wait_s) as opened:
        versions = opened.versions(name)
        if not versions or not versions[0].is_current:
            raise CollectionNotFoundError(name, opened.collections())
        before = next((one for one in versions if one.id == versions[0].mark.replaced and not one.is_current), None)
        if before is None or before.manifest is None:
            raise OptionError(
                "model",
                f"Collection '{name}' has no version before the current one: it was not replaced, or the old ones were "
                f"pruned. Encode its names again with the model that you want.",
            )
        encoder = cache(partial(_encoder_of, before.manifest, device))
        return _Reencoding(opened, name, before.id, encoder, on_progress).run()


def _encoder_of(manifest: Manifest, device: str) -> Encoder:
    """Load the model of a version. Raises ModelError, also if it has other weights now."""
    from pearl_qdrant.encoder.loading import load_encoder

    encoder = load_encoder(manifest.model, device=device, pooling=manifest.pooling, prefix=manifest.prefix)
    manifest.check_model(encoder.info)
    return encoder


def _fits(version: Version, info: ModelInfo, kept: Quantization) -> bool:
    """Whether a version that is not current has vectors of this model, kept so; complete or not."""
    is_usable, manifest = version.mark.is_complete or version.mark.made_by == "reencode", version.manifest
    if not is_usable or version.is_current or manifest is None:
        return False
    return manifest.is_of(info) and manifest.quantization == kept


@dataclass(slots=True)
class _Reencoding:
    """Brings one version up to date with the current one, and switches to it; `encoder` returns its model. With
    `encoder_before`, the model of the current version, at most so many everyday mentions are compared.
    """

    store: Store
    name: str
    version: str
    encoder: Callable[[], Encoder]
    on_progress: OnProgress
    encoder_before: Encoder | None = None
    mentions: int = EVERYDAY_MENTIONS
    max_fall: float = 0.0
    _encoded: int = 0
    _token: str | None = None
    _known: Inventory | None = None  # what the version has after the last pass

    def run(self) -> ReencodeResult:
        start = time.perf_counter()
        was_complete = any(one.id == self.version and one.mark.is_complete for one in self.store.versions(self.name))
        target = self.store.open(self.name, version=self.version)
        model = target.manifest.model
        try:
            before = self._catch_up(target, was_complete=was_complete)
            recall = None if was_complete and not self._encoded else self._check_sample(target)
            everyday = self._compare_everyday(target)
            started = time.perf_counter()
            is_good = everyday is None or everyday.fall <= self.max_fall
            names = self._switch(target) if is_good else target.count()
        finally:
            target.close()
        now = time.perf_counter()
        seconds = now - start, now - started if is_good else 0.0
        return ReencodeResult(self.name, before, model, names, self._encoded, recall, is_good, *seconds, everyday)

    def _compare_everyday(self, target: Collection) -> EverydayChange | None:
        if self.encoder_before is None:
            return None
        with closing(self.store.open(self.name, read_only=True)) as current:
            current.manifest.check_model(self.encoder_before.info)
            # The linker weighs n-grams by the rarities of a finished load; these do not depend on the model.
            rarity = current.manifest.ngram_rarity
            target.write_manifest(target.read_manifest().model_copy(update={"ngram_rarity": rarity}))
            return compare_everyday((current, self.encoder_before), (target, self.encoder()), self.mentions)

    def _catch_up(self, target: Collection, *, was_complete: bool) -> str:
        """Do passes until little is left; returns the model of the current version. A version that was current once, or
        was checked, has its graph: it is built again only for many new names.
        """
        for number in range(MOST_PASSES):
            with closing(self.store.open(self.name, read_only=True)) as current:
                check_complete([current])
                self._token = current.state_token
                found = catch_up(current, target, self.encoder, known=self._known, on_progress=self.on_progress)
                self._known = found.inventory
                before = current.manifest.model
            self._encoded += found.written
            if found.written > BULK_NAMES or (number == 0 and (found.written or not was_complete)):
                target.finalize()
            if found.written + found.deleted <= FEW_CHANGES:  # the switch does a last pass
                break
        return before

    def _check_sample(self, target: Collection) -> float:
        """Search a sample of names by their own vectors; StoreError if too few are found."""
        sample = first_rows(target, SAMPLE)
        vectors: FloatArray = sample.vectors[sample.encodable]
        if not len(vectors):
            return 1.0
        answers = target.search(vectors, limit=1)
        # Another name may have the same vector.
        n_found = sum(bool(found) and (found[0].score or 0.0) > 1 - 1e-3 for found in answers)
        recall = n_found / len(vectors)
        if recall < LEAST_RECALL:
            raise StoreError(
                f"Collection '{self.name}' stays as it was: of {len(vectors)} names with their new vectors, a search "
                f"finds {n_found}. Run the same command again; if that does not help, please report it."
            )
        return recall

    def _switch(self, target: Collection) -> int:
        """Hold writers back, do the last pass, and make the version current; returns its names."""
        with self.store.moving(self.name, wait_s=MOVE_WAIT_S) as current:
            manifest = current.read_manifest()
            check_complete([current])
            if self._token is None or current.state_token != self._token:
                found = catch_up(current, target, self.encoder, known=self._known, on_progress=no_progress)
                self._encoded += found.written
                if found.written > BULK_NAMES:
                    target.finalize()
                # On a server, writes under way still reach the current version: their writers repeat them.
                wanted = found.names
            else:
                wanted = current.count()
            names = target.count()
            if names != wanted:
                raise StoreError(
                    f"Collection '{self.name}' stays as it was: it has {wanted:,} names, and its new version has "
                    f"{names:,}. Run the same command again."
                )
            changed = {
                "state": "ready",
                "entities": target.count_entities(),
                "names": names,
                **{field: getattr(manifest, field) for field in ("kb_version", "type_map_version", "loaded", "edited")},
                **({} if manifest.ngram_rarity is None else {"ngram_rarity": manifest.ngram_rarity}),
                **({"calibration": manifest.calibration} if manifest.is_of(target.manifest) else {}),
            }
            target.write_manifest(target.read_manifest().model_copy(update=changed))
            target.close()
            self.store.switch(self.name, self.version)
        return names
