"""spaCy: the pipeline component `pearl_linker`, which links the entities of a document and names their ids.

    import pearl_qdrant.integrations.spacy  # registers the factory
    nlp.add_pipe("pearl_linker", config={"collections": ["umls"]})

Afterwards `ent.kb_id_` is the id of each linked entity, empty for NIL, `span._.pearl_candidates` its candidates, as
dictionaries of plain values that `Doc.to_bytes` can write, and `span._.assertion` what the text says of it: affirmed,
negated, possible, historical or other_person. Needs the extra `spacy`.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from spacy.language import Language
from spacy.tokens import Doc, Span
from spacy.util import filter_spans, minibatch

from pearl_qdrant.errors import OptionError
from pearl_qdrant.integrations.metadata import candidate_metadata, open_newest, types_of
from pearl_qdrant.linking.linker import EntityLinker
from pearl_qdrant.linking.options import AnnotateOptions
from pearl_qdrant.records import Annotation
from pearl_qdrant.settings import DEFAULT_LIMIT

FACTORY = "pearl_linker"

CANDIDATES = "pearl_candidates"
ASSERTION = "assertion"  # The extensions of spans
NO_TYPE = "ENTITY"  # The label of a found mention whose entity has no type

DEFAULTS: dict[str, Any] = {
    "collections": [],
    "store": None,
    "types": [],
    "threshold": None,
    "limit": DEFAULT_LIMIT,
    "document": False,
    "span_group": None,
    "overwrite_ents": False,
    "label_types": {},
}


@Language.factory(FACTORY, default_config=DEFAULTS, assigns=["doc.ents", "span._.pearl_candidates", "span._.assertion"])
@dataclass
class PearlLinker:
    """Links the mentions of documents. The collections are opened with the first document, in each process.

    Attributes:
        types, threshold, document, label_types: As in `AnnotateOptions`.
        limit: Candidates that a span keeps, at most.
        span_group: Link the spans of `doc.spans[span_group]` in place of `doc.ents`.
        overwrite_ents: Find the mentions anew, and replace `doc.ents` (or the span group); else this is done only where
            no component before has set them.
    """

    nlp: Language = field(repr=False)
    name: str
    collections: list[str]
    store: str | None
    types: list[str]
    threshold: float | None
    limit: int
    document: bool
    span_group: str | None
    overwrite_ents: bool
    label_types: dict[str, list[str]]
    options: AnnotateOptions = field(init=False)
    _linker: EntityLinker | None = field(default=None, init=False, repr=False)
    _owner: int = field(default=0, init=False, repr=False)

    def __post_init__(self) -> None:
        if not self.collections:
            raise OptionError(
                "collections",
                f"{FACTORY} needs a collection: nlp.add_pipe({FACTORY!r}, config={{'collections': ['umls']}})",
            )
        self.options = AnnotateOptions(
            types=self.types,
            threshold=self.threshold,
            include_nil=True,
            document=self.document,
            label_types=self.label_types,
        )
        for extension in (CANDIDATES, ASSERTION):
            if not Span.has_extension(extension):
                Span.set_extension(extension, default=None)

    def __call__(self, doc: Doc) -> Doc:
        """Link the mentions of one document."""
        return next(self.pipe([doc]))

    def pipe(self, stream: Iterable[Doc], *, batch_size: int = 128) -> Iterator[Doc]:
        """Link the mentions of many documents, those of a batch in shared searches."""
        for docs in minibatch(stream, size=batch_size):  # type: ignore[no-untyped-call, unused-ignore]
            given = [self._mentions(doc) for doc in docs]
            found = self._open().annotate_batch(
                [doc.text if one is None else one for doc, one in zip(docs, given, strict=True)],
                self.options,
                workers=1,
            )
            for doc, one, linked in zip(docs, given, found, strict=True):
                if one is None:
                    self._set(doc, [self._found(doc, each) for each in linked if each.link.entity_id is not None])
                else:
                    self._set(doc, [self._linked(doc, *pair) for pair in zip(one.ents, linked, strict=True)])
            yield from docs

    def close(self) -> None:
        """Close the collections; the next document opens them again."""
        if self._linker is not None and self._owner == os.getpid():
            self._linker.close()
        self._linker = None

    def __getstate__(self) -> dict[str, Any]:
        """Everything but the pipeline and the open linker, for other processes."""
        return {**self.__dict__, "nlp": None, "_linker": None}

    def _open(self) -> EntityLinker:
        known = self._linker if self._owner == os.getpid() else None  # an open collection does not survive a fork
        self._linker, self._owner = open_newest(known, self.collections, store=self.store), os.getpid()
        return self._linker

    def _mentions(self, doc: Doc) -> _Mentions | None:
        """The known mentions of a document; None if they are to be found."""
        if self.overwrite_ents:
            return None
        if self.span_group is not None:
            return _Mentions(doc.text, list(doc.spans[self.span_group])) if self.span_group in doc.spans else None
        return _Mentions(doc.text, list(doc.ents)) if doc.has_annotation("ENT_IOB") else None

    def _found(self, doc: Doc, annotation: Annotation) -> Span:
        """The span of a found mention, labelled with the type of its entity, and widened to whole tokens."""
        link = annotation.link
        chosen = next(one for one in link.candidates if (one.kb, one.entity_id) == (link.kb, link.entity_id))
        label = next(iter(types_of(chosen)), NO_TYPE)
        span = doc.char_span(annotation.start, annotation.end, label, alignment_mode="expand")
        assert span is not None  # "expand" finds one for any characters
        return self._linked(doc, span, annotation)

    def _linked(self, doc: Doc, span: Span, annotation: Annotation) -> Span:
        """The same span with the id of its entity and the candidates."""
        link = annotation.link
        linked = Span(doc, span.start, span.end, span.label_, kb_id=link.entity_id or "", span_id=span.id_)
        linked._.set(CANDIDATES, [candidate_metadata(one) for one in link.candidates[: self.limit]])
        linked._.set(ASSERTION, annotation.assertion)
        return linked

    def _set(self, doc: Doc, spans: list[Span]) -> None:
        if self.span_group is None:
            doc.set_ents(filter_spans(spans))
        else:
            doc.spans[self.span_group] = spans


@dataclass(frozen=True)
class _Mentions:
    """A text and its mentions, as `EntityLinker.annotate` takes a `Doc`."""

    text: str
    ents: list[Span]
