"""The open collections of a linker in one state, with their statistics and calibration, and the answers from them.

A newer state replaces the state as a whole. `Lifetime` says whether the linker is still open.
"""

from __future__ import annotations

import logging
import math
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from itertools import islice
from typing import TypeVar

import numpy as np

from pearl_qdrant.encoder.loading import load_encoder
from pearl_qdrant.encoder.protocol import Encoder
from pearl_qdrant.errors import CalibrationError, LinkerClosedError, ReadOnlyError
from pearl_qdrant.lexical.keys import key_rows, name_keys
from pearl_qdrant.lexical.ngrams import fold_name
from pearl_qdrant.lexical.words import other_spellings
from pearl_qdrant.linking.candidates import Exclude, names_sharing, word_frequencies
from pearl_qdrant.linking.collection_statistics import CollectionStatistics
from pearl_qdrant.linking.documents.linking import link_document, score_in_context
from pearl_qdrant.linking.documents.word_types import Passages, typical_vectors
from pearl_qdrant.linking.learned.names import LearnedMention, LearnedNames
from pearl_qdrant.linking.mention_detection.annotate import annotate_blocks
from pearl_qdrant.linking.mention_detection.blocks import Block, GivenSpan, finished, read_blocks
from pearl_qdrant.linking.mention_detection.name_policy import NameCase, can_be_name, is_as_it_stands
from pearl_qdrant.linking.mention_detection.spans import Span
from pearl_qdrant.linking.mention_detection.word_search import MayMention, WordSearch
from pearl_qdrant.linking.mention_stream import CACHE_BYTES, SEARCH_BATCH, MentionCache, MentionStream
from pearl_qdrant.linking.options import AnnotateOptions, LinkOptions, check_threshold
from pearl_qdrant.linking.ranking.forest import shipped_forest
from pearl_qdrant.linking.ranking.model import (
    Calibration,
    FloatArray,
    LinkQuery,
    RankingModel,
    ScoredMention,
    baseline_similarity,
    shipped_model,
)
from pearl_qdrant.linking.ranking.reranker import Reranker
from pearl_qdrant.linking.ranking.scoring import HIGHEST_THRESHOLD, with_excluded
from pearl_qdrant.records import Annotation, Link
from pearl_qdrant.store.administration import opening_warnings
from pearl_qdrant.store.protocol import Collection
from pearl_qdrant.store.schema import LinkCalibration, Manifest, NamePoint
from pearl_qdrant.store.search import chunks

log = logging.getLogger(__name__)

T = TypeVar("T")

_NAMES_AT_ONCE, _SPELLINGS_AT_ONCE = 1000, 256  # the first takes about 5 ms in an embedded collection
_LEAST_DOUBTED = 0.2  # probability from which a link under a type filter is compared with what the filter excludes
_MAX_POINTS = 5000  # points read for so many names: a few names may belong to thousands of entities


def encoder_of(manifest: Manifest, model: str | None = None, *, device: str) -> Encoder:
    """Load the model that encoded a collection, or another one that the caller names."""
    return load_encoder(model or manifest.model, device=device, pooling=manifest.pooling, prefix=manifest.prefix)


def calibration_of(stored: LinkCalibration) -> Calibration:
    """The stored slope, bias and threshold. Versions without rules stored thresholds above the probability that exact
    names have today; `HIGHEST_THRESHOLD` stands for those.
    """
    return Calibration(stored.slope, stored.nil_bias, min(stored.threshold, HIGHEST_THRESHOLD))


def model_of(stored: LinkCalibration) -> RankingModel | None:
    """The stored coefficients; None if only slope, bias and threshold were fitted. Raises CalibrationError if this
    version does not know one of the features.
    """
    if stored.features is None or stored.decision is None or stored.nil_features is None:
        return None
    try:
        model = RankingModel.from_names(stored.features, stored.decision, stored.nil_features, shipped_forest())
        if "judge" not in stored.features:  # its decision was no addition to trees
            raise ValueError("it does not know the feature 'judge'")
        return model
    except ValueError as error:
        raise CalibrationError(
            f"Another version of pearl-qdrant calibrated this collection ({error}). Calibrate it again: pearl-qdrant "
            f"calibrate"
        ) from error


def common_calibration(collections: Sequence[Collection]) -> LinkCalibration | None:
    """The calibration that all collections share; None if they differ, so that their order does not matter."""
    first = collections[0].manifest.calibration
    if all(collection.manifest.calibration == first for collection in collections):
        return first
    log.warning(
        "the collections have different calibrations: the default probabilities, threshold and ranking are used"
    )
    return None


def _vectors(encoder: Encoder, texts: Sequence[str]) -> FloatArray:
    """Vectors of texts, (n, dim), L2-normalised; zeros for one without any known character."""
    encoded = encoder.encode(list(texts))
    return np.where(encoded.encodable[:, None], encoded.vectors, 0).astype(np.float64)


@lru_cache(maxsize=2)
def _typical_vectors(encoder: Encoder) -> FloatArray:
    return typical_vectors(partial(_vectors, encoder))


@dataclass(frozen=True, slots=True)
class Overrides:
    """What a linker uses in place of what its collections store, and the reranker, which they do not store.

    Attributes:
        calibration: By default the calibration stored in the collections. If there is none, or the collections have
            different ones, the default calibration.
        threshold: Replaces the threshold of the calibration; in [0, 1].
        model: Coefficients of the ranking; the same default as for `calibration`.
        reranker: Scores the best candidates a second time; see `linking.ranking.reranker`.

    Raises:
        ValueError: If the threshold is not in [0, 1].
    """

    calibration: Calibration | None = None
    threshold: float | None = None
    model: RankingModel | None = None
    reranker: Reranker | None = None

    def __post_init__(self) -> None:
        check_threshold(self.threshold)


@dataclass(frozen=True, slots=True)
class LinkerState:
    """Open collections with all that a linker knows of them. Safe to use from several threads."""

    collections: tuple[Collection, ...]  # the collections; at least one
    statistics: CollectionStatistics  # their statistics
    stream: MentionStream  # scores mentions
    learned: LearnedNames  # what the collections learned
    calibration: Calibration  # maps logits to probabilities; contains the threshold
    warnings: tuple[str, ...]  # why answers may be wrong; each link carries them
    check: Callable[[], None]  # called before each search; raises to stop, as when the linker was closed

    @classmethod
    def of(
        cls,
        location: str,
        collections: Sequence[Collection],
        encoder: Encoder,
        overrides: Overrides,
        *,
        check: Callable[[], None] = lambda: None,
        cache_bytes: int = CACHE_BYTES,
    ) -> LinkerState:
        """The state of collections as they are now; arguments and errors as for `EntityLinker`. `location` is their
        store, and `cache_bytes` of mentions are remembered.
        """
        for collection in collections:
            collection.manifest.check_model(encoder.info)
        stored = common_calibration(collections)
        chosen = overrides.calibration or (Calibration() if stored is None else calibration_of(stored))
        if overrides.threshold is not None:
            chosen = replace(chosen, threshold=overrides.threshold)
        statistics = CollectionStatistics(collections)
        statistics.targets()  # raises now if a collection is damaged
        model = overrides.model or (None if stored is None else model_of(stored)) or shipped_model()
        baseline, cache = baseline_similarity(encoder), MentionCache(cache_bytes)
        return cls(
            tuple(collections),
            statistics,
            MentionStream(encoder, statistics, model, baseline, overrides.reranker, cache),
            LearnedNames(location, collections),
            chosen,
            opening_warnings(collections),
            check,
        )

    @property
    def encoder(self) -> Encoder:
        """The model that encodes mentions."""
        return self.stream.encoder

    def edited(self) -> None:
        """Forget what an edit may have changed."""
        self.statistics.invalidate()
        self.learned.forget_points()

    def check_types(self, types: Sequence[str]) -> None:
        """Raise UnknownTypeError if no entity has one of the types."""
        self.stream.link_query(LinkOptions(types=types))

    def score_batch(
        self, mentions: Iterable[str], options: LinkOptions, exclude: Exclude | None = None
    ) -> Iterator[ScoredMention]:
        """Candidates of many mentions; see `EntityLinker.score_batch`."""
        return self.stream.score(iter(mentions), self.stream.link_query(options), exclude, self.check)

    def links(self, mentions: Iterable[str], options: LinkOptions, *, has_slips: bool = False) -> Iterator[Link]:
        """Links of mentions that are one name each (else `joints.links_of_cells`), in their context if there is one.
        With `has_slips` those with a slip that one name alone explains are that name (`slips`); in running text a word
        that the base lacks is more often another thing.
        """
        link_query = self.stream.link_query(options)  # raises now, not with the first mention
        if options.context is not None:
            in_context = score_in_context(self, mentions, options.context, options)
            return (self.decide_in_document(scored, learned, options) for scored, learned in in_context)
        has_others = options.limit is not None  # more than the answer needs
        if self.stream.reranker is not None:
            scored = self.stream.score(iter(mentions), link_query, None, self.check)
        else:
            scored = self.stream.score_for_links(
                iter(mentions),
                link_query,
                self.check,
                slope=self.calibration.slope,
                has_others=has_others,
                has_slips=has_slips,
            )
        calibration, threshold = self.calibration.with_bias(options.nil_bias), self.threshold_of(options)
        if link_query.filter:
            scored = self._against_excluded(scored, link_query, max(threshold, _LEAST_DOUBTED))
        return (self._warned(self.learned.decide(one, calibration, options, threshold)) for one in scored)

    def _against_excluded(
        self, scored: Iterator[ScoredMention], link_query: LinkQuery, least: float
    ) -> Iterator[ScoredMention]:
        """Mentions under a type filter; those that similarity would link are searched without it, too."""
        everything = replace(link_query, types=())
        while some := list(islice(scored, SEARCH_BATCH)):
            unsure = [
                i
                for i, one in enumerate(some)
                if one.found
                and one.certainty == 1
                and one.rule != "slip"  # no other entity is near
                and math.fsum(self.calibration.probabilities(one.logits, one.nil_logit)) >= least
            ]
            mentions = iter([some[i].mention for i in unsure])
            slope = self.calibration.slope
            found = self.stream.score_for_links(mentions, everything, self.check, slope=slope)
            for i, unfiltered in zip(unsure, found, strict=True):
                some[i] = with_excluded(some[i], unfiltered, link_query.types)
            yield from some

    def threshold_of(self, options: LinkOptions) -> float:
        """The least probability of a link."""
        return self.calibration.threshold if options.threshold is None else options.threshold

    def _warned(self, link: Link) -> Link:
        return replace(link, warnings=self.warnings) if self.warnings else link

    def decide_in_document(self, scored: ScoredMention, learned: LearnedMention | None, options: LinkOptions) -> Link:
        """The link of a mention that its document scored."""
        threshold = self.threshold_of(options)
        return self._warned(self.learned.decide_in_document(scored, learned, self.calibration, options, threshold))

    def passages(self, text: str) -> Passages:
        """The passages of a text, which are compared with entities."""
        typical = _typical_vectors(self.encoder)  # type: ignore[arg-type] # an encoder can be a key
        return Passages(text, partial(_vectors, self.encoder), self._name_vectors, typical)

    def _name_vectors(self, points: Sequence[NamePoint]) -> FloatArray:
        """Vectors of the canonical names of entities, (n, dim); zeros without one."""
        vectors = np.zeros((len(points), self.encoder.info.dim))
        for collection in self.collections:
            rows = [i for i, point in enumerate(points) if point.kb == collection.manifest.kb]
            if rows:
                vectors[rows] = collection.canonical_vectors([points[i] for i in rows])
        return vectors

    def name_case(self) -> NameCase:
        """How the collections write their names."""
        return self.statistics.name_case()

    def known_names(self, names: Sequence[str], *, types: Sequence[str] = ()) -> set[str]:
        """Those of some strings that are, letter for letter, names of an entity (of one of the types, if given)."""
        return {
            point.name
            for collection in self.collections
            for some in chunks(names, _NAMES_AT_ONCE)
            for point in collection.find(names=some, types=types, limit=_MAX_POINTS)
        }

    def known_spellings(self, names: Sequence[str], *, types: Sequence[str] = (), n_keys: int = 2) -> set[str]:
        """Those of some strings that are names but for case, spaces, punctuation and spelling variants; with three keys
        (`lexical.keys`) but for the order of words, too.
        """
        return set(self.points_spelled(names, types=types, n_keys=n_keys))

    def points_spelled(
        self, names: Sequence[str], *, types: Sequence[str] = (), n_keys: int = 2
    ) -> dict[str, list[NamePoint]]:
        """`known_spellings` with some of the names that each is, at least one."""
        keys = [name_keys(fold_name(name)) for name in names]
        found: dict[str, list[NamePoint]] = {}
        for collection in self.collections:
            for start in range(0, len(names), _SPELLINGS_AT_ONCE):
                some = keys[start : start + _SPELLINGS_AT_ONCE]
                candidates = names_sharing(collection, key_rows(some), 4, types=types)
                for name, key, points in zip(names[start:], some, candidates, strict=False):
                    for point in points if key[0] else ():
                        other = name_keys(fold_name(point.name))
                        if any(other[i] == key[i] for i in range(n_keys)):
                            found.setdefault(name, []).append(point)
        return found

    def possible_names(self, written: Iterable[str], *, types: Sequence[str] = ()) -> set[str]:
        """Those of some strings that may be names; see `can_be_name` and `is_as_it_stands` of `name_policy`."""
        folded = {text: fold_name(text) for text in written}
        targets, possible = self.statistics.targets(), set(folded)
        if targets.has_all_words:
            forms = {form for text in folded.values() for word in text.split() for form in other_spellings(word)}
            known = {word for word, frequency in word_frequencies(targets.all, forms).items() if frequency > 0}
            possible = {text for text, words in folded.items() if can_be_name(words, known) or self.learned.has(text)}
        plain = [text for text in possible if is_as_it_stands(text, folded[text]) and not self.learned.has(text)]
        return possible.difference(plain) | self.known_spellings(plain, types=types, n_keys=3)

    def names_by_words(
        self, spans: Mapping[str, Sequence[Span]], may: MayMention, *, types: Sequence[str] = ()
    ) -> set[str]:
        """Those of some strings that are names but for their spelling, or may be by their words (`WordSearch`)."""
        known = {text for text in spans if self.learned.has(text)}
        known |= self.known_spellings([text for text in spans if text not in known], types=types, n_keys=3)
        targets = self.statistics.targets()
        search = WordSearch(targets.all, types=types, is_counted=targets.has_all_words)
        return known | search.possible({text: some for text, some in spans.items() if text not in known}, may)

    def annotate_blocks(self, blocks: Iterable[Block], options: AnnotateOptions) -> Iterator[list[Annotation]]:
        """The annotations of blocks of texts (`mention_detection.blocks`), in order."""
        if options.document:
            return (self._annotate_document(block, options) for block in blocks)
        return annotate_blocks(self, blocks, options)

    def _annotate_document(self, block: Block, options: AnnotateOptions) -> list[Annotation]:
        """The mentions of a text, found one by one and linked together."""
        spans: Sequence[GivenSpan] | None = block.spans
        if spans is None:
            alone = options.updated(document=False, include_nil=True, assertions=(), markup=None, offsets="characters")
            alone_blocks = read_blocks(block.text, alone)
            found = [one for some in annotate_blocks(self, alone_blocks, alone, with_features=False) for one in some]
            spans = [(one.start, one.end) for one in found]
        chosen = LinkOptions(types=options.types, threshold=options.least_probability, on_tie=options.on_tie)
        linked = link_document(self, block.text, spans, chosen)
        kept = [one for one in linked if options.include_nil or one.link.entity_id is not None]
        return finished(block, kept, options)


class Lifetime:
    """Guards the uses of an object that another thread may close meanwhile. There is no lock: a use that runs while
    another thread closes may finish, or may fail somewhere in the store. In the second case the guard replaces the
    store's error with `LinkerClosedError`, which names the collections.
    """

    def __init__(self, names: Sequence[str], *, is_read_only: bool = False) -> None:
        self._names = list(names)
        self._is_closed = False
        self.is_read_only = is_read_only
        self.reloading = threading.Lock()  # held while the collections are opened again

    def end(self) -> bool:
        """Mark as closed; returns False if it was closed already."""
        was_open = not self._is_closed
        self._is_closed = True
        return was_open

    def check(self) -> None:
        """Raise `LinkerClosedError` if closed."""
        if self._is_closed:
            raise LinkerClosedError(self._names)

    @contextmanager
    def in_use(self) -> Iterator[None]:
        """Guard one use."""
        self.check()
        try:
            yield
        except LinkerClosedError:
            raise
        except Exception:
            self.check()
            raise

    @contextmanager
    def in_edit(self) -> Iterator[None]:
        """Guard one edit. Raises ReadOnlyError if the linker is read-only."""
        with self.in_use():
            if self.is_read_only:
                raise ReadOnlyError(self._names, "adding, deleting and learning")
            yield

    def while_open(self, answers: Iterator[T]) -> Iterator[T]:
        """Yield answers until closed; then raise."""
        with self.in_use():
            for answer in answers:
                self.check()
                yield answer
