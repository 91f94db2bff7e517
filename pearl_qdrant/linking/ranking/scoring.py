"""Scores the names found for a mention, and decides: features (in the order of `model.FEATURES` and
`model.NIL_FEATURES`), rules, logits, order, a link or NIL.

    names, one per entity  ->  features  ->  logits of the entities and of NIL  ->  best first, ties marked  ->  link

Rules that a dictionary has go before the ranking model:

    entity id        the mention is an id of the base
    exact name       the mention has the spelling key of a name (`lexical.keys`): equal but for case, accents, spaces.
                     Names that are equal but for case go first (`C++`, not `C`), then those with equal words
    namesakes        several entities have that name: the popularity of each decides, where the base has it and it
                     differs; otherwise the canonical name goes before an alias; the letter case of the mention
                     counts in both; otherwise nothing separates them. So it is with names that are the mention but
                     for what they have in brackets, where none is the mention itself

Rules do not change features or coefficients. An entity that a rule names gets `BONUS` added to its logit, and the
softmax over the candidates is multiplied by the precision of the rule (`ScoredMention.certainty`), so that 1 minus the
sum of all probabilities is still the probability of NIL.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from pearl_qdrant.lexical.ngrams import fold_name, latin
from pearl_qdrant.linking.mentions import are_several_numbers, is_no_name, is_too_long, stands_for_nothing
from pearl_qdrant.linking.options import OnTie
from pearl_qdrant.linking.ranking.model import (
    COLUMN,
    FEATURES,
    JUDGE,
    JUDGED,
    MARGINS,
    SHORT_FORM,
    Calibration,
    LinkQuery,
    MatchedName,
    RuleName,
    ScoredEntity,
    ScoredMention,
    Scorer,
    judge_features,
    log_sum_exp,
    with_margins,
)
from pearl_qdrant.linking.ranking.name_parts import are_cut_words, equal_part, number_differs, opposite
from pearl_qdrant.linking.ranking.short_forms import shipped_short_forms
from pearl_qdrant.linking.ranking.string_features import (
    FAR,
    UNCHANGED,
    StringFeatures,
    has_common_end,
    is_acronym,
    is_misread,
    may_have_slips,
    new_string_features,
    other_known_name,
    shared_letters,
    sorted_similarity,
    string_features,
    word_changes,
)
from pearl_qdrant.linking.ranking.type_features import has_type, is_organisation, is_person, type_agreement, type_gaps
from pearl_qdrant.records import Link, NilReason
from pearl_qdrant.store.schema import NamePoint

BACKGROUND = slice(5, 10)  # ranks of the candidates that measure how crowded the base is around the mention
_NO_MARGINS = (0.0,) * (MARGINS.stop - MARGINS.start)
LEAST_LOG_SIZE = math.log(300)  # the coefficients are fitted to bases of 300 names and more

N_JUDGED = 3
"""Candidates of a mention whose names the judge reads. More hardly change an answer (docs/experiments/decision.md)."""

LONG = 30  # letters and digits beyond which a mention counts as no longer
_NEAR, _LEAD = COLUMN["edit_similarity"], COLUMN["edit_margin"]
LEAST_DENSE = -0.25  # below the cosine of unrelated names a lower one says no more


def _dense(name: MatchedName, scorer: Scorer) -> float:
    """The `dense` feature: the cosine relative to that of unrelated names; the lexical score without vectors."""
    if name.dense is None:
        return name.lexical
    return max(LEAST_DENSE, (name.dense - scorer.baseline) / (1 - scorer.baseline))


def candidate_features(
    of_mention: StringFeatures,
    name: MatchedName,
    gaps: Mapping[str, float] | None,
    link_query: LinkQuery,
    scorer: Scorer,
    nearest: Sequence[float],
) -> tuple[float, ...]:
    """Features of the best name of an entity, in the order of `FEATURES`. `gaps` are of `type_gaps`, `nearest` the two
    highest edit similarities of all entities.
    """
    point, similarity = name.point, name.edit_similarity
    of_name = new_string_features(point.name, name.folded)
    if name.is_other_script:
        of_mention = string_features(of_mention.text, latin(of_mention.folded))
    dense = _dense(name, scorer)
    # Of persons, Paul is not Paula with a slip, and Simon not Simone cut short.
    is_another = is_person(point) and not name.is_other_script and other_known_name(of_mention, of_name)
    is_read = bool(of_mention.numbers or of_name.numbers) and is_misread(of_mention, of_name)
    changes = UNCHANGED if is_read else word_changes(of_mention, of_name, has_slips=not is_another)
    is_other = bool(changes.is_code or changes.any_replaced or changes.only_added or changes.only_missing)
    others = nearest[-1] if similarity == nearest[0] else nearest[0]
    is_wanted = bool(link_query.types) and not link_query.is_filter and has_type(point, link_query.types)
    return (
        dense,
        name.lexical,
        name.mention_coverage,
        1.0 if changes.is_acronym else is_acronym(of_mention, of_name),
        max(0.0, similarity - FAR) / (1 - FAR),
        0.0 if is_other else min(max(0.0, similarity - max(others, FAR)) / (1 - FAR), 1.0),
        0.0 if is_other else sorted_similarity(of_mention, of_name, similarity),
        changes.replaced,
        changes.missing_rare,
        dense if name.is_other_script else 0.0,
        1.0 if point.is_canonical else 0.0,
        type_agreement(gaps, point.types),
        1.0 if is_wanted else 0.0,
        number_differs(of_mention, of_name),
        opposite(of_mention, of_name),
        0.0 if is_another else are_cut_words(of_mention, of_name),
        equal_part(of_mention, of_name) if is_organisation(point) else 0.0,
        shared_letters(of_mention, of_name),
        shared_letters(of_name, of_mention),
        float(is_another),
        *UNJUDGED,
    )


UNJUDGED = (0.0,) * (JUDGED.stop - JUDGED.start)


def length(of_mention: StringFeatures) -> float:
    """Letters and digits of the mention over `LONG`, at most 1."""
    return min(len(of_mention.joined), LONG) / LONG


def nil_features(of_mention: StringFeatures, names: Sequence[MatchedName], scorer: Scorer) -> npt.NDArray[np.float64]:
    """Features in the order of `NIL_FEATURES`, without margins, which the ranking gives (`model.with_margins`)."""
    background = names[BACKGROUND]
    dense = [_dense(name, scorer) for name in background]
    return np.array(
        [
            1.0,
            sum(dense) / len(dense) if dense else 0.0,
            length(of_mention),
            max(scorer.log_size, LEAST_LOG_SIZE) / 10,
            *_NO_MARGINS,
            1 - min(1.0, scorer.log_size / LEAST_LOG_SIZE) ** 0.5,
        ]
    )


BONUS = 20.0  # logits added to the entities that a rule names; far more than features give

EXACT_CERTAINTY = 0.985
"""Precision of an exact name of one entity: 98.6 % of 665 titles of 20 fuzzy-join sets (AutoFJ). Mentions in running
text are harder, since a name there may mean something that the base does not have: 90 % of the distinct mentions of
CRAFT's Sequence Ontology and BC5CDR, 97 % of its Cell Ontology (docs/experiments/everyday.md)."""

HIGHEST_THRESHOLD = EXACT_CERTAINTY - 0.005
"""The highest threshold of a calibration, so that none loses exact names. The margin is what another slope or NIL bias
can take from their probability."""

AGREES = 1.0  # score of the judge from which it takes two names for one thing

MOST_UNJUDGED = 0.949
"""The highest probability without an exact name, an id, something learned or the judge's agreement: below it other
features alone are sure of names that the judge has not seen or takes for two things."""

MOST_SHORT_FORM = 0.9  # of a name that the letters of a short form speak for: of 122 above it 88 % held

END_DOUBTS = 2.0
"""What a name with common words behind it loses where the judge is below minus this: of 29 links 55 % held."""

NEAR_SPELLING, NEAR_LEAD, SURE_UNJUDGED = 0.8, 0.1, 0.95
"""`edit_similarity`, `edit_margin` and probability without the judge from which a mention is its first candidate with a
slip, and is not judged: of 727 such mentions in fifty sets 99.4 % are right, as many as of exact names, of made slips
all. Four in five mentions with one slip are so near, two in five with two (docs/experiments/decision.md).
"""

ID_CERTAINTY = 0.999  # precision of an entity id

CANONICAL_SHARE = 0.8
"""Share of the entity whose canonical name it is, where others have it as an alias: 72 % right in news (AIDA) among
mentions whose entity has the name, 10 of 10 in CRAFT."""

POPULARITY_WEIGHT, CANONICAL_WEIGHT = 1.05, 0.33
"""Logits for log(1 + popularity) and for a canonical name, fitted to namesakes in the training part of AIDA: 84 % right
in its development part, 85 % by popularity alone, 72 % by the canonical name alone."""

CASE_WEIGHT = 1.5
"""Logits for a name that is written in the mention's letter case: `turkey`, `Turkey`. Set by hand; a mention in small
letters alone may be either."""


def own_names(names: Sequence[MatchedName], mention: str, folded: str) -> list[int]:
    """Rows of the names that are the mention itself: equal but for case if there are such, else with equal words."""
    same = [i for i, name in enumerate(names) if name.is_same_spelling]
    if len(same) < 2:
        return same
    lowered = mention.casefold()
    return (
        [i for i in same if names[i].point.name.casefold() == lowered]
        or [i for i in same if names[i].folded == folded]
        or same
    )


def of_one_core(names: Sequence[MatchedName], best: int, folded: str) -> list[int]:
    """Rows of the names that are the mention with something in brackets or behind a comma, if the best one is:
    `Kerkplein (Aarschot)`, `Victoria, Seychelles`.
    """

    def is_one(name: MatchedName) -> bool:
        text = name.point.name
        if "(" in text:
            return string_features(text, name.folded).core == folded
        return "," in text and fold_name(text.partition(",")[0]) == folded

    return [i for i, name in enumerate(names) if is_one(name)] if is_one(names[best]) else []


def namesakes(names: Sequence[MatchedName], best: int) -> list[int]:
    """Rows of the names that equal the best one after folding."""
    folded = names[best].folded
    if folded is None or not folded:
        return [i for i, name in enumerate(names) if name.point.name == names[best].point.name]
    return [i for i, name in enumerate(names) if name.folded == folded]


def shares(names: Sequence[MatchedName], mention: str) -> tuple[list[float], RuleName]:
    """How at least two entities share the probability of their name, equal after folding; the shares sum to 1."""
    popularity = [name.point.popularity for name in names]
    canonical = [name.point.is_canonical for name in names]
    known = [value for value in popularity if value is not None]
    n_canonical = sum(canonical)
    rule: RuleName = "namesakes"
    if len(known) == len(names) and len(set(known)) > 1:
        logits = [POPULARITY_WEIGHT * math.log1p(value) for value in known]
        logits = [logit + CANONICAL_WEIGHT * one for logit, one in zip(logits, canonical, strict=True)]
        rule = "popularity"
    elif 0 < n_canonical < len(names):
        of_canonical, of_alias = CANONICAL_SHARE / n_canonical, (1 - CANONICAL_SHARE) / (len(names) - n_canonical)
        logits = [math.log(of_canonical if one else of_alias) for one in canonical]
        rule = "canonical name" if n_canonical == 1 else rule
    else:
        logits = [0.0] * len(names)
    logits = [logit + CASE_WEIGHT * (name.point.name == mention) for logit, name in zip(logits, names, strict=True)]
    odds = [math.exp(logit - max(logits)) for logit in logits]
    return [one / math.fsum(odds) for one in odds], rule


SAME_LOGIT = 1e-4  # logits this close are equal: two cosines of the same name differ by rounding


@dataclass(slots=True)
class Compared:
    """A mention with the features of the entities that were found for it, before the judge and the rules.

    Attributes:
        mention: The cleaned mention.
        names: The best name of each entity, k.
        features: (k, len(FEATURES)); the judge's scores are 0.
        nil_features: (len(NIL_FEATURES),), without margins.
        of_mention: What its string says.
    """

    mention: str
    names: Sequence[MatchedName]
    features: npt.NDArray[np.float64]
    nil_features: npt.NDArray[np.float64]
    of_mention: StringFeatures

    def to_judge(self, scorer: Scorer) -> list[int]:
        """Rows of the entities whose names the judge reads, the nearest first; none where the mention is a name, or one
        with a slip that is sure without it.
        """
        if not self.names or any(name.is_same_spelling for name in self.names):
            return []
        logits = self.features @ scorer.model.features
        first = int(logits.argmax())
        if is_near_spelling(self.features[first]) and may_have_slips(self.of_mention, self.names[first].folded or ""):
            of_nil = with_margins(self.nil_features, logits, self.features)
            of_nil_logit = scorer.model.nil_logit(logits, self.features, of_nil)
            if log_sum_exp(logits) - of_nil_logit >= math.log(SURE_UNJUDGED / (1 - SURE_UNJUDGED)):
                return []
        return [int(row) for row in np.argsort(-logits, kind="stable")[:N_JUDGED]]

    def with_judgement(self, rows: Sequence[int], scores: npt.NDArray[np.float64]) -> None:
        """Note the judge's scores of the names in some rows. The others get the lowest of these."""
        self.features[:, JUDGED] = judge_features(scores[scores.argmin()])
        self.features[rows, JUDGED] = judge_features(scores)


def is_near_spelling(features: npt.NDArray[np.float64]) -> bool:
    """Whether a candidate with these features, (len(FEATURES),), is the mention but for a slip, as no other is."""
    return bool(features[_NEAR] >= NEAR_SPELLING and features[_LEAD] >= NEAR_LEAD)


def compare_names(
    mention: str,
    names: Sequence[MatchedName],
    types: npt.NDArray[np.float32] | None,
    link_query: LinkQuery,
    scorer: Scorer,
) -> Compared:
    """Compare a cleaned mention with the best name of each entity, sorted by preliminary score. The probabilities of
    the mention's types, (19,), are None if types do not count.
    """
    of_mention = string_features(mention)
    of_nil = nil_features(of_mention, names, scorer)
    if not names:
        return Compared(mention, [], np.zeros((0, len(FEATURES))), of_nil, of_mention)
    nearest = (*sorted([(name.closer or name).edit_similarity for name in names], reverse=True), 0.0)[:2]
    gaps = type_gaps(types)

    def features_of(some: Sequence[MatchedName]) -> npt.NDArray[np.float64]:
        rows = [candidate_features(of_mention, name, gaps, link_query, scorer, nearest) for name in some]
        return np.array(rows)

    features = features_of(names)
    if closer := [(i, name.closer) for i, name in enumerate(names) if name.closer is not None]:
        logits = features @ scorer.model.features
        names, others = list(names), features_of([name for _, name in closer])
        for (i, name), row, logit in zip(closer, others, others @ scorer.model.features, strict=True):
            if logit > logits[i]:
                names[i], features[i] = name, row
    return Compared(mention, names, features, of_nil, of_mention)


def score_compared(compared: Compared, link_query: LinkQuery, scorer: Scorer) -> ScoredMention:
    """Score and sort the entities of a mention that was compared, and judged where that was due."""
    mention, names, features = compared.mention, compared.names, compared.features
    if not names:
        nil_logit = float(compared.nil_features @ scorer.model.nil_features)
        return ScoredMention(mention, [], nil_logit, compared.nil_features)
    logits = features @ scorer.model.features
    of_nil = with_margins(compared.nil_features, logits, features)
    nil_logit = scorer.model.nil_logit(logits, features, of_nil)
    first = int(logits.argmax())
    reasons = scorer.model.reasons(features[first], of_nil)
    if features[first, JUDGE] < -END_DOUBTS and has_common_end(compared.of_mention, names[first].folded or ""):
        nil_logit += END_DOUBTS
        reasons["judge_doubts"] = reasons.get("judge_doubts", 0.0) - END_DOUBTS
    if (added := _short_form_logits(names)) is None:
        return _in_order_of_rules(compared, logits, nil_logit, of_nil, reasons, link_query)
    before = log_sum_exp(logits) - nil_logit
    logits, nil_logit = logits + added, nil_logit + shipped_short_forms().nil_logit(mention, scorer.log_size)
    reasons[SHORT_FORM] = log_sum_exp(logits) - nil_logit - before
    return _in_order_of_rules(compared, logits, nil_logit, of_nil, reasons, link_query, added)


def _short_form_logits(names: Sequence[MatchedName]) -> npt.NDArray[np.float64] | None:
    """What a short form adds to the logits of its candidates, (k,); None where none fits, or one is the mention."""
    if all(name.short_form is None for name in names) or any(name.is_same_spelling for name in names):
        return None
    unlike = shipped_short_forms().steps["unlike"]
    return np.array([unlike if name.short_form is None else name.short_form for name in names])


def _in_order_of_rules(
    compared: Compared,
    logits: npt.NDArray[np.float64],
    nil_logit: float,
    of_nil: npt.NDArray[np.float64],
    reasons: Mapping[str, float] | None,
    link_query: LinkQuery,
    added: npt.NDArray[np.float64] | None = None,
) -> ScoredMention:
    """The mention with its entities by these logits, (k,), of which a short form `added` some, and rules; `reasons` are
    those of the decision.
    """
    names, of_mention = compared.names, compared.of_mention
    offsets, chosen, rule = _apply_rules(compared.mention, of_mention, names, logits, nil_logit, link_query)
    of_short = [0.0] * len(names) if added is None else added.tolist()
    decided, rows = int(logits.argmax()), zip(names, compared.features, logits.tolist(), offsets, of_short, strict=True)
    found = in_order(
        ScoredEntity(
            name, row, logit + offset, offset, i in chosen, decision=reasons if i == decided else None, short_form=short
        )
        for i, (name, row, logit, offset, short) in enumerate(rows)
    )
    n_kept = max(link_query.limit, sum(entity.tie for entity in found))
    certainty = EXACT_CERTAINTY if rule is not None and names[min(chosen)].is_same_spelling else 1.0
    return ScoredMention(compared.mention, found[:n_kept], nil_logit, of_nil, rule, certainty)


def score_own(mention: str, names: Sequence[MatchedName], link_query: LinkQuery, scorer: Scorer) -> ScoredMention:
    """A scored mention that all these names are, which the rule decides."""
    compared = compare_names(mention, names, None, link_query, scorer)
    logits = compared.features @ scorer.model.features
    return _in_order_of_rules(compared, logits, float(logits.max()), compared.nil_features, None, link_query)


def ask_judge(compared: Sequence[Compared], scorer: Scorer) -> None:
    """Have the judge read the first candidates of mentions that are no names of the base, all in one call."""
    if scorer.judge is None:
        return
    rows = [one.to_judge(scorer) for one in compared]
    pairs = [
        (one.mention, judged_name(one.of_mention, one.names[i].point))
        for one, own in zip(compared, rows, strict=True)
        for i in own
    ]
    if not pairs:
        return
    scores, start = scorer.judge().scores(pairs), 0
    for one, own in zip(compared, rows, strict=True):
        if own:
            one.with_judgement(own, scores[start : start + len(own)])
            start += len(own)


def words_of_type(kind: str) -> str:
    """The words of a type as a base writes it: `rivers of england` of `wikicat:Rivers_of_England`."""
    return fold_name(re.split(r"[/|:]", kind)[-1].replace("_", " "))


def judged_name(mention: StringFeatures, point: NamePoint) -> str:
    """The name as the judge reads it: with its type in brackets where the mention has a word of that type which the
    name lacks, so that `the river Wharfe`, `Wharfe (river)` and `Wharfe` of type river say the same.
    """
    for kind in point.kb_types:
        words = words_of_type(kind)
        stated = mention.words.intersection(words.split())
        if stated and stated.isdisjoint(fold_name(point.name).split()):
            return f"{point.name} ({words})"
    return point.name


def _apply_rules(
    mention: str,
    of_mention: StringFeatures,
    names: Sequence[MatchedName],
    logits: npt.NDArray[np.float64],
    nil_logit: float,
    link_query: LinkQuery,
) -> tuple[list[float], frozenset[int], RuleName | None]:
    """Offsets of all logits, the rows of the entities that the rule is about, and the rule."""
    own = own_names(names, mention, of_mention.folded)
    best = int(logits.argmax())
    of_core = [] if own else of_one_core(names, best, of_mention.folded)
    group = own or of_core or namesakes(names, best)
    if link_query.types and not link_query.is_filter:
        group = [i for i in group if has_type(names[i].point, link_query.types)] or group
    offsets = [0.0] * len(names)
    rule: RuleName | None = "exact name" if own else None
    if len(group) > 1:
        of_type = [i for i in group if judged_name(of_mention, names[i].point) != names[i].point.name] or group
        parts, rule = shares([names[i] for i in of_type], mention)
        for i, part in (dict.fromkeys(group, 0.0) | dict(zip(of_type, parts, strict=True))).items():
            offsets[i] = math.log(max(part, 1e-9) * len(group))
        if of_core:
            # Vectors differ by what is in brackets, which the mention does not say.
            level = float(np.logaddexp.reduce(logits[group])) - math.log(len(group))
            for i in group:
                offsets[i] += level - float(logits[i])
    if own:
        # The bonus replaces what features say: of one name they differ by the predicted type alone.
        level = max(nil_logit, float(logits.max()))
        for i in group:
            offsets[i] += BONUS + level - float(logits[i])
    return offsets, frozenset(group), rule


EXCLUDED_SHARE = 0.1
"""How much an entity that a type filter excludes counts as NIL, beside one that passes. Of 2,200 names and slips of
other types in the sample base 42 are linked without it, and none from 0.1 on; beyond 0.3 names that pass are lost."""


def with_excluded(scored: ScoredMention, unfiltered: ScoredMention, types: Sequence[str]) -> ScoredMention:
    """A mention under a type filter, with what the filter excludes as part of NIL: `Manchester City` is no name of a
    city where a club has it.
    """
    excluded = [entity.logit for entity in unfiltered.found if not has_type(entity.point, types)]
    if not excluded:
        return scored
    nil_logit = float(np.logaddexp(scored.nil_logit, math.log(EXCLUDED_SHARE) + max(excluded)))
    return replace(scored, nil_logit=nil_logit)


def put_first(scored: ScoredMention, point: NamePoint) -> ScoredMention:
    """The mention with the entity whose id it is as the first candidate."""
    others = [
        replace(entity, is_namesake=False, tie=False)
        for entity in scored.found
        if (entity.point.kb, entity.point.entity_id) != (point.kb, point.entity_id)
    ]
    logit = BONUS + max([scored.nil_logit, *(entity.logit for entity in others)])
    features = np.zeros(len(FEATURES))
    first = ScoredEntity(MatchedName(point, None), features, logit, offset=logit, is_namesake=True)
    return replace(scored, found=[first, *others], rule="entity id", certainty=ID_CERTAINTY)


def best_first(logits: npt.NDArray[np.float64]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Order of candidates by logits, (..., k), minus infinity where there is none: indices, (..., k), first those tied
    with the best one, equal ones in their given order; and the number of tied first candidates, (...,).
    """
    is_tied = np.isfinite(logits) & (logits >= logits.max(axis=-1, keepdims=True) - SAME_LOGIT)
    # Rounded to the same 1e-4 as ties, and stable: differences of rounding never change the order of equal names.
    order = np.argsort(np.where(is_tied, -np.inf, -np.round(logits, 4)), axis=-1, kind="stable")
    return order, is_tied.sum(axis=-1)


def in_order(found: Iterable[ScoredEntity]) -> list[ScoredEntity]:
    """Entities best first, equal ones by base and id, with ties marked; expects at least one. The same order as by
    `best_first`, without arrays: for ten entities they take longer than all else here.
    """
    entities = list(found)
    least = max([entity.logit for entity in entities]) - SAME_LOGIT
    # Those tied with the best one come first, by base and id alone.
    keyed = [
        (math.inf if entity.logit >= least else round(entity.logit, 4), entity.name.point, entity)
        for entity in entities
    ]
    keyed.sort(key=lambda one: (-one[0], one[1].kb, one[1].entity_id))
    has_ties = len(keyed) > 1 and keyed[1][0] == math.inf
    marked = [(entity, has_ties and rank == math.inf) for rank, _, entity in keyed]
    return [entity if entity.tie is is_tied else replace(entity, tie=is_tied) for entity, is_tied in marked]


def agrees_with_mention(features: npt.NDArray[np.float64]) -> bool:
    """Whether the judge takes the name of a candidate with these features for the mention's, or needs not be asked."""
    return bool(features[JUDGE] >= AGREES or (is_near_spelling(features) and not features[JUDGED].any()))


def _most(scored: ScoredMention, entity: ScoredEntity) -> float:
    """The highest probability of an entity that neither an exact name nor an id names."""
    if scored.rule == "slip":
        return EXACT_CERTAINTY
    if entity.short_form > 0:
        return MOST_SHORT_FORM
    return EXACT_CERTAINTY if agrees_with_mention(entity.features) else MOST_UNJUDGED


def decide(
    scored: ScoredMention,
    calibration: Calibration,
    limit: int,
    threshold: float,
    on_tie: OnTie,
    probabilities: Sequence[float] | None = None,
    *,
    has_types: bool = False,
) -> Link:
    """Turn logits into probabilities and choose the best entity or NIL.

    No other name is more certain than an exact one. Entities with the same name share the probability of that name. If
    together they reach the threshold and none of them does alone, the mention is ambiguous rather than unknown. What
    stands for nothing (`n/a`), a title or a number alone is linked only to an entity with that very name, in its
    letters and case; `NA` and the like only under types. Three numbers and more are a name (`1 2 3 4`).
    `calibration.metrics` (`Samples.answers`) applies the same rule to arrays, `ranking.explain` puts it into words:
    change all three together. The probabilities are those of the calibration unless something was learned.
    """
    mention = scored.mention
    if not scored.found:
        reason = NilReason.NO_NAME if is_no_name(mention) else NilReason.NO_CANDIDATES
        reason = NilReason.TOO_LONG if is_too_long(mention) else reason
        return Link(mention, None, None, None, reason)
    is_learned = probabilities is not None
    if probabilities is None:
        probabilities = calibration.probabilities(scored.logits, scored.nil_logit, certainty=scored.certainty)
        if scored.rule not in ("exact name", "entity id"):
            probabilities = [min(p, _most(scored, one)) for p, one in zip(probabilities, scored.found, strict=True)]
    candidates = tuple(e.to_candidate(p) for e, p in zip(scored.found[:limit], probabilities, strict=False))
    best = candidates[0]
    if not is_learned and is_no_name(mention) and scored.rule != "entity id":
        is_own = best.name == mention.strip() or (scored.rule == "exact name" and are_several_numbers(mention))
        if not is_own or (stands_for_nothing(mention) and not has_types):
            return Link(mention, None, None, None, NilReason.NO_NAME, candidates, rule=scored.rule)
    has_same_name = [
        entity.tie or (entity.is_namesake and scored.found[0].is_namesake) or entity.point.name == best.name
        for entity in scored.found
    ]
    # fsum is exact, so the result does not depend on the order of tied candidates.
    of_best_name = math.fsum(p for p, is_same in zip(probabilities, has_same_name, strict=True) if is_same)
    if of_best_name < threshold:
        return Link(mention, None, None, None, NilReason.BELOW_THRESHOLD, candidates, rule=scored.rule)
    has_namesakes = sum(has_same_name) > 1
    is_undecided = {
        "canonical": best.tie or probabilities[0] < threshold,
        "null": has_namesakes or probabilities[0] < threshold,
        "first": not has_namesakes and probabilities[0] < threshold,
    }[on_tie]
    if is_undecided:
        return Link(mention, None, None, None, NilReason.AMBIGUOUS, candidates, rule=scored.rule)
    return Link(
        mention, best.entity_id, best.canonical_name, best.probability, None, candidates, best.kb, rule=scored.rule
    )
