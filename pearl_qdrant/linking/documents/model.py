"""The log-linear model of a document: what its other mentions and its words say of the candidates of one mention.

    logit_i   = sum over features of coefficient * value_i                       which candidate
    d         = sum over NIL features of coefficient * value                     whether any
    p_i       = exp(logit_i) / sum_j exp(logit_j) * logistic(d)

It works on the candidates of the ranking model. The coefficients are in `documents.json`; `runs/document_model.py` fits
them and documents the data. A coefficient has the sign that its feature's meaning requires, or is 0.

Features of a candidate:
    names           the logit of the ranking model, without what rules add, where the base has popularity
    popularity      log(1 + popularity)                                                     `features.py`
    rules           the logit of the ranking model and its rules, where the base has no popularity; as it is
    learned         log(1 + n / 0.3), n how often the mention meant it in labelled text
    word_type       log probability of its type by the words around, less the highest one
    passage         cosine of the passage to its canonical name, of namesakes to their descriptions
    surname         probability of the person whose longer name ends with the mention
    first_name      the same, where the longer name begins with it
    part_of_name    the same for an entity that is no person
    acronym         the same, where the mention has the initials of the longer name
    other_form      the same, where the other mention is of the same stem: Israeli, Israel
    same_entity     probability that another string of the document means it
    linked          how many of the entities of the document are linked to it
    shared_links    how many links they have in common with it

Features of the decision:
    bias            1 where the base has popularity
    names           there: the decision of the ranking model, in [-6, 6]; 0 for an exact name
    exact_name      there: the mention is a name of the base, up to spelling
    popular_name    if so: log(1 + popularity) of the first candidate
    rules           the decision of the ranking model and its rules, where the base has no popularity; as it is
    learned, learned_nil    log(1 + n / 0.3), n how often the mention meant any entity, and none
    part            probability of the entities of the other name that the mention is a part or form of
    part_of_nil     if it is a part or form of another name: the probability that this one has no entity
    same_entity, linked, shared_links     those of the first candidate
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files
from typing import Literal

import numpy as np
import numpy.typing as npt

from pearl_qdrant.linking.ranking.model import in_order

FloatArray = npt.NDArray[np.float64]

FEATURES = (
    "names", "popularity", "rules", "learned", "word_type", "passage", "surname", "first_name", "part_of_name",
    "acronym", "other_form", "same_entity", "linked", "shared_links",
)  # fmt: skip
NIL_FEATURES = (
    "bias", "names", "exact_name", "popular_name", "rules", "learned", "learned_nil", "part", "part_of_nil",
    "same_entity", "linked", "shared_links",
)  # fmt: skip

PARTS: Mapping[str, tuple[str, ...]] = {
    "partial names": ("surname", "first_name", "part_of_name", "acronym", "other_form"),
    "popularity": ("popularity",),
    "learned names": ("learned",),
    "types": ("word_type",),
    "passages": ("passage",),
    "coherence": ("same_entity", "linked", "shared_links"),
}
"""What a caller can switch off (`without`), and the features that it has."""

UNFITTED = frozenset(("rules",))
"""Features with the coefficient 1: a base without popularity keeps the order and the decisions of names."""

Setting = Literal["coherence", "no_coherence", "context"]
"""What the coefficients were fitted for: documents with coherence, documents without it, whose other features and
above all whose decision count for more, and single mentions with a text around them."""

COLUMN = {name: i for i, name in enumerate(FEATURES)}
NIL_COLUMN = {name: i for i, name in enumerate(NIL_FEATURES)}


@dataclass(frozen=True, slots=True)
class DocumentModel:
    """The coefficients of the candidates, (len(FEATURES),), and of the decision, (len(NIL_FEATURES),)."""

    features: FloatArray
    decision: FloatArray

    @classmethod
    def from_json(cls, text: str) -> DocumentModel:
        """Read coefficients by name; missing ones are 0. Raises ValueError if a name is unknown."""
        loaded = json.loads(text)
        return cls(in_order(loaded["features"], FEATURES), in_order(loaded["decision"], NIL_FEATURES))

    def by_name(self) -> dict[str, dict[str, float]]:
        """The coefficients by name, in the form that `from_json` reads."""
        return {
            "features": dict(zip(FEATURES, self.features.tolist(), strict=True)),
            "decision": dict(zip(NIL_FEATURES, self.decision.tolist(), strict=True)),
        }

    def probabilities(self, values: FloatArray, of_mention: FloatArray) -> FloatArray:
        """Probabilities of candidates, (k,), by their features, (k, len(FEATURES)), and those of the decision.

        1 minus their sum is the probability of NIL.
        """
        if not len(values):
            return np.zeros(0)
        logits = values @ self.features
        odds = np.exp(logits - logits.max())
        probability: FloatArray = odds / odds.sum() / (1.0 + np.exp(-(of_mention @ self.decision)))
        return probability


def check_parts(without: Iterable[str]) -> frozenset[str]:
    """The names of parts to switch off, checked. Raises ValueError if one of them is no part of the model."""
    chosen = frozenset((without,) if isinstance(without, str) else without)
    if unknown := chosen - set(PARTS):
        raise ValueError(f"without is one or several of {', '.join(map(repr, PARTS))}, not {min(unknown)!r}")
    return chosen


def shipped_document_model(setting: Setting = "coherence", *, learned_share: float = 0.0) -> DocumentModel:
    """The coefficients that come with this package.

    Args:
        learned_share: The share of the mentions of the document of which something was learned, in [0, 1]. The
            coefficients lie between those for documents without learned names and with them. Counts themselves have
            one coefficient.
    """
    without = _shipped(setting)
    if setting == "context":
        return without
    learned = _shipped(f"{setting}_learned")
    features = without.features + learned_share * (learned.features - without.features)
    decision = without.decision + learned_share * (learned.decision - without.decision)
    features[COLUMN["learned"]] = learned.features[COLUMN["learned"]]
    for name in ("learned", "learned_nil"):
        decision[NIL_COLUMN[name]] = learned.decision[NIL_COLUMN[name]]
    return DocumentModel(features, decision)


@lru_cache(maxsize=8)
def _shipped(name: str) -> DocumentModel:
    loaded = json.loads(files(__package__).joinpath("documents.json").read_text("utf-8"))
    return DocumentModel.from_json(json.dumps(loaded[name]))
