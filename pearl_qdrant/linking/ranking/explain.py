"""Why a mention was linked as it was, in words."""

from __future__ import annotations

from collections.abc import Mapping

from pearl_qdrant.linking.mentions import MAX_CHARACTERS
from pearl_qdrant.linking.ranking.model import FEATURES, Calibration, RankingModel, shipped_model
from pearl_qdrant.records import Candidate, Link, NilReason

_WORDS: Mapping[str, str] = {
    "dense": "meaning (dense cosine beyond that of unrelated names)",
    "dense_squared": "close in meaning (the same, squared)",
    "lexical": "spelling (n-gram cosine)",
    "some_lexical": "spelling somewhat alike (n-gram cosine up to 0.5)",
    "mention_coverage": "share of the mention that the name has",
    "name_coverage": "share of the name that the mention has",
    "equal_core": "same but for case, accents, punctuation, brackets",
    "missing_numbers": "a number of the mention is not in the name",
    "extra_numbers": "a number of the name is not in the mention",
    "equal_numbers": "the same numbers",
    "acronym": "one is an acronym of the other",
    "first_word": "the same first word",
    "type_agreement": "the model takes the mention for another type",
    "wanted_type": "of a type that was asked for",
}

_SMALL = 0.05  # of a logit: not worth a line


def explain_link(link: Link, calibration: Calibration, model: RankingModel | None = None) -> list[str]:
    """Lines that say what decided: the rule, what speaks for the best candidate, and the runner-up.

    Args:
        link: From a linker.
        calibration: That linker's own.
        model: That linker's coefficients; by default those that come with the package.
    """
    lines = [_rule(link, calibration)]
    if not link.candidates:
        return lines
    coefficients = dict(zip(FEATURES, (model or shipped_model()).features.tolist(), strict=True))
    best = link.candidates[0]
    lines += [f"for {_label(best)}:", *_parts(best, coefficients)]
    other = next((c for c in link.candidates[1:] if not (best.tie and c.tie)), None)
    if other is not None:
        lead = best.score - other.score
        lines.append(f"runner-up {_label(other)}, {lead:.2f} behind ({other.probability or 0:.2f}):")
        lines += _differences(best, other, coefficients)
    return lines


def _rule(link: Link, calibration: Calibration) -> str:
    bar = f"{calibration.threshold:g}"
    if link.nil_reason is None:
        why = "the first of a tie" if link.candidates[0].tie else f"at least the threshold ({bar})"
        return f"linked: probability {link.probability or 0:.2f}, {why}"
    if link.nil_reason is NilReason.NO_CANDIDATES:
        return "NIL: nothing in the collection is near, or the type filter leaves nothing"
    if link.nil_reason is NilReason.TOO_LONG:
        return f"NIL: longer than any name, over {MAX_CHARACTERS:,} characters; it was not looked up"
    if link.nil_reason is NilReason.AMBIGUOUS:
        names = sum(c.tie or c.name == link.candidates[0].name for c in link.candidates)
        several = f"{names} or more" if names == len(link.candidates) else f"{names}"
        return f"NIL: {several} entities share the best name, and nothing separates them well enough"
    return f"NIL: the best has probability {link.candidates[0].probability or 0:.2f}, under the threshold ({bar})"


def _label(candidate: Candidate) -> str:
    alias = "" if candidate.name == candidate.canonical_name else f' by its name "{candidate.name}"'
    types = "|".join(candidate.types or candidate.kb_types) or "no type"
    return f"{candidate.canonical_name} [{candidate.entity_id}] ({types}){alias}"


def _parts(candidate: Candidate, coefficients: Mapping[str, float]) -> list[str]:
    """Each feature that counts, the weightiest first."""
    weighed = {name: coefficients[name] * value for name, value in candidate.features.items()}
    kept = sorted((n for n in weighed if abs(weighed[n]) >= _SMALL), key=lambda n: -abs(weighed[n]))
    return [f"  {weighed[name]:+6.2f}  {_WORDS[name]}: {candidate.features[name]:.3f}" for name in kept]


def _differences(best: Candidate, other: Candidate, coefficients: Mapping[str, float]) -> list[str]:
    """In what the best one is better or worse, the weightiest first."""
    apart = {name: coefficients[name] * (best.features[name] - other.features[name]) for name in best.features}
    kept = sorted((n for n in apart if abs(apart[n]) >= _SMALL), key=lambda n: -abs(apart[n]))[:4]
    return [f"  {apart[name]:+6.2f}  {_WORDS[name]}" for name in kept]
