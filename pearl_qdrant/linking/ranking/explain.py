"""Explains a link: the rule that decided, or what speaks for the best candidate, and before the next one."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

from pearl_qdrant.linking.mentions import MAX_CHARACTERS
from pearl_qdrant.linking.ranking.model import NIL_WORDS, WORDS, Calibration, RankingModel, shipped_model
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

_WORDS: Mapping[str, str] = WORDS | NIL_WORDS
_SMALL = 0.1  # logits; smaller contributions are not shown
_SHOWN = 7  # the largest contributions, which are shown; the others are summed

_SAME: Mapping[str, str] = {"edit_margin": "edit_similarity", **dict.fromkeys(("judge_sure", "judge_doubts"), "judge")}
"""Features that say the same thing as another one, in another shape."""


def explain_link(link: Link, calibration: Calibration, model: RankingModel | None = None) -> list[str]:
    """Lines that explain a link: the rule that decided, or what speaks for and against the best candidate.

    They say what the link and its candidates do not: names, ids, types and probabilities are there.

    Args:
        link: The link.
        calibration: The calibration of the linker that made it.
        model: The coefficients of that linker; by default the ones of the package.
    """
    lines = [_decision(link, calibration), *_learned(link)]
    best, *others = link.candidates or (None,)
    if best is None:
        return lines
    for name, agreement in best.properties.items():
        lines.append(f"{name} of the row agrees {agreement:.2f} (1 is equal, 0 different)")
    if best.document:
        return lines + _in_document(link)
    other = next((c for c in others if not (best.tie and c.tie)), None)
    if link.rule is not None:
        if other and best.name == other.name and best.popularity is not None and other.popularity is not None:
            lines.append(f"popularity {best.popularity:g}; of {other.canonical_name} {other.popularity:g}")
        return lines
    coefficients = (model or shipped_model()).by_name()["features"]
    parts = _parts(best.decision)
    if other is None:
        return [*lines, f"for and against {_label(best, link)}:", *_table(parts)]
    gaps = {
        name: coefficients.get(name, 1.0) * (best.features.get(name, 0.0) - other.features.get(name, 0.0))
        for name in dict.fromkeys([*best.features, *other.features])
    }
    lead = f"its lead over {_label(other, link)}, {best.score - other.score:.2f} in all"
    lines.append(f"for and against {_label(best, link)}; {lead}:")
    return lines + _table(parts, _parts(gaps))


def _in_document(link: Link) -> list[str]:
    """What the parts of a document add to the scores of the first two candidates, more than what they add to both."""
    shown = link.candidates[:2]
    names = dict.fromkeys(name for candidate in shown for name in candidate.document)
    least = {name: min(c.document.get(name, 0.0) for c in shown) if len(shown) > 1 else 0.0 for name in names}
    columns = ({name: one.document.get(name, 0.0) - least[name] for name in names} for one in shown)
    head = "; ".join(f"for {_label(one, link)}" for one in shown)
    return [f"{head}:", *_table(*columns, words=_DOCUMENT_WORDS)]


_RULES: Mapping[str, str] = {
    "entity id": "the mention is the id of this entity",
    "exact name": "the mention is a name of this entity alone",
    "slip": "the mention is a name of this entity alone but for a slip: one letter, in a word that no name has",
    "canonical name": "several entities have this name; it is the canonical name of this one alone",
    "popularity": "several entities have this name; this one is the most popular",
    "namesakes": "several entities have this name",
    "learned name": "what was learned of this name goes before what the model says of it",
    "properties": "the values of its row speak for or against the candidates",
}


def _learned(link: Link) -> list[str]:
    """What was learned of the name, one line for each entity."""
    lines = []
    for one in link.learned:
        parts = [(one.as_written, "as written"), (one.other_forms, "in other forms"), (one.rejected, "rejected")]
        counts = ", ".join(f"{n:,} {what}" for n, what in parts if n)
        lines.append(f"learned: {'NIL' if one.entity_id is None else one.entity_id}: {counts}")
    return lines


def _decision(link: Link, calibration: Calibration) -> str:
    threshold = f"{calibration.threshold:g}"
    if calibration.nil_bias:
        threshold += f", NIL {calibration.nil_bias:+.2f}"
    by_rule = f", by rule: {_RULES[link.rule]}" if link.rule is not None else ""
    if link.nil_reason is None:
        why = "the first of a tie" if link.candidates[0].tie else f"at least the threshold ({threshold})"
        return f"linked: {why}{by_rule}"
    if link.nil_reason is NilReason.NO_CANDIDATES:
        return "NIL: no name is close, or the type filter excludes all of them"
    if link.nil_reason is NilReason.TOO_LONG:
        return f"NIL: longer than any name, over {MAX_CHARACTERS:,} characters; it was not searched"
    if link.nil_reason is NilReason.NO_NAME:
        return "NIL: this stands for nothing, or is a title or a number alone, and no entity has it for a name"
    if link.nil_reason is NilReason.SEVERAL_NAMES:
        how = f"each of the {len(link.parts)} is linked" if link.parts else "the option `split` links each"
        return f"NIL: these are several names of the base, and not one; {how}"
    if link.nil_reason is NilReason.AMBIGUOUS:
        names = sum(c.tie or c.name == link.candidates[0].name for c in link.candidates)
        several = f"{names} or more" if names == len(link.candidates) else f"{names}"
        return f"NIL: {several} entities share the best name, and nothing separates them clearly enough"
    return f"NIL: the best candidate is below the threshold ({threshold}){by_rule}"


def _label(candidate: Candidate, link: Link) -> str:
    """The name of a candidate, with its id if another one has the name too."""
    alone = sum(one.canonical_name == candidate.canonical_name for one in link.candidates) == 1
    return candidate.canonical_name if alone else f"{candidate.canonical_name} [{candidate.entity_id}]"


def _parts(contributions: Mapping[str, float]) -> dict[str, float]:
    """What features contribute, in logits; those that say the same thing as one."""
    parts: dict[str, float] = defaultdict(float)
    for name, value in contributions.items():
        parts[_SAME.get(name, name)] += value
    return parts


def _table(*columns: Mapping[str, float], words: Mapping[str, str] = _WORDS) -> list[str]:
    """A line for each of the largest features, and one for all others: each column adds up to its logit."""
    names = dict.fromkeys(name for column in columns for name in column)
    largest = {name: max(abs(column.get(name, 0.0)) for column in columns) for name in names}
    ordered = sorted(names, key=lambda name: -largest[name])
    shown = [name for name in ordered[:_SHOWN] if largest[name] >= _SMALL]
    rest = [sum(column.get(name, 0.0) for name in ordered if name not in shown) for column in columns]
    columns = (*({**column, "": of_rest} for column, of_rest in zip(columns, rest, strict=True)),)
    shown += [""] * (max(map(abs, rest)) >= _SMALL)
    words = {**words, "": "all else"}
    return [f"  {'  '.join(f'{column.get(name, 0.0):+6.2f}' for column in columns)}  {words[name]}" for name in shown]
