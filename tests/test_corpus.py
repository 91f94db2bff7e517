"""Text and bases to a corpus: phrases with classes and types, in files that training reads."""

from __future__ import annotations

import gzip
import json
import random
import sys
import tracemalloc
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import benepar
import pytest
import spacy
import torch
import transformers
from benepar.nkutil import HParams
from benepar.parse_chart import ChartParser
from cli_runner import Run
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny_models import make_bert
from tiny_wordnet import make_wordnet

from ingest.reader import ReadReport
from ingest.streams import Source
from pearl_qdrant.errors import FormatError, ModelError, ModelNotFoundError, SettingsError, TooManyErrorsError
from pearl_qdrant.phrase_types import LEXICAL_CLASSES, PHRASE_TYPES
from pearl_qdrant.records import Entity
from training.corpus.bases import entity_examples, entity_row, typed_names
from training.corpus.build import build_corpus, write_entities
from training.corpus.chunker import ChunkParser, chunks
from training.corpus.constituency import BeneparParser, constituent_phrases
from training.corpus.counting import PhraseCounter
from training.corpus.distant import DistantTyper, NameTypes, wordnet_names
from training.corpus.examples import corpus_examples, corpus_phrases
from training.corpus.files import (
    EntityRow,
    read_entities,
    read_entity_types,
    read_frequencies,
    read_hard_negatives,
    read_variants,
)
from training.corpus.lexicon import Lexicon
from training.corpus.make import CorpusOptions, make_corpus
from training.corpus.ner import NerTyper, type_of_words
from training.corpus.numeric_types import numeric_type
from training.corpus.phrases import Phrase
from training.corpus.texts import read_texts
from training.corpus.typed_lists import read_typed_names
from training.numbers import number_names
from training.wordnet import read_synsets

NOUNS = (
    "king year letter brother company profit painting thief football park harbour door cat dog worker factory city "
    "bridge river village teacher child apple people garden palace summer film award dollar day minister school "
    "museum play visit sleep work father mayor town island km soldier battle band album painter writer law student "
    "fire century house merchant species flat"
)
VERBS = (
    "become lie kill release apply destroy sell live die write steal want play have open sleep leave flood give visit "
    "win make say work"
)
ADJECTIVES = "small foreign rich rare old long high unknown large famous red new expensive young beautiful"
ADVERBS = "completely south together still quickly extremely well soon often very"

GOLD: dict[str, str] = {
    # Sentences parsed by hand as a treebank would: class and phrase, "/" between them; pronouns left out.
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
    # Parsed by hand likewise, after the patterns were written.
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
    """The words of the sentences, in their base forms."""
    synsets = [("n", word) for word in NOUNS.split()] + [("v", word) for word in VERBS.split()]
    synsets += [("a", word) for word in ADJECTIVES.split()] + [("r", word) for word in ADVERBS.split()]
    irregular = [("n", "thieves", "thief"), ("n", "children", "child"), ("v", "wrote", "write"), ("v", "won", "win")]
    irregular += [
        ("v", "stolen", "steal"),
        ("v", "gave", "give"),
        ("v", "made", "make"),
        ("v", "said", "say"),
        ("v", "became", "become"),
        ("v", "sold", "sell"),
    ]
    return make_wordnet(
        tmp_path_factory.mktemp("wordnet"),
        synsets,
        instances=[("Paris|City of Light", 15), ("Marie Curie", 18), ("Nile", 17)],
        exceptions=irregular,
        counts=[("play", "v", 50), ("play", "n", 5), ("visit", "v", 20), ("sleep", "v", 20), ("work", "n", 30)],
    )


@pytest.fixture(scope="module")
def parser(wordnet: Path) -> ChunkParser:
    """The built-in parser."""
    return ChunkParser(wordnet)


def test_the_built_in_parser_agrees_with_sentences_parsed_by_hand(parser: ChunkParser) -> None:
    """Nine in ten of the phrases of a treebank are found, nine in ten of those found are right."""
    recall, precision = agreement(parser, GOLD)

    assert recall >= 0.9
    assert precision >= 0.9


def test_the_built_in_parser_agrees_with_sentences_it_was_not_written_for(parser: ChunkParser) -> None:
    """On other sentences it finds four in five phrases, and four in five of those found are right."""
    recall, precision = agreement(parser, UNSEEN)

    assert recall >= 0.8
    assert precision >= 0.8


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


@settings(max_examples=200)
@given(st.text(max_size=80))
def test_any_text_can_be_parsed(parser: ChunkParser, text: str) -> None:
    """Whatever the text, phrases are pieces of it, with something in them."""
    for phrase in next(parser.parse([text])):
        assert phrase.text.strip() == phrase.text
        assert any(c.isalnum() for c in phrase.text)
        assert phrase.text in " ".join(text.split())


@settings(max_examples=200)
@given(st.text(alphabet="DFPOWCXMT!NEK1JLVGRAS,.", max_size=60))
def test_patterns_end_in_time_whatever_the_tags(letters: str) -> None:
    """No sequence of parts of speech makes the patterns run away."""
    assert all(start < end for start, end, _ in chunks(letters))


def test_long_runs_of_one_tag_take_no_longer_than_they_should() -> None:
    """A thousand adjectives in a row are no trap."""
    for letters in ("J" * 1000, "NC" * 500, "PD" * 500, "RJ" * 500, "X!" * 500, "K1," * 300):
        list(chunks(letters))


def test_function_words_alone_are_no_phrase(parser: ChunkParser) -> None:
    """Pronouns, articles and prepositions teach nothing."""
    assert [phrase for found in parser.parse(["It is with him. This was that. - ... !"]) for phrase in found] == []


def test_a_folder_without_wordnet_says_so(tmp_path: Path) -> None:
    """A wrong folder is an error with the way to a right one."""
    with pytest.raises(FormatError, match="wordnet-base"):
        Lexicon(tmp_path)
    for part in ("noun", "verb", "adj", "adv"):
        (tmp_path / f"data.{part}").write_text("00000000 xx n\n", encoding="utf-8")
    with pytest.raises(FormatError, match="cannot be read"):
        Lexicon(tmp_path)


@dataclass
class Labels:
    """What benepar hangs on a span."""

    labels: tuple[str, ...]
    constituents: Iterable[Span]


class Span:
    """A node of a parsed sentence, with the surface of spaCy's spans."""

    _: Labels

    def __init__(self, text: str, labels: tuple[str, ...], below: tuple[Span, ...] = ()) -> None:
        self.text = text
        self._ = Labels(labels, [self, *(one for child in below for one in child._.constituents)])

    def __len__(self) -> int:
        return len(self.text.split())


def test_constituents_of_the_five_classes_are_taken_from_a_tree() -> None:
    """Sentences, quantifier phrases and pronouns are left out; a node of two labels counts for both."""
    place = Span("in  Paris", ("PP-LOC",), (Span("Paris", ("NP",)),))
    tree = Span(
        "He died in Paris today",
        ("S",),
        (Span("He", ("NP",)), Span("died in Paris", ("VP",), (place,)), Span("today", ("NP-TMP", "ADVP"))),
    )

    assert list(constituent_phrases(tree, max_words=3)) == [
        Phrase("died in Paris", "VP"),
        Phrase("in Paris", "PP"),
        Phrase("Paris", "NP"),
        Phrase("today", "NP"),
        Phrase("today", "ADVP"),
    ]


TREE_LABELS = ["", "S", "NP", "VP", "PP", "ADVP", "ADJP", "S::VP", "NP::QP"]
N_TREE_DIMS = 32
TREE_SETTINGS = {
    "d_model": N_TREE_DIMS,
    "num_layers": 1,
    "num_heads": 2,
    "d_kv": 16,
    "d_ff": 32,
    "d_label_hidden": 16,
    "d_char_emb": 8,
    "char_lstm_input_dropout": 0.0,
    "encoder_max_len": 40,
    "predict_tags": False,
    "use_encoder": True,
} | {f"{part}_dropout": 0.0 for part in ("relu", "residual", "attention", "morpho_emb")}
quiet_trees = pytest.mark.filterwarnings("ignore:.*does not define `arg_constraints`:UserWarning")


def make_benepar(path: Path) -> Path:
    """A random benepar model that reads characters, as benepar saves it in training: one file."""
    settings = HParams(**TREE_SETTINGS, use_chars_lstm=True, use_pretrained=False, force_root_constituent=True)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        network = ChartParser(
            tag_vocab={"UNK": 0},
            label_vocab={label: i for i, label in enumerate(TREE_LABELS)},
            char_vocab={chr(i): i for i in range(256)},
            hparams=settings,
        )
    torch.save({"config": network.config, "state_dict": network.state_dict()}, path)
    return path


def make_pretrained_benepar(folder: Path) -> Path:
    """A random benepar model on a BERT, as benepar's published ones are saved: a folder."""
    checkpoint = torch.load(make_benepar(folder.with_suffix(".pt")))
    weights = {name: w for name, w in checkpoint["state_dict"].items() if not name.startswith("char_encoder.")}
    encoder = transformers.AutoModel.from_pretrained(make_bert(folder))
    weights |= {f"pretrained_model.{name}": w for name, w in encoder.state_dict().items()}
    weights["project_pretrained.weight"] = torch.ones(N_TREE_DIMS // 2, encoder.config.hidden_size)
    torch.save(weights, folder / "benepar_model.bin")
    own = checkpoint["config"]["hparams"] | {"use_chars_lstm": False, "use_pretrained": True}
    for name, more in (
        ("config.json", {"benepar": checkpoint["config"] | {"hparams": own}}),
        ("tokenizer_config.json", {"tokenizer_class": "BertTokenizer", "model_max_length": 40}),
    ):
        written = json.loads((folder / name).read_text(encoding="utf-8"))
        (folder / name).write_text(json.dumps(written | more), encoding="utf-8")
    return folder


PARSED = (
    "The 東京 tower of Zu\u0308rich fell, 👩\u200d🔬  said.   \r\n \t\r\n"
    "  A heart\u00a0attack in \U0001d510ünchen! He ate a yellow apple. \n"
)


def assert_phrases_of(texts: list[str], found: list[list[Phrase]]) -> None:
    """Every phrase stands in a paragraph of its text, has one of the five classes, and is no longer than asked for."""
    assert len(found) == len(texts)
    for text, phrases in zip(texts, found, strict=True):
        paragraphs = [" ".join(line.split()) for line in text.split("\n")]
        for phrase in phrases:
            assert any(phrase.text in paragraph for paragraph in paragraphs), phrase
            assert phrase.lexical_class in LEXICAL_CLASSES
            assert len(phrase.text.split()) <= 4


@quiet_trees
def test_benepar_finds_phrases_in_any_text(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """No character does harm, nor CRLF or blanks; a paragraph with too long a sentence is left out with a warning."""
    parser = BeneparParser(spacy_model="blank:en", model=str(make_benepar(tmp_path / "tree.pt")), max_words=4)
    texts = [PARSED, "", " \r\n", "apple " * 50 + "\nThe dog barked.", "A \ud800 dog", "apple " * 200_000]

    found = list(parser.parse(texts))

    assert_phrases_of(texts[:4], found[:4])
    assert [bool(phrases) for phrases in found] == [True, False, False, True, True, False]
    assert not any("apple apple" in phrase.text for phrase in found[3])
    assert [record.message for record in caplog.records] == [
        f"a paragraph is left out: Sentence of length 50 exceeds the maximum supported length of 38: {'apple ' * 10}",
        f"a paragraph of 1199999 characters is left out: {'apple ' * 10}",
    ]


@quiet_trees
def test_the_phrases_are_those_of_benepars_own_trees(tmp_path: Path) -> None:
    """The parser without spaCy draws a tree whose nodes of the five classes are the phrases that are found."""
    model = str(make_benepar(tmp_path / "tree.pt"))
    sentence = "Zork painted seven yellow harbour walls yesterday"
    tree = benepar.Parser(model).parse(benepar.InputSentence(words=sentence.split()))

    (found,) = BeneparParser(spacy_model="blank:en", model=model).parse([sentence])

    nodes = [Phrase(" ".join(node.leaves()), node.label()) for node in tree.subtrees()]
    assert Counter(found) == Counter(node for node in nodes if node.lexical_class in LEXICAL_CLASSES)
    assert len({phrase.lexical_class for phrase in found}) > 1


@quiet_trees
def test_a_pretrained_benepar_parses_or_says_which_transformers_it_needs(tmp_path: Path) -> None:
    """All published models are of this kind, and benepar 0.2 cannot load them with transformers 5."""
    model = str(make_pretrained_benepar(tmp_path / "tree"))
    if int(transformers.__version__.partition(".")[0]) >= 5:
        with pytest.raises(ModelError, match="transformers<5"):
            BeneparParser(spacy_model="blank:en", model=model)
        return
    found = list(BeneparParser(spacy_model="blank:en", model=model, max_words=4).parse([PARSED]))

    assert_phrases_of([PARSED], found)
    assert found[0]


def test_without_the_extra_the_error_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where benepar is not installed, the error says how to install it and that there is another parser."""
    monkeypatch.setitem(sys.modules, "benepar", None)

    with pytest.raises(ModelError, match=r"pearl-qdrant\[corpus\].*--parser builtin"):
        BeneparParser()


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a benepar model, and what is none."""
    folder = tmp_path_factory.mktemp("models")
    make_benepar(folder / "tree.pt")
    make_bert(folder / "bert")
    config = json.loads((make_bert(folder / "weightless") / "config.json").read_text(encoding="utf-8"))
    (folder / "weightless" / "config.json").write_text(json.dumps(config | {"benepar": {}}), encoding="utf-8")
    (folder / "noise.pt").write_bytes(b"noise")
    torch.save({"state_dict": {}}, folder / "part.pt")
    spacy.blank("en").to_disk(folder / "no-sentences")
    return folder


@pytest.mark.parametrize(
    "spacy_model, model, error, message",
    [
        ("blank:en", "no-such-model", ModelNotFoundError, "'no-such-model' not found.*benepar.download"),
        ("blank:en", "no/such/model", ModelNotFoundError, "benepar.download"),
        ("blank:en", "weightless", ModelNotFoundError, "benepar_model.bin"),
        ("blank:en", "bert", ModelError, "'benepar'"),
        ("blank:en", "noise.pt", ModelError, "cannot parse"),
        ("blank:en", "part.pt", ModelError, "'config'"),
        ("blank:no-such-language", "tree.pt", ModelError, "no-such-language"),
        ("no-such-pipeline", "tree.pt", ModelNotFoundError, "spacy download no-such-pipeline"),
        ("no-sentences", "tree.pt", ModelError, "Sentence boundaries"),
    ],
)
@quiet_trees
def test_a_benepar_model_that_is_none_says_so(
    spacy_model: str,
    model: str,
    error: type[ModelError],
    message: str,
    models: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A name or a file that is no model, and a pipeline that marks no sentences, are errors that name it."""
    monkeypatch.chdir(models)

    with pytest.raises(ModelError, match=message) as raised:
        BeneparParser(spacy_model=spacy_model, model=model)
    assert raised.type is error


def test_counts_do_not_depend_on_memory() -> None:
    """Spilling to temporary files, many times over, changes nothing."""
    rng = random.Random(0)
    seen = [Phrase(f"p{int(rng.expovariate(0.02))}", rng.choice(["NP", "PP"])) for _ in range(5000)]
    counts = []
    for max_keys in (1, 7, 10_000):
        with PhraseCounter(max_keys=max_keys) as counter:
            for start in range(0, len(seen), 20):
                counter.add(seen[start : start + 20])
            counts.append(list(counter.seen_at_least(2)))

    assert counts[0] == counts[1] == counts[2]
    expected = sorted((text, kind, n) for (text, kind), n in Counter(seen).items() if n >= 2)
    assert counts[0] == expected


def test_memory_is_bounded_by_the_number_of_phrases_held() -> None:
    """Phrases beyond those that may be held go to temporary files."""

    def peak(n: int) -> int:
        tracemalloc.start()
        with PhraseCounter(max_keys=50) as counter:
            for i in range(0, n, 50):
                counter.add(Phrase(f"phrase {j}", "NP") for j in range(i, i + 50))
            assert sum(1 for _ in counter.seen_at_least(2)) == 0
        used = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return used

    assert peak(12_000) < 1_500_000  # bytes; 12,000 phrases held would take 3 MB


@pytest.mark.parametrize("kind", ["CARDINAL", "DATE", "TIME", "MONEY", "PERCENT", "QUANTITY", "ORDINAL"])
def test_numbers_are_typed_by_their_form(kind: str) -> None:
    """The rules agree with numbers and times in the many ways that people write them."""
    types: dict[str, set[str]] = {}
    for name, made in number_names(400, random.Random(5)):
        types.setdefault(name, set()).add(made)
    names = [name for name, kinds in types.items() if kind in kinds]

    assert sum(numeric_type(name) in types[name] for name in names) / len(names) >= 0.95


@pytest.mark.parametrize(
    "phrase", ["the king", "a", "may", "march", "half", "six members", "A4", "second hand", "1984 film"]
)
def test_what_is_no_number_has_no_numeric_type(phrase: str) -> None:
    """Words that only look like dates or numbers are left to others."""
    assert numeric_type(phrase) is None


def test_names_and_rules_type_phrases(wordnet: Path) -> None:
    """A preposition and an article do not hide a name; a common word is no name; the unknown stays unknown."""
    names = NameTypes(
        [("Turkey", "GPE"), ("Turkey", "GPE"), ("Turkey", "LOC"),
         ("The Park", "WORK_OF_ART"), ("the king", "WORK_OF_ART"),
         ("Dogs", "WORK_OF_ART"), ("New  York Times", "ORG"), *wordnet_names(read_synsets(wordnet))]
    )  # fmt: skip
    typer = DistantTyper(names, is_common=Lexicon(wordnet).is_common)
    expected = {
        "Turkey": "GPE", "in Turkey": "GPE", "turkey": "OTHER", "the king": "OTHER", "Dogs": "OTHER",
        "The Park": "WORK_OF_ART",
        "of the New York Times": "ORG", "City of Light": "GPE", "Marie Curie": "PERSON", "the Nile": "LOC",
        "in the 1990s": "DATE", "about 20 km": "QUANTITY", "Zork Xyzzy": None, "by Xyzzy": None, "Xyzzy": None,
        "very large": "OTHER",
    }  # fmt: skip

    assert dict(zip(expected, typer.type_phrases(list(expected)), strict=True)) == expected
    assert len(NameTypes([])) == 0
    assert NameTypes([]).get("x") is None
    with pytest.raises(ValueError, match="no entity type 'PLACE'"):
        NameTypes([("x", "PLACE")])


@pytest.fixture(scope="module")
def ner_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny random NER model."""
    return make_ner(tmp_path_factory.mktemp("ner"), ["O", "B-GPE", "I-GPE", "B-PERSON", "MISC"])


def make_ner(folder: Path, labels: list[str]) -> Path:
    """A random BERT with a token-classification head."""
    import torch
    import transformers

    make_bert(folder)
    config = transformers.BertConfig.from_pretrained(folder, id2label=dict(enumerate(labels)), num_labels=len(labels))
    with torch.random.fork_rng():
        torch.manual_seed(1)
        model = transformers.BertForTokenClassification(config)
        torch.nn.init.normal_(model.classifier.weight)
        model.save_pretrained(folder)
    return folder


def test_a_ner_model_types_phrases(ner_model: Path) -> None:
    """A token-classification model is loaded and asked; batches do not change what it says."""
    phrases = ["The New York Times", "heart attack", "x", "東京", "in Paris", " "] * 3
    types = NerTyper(str(ner_model), batch_size=4).type_phrases(phrases)

    assert types == NerTyper(str(ner_model), batch_size=1).type_phrases(phrases)
    assert set(types) <= {"GPE", "PERSON", "OTHER"}
    assert len(set(types)) > 1


def test_a_model_without_entity_types_is_refused(tmp_path: Path) -> None:
    """A model of other labels, or none at all, is an error that says what is wanted."""
    with pytest.raises(ModelError, match="OntoNotes"):
        NerTyper(str(make_ner(tmp_path / "pos", ["NOUN", "VERB"])))
    with pytest.raises(ModelNotFoundError, match="no token-classification model"):
        NerTyper(str(tmp_path / "nothing"))


def test_a_phrase_has_the_type_of_most_of_its_words() -> None:
    """Function words do not count; less than half is OTHER."""
    assert type_of_words(["in", "the", "Paris"], ["OTHER", "OTHER", "GPE"]) == "GPE"
    assert type_of_words(["mayor", "of", "old", "Paris"], ["OTHER", "OTHER", "OTHER", "GPE"]) == "OTHER"
    assert type_of_words(["the"], ["OTHER"]) == "OTHER"


def texts_of(path: Path, **options: str) -> list[str]:
    """All texts of a file, without a bad row."""
    source = Source(path)
    try:
        return list(read_texts(source, ReadReport(max_errors=0), **options))
    finally:
        source.close()


def test_texts_are_read_from_lines_and_from_json(tmp_path: Path) -> None:
    """Plain text and JSON Lines, compressed or not, are told by what is in them."""
    rows = [{"title": "A", "text": "One.\nTwo."}, {"title": "B", "text": ""}]
    path = tmp_path / "any.name"
    path.write_bytes(gzip.compress("\n".join(json.dumps(row) for row in rows).encode()))
    assert texts_of(path) == ["One.\nTwo.", ""]
    assert texts_of(path, field="title") == ["A", "B"]
    path.write_text("\ufeffOne.\r\n\nTwo. \u2028 Three.\n", encoding="utf-8")
    assert texts_of(path) == ["One.", "Two. \u2028 Three."]


def test_bad_rows_are_counted_and_a_wrong_field_is_told(tmp_path: Path) -> None:
    """A few broken rows are passed over, many stop the run, and no row with the field is a wrong field."""
    path = tmp_path / "rows.jsonl"
    path.write_bytes(b'{"text": "good"}\n{"text": 3}\n{"text"\n[1]\n{"other": "x"}\n{"text": "\xff"}\n')
    report = ReadReport()
    source = Source(path)
    assert list(read_texts(source, report)) == ["good"]
    assert sum(report.skipped.values()) == 5
    with pytest.raises(TooManyErrorsError, match=r"rows.jsonl:2"):
        list(read_texts(source, ReadReport(max_errors=0)))
    with pytest.raises(FormatError, match="--field"):
        list(read_texts(source, ReadReport(), field="body"))
    source.close()


def test_the_published_files_load_as_they_are(tmp_path: Path) -> None:
    """PEARL's own files are read; what is no row is counted with its reason."""
    (tmp_path / "freq_phrase.txt").write_text(
        "NP__The New York Times\t12\nPP__in a__b\t2\nVP__a \t b\t3\nXP__x\t2\nNP__\t2\nNP__no count\nNP__x\tmany\n",
        encoding="utf-8",
    )
    (tmp_path / "phrase_with_etype.txt").write_text(
        "The New York Times\tORG\nin a__b\tB-GPE\na \t b\tO\nx\tTHING\n\nno type\n", encoding="utf-8"
    )
    (tmp_path / "token_aug.jsonl").write_text(
        '{"phrase": "x", "synonyms": ["y", " "]}\n{"phrase": "z", "synonyms": []}\n'
    )
    (tmp_path / "phrase_aug.jsonl").write_text('{"phrase": "x", "aug": ["y"], "more": 1}\n{"aug": ["y"]}\nnot json\n')
    (tmp_path / "hard_negative.txt").write_text("x\ty\tz\nalone\n\tempty\n")
    report = ReadReport()

    assert list(read_frequencies(tmp_path / "freq_phrase.txt", report)) == [
        ("The New York Times", "NP", 12),
        ("in a__b", "PP", 2),
        ("a \t b", "VP", 3),
    ]
    assert report.skipped == {"unknown_class": 1, "no_name": 1, "too_few_columns": 1, "not_a_row": 1}
    assert list(read_entity_types(tmp_path / "phrase_with_etype.txt", ReadReport())) == [
        ("The New York Times", "ORG"),
        ("in a__b", "GPE"),
        ("a \t b", "OTHER"),
    ]
    assert list(read_variants(tmp_path / "token_aug.jsonl", ReadReport())) == [("x", ("y",)), ("z", ())]
    report = ReadReport()
    assert list(read_variants(tmp_path / "phrase_aug.jsonl", report)) == [("x", ("y",))]
    assert report.skipped == {"not_a_row": 2}
    assert list(read_hard_negatives(tmp_path / "hard_negative.txt", ReadReport())) == [("x", ("y", "z"))]

    examples = {e.name: [PHRASE_TYPES[i] for i in e.allowed] for e in corpus_examples(tmp_path, ReadReport())}
    assert examples == {"The New York Times": ["NP-ORG"], "in a__b": ["PP-GPE"], "a \t b": ["VP-OTHER"]}
    assert list(corpus_phrases(tmp_path, min_count=3)) == ["The New York Times", "a \t b"]


def test_a_folder_that_is_no_corpus_says_what_is_missing(tmp_path: Path) -> None:
    """The missing file is named, with the command that makes it."""
    with pytest.raises(FormatError, match=r"freq_phrase.txt is missing.*train corpus"):
        corpus_examples(tmp_path, ReadReport())


def test_typed_lists_have_a_header_or_two_columns(tmp_path: Path) -> None:
    """A list of names is read by its header; without one the type is the last column."""
    path = tmp_path / "names.tsv"
    path.write_text("sources\tonto_type\tname\na\tPER\tMarie Curie\nb\tnothing\tX\nc\n", encoding="utf-8")
    report = ReadReport()
    assert list(read_typed_names(path, report)) == [("Marie Curie", "PERSON")]
    assert report.skipped == {"unknown_type": 1, "too_few_columns": 1}
    path.write_text("Marie Curie\tPERSON\n\nThe Nile\tLOC\n", encoding="utf-8")
    assert list(read_typed_names(path, ReadReport())) == [("Marie Curie", "PERSON"), ("The Nile", "LOC")]


def test_a_base_gives_typed_names_and_real_positives(tmp_path: Path) -> None:
    """An entity's names are each other's positives; its types type all of them."""
    nyt = Entity("1", "The New York Times", aliases=("NYT",), types=("ORG", "unknown"))
    rows = [
        row
        for e in (nyt, Entity("2", "alone"), Entity("3", "Paris", types=("GPE",)))
        if (row := entity_row(e, kb="kb"))
    ]

    assert rows == [EntityRow("kb:1", ("The New York Times", "NYT"), ("ORG",)), EntityRow("kb:3", ("Paris",), ("GPE",))]
    assert list(typed_names(rows)) == [("The New York Times", "ORG"), ("NYT", "ORG"), ("Paris", "GPE")]
    first = next(entity_examples(rows))
    assert (first.name, first.others, first.entity) == ("The New York Times", ("NYT",), "kb:1")
    assert [PHRASE_TYPES[i] for i in first.allowed] == ["NP-ORG"]
    assert write_entities(rows, tmp_path) == 2
    assert list(read_entities(tmp_path / "entities.jsonl", ReadReport(max_errors=0))) == rows


TEXTS = [
    "The dog sleeps in Paris. Zork Xyzzy died.",
    "In Paris the dog sleeps well.",
    "The dog died in 1990.",
    "Zork Xyzzy in 1990.",
]


def test_workers_change_nothing(wordnet: Path, tmp_path: Path) -> None:
    """The same corpus comes out whether one process parses or two."""
    path = tmp_path / "texts.txt"
    path.write_text("\n".join(TEXTS * 70), encoding="utf-8")
    for workers in (1, 2):
        options = CorpusOptions(wordnet=wordnet, workers=workers, max_keys=5)
        assert make_corpus((str(path),), tmp_path / str(workers), options).texts == 280
    for name in ("freq_phrase.txt", "phrase_with_etype.txt"):
        assert (tmp_path / "1" / name).read_bytes() == (tmp_path / "2" / name).read_bytes()


def test_a_failed_run_leaves_the_old_files(wordnet: Path, tmp_path: Path) -> None:
    """Files appear whole or not at all."""
    folder = tmp_path / "corpus"
    folder.mkdir()
    (folder / "freq_phrase.txt").write_text("NP__old\t2\n")
    path = tmp_path / "texts.jsonl"
    path.write_text('{"text": "The dog."}\n{"text"\n')
    with pytest.raises(TooManyErrorsError):
        make_corpus((str(path),), folder, CorpusOptions(wordnet=wordnet, max_errors=0))

    assert [p.name for p in folder.iterdir()] == ["freq_phrase.txt"]
    assert (folder / "freq_phrase.txt").read_text() == "NP__old\t2\n"
    with pytest.raises(ValueError, match="min_count is 0"):
        build_corpus(
            [], folder, open_parser=lambda: ChunkParser(wordnet), typer=DistantTyper(NameTypes([])), min_count=0
        )


@pytest.mark.parametrize(
    "inputs, options, message",
    [
        ((), CorpusOptions(), "nothing to read"),
        (("x",), CorpusOptions(), "--wordnet"),
        (("x",), CorpusOptions(parser="benepar", typer="ner"), "--ner-model"),
    ],
)
def test_missing_options_are_told_before_anything_is_read(
    inputs: tuple[str, ...], options: CorpusOptions, message: str, tmp_path: Path
) -> None:
    """What is missing is named with its option."""
    with pytest.raises(SettingsError, match=message):
        make_corpus(inputs, tmp_path, options)


def test_the_command_makes_a_corpus_from_text_and_a_base(
    run: Run, wordnet: Path, ner_model: Path, tmp_path: Path
) -> None:
    """`train corpus` writes phrases with types, and entities; the report counts them."""
    base = tmp_path / "base.tsv"
    base.write_text("id\tname\ttype\taliases\nQ1\tZork Xyzzy\tPERSON\tZ. Xyzzy\n", encoding="utf-8")
    text = "\n".join(json.dumps({"body": text}) for text in TEXTS).encode()
    out = tmp_path / "corpus"
    words = ("--wordnet", str(wordnet), "--out", str(out))
    made = run("train", "corpus", "-", "--field", "body", "--base", str(base), *words, "--json", stdin=text)

    assert made.status == 0, made.err
    (report,) = made.lines()
    assert (report["texts"], report["entities"], report["skipped"]) == (4, 1, {})
    types = dict(read_entity_types(out / "phrase_with_etype.txt", ReadReport(max_errors=0)))
    assert (types["Zork Xyzzy"], types["in 1990"], types["Paris"]) == ("PERSON", "DATE", "GPE")
    assert ("Zork Xyzzy", "NP", 2) in list(read_frequencies(out / "freq_phrase.txt", ReadReport(max_errors=0)))

    made = run("train", "corpus", "--base", str(base), "--out", str(tmp_path / "bases"))
    assert made.status == 0, made.err
    assert "1 entities" in made.out
    assert [p.name for p in (tmp_path / "bases").iterdir()] == ["entities.jsonl"]
    made = run(
        "train", "corpus", "-", "--field", "body", "--typer", "ner", "--ner-model", str(ner_model), *words, stdin=text
    )
    assert made.status == 0, made.err
    assert " NP " in made.out
    refused = run("train", "corpus", str(tmp_path / "none.txt"), *words)
    assert refused.status == 1
    assert "does not exist" in refused.err
