"""From the scored mentions of one document to the same mentions with what the document says of them.

Popularity is set for each mention alone, then partial names by the probabilities so far, then coherence by the
probabilities so far. All features together give logits and the logit of NIL, for the decision that every mention goes
through.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from pearl_qdrant.linking.documents.coherence import set_coherence
from pearl_qdrant.linking.documents.mentions import DocumentMention, log_sum_exp
from pearl_qdrant.linking.documents.model import COLUMN, NIL_COLUMN, DocumentModel
from pearl_qdrant.linking.documents.partial_names import set_partial_names
from pearl_qdrant.linking.documents.popularity import set_popularity
from pearl_qdrant.linking.ranking.scored import ScoredEntity, ScoredMention
from pearl_qdrant.linking.ranking.scoring import in_order


def set_features(
    mentions: Sequence[DocumentMention], model: DocumentModel, *, without: frozenset[str] = frozenset()
) -> None:
    """Set all features of the mentions of one document.

    Args:
        mentions: The mentions in the order of the text, as `document_mention` makes them.
        model: The coefficients; those of earlier features decide about the values of later ones.
        without: Parts that are switched off (`model.PARTS`).
    """
    if "popularity" not in without:
        for mention in mentions:
            set_popularity(mention)
    for mention in mentions:
        _set_popular_name(mention, model)
    if "partial names" not in without:
        set_partial_names(mentions, model)
    if "coherence" not in without:
        set_coherence(mentions, model)
    for mention in mentions:
        _set_popular_name(mention, model)


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
    logits = mention.values @ model.features
    found = in_order(
        ScoredEntity(entity.name, entity.features, logit)
        for entity, logit in zip(mention.entities, logits.tolist(), strict=True)
    )
    n_kept = max(limit, sum(entity.tie for entity in found))
    first = found[0]
    kept = [replace(one, is_namesake=True) if _has_name_of(one, first) else one for one in found[:n_kept]]
    nil_logit = log_sum_exp(logits) - float(mention.of_decision @ model.decision)
    is_same = bool(mention.scored.found) and (first.name.is_same_spelling or first.key == mention.scored.found[0].key)
    rule = mention.scored.rule if is_same else None
    return replace(mention.scored, found=kept, nil_logit=nil_logit, rule=rule, certainty=1.0)


def _has_name_of(entity: ScoredEntity, first: ScoredEntity) -> bool:
    """Whether the best name of an entity is that of the first one, after folding."""
    own, of_first = entity.name, first.name
    return own.point.name == of_first.point.name or (bool(own.folded) and own.folded == of_first.folded)
