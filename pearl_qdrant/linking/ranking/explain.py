"""Explains a link: the rule that applied, the features of the best candidate, and the runner-up."""

from __future__ import annotations

from collections.abc import Mapping

from pearl_qdrant.linking.mentions import MAX_CHARACTERS
from pearl_qdrant.linking.ranking.features import WORDS
from pearl_qdrant.linking.ranking.model import Calibration, RankingModel, shipped_model
from pearl_qdrant.records import Candidate, Link, NilReason

_DOCUMENT_WORDS: Mapping[str, str] = {
    "names": "its names",
    "rules": "its names and the rules",
    "popularity": "popularity",
    "learned": "learned names",
    "word_type": "the words around suggest its type (0 for the most probable type)",
    "passage": "the passage is like its description or name",
    "surname": "surname of a longer name in the document",
    "first_name": "first name of a longer name in the document",
    "part_of_name": "part of a longer name in the document",
    "acronym": "initials of a longer name in the document",
    "other_form": "another form of a name in the document",
    "same_entity": "another string of the document means it",
    "linked": "linked to other entities of the document",
    "shared_links": "shares links with other entities of the document",
}

_SMALL = 0.05  # logits; smaller contributions are not shown


def explain_link(link: Link, calibration: Calibration, model: RankingModel | None = None) -> list[str]:
    """Lines that explain a link: the rule, what speaks for and against the best candidate, and the runner-up.

    Args:
        link: The link.
        calibration: The calibration of the linker that made it.
        model: The coefficients of that linker; by default the ones of the package.
    """
    lines = [_rule(link, calibration), *_learned(link)]
    if not link.candidates:
        return lines
    coefficients = (model or shipped_model()).by_name()
    best = link.candidates[0]
    if best.document:
        return lines + _in_document(link)
    lines += [f"for {_label(best)}:", *_parts(best, coefficients["decision"])]
    other = next((c for c in link.candidates[1:] if not (best.tie and c.tie)), None)
    if other is not None:
        if link.rule is None:
            lines.append(
                f"runner-up {_label(other)}, {best.score - other.score:.2f} behind ({other.probability or 0:.2f}):"
            )
            lines += _differences(best, other, coefficients["features"])
        else:
            lines.append(f"runner-up {_label(other)} ({other.probability or 0:.2f}){_popularity(best, other)}")
    return lines


def _in_document(link: Link) -> list[str]:
    """What the parts of a document add to the score of the best candidate and of the runner-up, less the smallest."""
    lines = []
    shown = link.candidates[:2]
    names = {name for candidate in shown for name in candidate.document}
    least = {name: min(c.document.get(name, 0.0) for c in shown) if len(shown) > 1 else 0.0 for name in names}
    for candidate, kind in zip(shown, ("for", "runner-up"), strict=False):
        lines.append(f"{kind} {_label(candidate)} ({candidate.probability or 0:.2f}):")
        parts = {name: value - least[name] for name, value in candidate.document.items()}
        chosen = sorted((name for name in parts if parts[name] >= _SMALL), key=lambda name: -parts[name])
        lines += [f"  {parts[name]:+6.2f}  {_DOCUMENT_WORDS[name]}" for name in chosen]
    return lines


_RULES: Mapping[str, str] = {
    "entity id": "the mention is the id of this entity",
    "exact name": "the mention is a name of this entity alone",
    "canonical name": "several entities have this name; it is the canonical name of this one alone",
    "popularity": "several entities have this name; this one is the most popular",
    "namesakes": "several entities have this name",
    "learned name": "what was learned of this name goes before what the model says of it",
}


def _learned(link: Link) -> list[str]:
    """What was learned of the name, one line for each entity."""
    lines = []
    for one in link.learned:
        parts = [(one.as_written, "as written"), (one.other_forms, "in other forms"), (one.rejected, "rejected")]
        counts = ", ".join(f"{n:,} {what}" for n, what in parts if n)
        lines.append(f"learned: {'NIL' if one.entity_id is None else one.entity_id}: {counts}")
    return lines


def _rule(link: Link, calibration: Calibration) -> str:
    threshold = f"{calibration.threshold:g}"
    if calibration.nil_bias:
        threshold += f", NIL {calibration.nil_bias:+.2f}"
    by_rule = f", by rule: {_RULES[link.rule]}" if link.rule is not None else ""
    if link.nil_reason is None:
        why = "the first of a tie" if link.candidates[0].tie else f"at least the threshold ({threshold})"
        return f"linked: probability {link.probability or 0:.2f}, {why}{by_rule}"
    if link.nil_reason is NilReason.NO_CANDIDATES:
        return "NIL: no candidates, as no name is close or the type filter excludes all of them"
    if link.nil_reason is NilReason.TOO_LONG:
        return f"NIL: longer than any name, over {MAX_CHARACTERS:,} characters; it was not searched"
    if link.nil_reason is NilReason.NO_NAME:
        return "NIL: this stands for nothing, or is a title or a number alone, and no entity has it for a name"
    if link.nil_reason is NilReason.AMBIGUOUS:
        names = sum(c.tie or c.name == link.candidates[0].name for c in link.candidates)
        several = f"{names} or more" if names == len(link.candidates) else f"{names}"
        return f"NIL: {several} entities share the best name, and nothing separates them clearly enough"
    probability = link.candidates[0].probability or 0
    return f"NIL: the best candidate has probability {probability:.2f}, below the threshold ({threshold}){by_rule}"


def _label(candidate: Candidate) -> str:
    alias = "" if candidate.name == candidate.canonical_name else f' by its name "{candidate.name}"'
    types = "|".join(candidate.types or candidate.kb_types) or "no type"
    return f"{candidate.canonical_name} [{candidate.entity_id}] ({types}){alias}"


def _popularity(best: Candidate, other: Candidate) -> str:
    if best.popularity is None or other.popularity is None:
        return ""
    return f": popularity {other.popularity:g}, against {best.popularity:g}"


def _parts(candidate: Candidate, coefficients: Mapping[str, float]) -> list[str]:
    """The contributions of features to the decision, in logits, the largest first."""
    parts = {name: coefficients[name] * value for name, value in candidate.features.items()}
    shown = sorted((n for n in parts if abs(parts[n]) >= _SMALL), key=lambda n: -abs(parts[n]))
    return [f"  {parts[name]:+6.2f}  {WORDS[name]}: {candidate.features[name]:.3f}" for name in shown]


def _differences(best: Candidate, other: Candidate, coefficients: Mapping[str, float]) -> list[str]:
    """The largest differences between the contributions of two candidates to the ranking."""
    gaps = {name: coefficients[name] * (best.features[name] - other.features[name]) for name in best.features}
    shown = sorted((n for n in gaps if abs(gaps[n]) >= _SMALL), key=lambda n: -abs(gaps[n]))[:4]
    return [f"  {gaps[name]:+6.2f}  {WORDS[name]}" for name in shown]
