"""Tiny random networks with a character encoder, and the checkpoints they make."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import torch
from tiny_models import (
    DIM,
    MAX_LENGTH,
    MAX_POSITIONS,
    N_HEADS,
    N_LAYERS,
    make_albert,
    make_bert,
    make_multilingual_bert,
    make_roberta,
)
from tokenizers import Tokenizer

from pearl_qdrant.encoder.character.network import CharacterEncoder
from pearl_qdrant.encoder.character.table import CharacterConfig, CharacterTable, read_character_table
from pearl_qdrant.encoder.checkpoint import PearlConfig
from pearl_qdrant.encoder.runtime.torch_runtime import PearlNetwork, load_transformer, new_type_head
from pearl_qdrant.phrase_types import PHRASE_TYPES
from training.networks.checkpoints import write_network

CHAR_DIM = 8


def make_cased_bert(folder: Path) -> Path:
    """A BERT that keeps case, as SpanBERT does."""
    make_bert(folder, words=2)
    path = folder / "tokenizer.json"
    loaded = json.loads(path.read_text(encoding="utf-8"))
    loaded["normalizer"]["lowercase"] = False
    vocabulary = loaded["model"]["vocab"]
    for before, after in (("w0", "The"), ("w1", "##ORK")):
        vocabulary[after] = vocabulary.pop(before)
    path.write_text(json.dumps(loaded), encoding="utf-8")
    return folder


def make_luke(folder: Path) -> Path:
    """A LUKE, which is a RoBERTa with embeddings of entities beside it."""
    import transformers

    make_roberta(folder)
    config = transformers.LukeConfig(
        vocab_size=Tokenizer.from_file(str(folder / "tokenizer.json")).get_vocab_size(),
        entity_vocab_size=10,
        entity_emb_size=8,
        hidden_size=DIM,
        num_hidden_layers=N_LAYERS,
        num_attention_heads=N_HEADS,
        intermediate_size=2 * DIM,
        max_position_embeddings=MAX_POSITIONS + 2,
        type_vocab_size=1,
        pad_token_id=1,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        transformers.LukeModel(config).save_pretrained(folder)
    return folder


FAMILIES = {
    "bert": make_bert,
    "cased bert": make_cased_bert,
    "roberta": make_roberta,
    "albert": make_albert,
    "luke": make_luke,
    "multilingual": make_multilingual_bert,
}


def make_character_encoder(folder: Path, *, max_pieces: int = 3, seed: int = 0) -> CharacterEncoder:
    """A tiny character encoder for the tokenizer of a folder."""
    table = read_character_table(folder / "tokenizer.json")
    return CharacterEncoder(
        table, tiny_config(table, max_pieces=max_pieces), CHAR_DIM, generator=torch.Generator().manual_seed(seed)
    ).eval()


def tiny_config(table: CharacterTable, *, max_pieces: int = 3) -> CharacterConfig:
    """Widths of a tiny character encoder, with bounds that names of the tests go past."""
    return CharacterConfig(
        alphabet=table.alphabet,
        share=0.3,
        embedding_dim=8,
        attention_dim=4,
        word_dim=12,
        max_characters=7,
        max_pieces=max_pieces,
    )


def make_network(folder: Path, *, max_pieces: int = 3, seed: int = 0) -> PearlNetwork:
    """The transformer of a folder with a character encoder and a type head beside it, both random."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        head = new_type_head(DIM + CHAR_DIM)
    encoder = make_character_encoder(folder, max_pieces=max_pieces, seed=seed)
    return PearlNetwork(load_transformer(folder), head, character_encoder=encoder).eval()


def make_trained(
    folder: Path, *, seed: int = 0, onnx_path: Path | None = None, make: Callable[..., Path] = make_bert
) -> Path:
    """A checkpoint with weights for torch and a character encoder, as a stage of training leaves it."""
    transformer = make(folder.parent / f".{folder.name}-parts", seed=seed)
    counts = (1,) * (len(PHRASE_TYPES) - 1) + (0,)
    config = PearlConfig(name="tiny", dim=DIM, phrase_dim=DIM, label_counts=counts, max_length=MAX_LENGTH)
    return write_network(
        folder, make_network(transformer, seed=seed), config, transformer=transformer, onnx_path=onnx_path
    ).folder


def tokenised(folder: Path, names: list[str]) -> tuple[torch.Tensor, torch.Tensor]:
    """Token ids and mask of names, padded to the longest."""
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    pad = next(tokenizer.token_to_id(token) for token in ("[PAD]", "<pad>") if tokenizer.token_to_id(token) is not None)
    ids = [tokenizer.encode(name).ids for name in names]
    width = max(map(len, ids))
    mask = torch.tensor([[1] * len(row) + [0] * (width - len(row)) for row in ids])
    return torch.tensor([row + [pad] * (width - len(row)) for row in ids]), mask


def words_of(folder: Path, names: list[str]) -> list[list[str]]:
    """What the encoder reads of each name, word by word: `<characters>` and the number of wordpieces."""
    encoder = make_character_encoder(folder)
    found = encoder.words(*tokenised(folder, names))
    shown: list[list[str]] = [[] for _ in [*names, ""]]
    letters = ["", "<", ">", *encoder.config.alphabet]
    for row, codes in zip(found.rows.tolist(), found.codes.tolist(), strict=True):
        word = "".join(letters[code] for code in codes if code < len(letters))
        n_pieces = sum(code >= len(letters) for code in codes)
        shown[row].append(f"{word}{n_pieces}")
    return shown[:-1]
