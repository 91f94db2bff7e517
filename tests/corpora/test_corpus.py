"""Text and bases to a corpus: phrases with classes and types, in files that training reads."""

from __future__ import annotations

import gzip
import json
import random
from collections import Counter
from pathlib import Path

import pytest
from cli_runner import Run
from tiny_models import make_bert
from tiny_wordnet import make_sentence_wordnet

from ingest.io.report import ReadReport
from ingest.io.streams import Source
from pearl_qdrant.errors import (
    FormatError,
    ModelError,
    ModelNotFoundError,
    OptionError,
    SettingsError,
    TooManyErrorsError,
)
from pearl_qdrant.phrase_types import PHRASE_TYPES
from pearl_qdrant.records import Entity
from training.corpus.chunking import Lexicon, Phrase
from training.corpus.make_corpus import PhraseCounter, make_corpus
from training.corpus.typing import DistantTyper, NerTyper, name_types, numeric_type, type_of_words, wordnet_names
from training.examples.files import (
    EntityRow,
    corpus_examples,
    corpus_phrases,
    entity_examples,
    entity_row,
    read_entities,
    read_entity_types,
    read_frequencies,
    read_negatives,
    read_texts,
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


def test_counts_do_not_depend_on_memory() -> None:
    """Spilling to temporary files, many times over, changes nothing."""
    rng = random.Random(0)
    seen = [Phrase(f"p{int(rng.expovariate(0.02))}", rng.choice(["NP", "PP"])) for _ in range(5000)]
    counts = []
    for max_keys in (1, 7, 10_000):
        with PhraseCounter(max_keys=max_keys) as counter:
            for start in range(0, len(seen), 20):
                counter.add(Counter(seen[start : start + 20]))
            counts.append(list(counter.seen_at_least(2)))

    assert counts[0] == counts[1] == counts[2]
    expected = sorted((text, kind, n) for (text, kind), n in Counter(seen).items() if n >= 2)
    assert counts[0] == expected


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
    assert len(name_types([])) == 0
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


def test_a_ner_model_types_phrases(ner_model: Path) -> None:
    """A token-classification model is loaded and asked; batches do not change what it says."""
    phrases = ["The New York Times", "heart attack", "x", "東京", "in Paris", " "] * 3
    types = NerTyper(str(ner_model), batch_size=4).type_phrases(phrases)

    assert types == NerTyper(str(ner_model), batch_size=1).type_phrases(phrases)
    assert set(types) <= {"GPE", "PERSON", "OTHER"}
    assert len(set(types)) > 1


def test_a_model_without_entity_types_is_refused(tmp_path: Path) -> None:
    """A model with other labels, or no model, is an error that says what is needed."""
    with pytest.raises(ModelError, match="OntoNotes"):
        NerTyper(str(make_ner(tmp_path / "pos", ["NOUN", "VERB"])))
    with pytest.raises(ModelNotFoundError, match="cannot be loaded as a token-classification model"):
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
    """Plain text and JSON Lines, compressed or not, are recognised by their content."""
    rows = [{"title": "A", "text": "One.\nTwo."}, {"title": "B", "text": ""}]
    path = tmp_path / "any.name"
    path.write_bytes(gzip.compress("\n".join(json.dumps(row) for row in rows).encode()))
    assert texts_of(path) == ["One.\nTwo.", ""]
    assert texts_of(path, field="title") == ["A", "B"]
    path.write_text("\ufeffOne.\r\n\nTwo. \u2028 Three.\n", encoding="utf-8")
    assert texts_of(path) == ["One.", "Two. \u2028 Three."]


def test_bad_rows_are_counted_and_a_wrong_field_is_an_error(tmp_path: Path) -> None:
    """A few broken rows are skipped, many stop the run, and a field that no row has is an error."""
    path = tmp_path / "rows.jsonl"
    path.write_bytes(b'{"text": "good"}\n{"text": 3}\n{"text"\n[1]\n{"other": "x"}\n{"text": "\xff"}\n')
    report = ReadReport()
    source = Source(path)
    assert list(read_texts(source, report)) == ["good"]
    assert sum(report.skipped.values()) == 5
    with pytest.raises(TooManyErrorsError, match=r"rows.jsonl:2"):
        list(read_texts(source, ReadReport(max_errors=0)))
    with pytest.raises(FormatError, match="as 'field'"):
        list(read_texts(source, ReadReport(), field="body"))
    source.close()


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
    assert list(read_negatives(tmp_path / "hard_negative.txt", ReadReport())) == [("x", ["y", "z"])]

    examples = {e.name: [PHRASE_TYPES[i] for i in e.allowed] for e in corpus_examples(tmp_path, ReadReport())}
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
    nyt = Entity("1", "The New York Times", aliases=("NYT",), types=("ORG", "unknown"))
    row = entity_row(nyt, kb="kb")
    assert row == EntityRow("kb:1", ("The New York Times", "NYT"), ("ORG",))
    (first,) = entity_examples([row])
    assert (first.name, first.others, first.entity) == ("The New York Times", ("NYT",), "kb:1")
    assert [PHRASE_TYPES[i] for i in first.allowed] == ["NP-ORG"]
    base = tmp_path / "base.tsv"
    base.write_text("id\tname\ttype\taliases\n1\ta\tORG\tb\n2\talone\t\t\n3\tParis\tGPE\t\n", encoding="utf-8")

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
    """The same corpus comes out whether one process parses or two."""
    path = tmp_path / "texts.txt"
    path.write_text("\n".join(TEXTS * 70), encoding="utf-8")
    for workers in (1, 2):
        options = CorpusOptions(wordnet=wordnet, workers=workers, max_keys=5)
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
