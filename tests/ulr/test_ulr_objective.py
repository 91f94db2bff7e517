"""The MLM head: of a checkpoint that has one, made for one that has none, and written with the encoder.
The objective of ULR against a naive computation by transformers, sequence by sequence.
Scores of n-grams by the network in training.
"""

from __future__ import annotations

import functools
import gzip
import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file
from tiny_models import DIM, as_sentence_transformers, make_albert, make_bert, make_pearl, write_json
from tokenizers import Tokenizer
from torch import Tensor
from ulr_cases import SENTENCES, config, make_encoder, make_masked_lm, open_base, views_of

from ingest.io.report import ReadReport
from pearl_qdrant.encoder.batching import open_tokenizer
from pearl_qdrant.encoder.loading import load_encoder
from pearl_qdrant.errors import CheckpointError, FormatError, InputError, ModelError
from training.networks.checkpoints import open_base_model
from training.ngrams.files import MarkedSequence, NgramSpan, choose_spans
from training.ulr.drawing import (
    Masking,
    NetworkScorer,
    Views,
    make_views,
    open_masking,
    read_sequences,
    tokenise,
)
from training.ulr.network import HEAD_NAMES, head_names, head_tensors
from training.ulr.objective import backward
from training.ulr.train_ulr import UlrBase, write_encoder

KINDS = (
    *("bert", "albert", "electra"),
    *(pytest.param(kind, marks=pytest.mark.slow) for kind in ("roberta", "distilbert", "mpnet")),
)
"""The families of the paper, and others, which have the same code behind other names of weights."""

IDS = torch.tensor([[2, 8, 9, 10, 3], [2, 11, 12, 13, 3]])
MASK = torch.ones_like(IDS)


@pytest.mark.parametrize("kind", KINDS)
def test_the_head_of_a_checkpoint_is_used_and_written_back(kind: str, tmp_path: Path) -> None:
    """The logits are those of transformers, for the checkpoint and for the folder that is written from it."""
    folder = make_masked_lm(tmp_path / kind, kind)
    base = open_base(folder)
    assert base.has_head
    theirs: Any = transformers.AutoModelForMaskedLM.from_pretrained(folder).eval()
    with torch.no_grad():
        base.network.head.bias += 1.0
        theirs.get_output_embeddings().bias += 1.0
        ours = base.network.eval().logits(base.network.hidden(IDS, MASK))
        torch.testing.assert_close(ours, theirs(IDS, MASK).logits, rtol=1e-4, atol=1e-4)

        write_encoder(tmp_path / "out", base, training={"steps": 3})
        again: Any = transformers.AutoModelForMaskedLM.from_pretrained(tmp_path / "out").eval()
        torch.testing.assert_close(again(IDS, MASK).logits, ours, rtol=1e-4, atol=1e-4)
    assert open_base(tmp_path / "out").has_head


@pytest.mark.parametrize("kind", ["bert", "electra"])
def test_a_head_is_made_where_there_is_none(kind: str, tmp_path: Path) -> None:
    """It is tied to the input embeddings, the same for the same seed, and the encoder is as it was."""
    folder = make_encoder(tmp_path / kind, kind)
    base, again, other = (open_base(folder, seed=seed) for seed in (1, 1, 2))

    assert not base.has_head
    assert torch.equal(base.network.head.dense.weight, again.network.head.dense.weight)
    assert not torch.equal(base.network.head.dense.weight, other.network.head.dense.weight)
    encoder: Any = base.network.encoder
    hidden = base.network.eval().hidden(IDS, MASK)
    assert base.network.logits(hidden).shape == (2, 5, len(encoder.get_input_embeddings().weight))
    assert "decoder.weight" not in str(list(base.network.state_dict()))
    torch.testing.assert_close(hidden, transformers.AutoModel.from_pretrained(folder).eval()(IDS, MASK)[0])


def test_old_names_of_the_layer_norm_are_read(tmp_path: Path) -> None:
    """The first checkpoints of BERT call its weights gamma and beta."""
    folder = make_masked_lm(tmp_path / "bert", "bert")
    tensors = load_file(folder / "model.safetensors")
    norm = "cls.predictions.transform.LayerNorm"
    wanted = tensors.pop(f"{norm}.weight")
    tensors |= {f"{norm}.gamma": wanted, f"{norm}.beta": tensors.pop(f"{norm}.bias")}
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})

    base = open_base(folder)

    assert base.has_head
    assert torch.equal(base.network.head.norm.weight, wanted)


@pytest.mark.parametrize("pooling", ["mean", "cls"])
def test_the_encoder_that_is_written_loads_as_a_plain_encoder(pooling: Any, tmp_path: Path) -> None:
    """Its vectors are those of the network, with pooling and prefix of the start, and `train fit` can start from it."""
    folder = as_sentence_transformers(make_encoder(tmp_path / "bert", "bert"), pooling=pooling, prompt="the ")
    base = open_base(folder)
    assert (base.network.pooling, base.model.prefix, base.model.max_length) == (pooling, "the ", 16)
    write_encoder(tmp_path / "out", base, training={})

    encoder = load_encoder(str(tmp_path / "out"), device="cpu", precision="fp32")

    encoding = base.tokenizer.encode("the new york")
    ids, mask = torch.tensor([encoding.ids]), torch.tensor([encoding.attention_mask])
    with torch.no_grad():
        wanted = torch.nn.functional.normalize(base.network.eval().pool(base.network.hidden(ids, mask), mask))
    torch.testing.assert_close(torch.from_numpy(encoder.encode(["new york"]).vectors), wanted, rtol=1e-4, atol=1e-5)
    assert encoder.info.pooling == pooling
    assert open_base_model(str(tmp_path / "out"), name="next").config.dim == DIM


def test_max_pooling_is_for_sentence_transformers_alone(tmp_path: Path) -> None:
    """A folder with max pooling says so, and is refused where only mean and cls are known."""
    base = open_base(make_encoder(tmp_path / "bert", "bert"), pooling="max")
    write_encoder(tmp_path / "out", base, training={})

    with pytest.raises(ModelError, match="its pooling is max"):
        load_encoder(str(tmp_path / "out"), device="cpu")
    assert open_base(tmp_path / "out", pooling="max").network.pooling == "max"


def test_the_phrase_encoder_of_a_checkpoint_is_a_start(tmp_path: Path) -> None:
    """A PEARL checkpoint with weights for torch can be trained; one without says how to get them."""
    make_pearl(tmp_path / "pearl", onnx_graph=False)
    make_pearl(tmp_path / "graph", torch_weights=False)

    assert not open_base(tmp_path / "pearl").has_head
    with pytest.raises(CheckpointError, match="models export"):
        open_base(tmp_path / "graph")


def test_what_cannot_be_trained_is_refused(tmp_path: Path) -> None:
    """Other families, a folder without weights, a tokenizer of another model (whose tokens have no embedding), and one
    without a mask token. The message names the families that can be trained.
    """
    folder = make_encoder(tmp_path / "bert", "bert")
    tokenizer = open_base(folder).tokenizer.to_str().replace("[MASK]", "[NONE]")
    with pytest.raises(ModelError, match=r"neither \[MASK\] nor <mask>"):
        open_masking(Tokenizer.from_str(tokenizer), share=0.1)
    other = make_bert(tmp_path / "other", words=5)
    (folder / "tokenizer.json").write_bytes((other / "tokenizer.json").read_bytes())
    with pytest.raises(CheckpointError, match="belongs to another model"):
        open_base(folder)
    with pytest.raises(ModelError, match="type 'gpt2' cannot be trained with ULR; these can: albert, bert"):
        head_names("gpt2")
    write_json(tmp_path / "config.json", {"model_type": "bert"})
    with pytest.raises(CheckpointError, match=r"no model\.safetensors"):
        open_base(tmp_path)


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Makes a tiny model of a kind with its MLM head, once."""
    folder = tmp_path_factory.mktemp("models")
    return functools.cache(lambda kind: make_masked_lm(folder / kind, kind))


def reference(model: Any, views: list[Views], *, pooling: str, renormalise: bool) -> tuple[Tensor, Tensor]:
    """MiSAD and MLM loss of a batch: one sequence at a time, through the whole model with its own head."""

    def run(ids: list[int]) -> tuple[Tensor, Tensor]:
        found = model(input_ids=torch.tensor([ids]), output_hidden_states=True)
        tokens = found.hidden_states[-1][0]
        pooled = {"cls": tokens[0], "mean": tokens.mean(0), "max": tokens.max(0).values}[pooling]
        return pooled / pooled.norm(), found.logits[0].log_softmax(-1)

    errors, surprises = [], []
    for view in views:
        whole, log_chances = run(view.whole)
        surprises += [-log_chances[i, t] for i, t in zip(view.masked, view.targets, strict=True)]
        if view.part is None:
            continue
        total = run(view.part)[0] + run(view.rest)[0]
        if renormalise:
            total = total / total.norm()
        errors += [((total - whole) ** 2).sum() / len(whole)]
    return torch.stack(errors).mean(), torch.stack(surprises).mean()


@pytest.mark.parametrize(
    "kind, pooling, renormalise, micro_batch",
    [
        *(("bert", "mean", False, 2), ("bert", "cls", True, 5), ("bert", "max", False, 1)),
        *(("albert", "mean", True, 3), ("electra", "cls", True, 5)),
    ],
)
def test_losses_and_gradients_equal_a_naive_computation(
    folders: Callable[[str], Path], kind: str, pooling: Any, renormalise: bool, micro_batch: int
) -> None:
    """Losses and the gradient of every weight are those of the formula, however a batch is divided."""
    base = open_base(folders(kind), pooling=pooling)
    views = views_of(base)
    settings = config(
        pooling=pooling, renormalise=renormalise, misad_weight=30.0, mlm_weight=0.5, micro_batch=micro_batch
    )
    model: Any = transformers.AutoModelForMaskedLM.from_pretrained(folders(kind)).eval()
    error, surprise = reference(model, views, pooling=pooling, renormalise=renormalise)
    torch.autograd.backward(30.0 * error + 0.5 * surprise)

    network = base.network.eval()
    found = backward(network, views, settings)

    assert found["spans"] == 4
    assert found["misad"] == pytest.approx(error.item(), rel=1e-4)
    assert found["mlm"] == pytest.approx(surprise.item(), rel=1e-4)
    theirs = dict(model.named_parameters())
    for name, parameter in network.encoder.named_parameters():
        gradient = theirs[f"{model.base_model_prefix}.{name}"].grad
        assert (parameter.grad is None) == (gradient is None), name
        if gradient is not None:
            torch.testing.assert_close(parameter.grad, gradient, rtol=1e-3, atol=1e-5, msg=name)
    for parameter in network.head.parameters():
        assert parameter.grad is not None
        parameter.data.copy_(parameter.grad)
    for name, gradient in head_tensors(network.head, HEAD_NAMES[model.config.model_type]).items():
        torch.testing.assert_close(gradient, theirs[name].grad, rtol=1e-3, atol=1e-5, msg=name)


def test_one_term_alone_can_be_trained(folders: Callable[[str], Path]) -> None:
    """Without masks only MiSAD is computed, and without n-grams only the MLM loss; the head alone needs no n-gram."""
    base = open_base(folders("bert"))
    network = base.network.eval()
    views = views_of(base)
    bare = [Views(v.whole, [], [], v.part, v.rest) for v in views]
    whole = [Views(v.whole, v.masked, v.targets) for v in views]

    assert (backward(network, bare, config())["mlm"], backward(network, whole, config())["misad"]) == (0, 0)
    network.zero_grad()
    network.encoder.requires_grad_(False)
    losses = backward(network, views_of(base), config(), head_only=True)
    assert (losses["misad"], losses["spans"]) == (0, 0)
    assert losses["mlm"] == pytest.approx(backward(network, whole, config())["mlm"])
    assert all(parameter.grad is None for parameter in network.encoder.parameters())
    assert all(parameter.grad is not None for parameter in network.head.parameters())


def test_sequences_are_held_where_they_were(folders: Callable[[str], Path]) -> None:
    """With `hold`, the start's vector of the sequence without masks is the target of n-gram and rest, and of it."""
    base, start = open_base(folders("bert")), open_base(folders("bert"))
    network, before = base.network.eval(), start.network.eval().requires_grad_(False)
    with torch.no_grad():
        for i, parameter in enumerate(network.parameters()):
            parameter.add_(0.02 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(i)))
    views = views_of(base)

    def unit(model: Any, ids: list[int]) -> Tensor:
        tokens = model.encoder(input_ids=torch.tensor([ids])).last_hidden_state[0]
        return tokens.mean(0) / tokens.mean(0).norm()

    errors = []
    for view in views:
        if view.part is not None:
            plain = [dict(zip(view.masked, view.targets, strict=True)).get(i, t) for i, t in enumerate(view.whole)]
            goal = unit(before, plain)
            apart = (unit(network, view.part) + unit(network, view.rest) - goal).square().mean()
            errors.append(apart + 3 * (unit(network, plain) - goal).square().mean())
    expected = torch.stack(errors).mean()
    torch.autograd.backward(7 * expected)
    gradients = {name: p.grad.clone() for name, p in network.encoder.named_parameters() if p.grad is not None}
    network.zero_grad()
    found = backward(
        network, views, config(micro_batch=2, misad_weight=7.0, mlm_weight=0.0, hold=3.0), start=start.network
    )

    assert found["misad"] == pytest.approx(expected.item(), rel=1e-4)
    for name, parameter in network.encoder.named_parameters():
        if name in gradients:
            torch.testing.assert_close(parameter.grad, gradients[name], rtol=1e-3, atol=1e-6, msg=name)


def naive_score(folder: Path, base: UlrBase, text: str, span: tuple[int, int]) -> float:
    """One sequence at a time by transformers' own model: the mean probability of the tokens that were masked."""
    from transformers import BertForMaskedLM

    encoding = base.tokenizer.encode(text)
    inside = [i for i, (a, b) in enumerate(encoding.offsets) if a < b and a < span[1] and b > span[0]]
    ids = torch.tensor([[4 if i in inside else token for i, token in enumerate(encoding.ids)]])
    with torch.no_grad():
        chances = BertForMaskedLM.from_pretrained(folder).eval()(input_ids=ids).logits[0].softmax(-1)
    return sum(float(chances[i, encoding.ids[i]]) for i in inside) / len(inside)


def test_scores_are_those_of_one_sequence_at_a_time(folders: Callable[[str], Path]) -> None:
    """Batches, padding and order make no difference to the score of section 3.3, and the lowest one is chosen. A span
    that was truncated, has no token or has all of them has no score. Dropout is off, and on again afterwards.
    """
    folder, base = folders("bert"), open_base(folders("bert"))
    network, modes = base.network.train(), list[bool]()
    network.encoder.register_forward_hook(lambda module, *_: modes.append(module.training or torch.is_grad_enabled()))
    known = {one.text: one for one in tokenise(base.tokenizer, SENTENCES, prefix="", max_tokens=40)}
    scorer = NetworkScorer(network, known, mask_id=4, batch=2)
    texts, spans = [SENTENCES[0], SENTENCES[4], SENTENCES[0], SENTENCES[2]], [(4, 12), (0, 10), (0, 3), (4, 9)]
    naive = [naive_score(folder, base, *one) for one in zip(texts, spans, strict=True)]

    assert scorer(texts, spans) == pytest.approx(naive, rel=1e-4)
    assert scorer([], []) == []
    found = (NgramSpan(4, 12, 2, 3.0), NgramSpan(0, 3, 1, 3.0))
    marked = MarkedSequence(SENTENCES[0], found, 11)
    lowest = found[0] if naive[0] < naive[2] else found[1]
    assert choose_spans([marked], "lowest_score", rng=random.Random(0), score=scorer) == [lowest]
    assert (set(modes), network.training) == ({False}, True)
    (short,) = tokenise(base.tokenizer, SENTENCES[:1], prefix="", max_tokens=6)
    scorer, n = NetworkScorer(network, {short.text: short}, mask_id=4, batch=2), len(short.text)
    scores = scorer([short.text] * 4, [(0, 3), (n, n + 5), (3, 4), (0, n)])
    assert 0 < scores[0] < 1
    assert np.isnan(scores[1:]).all()


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    """A tokenizer of words and letters."""
    return open_tokenizer(make_bert(tmp_path_factory.mktemp("models") / "bert") / "tokenizer.json")


def words(tokenizer: Tokenizer, ids: list[int]) -> str:
    """Token ids as text, special ones included."""
    return " ".join(str(tokenizer.id_to_token(i)) for i in ids)


def sequences_of(path: Path, **changes: object) -> list[str]:
    """The sequences of a text file."""
    options: dict[str, object] = {"field": "text", "max_words": 8, "limit": 100, "seed": 0}
    found = read_sequences([path], ReadReport(), **{**options, **changes})  # type: ignore[arg-type]
    return [marked.text for marked in found]


def test_texts_are_read_from_plain_and_compressed_files(tmp_path: Path) -> None:
    """Plain text and JSON Lines give the same sequences; a limit draws some of them, by the seed. Sentences end
    before a capital letter and at a line break; long ones are cut, and short ones left out.
    """
    rows = "".join(json.dumps({"body": sentence}) + "\n" for sentence in SENTENCES)
    (tmp_path / "a.txt").write_text("\n".join(SENTENCES))
    with gzip.open(tmp_path / "b.jsonl.gz", "wt") as file:
        file.write(rows)

    everything = sequences_of(tmp_path / "a.txt", max_words=20)

    assert everything == SENTENCES == sequences_of(tmp_path / "b.jsonl.gz", field="body", max_words=20)
    some = sequences_of(tmp_path / "a.txt", max_words=20, limit=2, seed=3)
    assert len(some) == 2
    assert set(some) < set(everything)
    assert some == sequences_of(tmp_path / "a.txt", max_words=20, limit=2, seed=3)
    with pytest.raises(FormatError, match="no row has the field 'text'"):
        sequences_of(tmp_path / "b.jsonl.gz")
    quoted = 'He sold 3.5 tons of it. "Why so few?" Mr. X asked!'
    (tmp_path / "cut.txt").write_text(f"{quoted}\nToo short. One two three four five six seven eight nine")
    cut = ["He sold 3.5 tons of it.", '"Why so few?"', "Mr. X asked!", "One two three four five six"]
    assert sequences_of(tmp_path / "cut.txt", max_words=6) == [*cut, "seven eight nine"]
    (tmp_path / "short.txt").write_text("two words\nfour\n")
    with pytest.raises(InputError, match="no sequence of at least 3 words"):
        sequences_of(tmp_path / "short.txt")


def test_the_parts_of_a_sequence_have_its_tokens(tokenizer: Tokenizer) -> None:
    """N-gram and rest share the tokens, and each has the frame of special tokens; the n-gram is never masked."""
    (sequence,) = tokenise(tokenizer, ["the new york times of heart"], prefix="", max_tokens=40)
    span = sequence.token_span((4, 12))
    masking = open_masking(tokenizer, share=0.9)
    views = [make_views(sequence, span, masking, np.random.default_rng(seed)) for seed in range(30)]

    assert {words(tokenizer, view.part or []) for view in views} == {"[CLS] new york [SEP]"}
    assert all(words(tokenizer, view.whole).split()[2:4] == ["new", "york"] for view in views)
    assert {place for view in views for place in view.masked} == {1, 4, 5, 6}
    for view in views:
        assert len(view.masked) == round(0.9 * 4)
        assert [sequence.ids[i] for i in view.masked] == view.targets
        assert words(tokenizer, view.rest) == "[CLS] the times of heart [SEP]"
    seen = [token for view in views for token in words(tokenizer, view.whole).split()]
    assert seen.count("[MASK]") > 60


def test_masked_tokens_are_replaced_as_in_bert(tokenizer: Tokenizer) -> None:
    """Of the masked tokens 80 in 100 become [MASK], 10 another token, none a special one, and 10 stay."""
    (sequence,) = tokenise(tokenizer, [" ".join(["heart"] * 100)], prefix="", max_tokens=200)
    masking = open_masking(tokenizer, share=0.5)
    rng = np.random.default_rng(0)
    found = [
        view.whole[i] for view in (make_views(sequence, None, masking, rng) for _ in range(40)) for i in view.masked
    ]
    heart, mask = tokenizer.token_to_id("heart"), tokenizer.token_to_id("[MASK]")

    assert len(found) == 2000
    assert found.count(mask) / 2000 == pytest.approx(0.8, abs=0.04)
    assert found.count(heart) / 2000 == pytest.approx(0.1, abs=0.03)
    assert not {0, 1, 2, 3} & set(found)
    assert make_views(sequence, None, Masking(mask, [5], 0.0), rng).masked == []


@pytest.mark.parametrize("prefix", ["", "post of "])
def test_long_sequences_are_truncated(tokenizer: Tokenizer, prefix: str) -> None:
    """The end token stays, a prefix is part of every view, and an n-gram beyond the end does not count."""
    text = "New York times of heart attack"
    (sequence,) = tokenise(tokenizer, [text], prefix=prefix, max_tokens=5 + 2 * bool(prefix), lowercase=True)
    frame = "[CLS] post of" if prefix else "[CLS]"

    assert words(tokenizer, sequence.ids) == f"{frame} new york times [SEP]"
    assert sequence.text == "new york times"
    assert sequence.token_span((15, 23)) is None
    assert sequence.token_span((0, 30)) is None  # nothing is left for the rest
    span = sequence.token_span((4, 8))
    view = make_views(sequence, span, Masking(4, [9], 0.0), np.random.default_rng(0))
    assert (words(tokenizer, view.part or []), words(tokenizer, view.rest)) == (
        f"{frame} york [SEP]",
        f"{frame} new times [SEP]",
    )


def test_spans_follow_the_offsets_of_other_tokenizers(tmp_path: Path) -> None:
    """A tokenizer that marks spaces, and that strips accents, finds the same words."""
    opened = open_tokenizer(make_albert(tmp_path / "albert") / "tokenizer.json")
    text = "the new yórk times"
    (sequence,) = tokenise(opened, [text], prefix="of ", max_tokens=40)
    span = sequence.token_span((8, 12))
    view = make_views(sequence, span, Masking(4, [9], 0.0), np.random.default_rng(0))

    assert words(opened, view.part or []) == "[CLS] \u2581of \u2581york [SEP]"
    assert words(opened, view.rest) == "[CLS] \u2581of \u2581the \u2581new \u2581times [SEP]"
