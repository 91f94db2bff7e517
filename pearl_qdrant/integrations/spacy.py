"""spaCy: the pipeline component `pearl_linker`, which links the entities of a document and names their ids.

    import pearl_qdrant.integrations.spacy  # registers the factory
    nlp.add_pipe("pearl_linker", config={"collections": ["umls"]})

Afterwards `ent.kb_id_` is the id of each linked entity, empty for NIL, and `span._.pearl_candidates` its candidates, as
dictionaries of plain values that `Doc.to_bytes` can write. Needs the extra `spacy`.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from spacy.language import Language
from spacy.tokens import Doc, Span
from spacy.util import minibatch

from pearl_qdrant.errors import OptionError
from pearl_qdrant.integrations.metadata import candidate_metadata
from pearl_qdrant.linking.linker import EntityLinker
from pearl_qdrant.linking.options import AnnotateOptions
from pearl_qdrant.records import Annotation
from pearl_qdrant.settings import DEFAULT_LIMIT

FACTORY = "pearl_linker"

CANDIDATES = "pearl_candidates"
"""The extension of spans."""

NO_TYPE = "ENTITY"
"""The label of a found mention whose entity has no type."""

DEFAULTS: dict[str, Any] = {
    "collections": [],
    "store": None,
    "types": [],
    "threshold": None,
    "limit": DEFAULT_LIMIT,
    "document": False,
    "span_group": None,
    "overwrite_ents": False,
}


@Language.factory(FACTORY, default_config=DEFAULTS, assigns=["doc.ents", "span._.pearl_candidates"])
def make_pearl_linker(  # one argument for each key of the configuration
    nlp: Language,
    name: str,
    collections: list[str],
    store: str | None,
    types: list[str],
    threshold: float | None,
    limit: int,
    document: bool,
    span_group: str | None,
    overwrite_ents: bool,
) -> PearlLinker:
    """Make the component; see `PearlLinker`."""
    if not collections:
        raise OptionError(
            "collections", f"{FACTORY} needs a collection: nlp.add_pipe({FACTORY!r}, config={{'collections': ['umls']}})"
        )
    options = AnnotateOptions(tuple(types), threshold, include_nil=True, document=document)
    return PearlLinker(name, tuple(collections), store, options, limit, span_group, overwrite_ents)


@dataclass
class PearlLinker:
    """Links the mentions of documents. The collections are opened with the first document, in each process.

    Attributes:
        name: The component's name in its pipeline.
        collections: Names of the collections.
        store: Folder or URL; None for the environment's, as for `EntityLinker.open`.
        options: Types, threshold, and whether the mentions of a document are linked together.
        limit: Candidates that a span keeps, at most.
        span_group: Link the spans of `doc.spans[span_group]` in place of `doc.ents`.
        overwrite_ents: Find the mentions anew, and replace `doc.ents` (or the span group); else this is done only where
            no component before has set them.
    """

    name: str
    collections: tuple[str, ...]
    store: str | None
    options: AnnotateOptions
    limit: int = DEFAULT_LIMIT
    span_group: str | None = None
    overwrite_ents: bool = False
    _linker: EntityLinker | None = field(default=None, repr=False)
    _owner: int = field(default=0, repr=False)

    def __post_init__(self) -> None:
        if not Span.has_extension(CANDIDATES):
            Span.set_extension(CANDIDATES, default=None)

    def __call__(self, doc: Doc) -> Doc:
        """Link the mentions of one document."""
        return next(self.pipe([doc]))

    def pipe(self, stream: Iterable[Doc], *, batch_size: int = 128) -> Iterator[Doc]:
        """Link the mentions of many documents, those of a batch in shared searches."""
        for docs in minibatch(stream, size=batch_size):
            unknown = [doc for doc in docs if not self._has_spans(doc)]
            linker, options = self._open(), self.options
            found = linker.annotate_batch([doc.text for doc in unknown], options.updated(include_nil=False), workers=1)
            for doc, annotations in zip(unknown, found, strict=True):
                self._set(doc, [], annotations)
            for doc in docs:
                if doc not in unknown and (spans := list(self._spans(doc))):
                    self._set(doc, spans, linker.annotate(doc.text, options, spans=spans))
            yield from docs

    def close(self) -> None:
        """Close the collections; the next document opens them again."""
        if self._linker is not None and self._owner == os.getpid():
            self._linker.close()
        self._linker = None

    def __getstate__(self) -> dict[str, Any]:
        """Everything but the open linker, for other processes."""
        return {**self.__dict__, "_linker": None}

    def _open(self) -> EntityLinker:
        if self._linker is None or self._owner != os.getpid():  # an open collection does not survive a fork
            self._linker = EntityLinker.open(*self.collections, store=self.store, read_only=True)
            self._owner = os.getpid()
        elif self._linker.is_outdated:
            self._linker.reload()
        return self._linker

    def _has_spans(self, doc: Doc) -> bool:
        """Whether the mentions are known."""
        if self.overwrite_ents:
            return False
        return doc.has_annotation("ENT_IOB") if self.span_group is None else self.span_group in doc.spans

    def _spans(self, doc: Doc) -> Iterable[Span]:
        return doc.ents if self.span_group is None else doc.spans[self.span_group]

    def _set(self, doc: Doc, spans: list[Span], annotations: list[Annotation]) -> None:
        """Set the spans of a document with ids and candidates; new ones where there are none."""
        linked = [
            self._linked(doc, one, spans[number] if spans else None) for number, one in enumerate(annotations)
        ]
        found = [span for span in linked if span is not None]
        if self.span_group is None:
            doc.set_ents(found)
        else:
            doc.spans[self.span_group] = found

    def _linked(self, doc: Doc, annotation: Annotation, given: Span | None) -> Span | None:
        """A span with the id of its entity; None if it shares no token with the text."""
        link = annotation.link
        chosen = next((one for one in link.candidates if (one.kb, one.entity_id) == (link.kb, link.entity_id)), None)
        if given is not None:
            span = Span(doc, given.start, given.end, given.label_, kb_id=link.entity_id or "", span_id=given.id_)
        else:
            kinds = (*chosen.types, *chosen.kb_types) if chosen else ()
            label = kinds[0] if kinds else NO_TYPE
            span = doc.char_span(
                annotation.start, annotation.end, label, link.entity_id or "", alignment_mode="expand"
            )
        if span is not None:
            span._.set(CANDIDATES, [candidate_metadata(one) for one in link.candidates[: self.limit]])
        return span
