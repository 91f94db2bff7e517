"""The part of `EntityLinker` that links the mentions of documents."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from pearl_qdrant.encoder.protocol import Encoder
from pearl_qdrant.linking.collection_statistics import CollectionStatistics
from pearl_qdrant.linking.documents.linking import link_document, score_in_context
from pearl_qdrant.linking.documents.model import FloatArray, check_parts
from pearl_qdrant.linking.documents.word_types import Passages
from pearl_qdrant.linking.learned.names import LearnedMention, LearnedNames
from pearl_qdrant.linking.mention_detection.annotate import annotate
from pearl_qdrant.linking.mention_detection.blocks import Block, DocLike, GivenSpan, finished, read_text
from pearl_qdrant.linking.mention_detection.name_policy import InProcessLinker
from pearl_qdrant.linking.mention_detection.name_windows import spelled_in
from pearl_qdrant.linking.mentions import check_are_many
from pearl_qdrant.linking.options import AnnotateOptions, LinkOptions
from pearl_qdrant.linking.ranking.model import Calibration
from pearl_qdrant.linking.ranking.scored import ScoredMention
from pearl_qdrant.records import Annotation, Link
from pearl_qdrant.store.protocol import Collection
from pearl_qdrant.store.schema import NamePoint

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from pearl_qdrant.linking.options import LinkKeywords


class DocumentLinker(ABC):
    """Links the mentions of a document together."""

    _calibration: Calibration
    _learned: LearnedNames
    _warnings: tuple[str, ...]
    _collections: tuple[Collection, ...]
    _statistics: CollectionStatistics

    @property
    @abstractmethod
    def encoder(self) -> Encoder:
        """The model that encodes mentions."""

    @abstractmethod
    def score_batch(self, mentions: Iterable[str], options: LinkOptions | None = None) -> Iterator[ScoredMention]:
        """Candidates of many mentions; see `EntityLinker.score_batch`."""

    @abstractmethod
    def _score_for_links(self, mentions: Iterable[str], options: LinkOptions) -> Iterator[ScoredMention]:
        """The same with the candidates that links need."""

    @abstractmethod
    def known_names(self, names: Sequence[str], *, types: Sequence[str] = ()) -> set[str]:
        """Those of some strings that are names of an entity."""

    def _in_process(self) -> InProcessLinker:
        """This linker without worker processes, for what is itself a part of a batch."""
        spellings = partial(spelled_in, self._collections, self.encoder.info.dim)

        def link_batch(mentions: Iterable[str], **options: Unpack[LinkKeywords]) -> Iterator[Link]:
            return self._links(mentions, LinkOptions(**options))

        return InProcessLinker(self.encoder, link_batch, self.known_names, self._statistics.name_case, spellings)

    def _links(self, mentions: Iterable[str], options: LinkOptions) -> Iterator[Link]:
        """Links of mentions, in their context if there is one."""
        if options.context is None:
            calibration, threshold = self._calibration.with_bias(options.nil_bias), self._threshold(options)
            scored = self._score_for_links(mentions, options)
            return (self._warned(self._learned.decide(one, calibration, options, threshold)) for one in scored)
        check_are_many(mentions)
        self.score_batch((), options)  # checks the types now, not with the first mention
        in_context = score_in_context(self, mentions, options.context, options)
        return (self.decide_in_document(one.scored, one.learned, options) for one in in_context)

    def _threshold(self, options: LinkOptions) -> float:
        return self._calibration.threshold if options.threshold is None else options.threshold

    def _warned(self, link: Link) -> Link:
        return replace(link, warnings=self._warnings) if self._warnings else link

    def learned_in_document(self, scored: ScoredMention, options: LinkOptions) -> LearnedMention | None:
        """What was learned of a mention of a document; None if nothing was."""
        return self._learned.in_document(scored, self._calibration, options)

    def decide_in_document(self, scored: ScoredMention, learned: LearnedMention | None, options: LinkOptions) -> Link:
        """The link of a mention that its document scored."""
        threshold = self._threshold(options)
        return self._warned(self._learned.decide_in_document(scored, learned, self._calibration, options, threshold))

    def passages(self, text: str) -> Passages:
        """The passages of a text, which are compared with entities."""
        return Passages(text, self._vectors, self._name_vectors)

    def _vectors(self, texts: Sequence[str]) -> FloatArray:
        """Vectors of texts, (n, dim), L2-normalised; zeros for one without any known character."""
        encoded = self.encoder.encode(list(texts))
        return np.where(encoded.encodable[:, None], encoded.vectors, 0).astype(np.float64)

    def _name_vectors(self, points: Sequence[NamePoint]) -> FloatArray:
        """Vectors of the canonical names of entities, (n, dim); zeros without one."""
        vectors = np.zeros((len(points), self.encoder.info.dim))
        for collection in self._collections:
            rows = [i for i, point in enumerate(points) if point.kb == collection.manifest.kb]
            if rows:
                vectors[rows] = collection.canonical_vectors([points[i] for i in rows])
        return vectors

    def link_document(
        self,
        text: str | DocLike,
        spans: Iterable[GivenSpan] | None = None,
        options: LinkOptions | None = None,
        *,
        without: Iterable[str] = (),
        **keywords: Unpack[LinkKeywords],
    ) -> list[Annotation]:
        """Link the mentions of a document, where they are known, with what the document says of each.

        A partial name takes the entity of a longer mention (`Clinton` after `Bill Clinton`), popularity counts between
        entities of different names too, and entities that the base links to others of the document are preferred (a
        field `links_to` with ids, joined by |). Abbreviations that the text defines are linked by their long form.
        `annotate(text, document=True)` finds the mentions, too. Returns one annotation for each span, NIL ones too, in
        the order of the spans. Raises UnknownTypeError if no entity of the collections has one of the types; ValueError
        if there are no spans, a span is outside the text, or an option is out of range.

        Args:
            text: The document, or a spaCy `Doc`, whose recognised entities become the spans.
            spans: The places of its mentions: (start, end) in characters, objects with `start_char` and `end_char`, or
                mappings with `start` and `end`. Needed unless `text` is a `Doc`.
            options: As for `link`.
            without: Parts to switch off: "partial names", "popularity", "learned names", "types", "passages",
                "coherence".
            keywords: As for `link`.
        """
        own_text, own_spans = read_text(text)
        given = own_spans if spans is None else spans
        if given is None:
            raise ValueError(
                "link_document links mentions whose places are known: pass spans, as (start, end), or a spaCy Doc with "
                "entities. annotate(text, document=True) finds them"
            )
        chosen = (options or LinkOptions()).updated(**keywords)
        if chosen.context is not None:
            chosen = replace(chosen, context=None)  # the document is its context
        return link_document(self, own_text, given, chosen, without=check_parts(without))

    def _annotate_document(self, block: Block, options: AnnotateOptions) -> list[Annotation]:
        """The mentions of a text, found one by one and linked together."""
        spans: Sequence[GivenSpan] | None = block.spans
        if spans is None:
            alone = replace(options, document=False, include_nil=True, assertions=(), markup=None, offsets="characters")
            spans = [(found.start, found.end) for found in annotate(self._in_process(), block.text, alone)]
        chosen = LinkOptions(options.types, threshold=options.least_probability, on_tie=options.on_tie)
        found = self.link_document(block.text, spans, chosen)
        kept = [one for one in found if options.include_nil or one.link.entity_id is not None]
        return finished(block, kept, options)
