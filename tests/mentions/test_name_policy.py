"""Which names of a base a text mentions: by letter case, by how common words are, and as a whole; in any language."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import pytest
from exact_linker import Names, annotate, differences
from linker_base import linker_over
from pair_table import other_outcomes

from ingest.load_base import load_base
from pearl_qdrant import Candidate, Entity, EntityLinker, Link
from pearl_qdrant.linking.mention_detection.annotate import annotate_blocks
from pearl_qdrant.linking.mention_detection.blocks import read_blocks
from pearl_qdrant.linking.mention_detection.name_policy import NameCase, Writing, may_mention
from pearl_qdrant.linking.mention_detection.spans import Shape, Span
from pearl_qdrant.linking.options import AnnotateOptions, CommonWords, LinkOptions
from pearl_qdrant.store.schema import NamePoint


def points(names: Iterable[str], *types: str, predicted: str | None = None) -> list[NamePoint]:
    """Canonical names of entities of some types."""
    return [NamePoint("kb", n, n, n, is_canonical=True, types=types, predicted_type=predicted) for n in names]


def writing(case: NameCase, name: str, *types: str) -> Writing:
    """How a base writes a name."""
    return case.writing_of(Candidate("x", "kb", name, name, types=types))


CITIES = ["Leipzig", "New Haven", "Bath", "Fort Worth", "Santa Fe", "Reading"]
SENTENCE_CASE = ["Glaucoma", "Diabetes mellitus", "Shoulder pain", "Knee joint", "Common cold", "Crohn disease"]


@pytest.mark.parametrize(
    "base, name, types, wanted",
    [
        (points(SENTENCE_CASE, "OTHER"), "Glaucoma", ("OTHER",), Writing.WORD),
        (points(SENTENCE_CASE), "Glaucoma", (), Writing.WORD),
        (points(["glaucoma", "gout", "asthma", "Bell palsy", "angina"], "OTHER"), "Bell", ("OTHER",), Writing.CAPITAL),
        (points(["glaucoma", "gout", "asthma", "Bell palsy", "angina"], "OTHER"), "gout", ("OTHER",), Writing.WORD),
        (points(CITIES), "Bath", (), Writing.PROPER),
        (points(SENTENCE_CASE, "OTHER"), "Bath", ("GPE",), Writing.PROPER),
        (points(["GLAUCOMA", "GOUT", "ASTHMA", "ANGINA", "RICKETS"], predicted="OTHER"), "GOUT", (), Writing.WORD),
        (points(["leipzig", "bath", "reading", "paris", "lima"], predicted="GPE"), "bath", (), Writing.PROPER),
        (
            points(["Heart Attack", "Type 2 Diabetes", "Gout", "Angina", "Rickets"], "OTHER"),
            "Gout",
            ("OTHER",),
            Writing.WORD,
        ),
        (points([]), "Bath", (), Writing.PROPER),
        (points(["Lupus", "Liver", "migraine", "celiac disease", "Gout"], "OTHER"), "Liver", ("OTHER",), Writing.WORD),
        (points(["Turkey", "China", "turkey", "fruit", "stone"], "OTHER"), "Turkey", ("OTHER",), Writing.CAPITAL),
    ],
)
def test_a_base_shows_how_it_writes_names(
    base: list[NamePoint], name: str, types: tuple[str, ...], wanted: Writing
) -> None:
    """By small words where proper names have capitals, by types, and where case says nothing by predicted types."""
    assert writing(NameCase.of_points(base), name, *types) is wanted


class Base(Names):
    """Exact names of a base without types that has other names, too."""

    types = ()

    def __init__(self, names: Iterable[str], others: Iterable[str] = CITIES) -> None:
        super().__init__((name, name) for name in names)
        self.others = list(others)

    def name_case(self) -> NameCase:
        return NameCase.of_points(points(self.others))


PLACES = "Chad Georgia Ireland Jordan Germany France Reading March WHO Nice US Canada".split()


def test_proper_names_are_found_whole_and_as_names() -> None:
    """Lower-case words are none, common words only where they are written as names, parts of longer names never."""
    assert differences("proper names", lambda text, _: annotate(Base(PLACES), text)) == {}


@pytest.mark.parametrize(
    "common_words, wanted",
    [("skip", ["Germany"]), ("capitalised", ["Reading", "Germany"]), ("all", ["reading", "Reading", "Germany"])],
)
def test_the_policy_for_common_words(common_words: CommonWords, wanted: list[str]) -> None:
    """Never alone, where they are written as names, or always."""
    text = "He was reading in Reading, Germany."

    assert [a.text for a in annotate(Base(PLACES), text, common_words=common_words)] == wanted
    with pytest.raises(ValueError, match="'common_words' is 'some', but must be 'skip', 'capitalised' or 'all'"):
        annotate(Base(PLACES), "text", common_words="some")  # type: ignore[arg-type]


def test_words_of_a_base_are_found_in_all_letters() -> None:
    """A base that starts its names with a capital has words, which texts write small, in capitals and in titles."""
    base = Base(["Glaucoma", "Shoulder pain", "Nausea", "TIA"], SENTENCE_CASE)

    def found(text: str) -> list[str]:
        return [a.text for a in annotate(base, text)]

    assert found("Patient has glaucoma and shoulder pain.") == ["glaucoma", "shoulder pain"]
    assert found("GLAUCOMA, SHOULDER PAIN AND NAUSEA") == ["GLAUCOMA", "SHOULDER PAIN", "NAUSEA"]
    assert found("Treatment of Severe Glaucoma") == ["Glaucoma"]
    assert found("Nausea After Shoulder Pain: A Report") == ["Nausea", "Shoulder Pain"]
    assert found("She works at the Glaucoma Society of Kent.") == []
    assert found("After a TIA he came to.") == ["TIA"]


def test_a_base_without_case_has_names_as_it_writes_them() -> None:
    """Names in small letters are found in small letters, but for common words; those have a capital in the text."""
    small, capitals = [str.lower(name) for name in CITIES], [str.upper(name) for name in CITIES]
    text = "They drove from reading to leipzig and Bath, then to fort worth."

    assert [a.text for a in annotate(Base(small, small), text)] == ["leipzig", "Bath", "fort worth"]
    assert [a.text for a in annotate(Base(capitals, capitals), "In READING and BATH.")] == ["READING", "BATH"]


WITH_CAPITALS = [
    *("van Buchem disease", "Meckel-Gruber syndrome, type 2", "carcinoma of the Liver cells", "oxalosis I"),
    *("AS Satwah", "Rock Chick (Rock, #3)"),
]


linker = linker_over(Entity(n, n, (), ("disease",)) for n in [*WITH_CAPITALS, "disease", "liver", "oxalosis A"])


@pytest.mark.parametrize("name", WITH_CAPITALS)
def test_a_name_is_found_in_a_text_without_case(linker: EntityLinker, name: str) -> None:
    """Whole, in small letters and in capitals, whatever capitals the base has in it."""
    for text in (f"what is {name.lower()}, she asked".lower(), f"THEY SAW {name} THERE".upper()):
        assert [a.link.entity_id for a in linker.annotate(text)] == [name]


def test_a_letter_ends_a_name_in_a_text_without_case(linker: EntityLinker) -> None:
    """An `a` before a word that no noun follows, or joined to a word, is a letter; else it is an article."""
    assert [a.text for a in linker.annotate("oxalosis a was found, and oxalosis a year later")][:1] == ["oxalosis a"]
    assert "oxalosis a" not in [a.text for a in linker.annotate("she had oxalosis a year later")]


COMPANIES = ["Twilio Inc.", "Siemens AG", "Acme Corporation", "Apple Inc.", "Next plc", "Goldman Sachs Group Inc."]
SYMPTOMS = ["hematuria", "hemoptysis", "anemia", "tumor", "esophagus", "pediatrics", "leukemia", "diarrhea"]
american = linker_over(
    Entity(name, name, (), (), (kind,)) for kind, names in (("ORG", COMPANIES), ("OTHER", SYMPTOMS)) for name in names
)


@pytest.mark.parametrize(
    "text, wanted",
    [
        ("TWILIO was there.", {"TWILIO": "Twilio Inc."}),
        ("Twilio, Siemens and SIEMENS.", {"Twilio": "Twilio Inc.", "Siemens": "Siemens AG", "SIEMENS": "Siemens AG"}),
        ("Acme bought Apple.", {"Acme": "Acme Corporation", "Apple": "Apple Inc."}),
        ("The next day an apple fell. Next we ate apple pie.", {}),
        ("He has haematuria and haemoptysis.", {"haematuria": "hematuria", "haemoptysis": "hemoptysis"}),
        ("Anaemia, tumour of the oesophagus.", {"Anaemia": "anemia", "tumour": "tumor", "oesophagus": "esophagus"}),
        (
            "paediatrics: leukaemia, diarrhoea",
            {"paediatrics": "pediatrics", "leukaemia": "leukemia", "diarrhoea": "diarrhea"},
        ),
    ],
)
def test_names_without_their_legal_form_and_in_british_spelling(
    american: EntityLinker, text: str, wanted: dict[str, str]
) -> None:
    """What `link` is sure of is found in a text; a word of the language is no company."""
    assert {one.text: one.link.entity_id for one in american.annotate(text)} == wanted
    assert {mention: american.link(mention).entity_id for mention in wanted} == wanted


@pytest.mark.parametrize("kind", ["GPE", "OTHER"])
def test_what_is_no_name_must_be_a_form_of_one(kind: str) -> None:
    """A proper name's plural, its other spelling or some of its words, however probable the linker finds it; words with
    their noun, without another letter or number: a common word is another one, but for its number.
    """
    shape = Shape.NAME if kind == "GPE" else Shape.LOWER
    names = points(["neuron", "marsh fever", "gout", "asthma", "angina"], "OTHER")
    case = NameCase() if kind == "GPE" else NameCase.of_points(names)

    def outcome(name: str, written: str) -> str:
        span = Span(0, len(written), shape, len(written.split()), case_matters=True)
        candidate = Candidate("x", "kb", name, name, types=(kind,))
        may = may_mention(span, written, candidate, case, is_exact=False, common_words="capitalised")
        return "may be" if may else "is none"

    assert other_outcomes(__file__, kind, outcome) == []


NEWS = ["European Commission", "The European", "Nolan Henke", "Poland", "Taiwan", "The Beatles"]


def test_names_of_news() -> None:
    """After a date line and after a title, whole; an article is a part of a name where the base has it."""
    assert differences("news", lambda text, _: annotate(Base(NEWS, NEWS), text)) == {}


def test_names_that_are_nil_have_no_dates_and_articles() -> None:
    """What looks like a name is shown without a number or an article before it; a surname also at the start. A text
    without case does not show where a name ends: rare words beside a name do not hide it.
    """
    text = "Then 100 Iraqi Kurds saw Nolan Zog on Friday. A Bek came. Zog left. Yesterday he came."

    found = annotate(Base(NEWS), text, include_nil=True)

    assert [a.text for a in found] == ["Iraqi Kurds", "Nolan Zog", "Bek", "Zog"]
    found = annotate(Base(["aspirin", "ibuprofen"], SENTENCE_CASE), "took aspirin qqq 🦄 ibuprofen.")

    assert [a.text for a in found] == ["aspirin", "ibuprofen"]


def test_a_day_of_the_week_is_no_alias() -> None:
    """`Wednesday` is a day, not the club, unless all words count."""
    span = Span(0, 9, Shape.NAME, 1, case_matters=True)
    club, day = (Candidate("x", "kb", name, "Wednesday") for name in ("Sheffield Wednesday F.C.", "Wednesday"))

    def may(candidate: Candidate, common_words: CommonWords = "capitalised") -> bool:
        return may_mention(span, "Wednesday", candidate, NameCase(), is_exact=True, common_words=common_words)

    assert (may(club), may(day), may(club, "all")) == (False, True, True)


BASE = """id	name	type	aliases
office	Microsoft Office	PRODUCT|software	Office|MS Office
windows	Microsoft Windows	PRODUCT|software	Windows
shell	Shell plc	ORG|company	Shell|Royal Dutch Shell
amazon	Amazon	ORG|company	Amazon.com
ford	Ford	ORG|company	Ford Motor Company
google	Google	ORG|company	Google LLC
time	Time	WORK_OF_ART|magazine	Time Magazine
nature	Nature	WORK_OF_ART|magazine	Nature (journal)
circus	Monty Python's Flying Circus	WORK_OF_ART|series	Flying Circus
rice	Condoleezza Rice	PERSON|politician	Rice
reading	Reading	GPE|city	Reading, Berkshire
turkey	Turkey	GPE|country	Republic of Turkey
caps	Washington Capitals	ORG|team	Caps
nyc	New York City	GPE|city	NYC|New York
order	New Order	ORG|band	New Order (band)
coffee	coffee	OTHER|drink	cup of coffee
aspirin	acetylsalicylic acid	OTHER|drug	aspirin|Aspirin
mi	myocardial infarction	OTHER|disease	heart attack|Heart Attack
diabetes	diabetes mellitus	OTHER|disease	diabetes
bird	turkey (bird)	OTHER|animal	turkey
"""


@pytest.fixture(scope="module")
def brands(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EntityLinker]:
    """A linker of that base, with the shipped model."""
    folder = tmp_path_factory.mktemp("common")
    path = folder / "base.tsv"
    path.write_text(BASE, encoding="utf-8")
    load_base(path, "base", store=str(folder / "store"))
    with EntityLinker.open("base", store=str(folder / "store")) as opened:
        yield opened


def test_only_names_are_mentions(brands: EntityLinker) -> None:
    """A word in lower case, its plural, or a part of a name is no mention of a proper name; real mentions are found."""
    assert differences("common words", lambda text, _: brands.annotate(text)) == {}


UNTYPED = ["Split", "Garbage", "Kiss", "Sandwich", "Filter", "Bath", "Leipzig", "Lisbon", "Genoa", "Bremen", "Oslo"]


untyped = linker_over(Entity(name, name) for name in UNTYPED)


def test_words_are_no_names_in_a_base_without_types(untyped: EntityLinker) -> None:
    """Its other names show that it has proper names."""
    assert differences("common words without types", lambda text, _: untyped.annotate(text)) == {}


def test_a_text_that_is_a_name_and_nothing_else_mentions_it(brands: EntityLinker) -> None:
    """A cell of a table is a name as `link` takes it, also where it is a common word; as the base writes it."""
    cells = ["Reading", "Time", "Office", "Caps", " turkey\n", "time", "reading", ""]

    found = [[one.text for one in some] for some in brands.annotate_batch(cells)]

    assert found == [["Reading"], ["Time"], ["Office"], ["Caps"], ["turkey"], [], [], []]
    assert brands.annotate("Time", common_words="skip") == []


FOREIGN = [
    "Mir zur Feier",
    "Ein Erfolg",
    "Hermann Bahr",
    "Burgtheater",
    "lung cancer",
    "acetylsalicylic acid",
    "type 2 diabetes",
    "asthma",
    "heart valve disease",
    "Αθήνα",
    "プレイステーション",
    "千と千尋の神隠し",
    "กรุงเทพมหานคร",
]


foreign = linker_over(Entity(name, name) for name in FOREIGN)


class Counted:
    """A linker's state that notes which strings are linked."""

    def __init__(self, foreign: EntityLinker) -> None:
        self.state, self.linked = foreign.state, list[str]()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.state, name)

    def links(self, mentions: Iterable[str], options: LinkOptions) -> Iterator[Link]:
        strings = list(mentions)
        self.linked += strings
        return self.state.links(strings, options)


GERMAN = """Ich habe gestern lange gewartet und dann doch noch mit Hermann Bahr gesprochen, der sehr müde war und mir
sagte, daß er bald wieder verreisen werde, ohne das Burgtheater gesehen zu haben."""
FRENCH = """Nous avons attendu très longtemps hier soir, et je ne sais pas encore si le malade souffre vraiment d'un
asthma ou bien d'autre chose que personne ne veut dire."""


@pytest.mark.parametrize("text, wanted", [(GERMAN, ["Hermann Bahr", "Burgtheater"]), (FRENCH, ["asthma"])])
def test_few_strings_of_a_text_are_linked(foreign: EntityLinker, text: str, wanted: list[str]) -> None:
    """A language without a list of common words costs no search for each run of its words."""
    counted, options = Counted(foreign), AnnotateOptions()

    found = [one.text for some in annotate_blocks(counted, read_blocks(text, options), options) for one in some]

    assert found == wanted
    assert len(counted.linked) <= 2 * len(wanted), counted.linked


def test_a_run_of_words_is_a_mention_if_one_name_has_them_all(foreign: EntityLinker) -> None:
    """In any order, spelling and number, and but for slips; a part of it that is like a name is none."""
    assert differences("words of one name", lambda text, _: foreign.annotate(text)) == {}
