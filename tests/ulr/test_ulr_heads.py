"""The MLM head: of a checkpoint that has one, made for one that has none, and written with the encoder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file
from tiny_models import DIM, as_sentence_transformers, make_bert, make_pearl, write_json
from ulr_cases import make_encoder, make_masked_lm, open_base

from pearl_qdrant.encoder.loading import load_encoder
from pearl_qdrant.errors import CheckpointError, ModelError
from training.networks.checkpoints import open_base_model
from training.ulr.objective import head_names
from training.ulr.train_ulr import write_encoder

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


@pytest.mark.parametrize("kind", KINDS)
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
    assert (base.network.pooling, base.prefix, base.max_length) == (pooling, "the ", 16)
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


def test_a_tokenizer_of_another_model_is_refused(tmp_path: Path) -> None:
    """A token without an embedding would end the run in an error of torch."""
    folder = make_encoder(tmp_path / "bert", "bert")
    other = make_bert(tmp_path / "other", words=5)
    (folder / "tokenizer.json").write_bytes((other / "tokenizer.json").read_bytes())
    with pytest.raises(CheckpointError, match="belongs to another model"):
        open_base(folder)


def test_other_families_are_refused(tmp_path: Path) -> None:
    """The message names the families that can be trained."""
    with pytest.raises(ModelError, match="type 'gpt2' cannot be trained with ULR; these can: albert, bert"):
        head_names("gpt2")
    write_json(tmp_path / "config.json", {"model_type": "bert"})
    with pytest.raises(CheckpointError, match=r"no model\.safetensors"):
        open_base(tmp_path)
