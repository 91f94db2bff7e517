"""Features of candidates and of NIL, in the order of `model.FEATURES` and `model.NIL_FEATURES`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from pearl_qdrant.linking.ranking.edit_features import (
    UNCHANGED,
    is_misread,
    margin,
    rarity,
    slips,
    sorted_similarity,
    word_changes,
)
from pearl_qdrant.linking.ranking.scored import LinkQuery, MatchedName, Scorer
from pearl_qdrant.linking.ranking.string_features import (
    StringFeatures,
    equal_core,
    equal_first_word,
    equal_numbers,
    extra_numbers,
    is_acronym,
    missing_numbers,
    string_features,
)
from pearl_qdrant.linking.ranking.type_agreement import type_agreement
from pearl_qdrant.store.schema import NamePoint

SOME_LEXICAL = 0.5
"""Lexical score above which more of it adds less."""

BACKGROUND = slice(5, 10)
"""Ranks of the candidates that measure how crowded the base is around the mention."""

LONG = 30
"""Letters and digits beyond which a mention counts as no longer."""


def _dense(name: MatchedName, scorer: Scorer) -> float:
    """The `dense` feature: the cosine relative to that of unrelated names; the lexical score without vectors."""
    if name.dense is None:
        return name.lexical
    return (name.dense - scorer.baseline) / (1 - scorer.baseline)


def candidate_features(
    of_mention: StringFeatures,
    name: MatchedName,
    types: npt.NDArray[np.float32] | None,
    link_query: LinkQuery,
    scorer: Scorer,
    nearest: Sequence[float],
    known: Mapping[str, float],
) -> tuple[float, ...]:
    """Features in the order of `FEATURES`; `nearest` has the two highest edit similarities of all entities."""
    of_name = string_features(name.point.name, name.folded)
    is_wanted = bool(link_query.types) and not link_query.is_filter and has_type(name.point, link_query.types)
    dense = _dense(name, scorer)
    similarity, misread = name.edit_similarity, is_misread(of_mention, of_name)
    changes = UNCHANGED if misread else word_changes(of_mention, of_name, known)
    is_other = changes.is_code or bool(changes.any_replaced or changes.only_added or changes.only_missing)
    n_slips = int(misread) or (0 if changes.is_code else slips(of_mention, of_name, similarity))
    return (
        dense,
        max(dense, 0.0) ** 2,
        name.lexical,
        min(name.lexical, SOME_LEXICAL),
        name.mention_coverage,
        name.name_coverage,
        equal_core(of_mention, of_name),
        0.0 if misread else missing_numbers(of_mention, of_name),
        extra_numbers(of_mention, of_name),
        equal_numbers(of_mention, of_name),
        is_acronym(of_mention, of_name),
        equal_first_word(of_mention, of_name),
        float(n_slips == 1),
        1 - dense if n_slips else 0.0,
        length(of_mention) if n_slips == 1 else 0.0,
        0.0 if is_other else sorted_similarity(of_mention, of_name, similarity),
        0.0 if is_other else margin(similarity, nearest[-1] if similarity == nearest[0] else nearest[0]),
        *changes[:-1],
        float(name.point.is_canonical),
        type_agreement(types, name.point.types),
        float(is_wanted),
    )


def length(of_mention: StringFeatures) -> float:
    """Letters and digits of the mention over `LONG`, at most 1."""
    return min(len(of_mention.joined), LONG) / LONG


def has_type(point: NamePoint, types: Sequence[str]) -> bool:
    """Whether a point has one of the types."""
    return not set(types).isdisjoint(point.filter_types)


def nil_features(of_mention: StringFeatures, names: Sequence[MatchedName], scorer: Scorer) -> npt.NDArray[np.float64]:
    """Features in the order of `NIL_FEATURES`."""
    background = names[BACKGROUND]
    dense = [_dense(name, scorer) for name in background]
    lexical = [name.lexical for name in background]
    return np.array(
        [
            1.0,
            rarity(of_mention),
            sum(dense) / len(dense) if dense else 0.0,
            sum(lexical) / len(lexical) if lexical else 0.0,
            length(of_mention),
            scorer.log_size / 10,
        ]
    )
