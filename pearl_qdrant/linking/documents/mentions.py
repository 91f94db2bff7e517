"""The mentions of a document with their candidates and features so far; and files of documents, as JSON Lines.

    {"id": "report-7", "text": "She left NYC.", "mentions": [{"start": 9, "end": 12}]}

The id may be missing, offsets count characters from 0, and further keys are ignored, so that a file of labelled
documents (`learned.learning`) can be linked too.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import BinaryIO, NamedTuple

import numpy as np

from pearl_qdrant.errors import FormatError
from pearl_qdrant.lexical.ngrams import fold_name
from pearl_qdrant.linking.documents.model import COLUMN, FEATURES, NIL_COLUMN, NIL_FEATURES, FloatArray
from pearl_qdrant.linking.learned.names import LearnedMention
from pearl_qdrant.linking.mention_detection.abbreviations import expand, find_abbreviations, find_uses
from pearl_qdrant.linking.mention_detection.blocks import GivenSpan, read_spans
from pearl_qdrant.linking.mention_detection.passages import Passage, read_passages
from pearl_qdrant.linking.mention_detection.tokens import as_name
from pearl_qdrant.linking.mentions import clean_mention
from pearl_qdrant.linking.ranking.rules import BONUS
from pearl_qdrant.linking.ranking.scored import ScoredEntity, ScoredMention
from pearl_qdrant.records import LearnedCount


def read_document_lines(file: BinaryIO, name: str) -> Iterator[Passage]:
    """Yield the documents of a file, each with its `ents`. Raises FormatError as `read_passages`."""
    for passage in read_passages(file, name, "jsonl", spans_key="mentions"):
        if passage.ents is None:
            raise FormatError(name, passage.line, "not an object with a text and mentions, which may be []")
        yield passage


class DocumentSpan(NamedTuple):
    """The place of a mention in a document, in characters, and what is linked for it: maybe its long form."""

    start: int
    end: int
    query: str
    long_form: str | None = None


def document_spans(text: str, spans: Iterable[GivenSpan]) -> list[DocumentSpan]:
    """The mentions of a text, in the order of the spans. Raises ValueError as `read_spans`."""
    uses = find_uses(text, find_abbreviations(text))
    found = []
    for span in read_spans(text, spans):
        expanded, is_abbreviated = expand(text, span.start, span.end, uses)
        query = as_name(expanded)
        found.append(DocumentSpan(span.start, span.end, query, query if is_abbreviated else None))
    return found


MOST_CERTAIN = 6.0  # logits beyond which the decision of the ranking model counts for no more
BEST, OPEN = 10, 0.95
"""Candidates that passages and coherence can help; a first candidate more probable than `OPEN` needs no help."""

EntityKey = tuple[str, str]  # base and id of an entity


@dataclass(slots=True)
class DocumentMention:
    """A mention of a document with its candidates.

    Attributes:
        start: Offset of its first character; orders the mentions of the document.
        scored: The mention and its candidates, as the ranking model leaves them.
        words: Its folded words, without an article at the start.
        entities: The candidates, and those that a longer mention of the document added.
        values: Their features, (k, len(FEATURES)).
        of_decision: Features of the decision, (len(NIL_FEATURES),).
        learned: How often it meant what in labelled text.
        type_scores: (len(word_types.TYPES),), log probabilities of its type by the words around it; None if unknown.
        is_compared: Whether its passage is compared with its candidates.
        is_id: Whether the mention is the id of an entity, which nothing in a document can change.
    """

    start: int
    scored: ScoredMention
    words: tuple[str, ...]
    entities: list[ScoredEntity]
    values: FloatArray
    of_decision: FloatArray
    row: dict[EntityKey, int] = field(init=False)
    learned: tuple[LearnedCount, ...] = ()
    type_scores: FloatArray | None = None
    is_compared: bool = True
    is_id: bool = False

    def __post_init__(self) -> None:
        self.row = {entity.key: i for i, entity in enumerate(self.entities)}

    def add(self, entity: ScoredEntity) -> int:
        """The row of an entity, which becomes a candidate if it is none yet."""
        row = self.row.get(entity.key)
        if row is None:
            row = self.row[entity.key] = len(self.entities)
            self.entities.append(entity)
            values = np.zeros(len(FEATURES))
            if row:  # what a search does not find is no nearer than the last of what it finds
                for name in ("names", "rules"):
                    values[COLUMN[name]] = self.values[:, COLUMN[name]].min()
            self.values = np.vstack([self.values, values])
        return row


def document_mention(
    scored: ScoredMention,
    start: int,
    *,
    has_popularity: bool = True,
    learned: LearnedMention | None = None,
    type_scores: FloatArray | None = None,
) -> DocumentMention:
    """A mention with the features that the ranking model and its rules give.

    Args:
        start: Offset of its first character in the document.
        has_popularity: Whether popularity counts; else the base is taken for one without it.
        learned: What was learned of the mention. Where the base has popularity, counts are features; else they have
            changed the probabilities of names already.
    """
    is_popular = has_popularity and any(entity.point.popularity is not None for entity in scored.found)
    is_id = scored.rule == "entity id"
    if learned is not None and not is_popular and not is_id:
        scored = learned.scored
    words = fold_name(clean_mention(scored.mention)).split()
    while len(words) > 1 and words[0] in ("the", "a", "an"):
        del words[0]
    found = scored.found
    values = np.zeros((len(found), len(FEATURES)))
    of_decision = np.zeros(len(NIL_FEATURES))
    if not found:
        of_decision[NIL_COLUMN["rules"]] = -MOST_CERTAIN
    elif not is_popular:
        logits = np.array(scored.logits)
        values[:, COLUMN["rules"]] = logits - logits.max()
        known = log_sum_exp(logits) - scored.nil_logit
        # The certainty of a rule multiplies the probability; here it is a part of the decision.
        share = scored.certainty / (1.0 + math.exp(-max(-MOST_CERTAIN, min(known, BONUS))))
        of_decision[NIL_COLUMN["rules"]] = math.log(share / (1.0 - min(share, 1.0 - 1e-9)))
    else:
        raw = np.array([entity.logit - entity.offset for entity in found])
        values[:, COLUMN["names"]] = raw - raw.max()
        of_decision[NIL_COLUMN["bias"]] = 1.0
        if is_id or any(entity.name.is_same_spelling and entity.offset > BONUS / 2 for entity in found):
            of_decision[NIL_COLUMN["exact_name"]] = 1.0
        else:
            decided = log_sum_exp(raw) - scored.nil_logit
            of_decision[NIL_COLUMN["names"]] = max(-MOST_CERTAIN, min(MOST_CERTAIN, decided))
    mention = DocumentMention(
        start, scored, tuple(words), list(found), values, of_decision, type_scores=type_scores, is_id=is_id
    )
    if learned is not None and is_popular and not is_id:
        mention.learned = learned.counts
        for entity in learned.scored.found:
            if any((count.kb, count.entity_id) == entity.key for count in learned.counts):
                mention.add(entity)
    return mention


def best_of_open(mention: DocumentMention, probabilities: FloatArray) -> list[int]:
    """The rows of the best candidates of a mention that is open; none if its first one needs no help."""
    if mention.is_id or not len(probabilities) or probabilities.max() > OPEN:
        return []
    best: list[int] = np.argsort(-probabilities, kind="stable")[:BEST].tolist()
    return best


def log_sum_exp(logits: FloatArray) -> float:
    """log(sum(exp(logits))) of at least one logit."""
    highest = float(logits.max())
    return highest + math.log(float(np.exp(logits - highest).sum()))
