"""Abbreviations that a passage defines, and the links of their uses."""

from __future__ import annotations

import pytest
from exact_linker import Names, found

from pearl_qdrant.linking.mention_detection.abbreviations import find_abbreviations, find_uses
from pearl_qdrant.linking.mention_detection.annotate import annotate


@pytest.mark.parametrize(
    "text, short, long",
    [
        ("High tumor necrosis factor (TNF) levels", "TNF", "tumor necrosis factor"),
        ("TNF (tumor necrosis factor) is high", "TNF", "tumor necrosis factor"),
        ("an old myocardial infarction [MI] there", "MI", "myocardial infarction"),
        ("the heat shock protein 70 (HSP70)", "HSP70", "heat shock protein 70"),
        ("given interleukin-2 (IL-2)", "IL-2", "interleukin-2"),
        ("hemolytic uremic syndrome (HUS, rare)", "HUS", "hemolytic uremic syndrome"),
        ("the World Health Organization (WHO)", "WHO", "World Health Organization"),
        ("İstanbul Technical University (ITU)", "ITU", "İstanbul Technical University"),
    ],
)
def test_an_abbreviation_is_found_where_it_is_defined(text: str, short: str, long: str) -> None:
    """Brackets after a long form define a short form, and the reverse."""
    (abbreviation,) = find_abbreviations(text)

    assert (abbreviation.short, abbreviation.long) == (short, long)
    assert text[abbreviation.long_start :].startswith(long)
    assert text[abbreviation.short_start :].startswith(short)


@pytest.mark.parametrize(
    "text",
    [
        "They met in London (UK) in May.",
        "It rained (again). Nothing (at all) happened (2019).",
        "The patient (John) left.",
        "TNF (TNF)",
        "()",
        "(TNF)",
        "a sentence about tumor necrosis. Factor (TNX)",
        "See the figure (Fig. 3; p < 0.01).",
    ],
)
def test_other_brackets_define_nothing(text: str) -> None:
    """A remark in brackets is not an abbreviation."""
    assert find_abbreviations(text) == []


def test_every_use_of_an_abbreviation_is_looked_up_by_its_long_form() -> None:
    """The definition of the passage counts, not the base's meaning, and the annotation has the long form."""
    names = Names([("myocardial infarction", "mi"), ("MI", "michigan"), ("mi", "third-note")])
    text = "MI was feared. A myocardial infarction (MI) was found; both MIs healed, but MIA did not. MI again."

    annotations = annotate(names, text)

    assert found(annotations) == [
        ("MI", "mi"),
        ("myocardial infarction", "mi"),
        ("MI", "mi"),
        ("MIs", "mi"),
        ("MI", "mi"),
    ]
    assert [a.long_form for a in annotations] == ["myocardial infarction", None, *["myocardial infarction"] * 3]


def test_an_abbreviation_of_something_unknown_is_not_taken_for_something_else() -> None:
    """If the passage defines `MS` as mass spectrometry, it is not multiple sclerosis, alone or in a phrase."""
    names = Names([("MS", "multiple-sclerosis"), ("MS patients", "multiple-sclerosis")])

    assert found(annotate(names, "By mass spectrometry (MS) we saw it. MS is good, so MS patients laughed.")) == []


def test_a_new_definition_replaces_an_older_one() -> None:
    """A short form has the meaning of its last definition."""
    text = "A pulmonary embolism (PE) came. PE hurts. In physical education (PE) he ran. PE was fun."

    uses = find_uses(text, find_abbreviations(text))

    assert [use.meaning.long.split()[0] for use in uses] == ["pulmonary", "pulmonary", "physical", "physical"]
