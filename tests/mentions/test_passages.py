"""Mentions in running text.

Most tests link by exact names, which is what a linker at its most certain does; a few run the shipped model on some
entities, and the command line.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import spacy
from cli_runner import Run
from hypothesis import example, given, settings
from hypothesis import strategies as st

from pearl_qdrant import Annotation, Candidate, Link, NilReason
from pearl_qdrant.cli import cli
from pearl_qdrant.encoder.loading import load_encoder
from pearl_qdrant.encoder.protocol import Encoder
from pearl_qdrant.linking.mention_detection.abbreviations import find_abbreviations, find_uses
from pearl_qdrant.linking.mention_detection.annotate import PASSAGES_AT_ONCE, annotate, annotate_batch
from pearl_qdrant.linking.mention_detection.selection import SpanCandidate, select
from pearl_qdrant.linking.mention_detection.spans import Shape, Span, find_spans
from pearl_qdrant.linking.mention_detection.tokens import character_classes, split_words

SURE = 0.97


class Names:
    """Links by exact name, ignoring case; a name of several entities is a tie."""

    def __init__(self, names: Iterable[tuple[str, str]], *, probability: float = SURE) -> None:
        self.names = list(names)
        self.probability = probability
        self.calls: list[tuple[list[str], tuple[str, ...]]] = []

    def link_batch(
        self, mentions: Iterable[str], *, types: Sequence[str] = (), limit: int = 10, threshold: float | None = None
    ) -> Iterator[Link]:
        wanted = list(mentions)
        self.calls.append((wanted, tuple(types)))
        for mention in wanted:
            yield self._link(mention)

    def _link(self, mention: str) -> Link:
        found = [(name, i) for name, i in self.names if name.lower() == mention.lower()]
        if not found:
            return Link(mention, None, None, None, NilReason.NO_CANDIDATES)
        each = self.probability / len(found)
        is_tie = len(found) > 1
        candidates = tuple(
            Candidate(i, "kb", name, name, types=("T",), description=i, score=1.0, probability=each, tie=is_tie)
            for name, i in found
        )
        if is_tie:
            return Link(mention, None, None, None, NilReason.AMBIGUOUS, candidates)
        return Link(mention, found[0][1], found[0][0], each, None, candidates)


class Everything(Names):
    """Every string is an entity, and which ones are more probable does not matter."""

    def __init__(self) -> None:
        super().__init__([])

    def _link(self, mention: str) -> Link:
        probability = 0.5 + len(mention) % 7 / 20
        candidate = Candidate(mention, "kb", mention, mention, score=probability, probability=probability)
        return Link(mention, mention, mention, probability, None, (candidate,))


def found(annotations: Iterable[Annotation]) -> list[tuple[str, str | None]]:
    """What was found, as text and entity."""
    return [(a.text, a.link.entity_id) for a in annotations]


def mentions(text: str, *names: str) -> list[str]:
    """The mentions found in a text by a base of some names, in lower case where a name is."""
    return [a.text for a in annotate(Names((name, name) for name in names), text)]


@pytest.mark.parametrize(
    "text, names",
    [
        ("Then the New York Times wrote.", ["New York Times"]),
        ("She went to the University of Washington by bus.", ["University of Washington"]),
        ("He had a heart attack yesterday.", ["heart attack"]),
        ("It is a sign of hardening of the arteries in men.", ["hardening of the arteries"]),
        ("Levels of IL-2 and p53 rose.", ["IL-2", "p53"]),
        ("With type 2 diabetes it is worse.", ["type 2 diabetes"]),
        ("A case of Parkinson's disease, not Graves' disease.", ["Parkinson's disease", "Graves' disease"]),
        ("Obama's car and McDonald's fries.", ["Obama", "McDonald's"]),
        ("Written in C++ and C#, on .NET.", ["C++", "C#", ".NET"]),
        ("It cost $1 million at AT&T Inc. in the U.S. again.", ["$1 million", "AT&T Inc.", "U.S."]),
        ("He flew to Washington, D.C., then to St. Louis.", ["Washington, D.C.", "St. Louis"]),
        ("The J. S. Bach record by Guns N' Roses.", ["J. S. Bach", "Guns N' Roses"]),
        ("We heard M*A*S*H and AC/DC.", ["M*A*S*H", "AC/DC"]),
        ("Aspirin helps. The Beatles sang.", ["Aspirin", "The Beatles"]),
        ("The anti-TNF drug and Pfizer–BioNTech shots.", ["TNF", "Pfizer–BioNTech"]),
        ("In Boston the Red Sox lost.", ["Boston", "Red Sox"]),
        ("i had a heart attack in new york", ["heart attack", "new york"]),
        ("PRESIDENT OBAMA VISITS BERLIN", ["PRESIDENT OBAMA", "BERLIN"]),
        ("昨天北京和上海下雨了", ["北京", "上海"]),
        ("東京のトヨタで", ["東京", "トヨタ"]),
        ("서울에서 삼성전자를 봤다", ["서울", "삼성전자"]),
        ("الرئيس زار القاهرة أمس", ["القاهرة"]),
        ("ทะเลกรุงเทพสวย", ["กรุงเทพ"]),
        ("Wir sahen Köln und Ko\u0308ln.", ["Köln", "Ko\u0308ln"]),
        ("a 👩\u200d🔬 and a 🦄", ["👩\u200d🔬", "🦄"]),
    ],
)
def test_mentions_are_found_by_their_shape(text: str, names: list[str]) -> None:
    """Names, acronyms, phrases, and names in scripts without capitals or spaces are found as they are written."""
    assert mentions(text, *names) == names


@pytest.mark.parametrize(
    "text, name",
    [
        ("Heart. Attack of the day", "heart attack"),
        ("He had a heart, attack followed.", "heart attack"),
        ("A heart\n\nattack", "heart attack"),
        ("a heart\x00attack", "heart attack"),
        ("a heart\tattack in a table", "heart attack"),
        ("He said that it is on.", "on"),
        ("It was 12 at night", "12"),
        ("The smart heartattack", "art"),
    ],
)
def test_what_ends_a_name_is_not_crossed(text: str, name: str) -> None:
    """Sentences, commas, cells and control characters end a mention; stop words and numbers are none."""
    assert mentions(text, name) == []


def test_a_line_end_does_not_end_a_name() -> None:
    """A name broken over two lines is found, and looked up with a space."""
    (annotation,) = annotate(Names([("New York Times", "nyt")]), "the New\r\n  York Times said")

    assert annotation.text == "New\r\n  York Times"
    assert annotation.link.mention == "New York Times"


def test_the_longer_reading_wins() -> None:
    """Of overlapping names equally well known, the longer one is kept."""
    assert mentions("the New York Times", "New York", "Times", "New York Times", "York") == ["New York Times"]


def test_two_sure_readings_win_over_an_unsure_longer_one() -> None:
    """A long span that is barely probable does not swallow two certain ones."""

    def reading(start: int, end: int, entity_id: str, probability: float, n_words: int) -> SpanCandidate:
        candidate = Candidate(entity_id, "kb", entity_id, "x")
        link = Link("y", entity_id, entity_id, probability, None, (candidate,))
        return SpanCandidate(Span(start, end, Shape.NAME, n_words), link, probability)

    kept = select([reading(0, 3, "a", 0.97, 1), reading(4, 9, "b", 0.97, 2), reading(0, 9, "c", 0.6, 3)], threshold=0.5)

    assert [r.link.entity_id for r in kept] == ["a", "b"]


def test_a_common_word_is_no_proper_name() -> None:
    """In text with capitals, `nature` is not the journal; at a sentence's beginning nobody can tell."""
    names = Names([("Nature", "journal"), ("stone", "stone"), ("water", "water")])

    assert found(annotate(names, "He loves nature and a stone in the water of Nature.")) == [
        ("stone", "stone"),
        ("water", "water"),
        ("Nature", "journal"),
    ]


def test_a_base_that_capitalises_everything_still_finds_lower_case_words() -> None:
    """Where all names of a base are capitalised, a lower-case word is as good as any."""
    names = Names([("Heart Attack", "mi"), ("Aspirin", "asa")])

    assert found(annotate(names, "A heart attack is treated with aspirin.")) == [
        ("heart attack", "mi"),
        ("aspirin", "asa"),
    ]


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
    """Brackets after a long form define a short one, and the other way round."""
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
    """The passage's own meaning of a short form counts, not the base's, and the annotation says so."""
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
    """`MS` that the passage defines as mass spectrometry is not multiple sclerosis, alone or in a phrase."""
    names = Names([("MS", "multiple-sclerosis"), ("MS patients", "multiple-sclerosis")])

    assert found(annotate(names, "By mass spectrometry (MS) we saw it. MS is good, so MS patients laughed.")) == []


def test_a_new_definition_replaces_an_older_one() -> None:
    """A short form means what it was last said to mean."""
    text = "A pulmonary embolism (PE) came. PE hurts. In physical education (PE) he ran. PE was fun."

    uses = find_uses(text, find_abbreviations(text))

    assert [use.meaning.long.split()[0] for use in uses] == ["pulmonary", "pulmonary", "physical", "physical"]


def test_case_breaks_a_tie() -> None:
    """Of entities that differ only by a capital letter, the one spelled as the mention is meant."""
    names = Names([("turkey", "bird"), ("Turkey", "country")])

    assert found(annotate(names, "She ate turkey when in Turkey.")) == [("turkey", "bird"), ("Turkey", "country")]


@dataclass
class Thing:
    """An entity as spaCy has it."""

    start_char: int
    end_char: int


@dataclass
class Doc:
    """A document as spaCy has it."""

    text: str
    ents: tuple[Thing, ...]
    was_recognised: bool = True

    def has_annotation(self, name: str) -> bool:
        return self.was_recognised and name == "ENT_IOB"


TEXT = "A heart attack in New York."
HEART_NEW_YORK = [("heart attack", "mi"), ("York", "york")]
KNOWN = [("heart attack", "mi"), ("New York", "ny"), ("York", "york")]


@pytest.mark.parametrize(
    "spans",
    [
        [(2, 14), (22, 26)],
        [[2, 14], [22, 26]],
        (Thing(start, end) for start, end in [(2, 14), (22, 26)]),
        [{"start": 2, "end": 14, "text": "heart attack", "label": "disease", "score": 0.9}, {"start": 22, "end": 26}],
    ],
    ids=["tuples", "lists", "spacy", "gliner"],
)
def test_spans_of_a_caller_are_taken_as_they_are(spans: Iterable[object]) -> None:
    """Whatever found the mentions, they are linked and nothing else is."""
    assert found(annotate(Names(KNOWN), TEXT, spans=spans)) == HEART_NEW_YORK  # type: ignore[arg-type]


def test_a_doc_brings_its_entities() -> None:
    """A document that has been through entity recognition is annotated where entities were recognised."""
    doc = Doc(TEXT, (Thing(2, 14), Thing(22, 26)))

    assert found(annotate(Names(KNOWN), doc)) == HEART_NEW_YORK
    assert found(annotate(Names(KNOWN), Doc(TEXT, ()))) == []
    assert [found(f) for f in annotate_batch(Names(KNOWN), [doc])] == [HEART_NEW_YORK]


def test_a_doc_without_recognition_is_read_as_text() -> None:
    """A pipeline that recognises no entities leaves it to us."""
    assert found(annotate(Names(KNOWN), Doc(TEXT, (), was_recognised=False))) == [
        ("heart attack", "mi"),
        ("New York", "ny"),
    ]


def test_spacy_itself_is_understood() -> None:
    """A real spaCy document is read as text until entities are recognised in it, and then where they are."""
    doc = spacy.blank("en")(TEXT)
    assert found(annotate(Names(KNOWN), doc)) == [("heart attack", "mi"), ("New York", "ny")]
    doc.ents = [spacy.tokens.Span(doc, 1, 3, label="DISEASE"), spacy.tokens.Span(doc, 5, 6, label="GPE")]

    assert found(annotate(Names(KNOWN), doc)) == HEART_NEW_YORK


def test_spacys_entities_keep_their_offsets_in_characters() -> None:
    """Where a pipeline recognises entities they are the spans, after emoji, combining marks and CRLF too."""
    names = ["Zu\u0308rich", "\U0001d510ünchen", "👩\u200d🔬 Lab", "heart attack"]
    pipeline = spacy.blank("en")
    ruler: Any = pipeline.add_pipe("entity_ruler")
    ruler.add_patterns([{"label": "T", "pattern": name} for name in names])
    text = "🦄 of Zu\u0308rich\r\n\r\nsaw \U0001d510ünchen,\r\nthe 👩\u200d🔬 Lab and New York: a heart attack.\r\n"
    base = Names((name, name) for name in [*names, "New York"])

    first, second = annotate_batch(base, pipeline.pipe([text, "We left New York."]))

    assert [a.text for a in first] == names
    assert [(a.start, a.end) for a in first] == [(text.index(name), text.index(name) + len(name)) for name in names]
    assert second == []


def test_a_caller_gets_one_answer_for_each_span() -> None:
    """With NIL included there is an annotation for each span, in the caller's order, overlapping ones too."""
    spans = [(22, 26), (18, 26), (0, 1), (2, 14)]

    annotations = annotate(Names(KNOWN), TEXT, spans=spans, include_nil=True)

    assert [(a.start, a.end) for a in annotations] == spans
    assert found(annotations) == [("York", "york"), ("New York", "ny"), ("A", None), ("heart attack", "mi")]


@pytest.mark.parametrize(
    "span, message",
    [
        ((3, 3), "from 3 to 3, but the text has 27 characters"),
        ((5, 2), "0 <= start < end <= 27"),
        ((-1, 2), "from -1 to 2"),
        ((2, 28), "from 2 to 28"),
        ((1.0, 2.0), r"span 0 is \(1.0, 2.0\); give"),
        ((True, 2), "give"),
        ("ab", "give"),
        (7, "span 0 is 7; give"),
        ({"begin": 1, "end": 2}, "a mapping with start and end"),
        (None, "give"),
    ],
)
def test_a_span_that_makes_no_sense_is_refused(span: object, message: str) -> None:
    """The error shows the span, the length of the text and what is expected."""
    with pytest.raises(ValueError, match=message):
        annotate(Names(KNOWN), TEXT, spans=[span])  # type: ignore[list-item]


def test_what_cannot_be_annotated_is_refused() -> None:
    """Bytes are no text, and a threshold is a probability."""
    with pytest.raises(TypeError, match="a str or a spaCy Doc, not bytes"):
        annotate(Names(KNOWN), b"text")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"threshold is a probability in \[0, 1\], not 2"):
        annotate(Names(KNOWN), "text", threshold=2)
    with pytest.raises(ValueError, match="on_tie is 'null' or 'first', not 'last'"):
        annotate(Names(KNOWN), "text", on_tie="last")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="a context needs an encoder, and Names has none"):
        annotate(Names(KNOWN), "text", context="topic")


def test_nil_is_shown_on_request() -> None:
    """Names that the base does not have, and ties, are left out unless they are asked for."""
    names = Names([("Springfield", "a"), ("Springfield", "b")])
    text = "Doctor Zork and Mrs Quux of Springfield saw MAPK14 and a stone."

    assert annotate(names, text) == []
    shown = annotate(names, text, include_nil=True)
    assert [(a.text, a.link.nil_reason) for a in shown] == [
        ("Doctor Zork", NilReason.NO_CANDIDATES),
        ("Mrs Quux", NilReason.NO_CANDIDATES),
        ("Springfield", NilReason.AMBIGUOUS),
        ("MAPK14", NilReason.NO_CANDIDATES),
    ]


def test_a_tie_may_be_cut() -> None:
    """`on_tie="first"` takes the first by id."""
    names = Names([("Springfield", "b"), ("Springfield", "a")])

    assert found(annotate(names, "We left Springfield.", on_tie="first")) == [("Springfield", "a")]


def test_the_threshold_decides() -> None:
    """A mention that is less probable than the threshold is left out, or NIL for a span that the caller gave."""
    unsure = Names(KNOWN, probability=0.6)

    assert found(annotate(unsure, "It was in New York", threshold=0.5)) == [("New York", "ny")]
    assert annotate(unsure, "It was in New York", threshold=0.7) == []
    (nil,) = annotate(unsure, "New York", spans=[(0, 8)], threshold=0.7, include_nil=True)
    assert (nil.link.entity_id, nil.link.nil_reason) == (None, NilReason.BELOW_THRESHOLD)
    assert nil.link.candidates


def test_many_passages_share_their_lookups() -> None:
    """A batch gives what each passage gives alone, links each distinct string once, and reads only a little ahead."""
    texts = [f"A heart attack in New York, {n} times." for n in range(PASSAGES_AT_ONCE * 2 + 1)]
    names = Names(KNOWN)
    read = 0

    def counted() -> Iterator[str]:
        nonlocal read
        for text in texts:
            read += 1
            yield text

    stream = annotate_batch(names, counted(), types=["T"])
    first = next(stream)

    assert read == PASSAGES_AT_ONCE
    assert [first, *stream] == [annotate(Names(KNOWN), text) for text in texts]
    assert [len(queries) == len(set(queries)) and types == ("T",) for queries, types in names.calls] == [True] * 3


def test_nothing_is_found_in_nothing() -> None:
    """An empty text, blanks and punctuation have no mentions, and need no linker."""
    names = Names([])

    assert [annotate(names, text) for text in ("", " \n\t", "... !? ()", "\x00", "\ud800")] == [[]] * 5
    assert list(annotate_batch(names, [])) == []
    assert names.calls == []


ODD = (
    "aZ9 .,;()[]'-/&$%+#\n\r\t\x00\x0b\x85\u2028\u200b\ufeff\u200d\u200f"
    "e\u0301İß👩🔬🏽🇩ا\u064eש北京トの서กร\ud800\udfff"
)
texts = st.text(st.one_of(st.sampled_from(ODD), st.characters(exclude_categories=[])), max_size=80)


@settings(max_examples=300, deadline=None, derandomize=True)
@given(texts)
@example("x Cafe\u0301 AB\u0301 5\u200d+\ufe0fU")
@example("İİİ (İI) İİ")
@example("(A\u0301B) alpha\u0301 beta (AB) AB\u0301")
def test_offsets_are_right_for_every_text(text: str) -> None:
    """The text from start to end is the mention, in order, without overlaps, and no accent is cut off."""
    at = 0
    for annotation in annotate(Everything(), text, threshold=0.05, include_nil=True):
        assert at <= annotation.start < annotation.end <= len(text)
        assert text[annotation.start : annotation.end] == annotation.text
        assert annotation.link.mention == (annotation.long_form or " ".join(annotation.text.split()))
        assert not unicodedata.category(text[annotation.end : annotation.end + 1] or " ").startswith("M")
        at = annotation.end


@settings(max_examples=200, deadline=None, derandomize=True)
@given(texts)
def test_words_cover_all_letters(text: str) -> None:
    """Every letter and digit outside unassigned code points is in exactly one word."""
    classes = character_classes(text)
    assert len(classes) == len(text)

    covered = [i for word in split_words(text, classes) for i in range(word.start, word.end)]

    assert covered == sorted(set(covered))
    assert {i for i, kind in enumerate(classes) if kind in "Ulo9ckhte"} <= set(covered)


def test_the_work_grows_with_the_text_alone() -> None:
    """A long text of one kind has a bounded number of spans a word."""
    for piece, most in (("Aa ", 10), ("aa bb ", 12), ("b-", 12), ("北", 8), ("(", 0), ("👩\u200d ", 1)):
        n_spans = len(find_spans(piece * 500))
        assert n_spans <= most * 500
        assert (n_spans > 0) == (most > 0), piece


@pytest.fixture(scope="module")
def shipped() -> Encoder:
    """The model that ships."""
    return load_encoder("pearl-mini-en", device="cpu")


def test_a_context_breaks_a_tie(shipped: Encoder) -> None:
    """Between entities of one name, the caller's context chooses; without one the mention is left out."""
    names = Names([("Mercury", "smallest planet of the solar system"), ("Mercury", "British singer of a rock band")])
    text = "A film about Mercury is out."

    def about(context: str) -> list[tuple[str, str | None]]:
        return found(annotate(names, text, context=context, encoder=shipped))

    assert annotate(names, text, encoder=shipped) == []
    assert about("astronomy, planets and stars") == [("Mercury", "smallest planet of the solar system")]
    assert about("rock music and its singers") == [("Mercury", "British singer of a rock band")]
    assert about("\U0001f5de") == []


BASE = (
    "id\tname\ttype\taliases\n"
    "mi\tmyocardial infarction\tdisease\theart attack\n"
    "asa\taspirin\tdrug\t\n"
    "nyt\tThe New York Times\tORG|newspaper\tNYTimes\n"
    "paris\tParis\tGPE|city\t\n"
    "a-texan-city\tParis\tGPE|city\t\n"
)
PASSAGE = "In Paris\r\nthe NYTimes wrote: a heart attack (HA) is no headache. Then HA and aspirin."


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A store with a small base of the shipped model."""
    folder = tmp_path_factory.mktemp("passages")
    path = folder / "base.tsv"
    path.write_text(BASE, encoding="utf-8")
    cli(["ingest", str(path), "--store", str(folder / "store")], standalone_mode=False)
    return str(folder / "store")


@pytest.fixture
def loaded(run: Run, store: str) -> Run:
    """The command line, with that store."""
    return partial(run, "annotate", "--store", store)


def test_the_command_prints_a_line_a_mention(loaded: Run) -> None:
    """`annotate` reads an argument, a file or standard input, and says what stands where, in words or JSON."""
    words = loaded(PASSAGE)
    assert words.status == 0, words.err
    assert words.out.splitlines()[0].startswith("14-21  NYTimes  ->  The New York Times  [nyt]  1.00")
    assert "HA (heart attack)  ->  myocardial infarction  [mi]" in words.out

    as_json = loaded("--file", "-", "--json", stdin=PASSAGE.encode())
    lines = as_json.lines()
    assert {PASSAGE[int(str(x["start"])) : int(str(x["end"]))] == x["text"] for x in lines} == {True}
    assert [(x["text"], x["entity_id"], x["long_form"]) for x in lines] == [
        ("NYTimes", "nyt", None),
        ("heart attack", "mi", None),
        ("HA", "mi", "heart attack"),
        ("HA", "mi", "heart attack"),
        ("aspirin", "asa", None),
    ]
    assert lines[0].keys() == set("start end text kb entity_id canonical_name probability types long_form".split())
    assert lines[0]["types"] == ["ORG", "newspaper"]


def test_the_command_filters_and_shows_nil(loaded: Run) -> None:
    """`--type` leaves the rest out, `--nil` shows ties, `--on-tie first` cuts them."""
    drugs = loaded(PASSAGE, "--type", "drug", "--json").lines()
    assert [line["entity_id"] for line in drugs] == ["asa"]

    assert "7-12  Paris  ->  NIL (ambiguous)" in loaded("We saw Paris.", "--nil").out

    first = loaded("We saw Paris.", "--on-tie", "first", "--json").lines()
    assert [line["entity_id"] for line in first] == ["a-texan-city"]


def test_the_command_refuses_what_it_cannot_read(loaded: Run, tmp_path: Path) -> None:
    """Text and file together, neither, and a file that is not UTF-8 are errors that say what to do."""
    path = tmp_path / "latin.txt"
    path.write_bytes("München".encode("latin-1"))

    assert loaded().status == 2
    assert loaded("x", "--file", str(path)).status == 2
    wrong = loaded("--file", str(path))
    assert wrong.status == 1
    assert "latin.txt: not UTF-8 at byte 1" in wrong.err


def test_an_argument_that_is_no_unicode_does_no_harm(loaded: Run) -> None:
    """A lone surrogate, which is how a shell's stray byte arrives, ends a mention and is counted as one character."""
    outcome = loaded("\udcff NYTimes\udcff", "--json")

    assert outcome.status == 0, outcome.err
    assert [(line["start"], line["entity_id"]) for line in outcome.lines()] == [(2, "nyt")]
