"""The built-in parser: plain text to phrases of five classes."""

from __future__ import annotations

from pathlib import Path

import pytest
from effort import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny_wordnet import make_sentence_wordnet

from pearl_qdrant.errors import FormatError
from training.corpus.chunking import ChunkParser, Lexicon, Phrase, chunks

GOLD: dict[str, str] = {
    # Sentences parsed by hand as a treebank would: class and phrase, "/" between them; without pronouns.
    "The old king of France died in Paris two years later.": "NP The old king of France/NP The old king/NP France/"
    "PP of France/NP Paris/PP in Paris/NP two years/ADVP two years later/VP died in Paris two years later",
    "She quickly wrote a long letter to her brother.": "ADVP quickly/NP a long letter/NP her brother/PP to her brother/"
    "VP wrote a long letter to her brother",
    "The company's profits were extremely high.": "NP The company's profits/NP The company's/ADJP extremely high/"
    "VP were extremely high",
    "The painting was stolen by unknown thieves in 1990.": "NP The painting/NP unknown thieves/NP 1990/"
    "PP by unknown thieves/PP in 1990/VP was stolen by unknown thieves in 1990/VP stolen by unknown thieves in 1990",
    "He wants to play football in the park.": "NP football/NP the park/PP in the park/"
    "VP wants to play football in the park/VP to play football in the park/VP play football in the park",
    "New York City has a very large harbour.": "NP New York City/NP a very large harbour/ADJP very large/"
    "VP has a very large harbour",
    "On 28 September 1990, the Smith Museum opened its doors.": "NP 28 September 1990/PP On 28 September 1990/"
    "NP the Smith Museum/NP its doors/VP opened its doors",
    "Cats and dogs sleep well.": "NP Cats and dogs/ADVP well/VP sleep well",
    "Many workers did not leave the factory.": "NP Many workers/NP the factory/VP did not leave the factory/"
    "VP leave the factory",
    "The city is famous for its old bridges.": "NP The city/NP its old bridges/PP for its old bridges/"
    "ADJP famous for its old bridges/VP is famous for its old bridges",
    "Soon afterwards the river flooded the village.": "ADVP Soon afterwards/NP the river/NP the village/"
    "VP flooded the village",
    "The teacher gave the children three red apples.": "NP The teacher/NP the children/NP three red apples/"
    "VP gave the children three red apples",
    "It is said that the new bridge will be very expensive.": "NP the new bridge/ADJP very expensive/"
    "VP is said that the new bridge will be very expensive/VP said that the new bridge will be very expensive/"
    "VP will be very expensive/VP be very expensive",
    "Young people often visit the beautiful gardens of the palace in summer.": "NP Young people/ADVP often/"
    "NP the beautiful gardens of the palace/NP the beautiful gardens/NP the palace/NP summer/PP of the palace/"
    "PP in summer/VP visit the beautiful gardens of the palace in summer",
    "The film won five awards and made 30 million dollars.": "NP The film/NP five awards/NP 30 million dollars/"
    "VP won five awards and made 30 million dollars/VP won five awards/VP made 30 million dollars",
    "Three days ago the minister visited a school near London.": "NP Three days/ADVP Three days ago/NP the minister/"
    "NP a school near London/NP a school/NP London/PP near London/VP visited a school near London",
}

UNSEEN: dict[str, str] = {
    # Parsed by hand too, after the patterns were written.
    "In 1921 her father became the first mayor of the town.": "NP 1921/PP In 1921/NP her father/"
    "NP the first mayor of the town/NP the first mayor/NP the town/PP of the town/"
    "VP became the first mayor of the town",
    "The small island lies about 20 km south of Helsinki.": "NP The small island/NP about 20 km/"
    "ADVP about 20 km south of Helsinki/PP of Helsinki/NP Helsinki/VP lies about 20 km south of Helsinki",
    "Several soldiers were killed during the battle.": "NP Several soldiers/NP the battle/PP during the battle/"
    "VP were killed during the battle/VP killed during the battle",
    "The band released its second album in March 2004.": "NP The band/NP its second album/NP March 2004/"
    "PP in March 2004/VP released its second album in March 2004",
    "Anna Berg is a Swedish painter and writer.": "NP Anna Berg/NP a Swedish painter and writer/"
    "VP is a Swedish painter and writer",
    "The new law does not apply to foreign students.": "NP The new law/NP foreign students/PP to foreign students/"
    "VP does not apply to foreign students/VP apply to foreign students",
    "It was completely destroyed by fire in the 19th century.": "ADVP completely/NP fire/PP by fire/"
    "NP the 19th century/PP in the 19th century/VP was completely destroyed by fire in the 19th century/"
    "VP destroyed by fire in the 19th century",
    "The house was sold to a rich merchant from Hamburg.": "NP The house/NP a rich merchant from Hamburg/"
    "NP a rich merchant/NP Hamburg/PP to a rich merchant from Hamburg/PP from Hamburg/"
    "VP was sold to a rich merchant from Hamburg/VP sold to a rich merchant from Hamburg",
    "Most species are rare.": "NP Most species/ADJP rare/VP are rare",
    "They still live together in a small flat.": "ADVP still/ADVP together/NP a small flat/PP in a small flat/"
    "VP live together in a small flat",
}


def agreement(parser: ChunkParser, sentences: dict[str, str]) -> tuple[float, float]:
    """Recall and precision of the phrases found."""
    right = found = gold = 0
    for sentence, listed in sentences.items():
        wanted = {
            Phrase(text, lexical_class) for lexical_class, _, text in (o.partition(" ") for o in listed.split("/"))
        }
        made = set(next(parser.parse([sentence])))
        right, found, gold = right + len(made & wanted), found + len(made), gold + len(wanted)
    return right / gold, right / found


@pytest.fixture(scope="module")
def wordnet(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The words of the tests' sentences."""
    return make_sentence_wordnet(tmp_path_factory.mktemp("wordnet"))


@pytest.fixture(scope="module")
def parser(wordnet: Path) -> ChunkParser:
    """The built-in parser."""
    return ChunkParser(wordnet)


@pytest.mark.parametrize("sentences, least", [(GOLD, 0.9), (UNSEEN, 0.8)], ids=["gold", "unseen"])
def test_the_built_in_parser_agrees_with_sentences_parsed_by_hand(
    parser: ChunkParser, sentences: dict[str, str], least: float
) -> None:
    """Nine in ten of the phrases of a treebank are found, and nine in ten of those found are right; four in five on
    sentences that the parser was not written for.
    """
    recall, precision = agreement(parser, sentences)

    assert recall >= least
    assert precision >= least


def test_parts_of_speech_depend_on_the_words_around(parser: ChunkParser) -> None:
    """A word of several classes has the one that fits: "play" after "to" is a verb, after "the" a noun."""
    phrases = set(next(parser.parse(["He wants to play. The play was long. They visit the park. A visit was long."])))

    assert {
        Phrase("to play", "VP"),
        Phrase("The play", "NP"),
        Phrase("visit the park", "VP"),
        Phrase("A visit", "NP"),
    } <= phrases
    assert Phrase("visit", "VP") not in phrases


@pytest.mark.parametrize(
    "text, phrase",
    [
        ("He lives in the U.S. now.", "in the U.S."),
        ("Dr. J. R. Smith and Mr. King met.", "Dr. J. R. Smith"),
        ("It grew 3.5% in 2019.", "3.5%"),
        ("AT&T and x-ray", "AT&T"),
        ("The dog  of\tMarie", "The dog of Marie"),
        ("On October 31, 2015, it rained.", "On October 31, 2015"),
        ("Church Street is long.", "Church Street"),
        ("The dogs didn’t sleep well.", "didn’t sleep well"),
    ],
)
def test_tokens_stay_whole(parser: ChunkParser, text: str, phrase: str) -> None:
    """Abbreviations, initials, numbers, dates and names are not cut."""
    assert phrase in {found.text for found in next(parser.parse([text]))}


@settings(max_examples=examples(200))
@given(st.text(max_size=80))
def test_any_text_can_be_parsed(parser: ChunkParser, text: str) -> None:
    """Whatever the text, phrases are pieces of it, with something in them."""
    for phrase in next(parser.parse([text])):
        assert phrase.text.strip() == phrase.text
        assert any(c.isalnum() for c in phrase.text)
        assert phrase.text in " ".join(text.split())


@settings(max_examples=examples(200))
@given(st.text(alphabet="DFPOWCXMT!NEK1JLVGRAS,.", max_size=60))
def test_patterns_end_in_time_for_any_tags(letters: str) -> None:
    """No sequence of parts of speech makes the patterns run away."""
    assert all(start < end for start, end, _ in chunks(letters))


@pytest.mark.parametrize(
    "unit", ["J", "NC", *(pytest.param(unit, marks=pytest.mark.slow) for unit in ("N", "PN", "RJ", "X!V", "K1,", "VT"))]
)
def test_long_runs_of_one_tag_cost_no_more_than_their_pieces(unit: str) -> None:
    """Ten thousand adjectives in a row are fifty times two hundred, each looked at by itself: the cost is linear."""
    piece = (unit * 200)[:200]
    found = list(chunks(piece))

    assert found
    assert list(chunks(piece * 50)) == [
        (200 * i + start, 200 * i + end, kind) for i in range(50) for start, end, kind in found
    ]


def test_a_folder_without_wordnet_says_so(tmp_path: Path) -> None:
    """A wrong folder is an error with the way to a right one."""
    with pytest.raises(FormatError, match="wordnet-base"):
        Lexicon(tmp_path)
