"""The paper's parser: benepar's trees to phrases of five classes."""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import pytest
from tiny_models import make_bert

from pearl_qdrant.errors import ModelError, ModelNotFoundError
from pearl_qdrant.phrase_types import LEXICAL_CLASSES
from training.corpus.chunking import Phrase
from training.corpus.constituency import BeneparParser, constituent_phrases


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
    """Sentences, quantifier phrases and pronouns are skipped; a node with two labels counts for both."""
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
    # benepar, spaCy and torch take seconds to import, so not at the head, which each of pytest's workers reads.
    import torch
    from benepar.nkutil import HParams
    from benepar.parse_chart import ChartParser

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
    import torch
    import transformers

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
    """Every phrase is in a paragraph of its text, has one of the five classes, and is at most as long as requested."""
    assert len(found) == len(texts)
    for text, phrases in zip(texts, found, strict=True):
        paragraphs = [" ".join(line.split()) for line in text.split("\n")]
        for phrase in phrases:
            assert any(phrase.text in paragraph for paragraph in paragraphs), phrase
            assert phrase.lexical_class in LEXICAL_CLASSES
            assert len(phrase.text.split()) <= 4


@pytest.mark.slow
@quiet_trees
def test_benepar_finds_phrases_in_any_text(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Any character, CRLF and blanks are accepted; a paragraph with too long a sentence is skipped with a warning."""
    parser = BeneparParser(spacy_model="blank:en", model=str(make_benepar(tmp_path / "tree.pt")), max_words=4)
    texts = [PARSED, "", " \r\n", "apple " * 50 + "\nThe dog barked.", "A \ud800 dog", "apple " * 200_000]

    found = list(parser.parse(texts))

    assert_phrases_of(texts[:4], found[:4])
    assert [bool(phrases) for phrases in found] == [True, False, False, True, True, False]
    assert not any("apple apple" in phrase.text for phrase in found[3])
    assert [record.message for record in caplog.records] == [
        f"a paragraph is skipped: Sentence of length 50 exceeds the maximum supported length of 38: {'apple ' * 10}",
        f"a paragraph of 1199999 characters is skipped: {'apple ' * 10}",
    ]


@pytest.mark.slow
@quiet_trees
def test_the_phrases_are_those_of_benepars_own_trees(tmp_path: Path) -> None:
    """The parser without spaCy draws a tree whose nodes of the five classes are the phrases that are found."""
    import benepar

    model = str(make_benepar(tmp_path / "tree.pt"))
    sentence = "Zork painted seven yellow harbour walls yesterday"
    tree = benepar.Parser(model).parse(benepar.InputSentence(words=sentence.split()))

    (found,) = BeneparParser(spacy_model="blank:en", model=model).parse([sentence])

    nodes = [Phrase(" ".join(node.leaves()), node.label()) for node in tree.subtrees()]
    assert Counter(found) == Counter(node for node in nodes if node.lexical_class in LEXICAL_CLASSES)
    assert len({phrase.lexical_class for phrase in found}) > 1


@pytest.mark.slow
@quiet_trees
def test_a_pretrained_benepar_parses_or_says_which_transformers_it_needs(tmp_path: Path) -> None:
    """All published models are of this kind, and benepar 0.2 cannot load them with transformers 5."""
    import transformers

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

    with pytest.raises(ModelError, match=r"pip install '\.\[corpus\]'.*parser builtin"):
        BeneparParser()


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a benepar model, and what is none."""
    import spacy
    import torch

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
    """A name or a file that is not a model, and a pipeline without sentences, are errors that name it."""
    monkeypatch.chdir(models)

    with pytest.raises(ModelError, match=message) as raised:
        BeneparParser(spacy_model=spacy_model, model=model)
    assert raised.type is error
