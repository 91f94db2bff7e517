"""Features of candidates and of NIL, in the order of `model.FEATURES` and `model.NIL_FEATURES`."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from pearl_qdrant.lexical.ngrams import latin
from pearl_qdrant.lexical.words import is_common, is_mostly_name
from pearl_qdrant.linking.ranking.model import MARGINS
from pearl_qdrant.linking.ranking.name_differences import name_differences
from pearl_qdrant.linking.ranking.scored import LinkQuery, MatchedName, Scorer
from pearl_qdrant.linking.ranking.string_features import (
    FAR,
    UNCHANGED,
    StringFeatures,
    equal_core,
    equal_first_word,
    equal_numbers,
    extra_numbers,
    is_acronym,
    is_misread,
    is_other_word,
    is_short_slip,
    is_swap,
    is_unknown,
    margin,
    missing_numbers,
    new_string_features,
    rarity,
    slips,
    sorted_similarity,
    string_features,
    word_changes,
)
from pearl_qdrant.phrase_types import ENTITY_TYPES
from pearl_qdrant.store.schema import NamePoint

PROPER_TYPES = frozenset("PERSON NORP ORG GPE LOC FAC EVENT WORK_OF_ART LAW".split())
"""Coarse types whose names are capitalised in running text."""

SOME_LEXICAL = 0.5  # lexical score above which more of it adds less
BACKGROUND = slice(5, 10)  # ranks of the candidates that measure how crowded the base is around the mention
_NO_MARGINS = (0.0,) * (MARGINS.stop - MARGINS.start)
LEAST_LOG_SIZE = math.log(300)  # the coefficients are fitted to bases of 300 names and more

_PREPOSITIONS = frozenset("about around at by for from in near of on to towards via with".split())
"""Words after which stands a whole name."""

LONG = 30  # letters and digits beyond which a mention counts as no longer


def _dense(name: MatchedName, scorer: Scorer) -> float:
    """The `dense` feature: the cosine relative to that of unrelated names; the lexical score without vectors."""
    if name.dense is None:
        return name.lexical
    return (name.dense - scorer.baseline) / (1 - scorer.baseline)


def candidate_features(  # long: one line for each feature
    of_mention: StringFeatures,
    name: MatchedName,
    gaps: Mapping[str, float] | None,
    link_query: LinkQuery,
    scorer: Scorer,
    nearest: Sequence[float],
    known: Mapping[str, float],
) -> tuple[float, ...]:
    """Features of the best name of an entity, in the order of `FEATURES`. `gaps` are of `type_gaps`, `nearest` the two
    highest edit similarities of all entities, and `known` says how frequent the mention's content words are in the
    base.
    """
    point, lexical, similarity = name.point, name.lexical, name.edit_similarity
    of_name = new_string_features(point.name, name.folded)
    if name.is_other_script:
        of_mention = string_features(of_mention.text, latin(of_mention.folded))
    dense = _dense(name, scorer)
    has_numbers = bool(of_mention.numbers or of_name.numbers)  # most pairs have none, and no feature of them
    misread = has_numbers and is_misread(of_mention, of_name)
    changes = UNCHANGED if misread else word_changes(of_mention, of_name, known)
    differences = name_differences(of_mention, of_name, canonical_name=point.canonical_name, is_person=is_person(point))
    if differences.equal_part and not is_organisation(point):
        differences = differences._replace(equal_part=0.0)  # `Portland, New Jersey`: a place of a list is where it is
    is_code = changes.is_code or differences.opposite > 0.0
    is_other = is_code or bool(changes.any_replaced or changes.only_added or changes.only_missing)
    n_slips, is_short = int(misread), False
    if FAR < similarity < 1.0:
        n_slips = n_slips or (0 if is_code else slips(of_mention, of_name, similarity))
        is_short = not is_other and is_short_slip(of_mention, of_name, similarity)
    is_new_word = bool(n_slips or is_short) and is_unknown(of_mention, of_name, known)
    is_phrase = changes.only_added > 0.0 and is_proper(point) and _are_words(of_mention, of_name)
    if is_phrase and not differences.added_same:
        differences = differences._replace(added_apart=1.0)
    if changes.added_plain and (is_phrase or differences.is_other_name or differences.opposite):
        changes = changes._replace(added_plain=0.0)  # `Stripe Press`, `Ian Clark (river)`: no words around a name
    is_wanted = bool(link_query.types) and not link_query.is_filter and has_type(point, link_query.types)
    return (
        dense,
        dense * dense if dense > 0.0 else 0.0,
        lexical,
        min(SOME_LEXICAL, lexical),
        name.mention_coverage,
        name.name_coverage,
        equal_core(of_mention, of_name),
        missing_numbers(of_mention, of_name) if has_numbers and not misread else 0.0,
        extra_numbers(of_mention, of_name) if has_numbers else 0.0,
        equal_numbers(of_mention, of_name) if has_numbers else 0.0,
        1.0 if changes.is_acronym else is_acronym(of_mention, of_name),
        equal_first_word(of_mention, of_name),
        1 - dense if n_slips else 0.0,
        length(of_mention) if n_slips == 1 else 0.0,
        0.0 if is_other else sorted_similarity(of_mention, of_name, similarity),
        0.0 if is_other else margin(similarity, nearest[-1] if similarity == nearest[0] else nearest[0]),
        1.0 if is_new_word else 0.0,
        1 - dense if is_new_word else 0.0,
        1.0 if 0.0 < similarity < 1.0 and not misread and is_other_word(of_mention, of_name) else 0.0,
        1.0 if n_slips == 1 and is_swap(of_mention, of_name) else 0.0,
        *changes[:-3],
        1.0 if name.is_other_script else 0.0,
        dense if name.is_other_script else 0.0,
        1.0 if point.is_canonical else 0.0,
        type_agreement(gaps, point.types),
        1.0 if is_wanted else 0.0,
        *differences[:-2],
    )


def _are_words(mention: StringFeatures, name: StringFeatures) -> bool:
    """Whether a longer mention has the words of a proper name as any text has them, in small letters beside other
    words: `garbage collection`, `first kiss`; not `trips to reading`.
    """
    text = mention.text
    if (
        not text[1:].islower()
        or name.text.islower()
        or any(not is_common(word) or is_mostly_name(word) for word in name.content)
    ):
        return False
    words = mention.folded.split()
    return not any(before in _PREPOSITIONS and word in name.words for before, word in pairwise(words))


def is_proper(point: NamePoint) -> bool:
    """Whether a name is written with capitals in running text, as `is_person`."""
    types = point.types or ((point.predicted_type,) if point.predicted_type else ())
    return not PROPER_TYPES.isdisjoint(types)


def is_person(point: NamePoint) -> bool:
    """Whether a name is that of a person, by the base, or by the type head where the base has no type."""
    return "PERSON" in point.types or (not point.types and point.predicted_type == "PERSON")


def is_organisation(point: NamePoint) -> bool:
    """Whether a name is that of an organisation or a building, as `is_person`."""
    return not {"ORG", "FAC"}.isdisjoint(point.types) or (not point.types and point.predicted_type in ("ORG", "FAC"))


def length(of_mention: StringFeatures) -> float:
    """Letters and digits of the mention over `LONG`, at most 1."""
    return min(len(of_mention.joined), LONG) / LONG


def has_type(point: NamePoint, types: Sequence[str]) -> bool:
    """Whether a point has one of the types."""
    return not set(types).isdisjoint(point.filter_types)


def nil_features(of_mention: StringFeatures, names: Sequence[MatchedName], scorer: Scorer) -> npt.NDArray[np.float64]:
    """Features in the order of `NIL_FEATURES`, without margins, which the ranking gives (`model.with_margins`)."""
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
            max(scorer.log_size, LEAST_LOG_SIZE) / 10,
            *_NO_MARGINS,
            1 - min(1.0, scorer.log_size / LEAST_LOG_SIZE) ** 0.5,
        ]
    )


# Soft typing compares the predicted type of a mention with the coarse types of an entity in the base:
#
#     confidence = max over real types t of p(t)                      OTHER is not a real type
#     agreement  = max over the entity's real types t of p(t) - confidence      in [-1, 0]
#
# The agreement is 0 for an entity of the predicted type, and for an entity without a real type. It falls with the
# confidence in another type, and is near 0 if no type is probable.
_REAL = [name for name in ENTITY_TYPES if name != "OTHER"]
_ALL_REAL = np.array([i for i, name in enumerate(ENTITY_TYPES) if name != "OTHER"])


def type_gaps(marginals: npt.NDArray[np.float32] | None) -> dict[str, float] | None:
    """The agreement of one mention with each real type, in [-1, 0], by the probabilities of its types, (19,); None
    without a type head.
    """
    if marginals is None:
        return None
    gaps = (marginals[_ALL_REAL] - marginals[_ALL_REAL].max()).tolist()
    return dict(zip(_REAL, gaps, strict=True))


def type_agreement(gaps: Mapping[str, float] | None, types: Sequence[str]) -> float:
    """Agreement of one mention, by its `type_gaps`, and the coarse types of one entity, in [-1, 0]."""
    return max([gaps[name] for name in types if name in gaps], default=0.0) if gaps else 0.0
