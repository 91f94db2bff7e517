"""Abbreviations that a passage defines; what it says of mentions: negated, possible, historical, of another person."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from exact_linker import Names, annotate, annotate_batch, found
from pair_table import other_outcomes

from pearl_qdrant import Candidate
from pearl_qdrant.errors import FormatError, InputError
from pearl_qdrant.linking.mention_detection.abbreviations import find_abbreviations, find_uses
from pearl_qdrant.linking.mention_detection.assertions import english_triggers, read_triggers
from pearl_qdrant.linking.mention_detection.name_policy import NameCase, may_mention
from pearl_qdrant.linking.mention_detection.spans import Shape, Span


def test_an_abbreviation_is_found_where_it_is_defined() -> None:
    """Brackets after a long form define a short form, and the reverse; initials are those of all words of it. A remark
    in brackets is not an abbreviation.
    """

    def outcome(text: str) -> str:
        found = find_abbreviations(text)
        for one in found:
            assert text[one.long_start :].startswith(one.long)
            assert text[one.short_start :].startswith(one.short)
        return ", ".join(f"{one.short} = {one.long}" for one in found) or "none"

    assert other_outcomes(__file__, "abbreviation", outcome) == []


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


def test_a_short_form_is_linked_as_written_where_the_base_lacks_its_long_form() -> None:
    """A code that is a name of the base says what its long form is; a few letters do not."""
    names = Names([("KLM2", "gene"), ("MS", "multiple-sclerosis")])
    annotations = annotate(names, "Keratin like moiety 2 (KLM2) binds. In mass spectrometry (MS) KLM2 is seen.")

    assert found(annotations) == [("Keratin like moiety 2", "gene"), ("KLM2", "gene"), ("KLM2", "gene")]
    assert [one.long_form for one in annotations] == [None, *["Keratin like moiety 2"] * 2]


def test_an_abbreviation_is_what_the_passage_last_defined() -> None:
    """If `MS` is mass spectrometry, it is not multiple sclerosis, alone or in a phrase. A new definition replaces an
    older one. A long form with another letter is another thing, as it is elsewhere.
    """
    names = Names([("MS", "multiple-sclerosis"), ("MS patients", "multiple-sclerosis")])

    assert found(annotate(names, "By mass spectrometry (MS) we saw it. MS is good, so MS patients laughed.")) == []
    text = "A pulmonary embolism (PE) came. PE hurts. In physical education (PE) he ran. PE was fun."

    uses = find_uses(text, find_abbreviations(text))

    assert [use.meaning.long.split()[0] for use in uses] == ["pulmonary", "pulmonary", "physical", "physical"]
    candidate, span = Candidate("x", "kb", "marshkinin", "marshkinin"), Span(0, 3, Shape.DEFINED)
    may = [
        may_mention(span, written, candidate, NameCase(), is_exact=False, common_words="capitalised")
        for written in ("marshkinin Y", "marshkinins")
    ]
    assert may == [False, True]


SENTENCES = Path(__file__).parent / "assertions.txt"
_MENTION = re.compile(r"\[([^\]|]+)\|(\w+)\]")


def marked(line: str) -> tuple[str, list[tuple[int, int]], list[str]]:
    """A sentence, the places of its mentions and what it says of them."""
    text, places, wanted, at = "", [], [], 0
    for mention in _MENTION.finditer(line):
        text += line[at : mention.start()]
        places.append((len(text), len(text) + len(mention[1])))
        wanted.append(mention[2])
        text += mention[1]
        at = mention.end()
    return text + line[at:], places, wanted


def test_the_sentences_are_understood() -> None:
    """Of 965 sentences all but 14 are right, all mentions of each."""
    lines = [marked(x) for x in SENTENCES.read_text(encoding="utf-8").splitlines() if not x.startswith("#")]
    said = [[one for one, _ in english_triggers().assertions(text, places)] for text, places, _ in lines]

    right = sum(found == wanted for found, (_, _, wanted) in zip(said, lines, strict=True))
    assert len(lines) == 965
    assert right >= len(lines) - 14


@pytest.mark.parametrize(
    "text, wanted",
    [
        ("No fever.", ("negated", "No")),
        ("No fe\u0301ver. Fever.", ("affirmed", None)),
        ("fever\n\nwas ruled out", ("affirmed", None)),
        ("It isn\u2019t fever.", ("negated", "n\u2019t")),
        ("No one of the many people who had come to the small house far away had fever.", ("affirmed", None)),
        ("No cough, rash, joint pain, headache, loss of weight, night sweats, chills or fever.", ("negated", "No")),
        ("\u53d1\u70e7 no fever", ("negated", "no")),
    ],
)
def test_a_trigger_reaches_its_mentions(text: str, wanted: tuple[str, str | None]) -> None:
    """Within its sentence, eight words far, and over lists."""
    start = text.lower().rindex("fever")

    assert english_triggers().assertions(text, [(start, start + 5)]) == [wanted]


def test_annotations_say_it() -> None:
    """`annotate` and batches say it of each mention, given spans too, and keep only what is asked for. Words of a
    mention say nothing of it.
    """
    names, text = Names([("fever", "f"), ("cough", "c")]), "She denies fever but has a cough."

    assert [(a.text, a.assertion, a.trigger) for a in annotate(names, text)] == [
        ("fever", "negated", "denies"),
        ("cough", "affirmed", None),
    ]
    assert [a.text for a in annotate(names, text, assertions="affirmed")] == ["cough"]
    assert [a.assertion for a in annotate(names, text, spans=[(11, 16)])] == ["negated"]
    assert [[a.text for a in some] for some in annotate_batch(names, [text], assertions=["negated"])] == [["fever"]]
    for spelling in ("other_person", "other-person"):
        kept = annotate(names, "His mother has fever. He has a cough.", assertions=spelling)
        assert [a.text for a in kept] == ["fever"]
    with pytest.raises(ValueError, match="'assertions' is 'denied', but must be 'affirmed', 'negated', "):
        annotate(names, text, assertions=["denied"])  # type: ignore[list-item]
    no_trigger = Names([("absence of tears", "x"), ("fever", "f")])
    assert {a.assertion for a in annotate(no_trigger, "He has absence of tears and fever.")} == {"affirmed"}


@pytest.mark.parametrize(
    "row, message",
    [
        ("denied\tforward\tno", "expected assertion, direction, trigger"),
        ("negated\tforward", "expected assertion, direction, trigger"),
        ("negated\tforward\t ", "expected assertion, direction, trigger"),
        ("negated\tup\tno", "the direction is 'up'"),
        ("affirmed\tbackward\tyes", "the direction is 'backward'. Give forward or next backward"),
        ("negated\tforward\tno {kin}", "has a class that no row defines: kin"),
    ],
)
def test_a_table_is_checked(tmp_path: Path, row: str, message: str) -> None:
    """A row that is none is refused, with its place and what a row is."""
    path = tmp_path / "table.tsv"
    path.write_text(f"# mine\n{row}\n", encoding="utf-8")

    with pytest.raises(FormatError, match=message):
        read_triggers(path)
    with pytest.raises(InputError, match="not a table in UTF-8"):
        read_triggers(tmp_path / "none.tsv")


def test_a_table_has_classes_and_what_must_follow(tmp_path: Path) -> None:
    """A class stands for its words, a number or a year for any; what follows a bar is no part of the trigger; `next`
    triggers hold only for a mention that they touch, and words that affirm end what was negated.
    """
    path = tmp_path / "table.tsv"
    rows = ["class\tkin\tMutter|Vater", "other_person\tforward\t{kin}", "none\tboth\t{kin} | sagt"]
    rows += ["historical\tbackward\tvor {number} Jahren", "historical\tbackward\tim Jahr {year}"]
    rows += ["affirmed\tforward\t, hat", "affirmed\tnext backward\tja"]
    rows += ["negated\tforward\tnicht", "negated\tnext backward\tnegativ", "possible\tnext forward\tfraglich"]
    path.write_text("\n".join(rows), encoding="utf-8")

    def said(text: str) -> list[tuple[str, str | None]]:
        start = text.index("Gicht")
        return list(read_triggers(path).assertions(text, [(start, start + 5)]))

    assert said("Die Mutter hat Gicht.") == [("other_person", "Mutter")]
    assert said("Die Mutter sagt, er habe nicht Gicht.") == [("negated", "nicht")]
    assert said("Gicht vor 12 Jahren") == [("historical", "vor 12 Jahren")]
    assert said("Gicht im Jahr 2012") == [("historical", "im Jahr 2012")]
    assert said("Gicht im Jahr 12") == [("affirmed", None)]
    assert said("Gicht negativ") == [("negated", "negativ")]
    assert said("Gicht, Kulturen negativ") == [("affirmed", None)]
    assert said("Nicht Husten, hat Gicht") == said("Nicht Husten, Gicht ja") == [("affirmed", None)]
    assert said("Fraglich Gicht") == [("possible", "Fraglich")]
    assert said("Fraglich Husten, Gicht") == [("affirmed", None)]
