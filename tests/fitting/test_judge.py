"""The judge of two names: what it learns from, its training on a tiny encoder, and its graph."""

from __future__ import annotations

import json
import random
import signal
from pathlib import Path

import numpy as np
import pytest
import torch
from cli_runner import Run
from safetensors.torch import save_file
from tiny_models import NAMES_OF_THE_WORLD, make_multilingual_bert, make_pearl
from tiny_wordnet import make_wordnet

from pearl_qdrant.encoder.batching import Batch, open_tokenizer
from pearl_qdrant.encoder.checkpoint import open_checkpoint
from pearl_qdrant.encoder.judge import NameJudge
from pearl_qdrant.encoder.protocol import FloatArray
from pearl_qdrant.encoder.runtime import onnx_runtime
from pearl_qdrant.encoder.runtime.onnx_runtime import OnnxGraph
from pearl_qdrant.errors import CheckpointError, FormatError, OptionError
from pearl_qdrant.linking.mention_kinds import NamedEntity
from training.examples.wordnet import read_opposites
from training.export.export_checkpoint import export_checkpoint
from training.export.int8_graph import rebuild_phrase_encoder
from training.judge.differences import Named, Words, other, same, tried
from training.judge.examples import GivenMention, NameGroup, PairSource, read_examples, write_examples
from training.judge.network import pad, pair_tokens
from training.judge.request import JudgeRequest
from training.judge.train_judge import JudgeBatch, JudgeObjective, open_judge, train_judge

EXAMPLES: list[dict[str, object]] = [
    {"source": "cities", "names": ["Moscow", "Москва"], "near": ["Αθήνα", "서울"], "types": ["GPE"], "kinds": ["city"]},
    {"source": "cities", "names": ["Αθήνα"], "near": ["東京都"]},
    {"set": "asked", "mention": "москва", "names": ["Moscow", "서울"], "right": [True, False]},
]


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny encoder in 8 bits over pieces of many scripts."""
    trained = make_pearl(tmp_path_factory.mktemp("trained") / "tiny", onnx_graph=False, make=make_multilingual_bert)
    folder = tmp_path_factory.mktemp("exported") / "tiny"
    export_checkpoint(trained.folder, folder, names=NAMES_OF_THE_WORLD)
    return folder


@pytest.fixture(scope="module")
def wordnet(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Nouns and adjectives to make differences of."""
    words = [("n", word) for word in "lawsuit critic bridge river".split()] + [("a", "fake"), ("a", "old")]
    return make_wordnet(tmp_path_factory.mktemp("wordnet"), words)


def request(encoder: Path, tmp_path: Path, **others: object) -> JudgeRequest:
    """A training of a few steps."""
    tmp_path.mkdir(exist_ok=True)
    examples = tmp_path / "examples.jsonl"
    write_examples(examples, EXAMPLES)
    how = {"layers": 1, "pairs": 40, "batch_size": 8, "device": "cpu", "precision": "fp32", **others}
    return JudgeRequest(examples=examples, out=tmp_path / "judge", base_model=encoder, **how)  # type: ignore[arg-type]


def test_a_judge_is_trained_and_its_graph_says_what_the_network_says(
    encoder: Path, wordnet: Path, tmp_path: Path
) -> None:
    """A few steps write weights and a graph; the graph in 8 bits agrees with the network, in any batch and order."""
    asked = request(encoder, tmp_path, wordnet=wordnet)
    result = train_judge(asked)
    network = open_judge(str(encoder), layers=1, start=result.judge).eval()
    judge = NameJudge(encoder, result.judge / "judge.onnx", threads=2)
    pairs = [(a, b) for a in NAMES_OF_THE_WORLD for b in NAMES_OF_THE_WORLD[:4]]
    found = judge.scores(pairs)
    ids = {name: judge._tokenizer.encode(name, add_special_tokens=False).ids for name in NAMES_OF_THE_WORLD}
    tokens = [pair_tokens(ids[a], ids[b], begin=0, end=2) for a, b in pairs]
    with torch.inference_mode():
        expected = network(*pad(tokens, padding=1)).numpy()

    assert (result.steps, result.groups, result.given) == (5, 2, 1)
    assert (result.judge / "training" / "log.csv").exists()
    assert np.corrcoef(found, expected)[0, 1] > 0.95
    np.testing.assert_allclose(judge.scores(pairs[::-1])[::-1], found, atol=1e-5)
    assert judge.scores([]).shape == (0,)


def test_layers_that_a_start_lacks_change_little_at_first(encoder: Path, tmp_path: Path) -> None:
    """A judge of one layer gets another, which says about the same."""
    judge = open_judge(str(encoder), layers=1, start=train_judge(request(encoder, tmp_path)).judge).eval()
    tokenizer = open_tokenizer(encoder / "tokenizer.json")
    ids = [tokenizer.encode(name, add_special_tokens=False).ids for name in NAMES_OF_THE_WORLD]
    batch = pad([pair_tokens(a, b, begin=0, end=2) for a in ids for b in ids[:4]], padding=1)
    with torch.inference_mode():
        before = judge(*batch).numpy()
    judge.grow(rebuild_phrase_encoder(open_checkpoint(encoder)), 99, *batch)
    with torch.inference_mode():
        after = judge(*batch).numpy()

    assert len(judge.layers) > 1
    assert np.corrcoef(before, after)[0, 1] > 0.9


def test_a_judge_in_8_bits_is_a_start(encoder: Path, tmp_path: Path) -> None:
    """Its weights are rebuilt from the graph; `kept` gives the mean with them."""
    folder = train_judge(request(encoder, tmp_path)).judge
    shipped = tmp_path / "shipped"
    (shipped / "onnx").mkdir(parents=True)
    (folder / "judge.onnx").rename(shipped / "onnx" / "judge.onnx")
    first, rebuilt = (open_judge(str(encoder), layers=1, start=one).state_dict() for one in (folder, shipped))
    for name, tensor in first.items():
        if not name.endswith("qkv.bias"):  # the keys have no bias: it adds the same to all scores
            torch.testing.assert_close(rebuilt[name], tensor, atol=0.02, rtol=0.1)

    made = {
        share: train_judge(request(encoder, tmp_path / str(share), start=shipped, kept=share)) for share in (1.0, 0.0)
    }
    same, other = (open_judge(str(encoder), layers=1, start=one.judge).state_dict() for one in made.values())
    torch.testing.assert_close(same, rebuilt)
    assert not torch.allclose(other["outer.weight"], rebuilt["outer.weight"])
    with pytest.raises(OptionError, match="has no judge"):
        open_judge(str(encoder), layers=1, start=tmp_path)
    grown = train_judge(request(encoder, tmp_path / "grown", start=shipped, layers=2)).judge
    with pytest.raises(OptionError, match="Pass its number as 'layers'"):
        open_judge(str(encoder), layers=1, start=grown)
    other = tmp_path / "other"
    other.mkdir()
    save_file({"layers.0.qkv.weight": torch.zeros(6, 2)}, other / "judge.safetensors")
    with pytest.raises(OptionError, match="is not made of this encoder"):
        open_judge(str(encoder), layers=1, start=other)
    with pytest.raises(OptionError, match="name that one by 'start'"):
        train_judge(request(encoder, tmp_path, kept=0.5))


def test_a_word_is_looked_up_once(encoder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Embeddings are the same in any batch; the graph runs for new words alone, and a bounded number is kept."""
    graph = OnnxGraph(encoder / "onnx" / "model.onnx")
    computed: list[list[int]] = []
    run = OnnxGraph.run

    def counted(self: OnnxGraph, outputs: list[str], batch: Batch) -> list[FloatArray]:
        computed.append(batch.input_ids.ravel().tolist())
        return run(self, outputs, batch)

    monkeypatch.setattr(OnnxGraph, "run", counted)
    monkeypatch.setattr(onnx_runtime, "MOST_WORDS", 4)
    first = graph.look_up(np.array([[5, 6, 5], [7, 7, 6]]))
    again = graph.look_up(np.array([[7, 8]]))
    last = graph.look_up(np.array([[9, 5]]))

    assert computed == [[5, 6, 7], [8], [5, 9]]
    assert first.shape[:2] == (2, 3)
    np.testing.assert_array_equal(first[0, 0], last[0, 1])
    np.testing.assert_array_equal(first[1, 1], again[0, 0])
    assert not np.array_equal(first[0, 0], first[0, 1])


def test_the_command_line_trains_and_resumes(encoder: Path, wordnet: Path, tmp_path: Path, run: Run) -> None:
    """`train judge` writes a judge that loads; called again it goes on where it was, with --restart anew."""
    examples, out = tmp_path / "examples.jsonl", tmp_path / "judge"
    write_examples(examples, EXAMPLES)
    words = ["train", "judge", str(encoder), str(examples), str(out), "--wordnet", str(wordnet)]
    first = run(*words, "--set", "pairs=1")
    log = (out / "training" / "log.csv").read_bytes()
    (out / "judge.onnx").unlink()
    again, other = run(*words, "--set", "pairs=1"), run(*words, "--set", "pairs=65")

    assert (first.status, again.status) == (0, 0), first.err + again.err
    assert "1 steps on 2 entities and 1 given mentions" in first.err
    assert (out / "training" / "log.csv").read_bytes() == log
    assert NameJudge(encoder, out / "judge.onnx").scores([("Moscow", "Москва")]).shape == (1,)
    assert str(encoder) in (out / "README.md").read_text()
    assert other.status == 1
    assert "start over with restart" in other.err
    assert run(*words, "--set", "pairs=65", "--restart").status == 0
    assert run("train", "judge", str(encoder), str(tmp_path / "none"), str(out)).status == 2


def test_an_interrupted_training_goes_on(
    encoder: Path, wordnet: Path, tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After Ctrl-C in the second step the same command does the third alone, and the judge is that of one run."""
    examples = tmp_path / "examples.jsonl"
    write_examples(examples, EXAMPLES)
    done: list[int] = []
    backward, stops_at = JudgeObjective.backward, [2]

    def counted(self: JudgeObjective, step: int, batch: JudgeBatch) -> dict[str, torch.Tensor | float]:
        done.append(step)
        if step in stops_at:
            signal.raise_signal(signal.SIGINT)
        return backward(self, step, batch)

    monkeypatch.setattr(JudgeObjective, "backward", counted)
    words = ["train", "judge", str(encoder), str(examples)]
    interrupted = run(*words, str(tmp_path / "a"), "--wordnet", str(wordnet), "--set", "pairs=192")
    stops_at.clear()
    for name in ("a", "b"):
        assert run(*words, str(tmp_path / name), "--wordnet", str(wordnet), "--set", "pairs=192").status == 0

    assert interrupted.status == 130
    assert done == [1, 2, 3, 1, 2, 3]
    assert (tmp_path / "a" / "judge.safetensors").read_bytes() == (tmp_path / "b" / "judge.safetensors").read_bytes()


def test_a_training_that_was_done_is_not_done_again(encoder: Path, tmp_path: Path) -> None:
    """The same call resumes, and finds nothing left to do; one with other settings is refused."""
    first = train_judge(request(encoder, tmp_path))
    log = (first.judge / "training" / "log.csv").read_text()
    train_judge(request(encoder, tmp_path))

    assert (first.judge / "training" / "log.csv").read_text() == log


def test_names_without_a_judge_are_refused_in_words(encoder: Path, tmp_path: Path) -> None:
    """A graph of another encoder, or none, is named."""
    with pytest.raises(CheckpointError, match=r"judge\.onnx"):
        NameJudge(encoder)
    with pytest.raises(CheckpointError, match="does not belong"):
        NameJudge(encoder, encoder / "onnx" / "model.onnx")


def test_differences_are_what_they_say(wordnet: Path) -> None:
    """A name written otherwise keeps its words or letters; another thing has a word more, another one or a number."""
    words, rng = Words.read(wordnet), random.Random(0)
    name = Named("Mexico City", ("GPE",), ("city",))
    alike = {tried(lambda: same(name, rng), 6) for _ in range(200)} - {None}
    people = [NamedEntity("", ("Mary Smith",), ("PERSON",))]
    others = {tried(lambda: other(name, words, people, rng), 6) for _ in range(200)} - {None}

    assert "Mexico City (city)" not in alike, "the name has the word"
    assert {"the Mexico City", "City, Mexico"} <= alike
    assert any("lawsuit" in one for one in others if one)
    assert {one[12:] for one in others if one and one.startswith("Mexico City ")} & {"2", "3", "II", "III", "5", "7"}
    assert alike.isdisjoint(others)


def test_given_mentions_teach_absence() -> None:
    """A mention whose entity is not among its candidates gives wrong pairs alone."""
    absent = GivenMention("Tula", ("Tulsa", "Tuzla"), (False, False))
    source = PairSource([([NameGroup(("Moscow",))], 1.0)], None, given=[[absent]], given_share=1.0)
    drawn = source.draw(random.Random(0))
    pairs = [next(drawn) for _ in range(20)]

    assert {(pair.mention, pair.is_same) for pair in pairs} == {("Tula", False)}


def test_a_mention_without_candidates_teaches_nothing() -> None:
    """It gives no pair, and no name for others."""
    given = [[GivenMention("Tula", (), ()), GivenMention("Athens", ("Αθήνα",), (True,))]]
    stream = PairSource([([NameGroup(("Moscow",))], 1.0)], None, given=given, given_share=1.0).draw(random.Random(0))
    assert {next(stream).name for _ in range(40)} == {"Αθήνα"}


def test_names_far_off_are_other_names() -> None:
    """A name gets some by chance, of other entities and of what others were asked for; none of its own."""
    groups = [NameGroup(("Moscow", "Москва")), NameGroup(("Seoul", "서울"))]
    given = [[GivenMention("москва", ("Moscow",), (True,)), GivenMention("Athens", ("Αθήνα",), (True,))]]
    for source in (
        PairSource([(groups, 1.0)], None),
        PairSource([(groups, 1.0)], None, given=given, given_share=1.0),
    ):
        stream = source.draw(random.Random(1))
        pairs = {(pair.mention, pair.name): pair.is_same for pair in (next(stream) for _ in range(400))}
        assert {name for (_, name), is_same in pairs.items() if not is_same} > {"Moscow"}
        assert not pairs.get(("Athens", "Moscow"), False)
        assert pairs.get(("Moscow", "Москва"), True)


def test_a_line_that_is_no_example_is_named(tmp_path: Path) -> None:
    """The error has the file and the line."""
    path = tmp_path / "examples.jsonl"
    path.write_text(json.dumps(EXAMPLES[0]) + '\n{"source": "x"}\n', encoding="utf-8")

    with pytest.raises(FormatError, match=r"examples\.jsonl:2"):
        read_examples(path)


def test_nothing_to_learn_from_is_refused(encoder: Path, tmp_path: Path) -> None:
    """An empty file of examples is named before anything is loaded."""
    (tmp_path / "none.jsonl").write_text("")

    with pytest.raises(OptionError, match="nothing to learn from"):
        train_judge(JudgeRequest(examples=tmp_path / "none.jsonl", out=tmp_path / "out", base_model=encoder))


def test_opposites_are_read_from_wordnet(tmp_path: Path) -> None:
    """The pointer `!` joins the two words that it names, not their whole synsets."""
    folder = make_wordnet(tmp_path, [])
    lines = "00000010 00 a 02 left 0 gauche 0 001 ! 00000020 a 0101 | side\n"
    lines += "00000020 00 a 01 right 0 001 ! 00000010 a 0101 | side\n"
    (folder / "data.adj").write_text(lines)

    assert sorted(read_opposites(folder)) == [("left", "right"), ("right", "left")]
