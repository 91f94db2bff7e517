"""The part of `EntityLinker` that links the mentions of documents."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from pearl_qdrant.linking.documents.linking import link_document, score_in_context
from pearl_qdrant.linking.documents.model import check_parts
from pearl_qdrant.linking.learned.names import LearnedNames
from pearl_qdrant.linking.mention_detection.annotate import annotate
from pearl_qdrant.linking.mention_detection.given_spans import DocLike, GivenSpan, read_text
from pearl_qdrant.linking.mentions import check_are_many
from pearl_qdrant.linking.options import AnnotateOptions, LinkOptions
from pearl_qdrant.linking.ranking.model import Calibration
from pearl_qdrant.linking.ranking.scored import ScoredMention
from pearl_qdrant.records import Annotation, Link

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from pearl_qdrant.linking.options import LinkKeywords


class DocumentLinker(ABC):
    """Links the mentions of a document together."""

    _calibration: Calibration
    _learned: LearnedNames
    _warnings: tuple[str, ...]

    @abstractmethod
    def score_batch(self, mentions: Iterable[str], options: LinkOptions | None = None) -> Iterator[ScoredMention]:
        """Candidates of many mentions; see `EntityLinker.score_batch`."""

    def _decider(self, options: LinkOptions) -> Callable[[ScoredMention], Link]:
        """The decision with these options, what was learned, and warnings."""
        threshold = self._calibration.threshold if options.threshold is None else options.threshold

        def decide(scored: ScoredMention) -> Link:
            link = self._learned.decide(scored, self._calibration, options, threshold)
            return replace(link, warnings=self._warnings) if self._warnings else link

        return decide

    def _scored(self, mentions: Iterable[str], options: LinkOptions) -> Iterator[ScoredMention]:
        """Candidates of mentions, in their context if there is one."""
        if options.context is None:
            return self.score_batch(mentions, options)
        check_are_many(mentions)
        self.score_batch((), options)  # checks the types now, not with the first mention
        return score_in_context(self, mentions, options.context, options)

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
        entities of different names too, and entities that the base links to others of the document are preferred
        (a field `links_to` with ids, joined by |). Abbreviations that the text defines are linked by their long form.
        `annotate(text, document=True)` finds the mentions, too.

        Args:
            text: The document, or a spaCy `Doc`, whose recognised entities become the spans.
            spans: The places of its mentions: (start, end) in characters, objects with `start_char` and `end_char`, or
                mappings with `start` and `end`. Needed unless `text` is a `Doc`.
            options: As for `link`.
            without: Parts to switch off: "partial names", "popularity", "coherence".
            keywords: As for `link`.

        Returns:
            One annotation for each span, NIL ones too, in the order of the spans.

        Raises:
            UnknownTypeError: If no entity of the collections has one of the types.
            ValueError: If there are no spans, a span is outside the text, or an option is out of range.
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
        return link_document(self, own_text, given, chosen, self._decider(chosen), without=check_parts(without))

    def _annotate_document(
        self, text: str | DocLike, options: AnnotateOptions, spans: Iterable[GivenSpan] | None = None
    ) -> list[Annotation]:
        """The mentions of a passage, found one by one and linked together."""
        own_text, own_spans = read_text(text)
        given = own_spans if spans is None else spans
        if given is None:
            alone = replace(options, document=False, include_nil=True)
            given = [(found.start, found.end) for found in annotate(self, own_text, alone)]  # type: ignore[arg-type]
        chosen = LinkOptions(options.types, threshold=options.least_probability, on_tie=options.on_tie)
        found = self.link_document(own_text, given, chosen)
        return [one for one in found if options.include_nil or one.link.entity_id is not None]

    def _annotate_documents(
        self, texts: Iterable[str | DocLike], options: AnnotateOptions
    ) -> Iterator[list[Annotation]]:
        """The annotations of many documents, in order."""
        return (self._annotate_document(text, options) for text in texts)
