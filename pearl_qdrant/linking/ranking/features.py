"""The features of candidates and of mentions: name, sign, and the words that `--explain` says.

Features of a candidate are computed from its best name (`candidate_features.py`). Those of a mention speak for NIL; the
margins among them say how far the second candidate of another name is behind.
"""

from __future__ import annotations

from typing import NamedTuple


class Feature(NamedTuple):
    """A feature of a candidate.

    Attributes:
        name: Its name, as in `ranking.json`.
        sign: 1: it raises a candidate's score; -1: it lowers it; 0: either.
        words: What it means.
    """

    name: str
    sign: int
    words: str


TABLE: tuple[Feature, ...] = (
    Feature("dense", 1, "meaning (dense cosine, above that of unrelated names)"),
    Feature("dense_squared", 1, "close meaning (the same, squared)"),
    Feature("lexical", 1, "spelling (n-gram cosine)"),
    Feature("some_lexical", 1, "similar spelling (n-gram cosine up to 0.5)"),
    Feature("mention_coverage", 1, "share of the mention that the name covers"),
    Feature("name_coverage", 1, "share of the name that the mention covers"),
    Feature("equal_core", 1, "equal except for case, accents, punctuation, brackets"),
    Feature("missing_numbers", -1, "a number of the mention is not in the name"),
    Feature("extra_numbers", -1, "a number of the name is not in the mention"),
    Feature("equal_numbers", 1, "the same numbers"),
    Feature("acronym", 1, "one is an acronym of the other"),
    Feature("first_word", 1, "the same first word"),
    Feature("slip_gap", 1, "one or two edits away"),
    Feature("slip_length", 0, "one edit away, by the length of the mention"),
    Feature("sorted_similarity", 1, "few edits in another order of words"),
    Feature("edit_margin", 1, "fewer edits than any other name"),
    Feature("unknown_slip", 1, "one or two edits away, and the base does not have the word as it is written"),
    Feature("unknown_gap", 1, "the same two, and the vectors differ"),
    Feature("other_word", -1, "a word is a slip of one of the name, and itself a word that texts have"),
    Feature("swap", 1, "letters in another order"),
    Feature("replaced_words", -1, "another word in its place"),
    Feature("replaced_rare", 0, "another word, which is rare in English"),
    Feature("only_added", 0, "the mention has more words"),
    Feature("added_plain", 1, "the words that it has more are frequent in English and rare in the base"),
    Feature("only_missing", 0, "the name has more words"),
    Feature("missing_rare", 0, "a word that it has more is rare in English"),
    Feature("other_script", 0, "another script"),
    Feature("other_script_dense", 1, "close meaning in another script"),
    Feature("canonical", 1, "the canonical name"),
    Feature("type_agreement", 1, "the model predicts another type for the mention"),
    Feature("wanted_type", 1, "has a requested type"),
    Feature("bracket_differs", -1, "other words in brackets"),
    Feature("bracket_number", -1, "another number in brackets"),
    Feature("bracket_added", -1, "what the mention has in brackets is not in the name"),
    Feature("bracket_missing", 0, "only the name has brackets"),
    Feature("number_differs", -1, "another number"),
    Feature("small_number", -1, "only one has a number under 100"),
    Feature("sequel", -1, "a number up to 9 follows"),
    Feature("code_shared", 1, "the same code of letters and digits"),
    Feature("code_differs", -1, "another code of letters and digits"),
    Feature("opposite", -1, "a word that excludes one of the name (left, right)"),
    Feature("first_name_differs", -1, "the same family name, and another first name"),
    Feature("last_name_differs", -1, "the same first name, and another family name"),
    Feature("initials_fit", 1, "the same family name, and initials of the first names"),
    Feature("generation_differs", -1, "another generation (Jr., II)"),
    Feature("cut_words", 1, "the same words, cut short"),
    Feature("added_apart", -1, "a word more, which mostly makes another thing of a name"),
    Feature("added_same", 1, "a word more, with which it is mostly the same thing"),
    Feature("missing_same", 1, "the name has a word more, with which it is mostly the same thing"),
    Feature("added_head", -1, "a word in capitals follows, an English one, which may be what it is"),
    Feature("equal_part", 1, "a part between commas is the name of this organisation"),
)
"""The features of a candidate, in the order of their values."""

FEATURES: tuple[str, ...] = tuple(one.name for one in TABLE)
WORDS: dict[str, str] = {one.name: one.words for one in TABLE}
SIGNS: dict[str, int] = {one.name: one.sign for one in TABLE}
COLUMN: dict[str, int] = {name: i for i, name in enumerate(FEATURES)}

UNFITTED = frozenset(("wanted_type",))
"""Features without training data: their coefficients were set by hand."""

NIL_FEATURES = (
    "bias",
    "rarity",  # in English, of the rarest word of the mention, in [0, 1]
    "background_dense",  # mean of `dense` over the candidates ranked 6 to 10: how crowded the base is there
    "background_lexical",  # the same of `lexical`
    "length",  # letters and digits of the mention, up to 30, divided by 30
    "log_size",  # natural logarithm of the number of names in the collections, at least 300, divided by 10
    "margin",  # logits that the first candidate is before the first one of another name, up to 8, divided by 8
    "coverage_margin",  # what it has more of `mention_coverage`
    "few_names",  # in [0, 1], above 0 in collections of under 300 names: what margins lose, as no other name is near
)
"""The features of a mention; they speak for NIL, margins against it."""

MARGINS = slice(6, 8)
"""The margins among `NIL_FEATURES`."""

FEW_NAMES = NIL_FEATURES.index("few_names")
"""It weighs nothing itself: its coefficient stays 0."""
