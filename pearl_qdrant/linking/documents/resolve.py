"""From the scored mentions of one document to the same mentions with what the document says of them.

Learned names, popularity and types are set for each mention alone; then partial names, passages and coherence, each by
the probabilities so far. All features together give logits and the logit of NIL, for the decision that every mention
goes through.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from pearl_qdrant.linking.documents.features.coherence import set_coherence
from pearl_qdrant.linking.documents.features.learned_names import set_learned_names
from pearl_qdrant.linking.documents.features.partial_names import set_partial_names
from pearl_qdrant.linking.documents.features.passages import Compare, set_passages
from pearl_qdrant.linking.documents.features.popularity import set_popularity
from pearl_qdrant.linking.documents.features.word_types import set_word_types
from pearl_qdrant.linking.documents.mentions import DocumentMention, log_sum_exp
from pearl_qdrant.linking.documents.model import COLUMN, FEATURES, NIL_COLUMN, DocumentModel
from pearl_qdrant.linking.ranking.scored import ScoredEntity, ScoredMention
from pearl_qdrant.linking.ranking.scoring import in_order


def set_features(
    mentions: Sequence[DocumentMention],
    model: DocumentModel,
    *,
    compare: Compare | None = None,
    without: frozenset[str] = frozenset(),
) -> None:
    """Set all features of the mentions of one document.

    Args:
        mentions: The mentions in the order of the text, as `document_mention` makes them.
        model: The coefficients; those of earlier features decide about the values of later ones.
        compare: Compares passages with entities; None if they do not count.
        without: Parts that are switched off (`model.PARTS`).
    """
    has_types = "types" not in without
    for mention in mentions:
        if "learned names" not in without:
            set_learned_names(mention)
        if "popularity" not in without:
            set_popularity(mention)
        if has_types:
            set_word_types(mention)
        _set_popular_name(mention, model)
    if "partial names" not in without:
        set_partial_names(mentions, model)
        if has_types:
            for mention in mentions:
                set_word_types(mention)  # of the entities of longer names
    if compare is not None and "passages" not in without and not _has_popularity_and_links(mentions, without):
        set_passages(mentions, model, compare)
    if "coherence" not in without:
        set_coherence(mentions, model)
    for mention in mentions:
        _set_popular_name(mention, model)


def _has_popularity_and_links(mentions: Sequence[DocumentMention], without: frozenset[str]) -> bool:
    """Whether popularity and coherence count: passages then bring 0.3 points and take a third of the time."""
    has_popularity = any(mention.of_decision[NIL_COLUMN["bias"]] for mention in mentions)
    return has_popularity and not without & {"coherence", "popularity"}


def _set_popular_name(mention: DocumentMention, model: DocumentModel) -> None:
    """Set the feature of the decision that depends on the first candidate."""
    if mention.of_decision[NIL_COLUMN["exact_name"]] and len(mention.values):
        first = mention.values[int((mention.values @ model.features).argmax())]
        mention.of_decision[NIL_COLUMN["popular_name"]] = first[COLUMN["popularity"]]


def rescored(mention: DocumentMention, model: DocumentModel, *, limit: int) -> ScoredMention:
    """The mention with its candidates in their new order, and logits that `decision.decide` reads.

    Args:
        mention: A mention with all its features.
        model: The coefficients.
        limit: Candidates to keep, tied ones beyond it too.
    """
    if mention.is_id or not mention.entities:
        return mention.scored
    parts = mention.values * model.features
    logits = parts.sum(axis=1)
    found = in_order(
        ScoredEntity(
            entity.name,
            entity.features,
            logit,
            document={n: part for n, part in zip(FEATURES, row, strict=True) if part},
        )
        for entity, logit, row in zip(mention.entities, logits.tolist(), parts.tolist(), strict=True)
    )
    n_kept = max(limit, sum(entity.tie for entity in found))
    first = found[0]
    kept = [replace(one, is_namesake=True) if _has_name_of(one, first) else one for one in found[:n_kept]]
    nil_logit = log_sum_exp(logits) - float(mention.of_decision @ model.decision)
    # A rule names the candidate that was first without the document.
    is_same = bool(mention.scored.found) and first.key == mention.scored.found[0].key
    rule = mention.scored.rule if is_same else None
    return replace(mention.scored, found=kept, nil_logit=nil_logit, rule=rule, certainty=1.0)


def _has_name_of(entity: ScoredEntity, first: ScoredEntity) -> bool:
    """Whether the best name of an entity is that of the first one, after folding."""
    own, of_first = entity.name, first.name
    return own.point.name == of_first.point.name or (bool(own.folded) and own.folded == of_first.folded)
