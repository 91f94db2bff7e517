"""Text and bases to a corpus: phrases with classes and types, in files that training reads."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest
from cli_runner import Run
from effort import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny_models import make_bert
from tiny_wordnet import make_sentence_wordnet

from ingest.io.report import ReadReport
from pearl_qdrant.errors import (
    FormatError,
    ModelError,
    ModelNotFoundError,
    OptionError,
    SettingsError,
    TooManyErrorsError,
)
from pearl_qdrant.phrase_types import PHRASE_TYPES
from training.corpus.chunking import ChunkParser, Lexicon, Phrase, chunks
from training.corpus.make_corpus import make_corpus
from training.corpus.typing import DistantTyper, NerTyper, name_types, numeric_type, type_of_words, wordnet_names
from training.examples.files import (
    corpus_examples,
    corpus_phrases,
    read_entities,
    read_entity_types,
    read_frequencies,
    read_negatives,
    read_training_files,
    read_typed_names,
    read_variants,
)
from training.examples.numbers import number_names
from training.examples.wordnet import read_synsets
from training.options import CorpusOptions


@pytest.fixture(scope="module")
def wordnet(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The words of the tests' sentences."""
    return make_sentence_wordnet(tmp_path_factory.mktemp("wordnet"))


def test_numbers_are_typed_by_their_form() -> None:
    """The rules agree with numbers and times in the many ways that people write them, none of which is half a unit;
    what only looks like a date or a number is left to others.
    """
    types: dict[str, set[str]] = {}
    for name, made in number_names(400, random.Random(5)):
        types.setdefault(name, set()).add(made)
    assert not [name for name in types if name != name.strip() or name.endswith((" square", " cubic"))]
    for kind in set().union(*types.values()):
        names = [name for name, kinds in types.items() if kind in kinds]
        assert sum(numeric_type(name) in types[name] for name in names) / len(names) >= 0.95, kind

    for phrase in ("the king", "a", "may", "march", "half", "six members", "A4", "second hand", "1984 film"):
        assert numeric_type(phrase) is None, phrase


def test_names_and_rules_type_phrases(wordnet: Path) -> None:
    """A name is found after a preposition and an article; a common word is not a name; unknown stays unknown."""
    names = name_types(
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
    assert name_types([]).get("x") is None


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


def test_a_ner_model_types_phrases(ner_model: Path, tmp_path: Path) -> None:
    """A token-classification model is loaded and asked; batches do not change what it says. A model with other labels,
    or no model, is an error that says what is needed.
    """
    phrases = ["The New York Times", "heart attack", "x", "東京", "in Paris", " "] * 3
    types = NerTyper(str(ner_model), batch_size=4).type_phrases(phrases)

    assert types == NerTyper(str(ner_model), batch_size=1).type_phrases(phrases)
    assert set(types) <= {"GPE", "PERSON", "OTHER"}
    assert len(set(types)) > 1
    with pytest.raises(ModelError, match="OntoNotes"):
        NerTyper(str(make_ner(tmp_path / "pos", ["NOUN", "VERB"])))
    with pytest.raises(ModelNotFoundError, match="cannot be loaded as a token-classification model"):
        NerTyper(str(tmp_path / "nothing"))


def test_a_phrase_has_the_type_of_most_of_its_words() -> None:
    """Function words do not count; less than half is OTHER."""
    assert type_of_words(["in", "the", "Paris"], ["OTHER", "OTHER", "GPE"]) == "GPE"
    assert type_of_words(["mayor", "of", "old", "Paris"], ["OTHER", "OTHER", "OTHER", "GPE"]) == "OTHER"
    assert type_of_words(["the"], ["OTHER"]) == "OTHER"


def test_the_published_files_load_as_they_are(tmp_path: Path) -> None:
    """PEARL's own files are read; a bad row is counted with its reason."""
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

    assert list(read_variants(tmp_path / "token_aug.jsonl", ReadReport())) == [("x", ("y",)), ("z", ())]
    report = ReadReport()
    assert list(read_variants(tmp_path / "phrase_aug.jsonl", report)) == [("x", ("y",))]
    assert report.skipped == {"not_a_row": 2}
    assert list(read_negatives(tmp_path / "hard_negative.txt", ReadReport())) == [("x", ["y", "z"])]

    report = ReadReport()
    examples = {e.name: [PHRASE_TYPES[i] for i in e.allowed] for e in corpus_examples(tmp_path, report)}
    wrong = {"unknown_class": 1, "unknown_type": 1, "no_name": 1, "too_few_columns": 2, "not_a_row": 1}
    assert report.skipped == wrong
    assert examples == {"The New York Times": ["NP-ORG"], "in a__b": ["PP-GPE"], "a \t b": ["VP-OTHER"]}
    assert list(corpus_phrases(tmp_path, min_count=3)) == ["The New York Times", "a \t b"]


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
    """An entity's names are each other's positives; one without a type or a second name is not in a corpus."""
    base = tmp_path / "base.tsv"
    base.write_text("id\tname\ttype\taliases\n1\ta\tORG\tb\n2\talone\t\t\n3\tParis\tGPE\t\n", encoding="utf-8")

    first, *others = read_training_files(aliases=base)
    assert (first.name, first.others, [PHRASE_TYPES[i] for i in first.allowed]) == ("a", ("b",), ["NP-ORG"])
    assert [(one.name, one.others) for one in others] == [("alone", ()), ("Paris", ())]
    assert make_corpus((), tmp_path / "out", CorpusOptions(bases=base)).entities == 2
    rows = list(read_entities(tmp_path / "out" / "entities.jsonl", ReadReport(max_errors=0)))
    assert [(row.names, row.types) for row in rows] == [(("a", "b"), ("ORG",)), (("Paris",), ("GPE",))]


TEXTS = [
    "The dog sleeps in Paris. Zork Xyzzy died.",
    "In Paris the dog sleeps well.",
    "The dog died in 1990.",
    "Zork Xyzzy in 1990.",
]


def test_workers_change_nothing(wordnet: Path, tmp_path: Path) -> None:
    """The same corpus comes out whether one process parses or two, in memory or with many temporary files."""
    path = tmp_path / "texts.txt"
    path.write_text("\n".join(TEXTS * 70), encoding="utf-8")
    for workers, max_keys in ((1, 1), (2, 10_000)):
        options = CorpusOptions(wordnet=wordnet, workers=workers, max_keys=max_keys)
        assert make_corpus((str(path),), tmp_path / str(workers), options).texts == 280
    for name in ("freq_phrase.txt", "phrase_with_etype.txt"):
        assert (tmp_path / "1" / name).read_bytes() == (tmp_path / "2" / name).read_bytes()


def test_a_failed_run_leaves_the_old_files(wordnet: Path, tmp_path: Path) -> None:
    """Files appear only when they are complete."""
    folder = tmp_path / "corpus"
    folder.mkdir()
    (folder / "freq_phrase.txt").write_text("NP__old\t2\n")
    path = tmp_path / "texts.jsonl"
    path.write_text('{"text": "The dog."}\n{"text"\n')
    with pytest.raises(TooManyErrorsError):
        make_corpus((str(path),), folder, CorpusOptions(wordnet=wordnet, max_errors=0))

    assert [p.name for p in folder.iterdir()] == ["freq_phrase.txt"]
    assert (folder / "freq_phrase.txt").read_text() == "NP__old\t2\n"
    with pytest.raises(OptionError, match="'min_count' is 0"):
        make_corpus((str(path),), folder, CorpusOptions(wordnet=wordnet, min_count=0))


@pytest.mark.parametrize(
    "inputs, options, message",
    [
        ((), CorpusOptions(), "nothing to read"),
        (("x",), CorpusOptions(), "'wordnet'"),
        (("x",), CorpusOptions(wordnet="x", typer="ner"), "'ner_model'"),
    ],
)
def test_missing_options_are_errors_before_anything_is_read(
    inputs: tuple[str, ...], options: CorpusOptions, message: str, tmp_path: Path
) -> None:
    """The error names the missing option."""
    with pytest.raises(SettingsError, match=message):
        make_corpus(inputs, tmp_path, options)


def test_the_command_makes_a_corpus_from_text_and_a_base(
    run: Run, wordnet: Path, ner_model: Path, tmp_path: Path
) -> None:
    """`train corpus` writes phrases with types, and entities; the report counts them."""
    base = tmp_path / "base.tsv"
    base.write_text("id\tname\ttype\taliases\nQ1\tZork Xyzzy\tPERSON\tZ. Xyzzy\n", encoding="utf-8")
    text = "\n".join(json.dumps({"text": text}) for text in TEXTS).encode()
    out = tmp_path / "corpus"
    words = ("--wordnet", str(wordnet), "--out", str(out))
    made = run("train", "corpus", "-", "--base", str(base), *words, stdin=text)

    assert made.status == 0, made.err
    assert f"{out}: 4 texts, 1 entities, " in made.out
    assert "skipped" not in made.out
    types = dict(read_entity_types(out / "phrase_with_etype.txt", ReadReport(max_errors=0)))
    assert (types["Zork Xyzzy"], types["in 1990"], types["Paris"]) == ("PERSON", "DATE", "GPE")
    assert ("Zork Xyzzy", "NP", 2) in list(read_frequencies(out / "freq_phrase.txt", ReadReport(max_errors=0)))

    made = run("train", "corpus", "--base", str(base), "--out", str(tmp_path / "bases"))
    assert made.status == 0, made.err
    assert "1 entities" in made.out
    assert [p.name for p in (tmp_path / "bases").iterdir()] == ["entities.jsonl"]
    made = run("train", "corpus", "-", "--set", "typer=ner", "--set", f"ner_model={ner_model}", *words, stdin=text)
    assert made.status == 0, made.err
    assert " NP " in made.out
    refused = run("train", "corpus", str(tmp_path / "none.txt"), *words)
    assert refused.status == 1
    assert "does not exist" in refused.err


def parsed() -> list[tuple[str, str]]:
    """Sentences with their phrases as they were parsed by hand; the second ten after the patterns were written."""
    text = Path(__file__).with_name("parsed.txt").read_text("utf-8")
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    return list(zip(lines[::2], lines[1::2], strict=True))


def agreement(parser: ChunkParser, sentences: list[tuple[str, str]]) -> tuple[float, float]:
    """Recall and precision of the phrases found."""
    right = found = gold = 0
    for sentence, listed in sentences:
        wanted = {
            Phrase(text, lexical_class) for lexical_class, _, text in (o.partition(" ") for o in listed.split("/"))
        }
        made = set(next(parser.parse([sentence])))
        right, found, gold = right + len(made & wanted), found + len(made), gold + len(wanted)
    return right / gold, right / found


@pytest.fixture(scope="module")
def parser(wordnet: Path) -> ChunkParser:
    """The built-in parser."""
    return ChunkParser(wordnet)


@pytest.mark.parametrize("part, least", [(slice(10), 0.9), (slice(10, 20), 0.8)], ids=["gold", "unseen"])
def test_the_built_in_parser_agrees_with_sentences_parsed_by_hand(
    parser: ChunkParser, part: slice, least: float
) -> None:
    """Nine in ten of the phrases of a treebank are found, and nine in ten of those found are right; four in five on
    sentences that the parser was not written for.
    """
    recall, precision = agreement(parser, parsed()[part])

    assert recall >= least
    assert precision >= least


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
        ("The play was long.", "The play"),
        ("They visit the park.", "visit the park"),
    ],
)
def test_phrases_are_found_whole(parser: ChunkParser, text: str, phrase: str) -> None:
    """Abbreviations, initials, numbers, dates and names are not cut; a word has the class that fits."""
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


@pytest.mark.parametrize("unit", ["J", "NC", "X!V"])
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
