"""The character encoder: builds words from token ids, in torch and in ONNX, for every kind of tokenizer."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import numpy.typing as npt
import onnxruntime as ort
import pytest
import torch
from character_models import (
    CHAR_DIM,
    FAMILIES,
    make_character_encoder,
    make_network,
    tiny_config,
    tokenised,
    words_of,
)
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny_models import DIM, NAMES, make_bert, make_roberta

from pearl_qdrant.encoder.character.network import CharacterEncoder, sinusoids
from pearl_qdrant.encoder.character.table import check_alphabet, read_character_table
from pearl_qdrant.encoder.runtime.network import PearlNetwork, join_parts
from pearl_qdrant.errors import CheckpointError
from training.export.int8_graph import write_int8_graph

Array = npt.NDArray[np.float32]


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A tiny model of each family."""
    root = tmp_path_factory.mktemp("families")
    return {family: make(root / family.replace(" ", "-")) for family, make in FAMILIES.items()}


@pytest.fixture(scope="module")
def network(folders: dict[str, Path]) -> PearlNetwork:
    """A tiny BERT with a character encoder."""
    return make_network(folders["bert"])


@pytest.mark.parametrize(
    "family, expected",
    [
        ("bert", ["<the>1", "<y>1", "<x>1", "<->1", "<ray>3"]),
        ("cased bert", ["<the>1", "<york>2"]),
        ("roberta", ["<the>3", "<york>3"]),
        ("albert", ["<the>1", "<york>1"]),
        ("luke", ["<the>3", "<york>3"]),
    ],
)
def test_words_come_out_of_token_ids(folders: dict[str, Path], family: str, expected: list[str]) -> None:
    """The marks of words of each tokenizer are understood: ##, byte-level spaces, and those of SentencePiece."""
    text = {"bert": "The y x-ray", "cased bert": "The yORK"}.get(family, "the york")

    assert words_of(folders[family], [text]) == [expected]


def test_a_long_word_is_cut(folders: dict[str, Path]) -> None:
    """A very long word costs at most seven characters and three wordpieces here, and the next word is separate."""
    assert words_of(folders["bert"], ["abcdefghijk the", "a"]) == [["<abcdefg>3", "<the>1"], ["<a>1"]]


def test_names_without_words_have_none(folders: dict[str, Path]) -> None:
    """A single emoji gives no word, and does not disturb other names."""
    assert words_of(folders["bert"], ["\N{SLIGHTLY SMILING FACE}", "the"]) == [[], ["<the>1"]]


def test_bytes_that_are_not_characters_have_their_own_codes(folders: dict[str, Path]) -> None:
    """Parts of characters in a byte-level vocabulary are distinct, and the alphabet is valid JSON text."""
    table = read_character_table(folders["roberta"] / "tokenizer.json")

    assert len(table.alphabet) == len(set(table.alphabet))
    assert {"\ue0c3", "a"} <= set(table.alphabet)
    assert "A" not in table.alphabet
    assert json.loads(json.dumps(table.alphabet, ensure_ascii=False).encode()) == list(table.alphabet)


def naive_word(encoder: CharacterEncoder, codes: list[int]) -> torch.Tensor:
    """The vector of one word by the equations of LOVE, position by position."""
    config = encoder.config
    x = [encoder.embeddings.weight[code] for code in codes]
    places = torch.from_numpy(sinusoids(len(codes), config.embedding_dim))
    total = torch.zeros(config.word_dim)
    for i in range(len(codes)):
        near = [math.exp(float(places[i] @ p) / config.embedding_dim**0.25) for p in places]
        query = torch.relu(encoder.query.weight @ x[i])
        keys = [torch.relu(encoder.key.weight @ y) for y in x]
        alike = [math.exp(float(query @ key) / config.attention_dim**0.25) for key in keys]
        by_place = sum((a / sum(near) * y for a, y in zip(near, x, strict=True)), torch.zeros(config.embedding_dim))
        by_content = sum((a / sum(alike) * y for a, y in zip(alike, x, strict=True)), torch.zeros(config.embedding_dim))
        total += torch.relu(encoder.output(torch.cat([encoder.position.weight @ by_place, by_content])))
    return total / total.norm()


@torch.no_grad()
def test_a_word_vector_is_that_of_the_equations(network: PearlNetwork) -> None:
    """The batched encoder equals a plain loop over positions, for short and long words."""
    encoder = network.character_encoder
    assert encoder is not None
    codes = [[1, 5, 2], [1, 9, 8, 7, 12, 2, 60, 61], [1, 2, 70]]
    padded = torch.tensor([row + [0] * (9 - len(row)) for row in codes])
    expected = torch.stack([naive_word(encoder, row) for row in codes])

    torch.testing.assert_close(encoder.word_vectors(padded), expected, atol=1e-5, rtol=1e-4)


@torch.no_grad()
def test_a_phrase_is_the_mean_of_its_words(folders: dict[str, Path], network: PearlNetwork) -> None:
    """The order of words does not change the character part; an additional word does."""
    encoder = network.character_encoder
    assert encoder is not None
    one, two, turned, three = encoder(*tokenised(folders["bert"], ["york", "new york", "york new", "new york post"]))
    (new,) = encoder(*tokenised(folders["bert"], ["new"]))

    torch.testing.assert_close(two, (one + new) / 2)
    torch.testing.assert_close(two, turned)
    assert not torch.allclose(two, three, atol=1e-3)


@torch.no_grad()
def test_the_share_is_the_weight_of_characters_in_the_cosine() -> None:
    """cos(h, h') = (1 - share) cos(u, u') + share cos(v, v'), for all lengths."""
    generator = torch.Generator().manual_seed(0)
    u, v = torch.randn(2, 6, generator=generator) * 30, torch.randn(2, 4, generator=generator) * 0.01
    h = torch.nn.functional.normalize(join_parts(u, v, share=0.3), dim=-1)
    cosine = torch.nn.functional.cosine_similarity

    torch.testing.assert_close(h[0] @ h[1], 0.7 * cosine(u[0], u[1], dim=0) + 0.3 * cosine(v[0], v[1], dim=0))
    assert torch.isfinite(join_parts(u, torch.zeros(2, 4), share=0.3)).all()


@torch.no_grad()
def test_the_share_grows_with_the_tokens_that_continue_a_word(folders: dict[str, Path]) -> None:
    """A name of whole words has the share, a split word more, and a name of padding or of none of the two the share."""
    names = ["the", "the ray", "ray", "\N{SLIGHTLY SMILING FACE}"]
    ids, mask = tokenised(folders["bert"], names)
    constant = make_character_encoder(folders["bert"])
    growing = make_character_encoder(folders["bert"], continuation_share=0.7)

    # "ray" is three wordpieces, the last two of which continue it.
    expected = torch.tensor([[0.3], [0.3 + 0.4 * 2 / 4], [0.3 + 0.4 * 2 / 3], [0.3]])
    torch.testing.assert_close(growing.shares(ids, mask), expected)
    torch.testing.assert_close(growing.shares(ids[:1], torch.zeros_like(mask[:1])), expected[:1])
    torch.testing.assert_close(constant.shares(ids, mask), torch.full((4, 1), 0.3))
    network = make_network(folders["bert"], continuation_share=0.7)
    torch.testing.assert_close(network(ids, mask)[0][:3, DIM:].square().sum(1), expected[:3, 0])


@pytest.mark.parametrize("family", sorted(FAMILIES))
@torch.no_grad()
def test_vectors_of_every_family_do_not_depend_on_other_names(folders: dict[str, Path], family: str) -> None:
    """BERT, SpanBERT, RoBERTa, ALBERT and LUKE run with a character encoder; padding and batch change nothing."""
    network = make_network(folders[family])
    ids, mask = tokenised(folders[family], NAMES)
    together, logits = network(ids, mask)

    assert together.shape == (len(NAMES), DIM + CHAR_DIM)
    assert logits.shape == (len(NAMES), 95)
    torch.testing.assert_close(together.norm(dim=1), torch.ones(len(NAMES)))
    for i, n in enumerate(mask.sum(1).tolist()):
        alone, alone_logits = network(ids[i : i + 1, :n], mask[i : i + 1, :n])
        torch.testing.assert_close(alone[0], together[i], atol=1e-5, rtol=1e-4)
        torch.testing.assert_close(alone_logits[0], logits[i], atol=1e-3, rtol=1e-3)


def test_gradients_reach_every_weight(folders: dict[str, Path]) -> None:
    """Training changes phrase encoder, character encoder and head; `pool` returns the input of the head."""
    network = make_network(folders["bert"]).train()
    ids, mask = tokenised(folders["bert"], NAMES[:4])
    pooled = network.pool(ids, mask)
    embedding, logits = network(ids, mask)
    assert logits is not None
    assert network.type_head is not None
    network.eval()
    torch.testing.assert_close(torch.nn.functional.normalize(network.pool(ids, mask), dim=-1), network(ids, mask)[0])
    assert pooled.shape == (4, DIM + CHAR_DIM)
    (embedding[0] @ embedding[1] + logits.logsumexp(1).sum()).backward()  # type: ignore[no-untyped-call]

    assert [name for name, p in network.named_parameters() if p.grad is None] == []
    encoder = network.character_encoder
    assert encoder is not None
    assert all(float(p.grad.abs().sum()) > 0 for p in encoder.parameters() if p.grad is not None)


def run(path: Path, ids: torch.Tensor, mask: torch.Tensor) -> tuple[Array, Array]:
    """Embedding and logits from a graph."""
    session = ort.InferenceSession(str(path))
    feed = {"input_ids": ids.numpy(), "attention_mask": mask.numpy()}
    embedding, logits = session.run(["embedding", "type_logits"], feed)
    return embedding, logits


@pytest.fixture(scope="module")
def sessions(
    folders: dict[str, Path], tmp_path_factory: pytest.TempPathFactory
) -> list[tuple[PearlNetwork, ort.InferenceSession]]:
    """Networks with and without wordpieces, and one with a share that grows, and their graphs."""
    made = []
    for max_pieces, continuation_share in ((3, None), (0, None), (3, 0.6)):
        path = tmp_path_factory.mktemp("graph") / "model.onnx"
        with_pieces = make_network(folders["bert"], max_pieces=max_pieces, continuation_share=continuation_share)
        write_int8_graph(with_pieces, path)
        made.append((with_pieces, ort.InferenceSession(str(path))))
    return made


@settings(max_examples=20, deadline=None, derandomize=True)
@given(
    rows=st.lists(st.lists(st.integers(0, 90), min_size=1, max_size=14), min_size=1, max_size=5),
    ends=st.lists(st.integers(0, 14), min_size=5, max_size=5),
)
def test_the_graph_has_the_character_part_of_torch(
    sessions: list[tuple[PearlNetwork, ort.InferenceSession]], rows: list[list[int]], ends: list[int]
) -> None:
    """For all tokens and masks, also for empty words and rows of padding, ONNX gives the same result as torch."""
    width = max(map(len, rows))
    ids = torch.tensor([row + [0] * (width - len(row)) for row in rows])
    mask = torch.tensor([[int(i < min(end, len(row))) for i in range(width)] for row, end in zip(rows, ends)])  # noqa: B905
    for network, session in sessions:
        feed = {"input_ids": ids.numpy(), "attention_mask": mask.numpy()}
        (embedding,) = session.run(["embedding"], feed)
        with torch.inference_mode():
            expected = network(ids, mask)[0].numpy()
        real = mask.sum(1).numpy() > 0

        assert np.isfinite(embedding).all()
        np.testing.assert_allclose(embedding[real, DIM:], expected[real, DIM:], atol=0.01)
        assert (embedding * expected)[real].sum(1).min(initial=1.0) > 0.99


def test_a_tokenizer_whose_words_are_not_marked_is_refused(tmp_path: Path) -> None:
    """A tokenizer that does not mark words gives a clear error with a solution."""
    folder = make_bert(tmp_path / "tiny")
    loaded = json.loads((folder / "tokenizer.json").read_text())
    loaded["model"] = {"type": "WordLevel", "vocab": loaded["model"]["vocab"], "unk_token": "[UNK]"}
    loaded["decoder"] = None
    (folder / "tokenizer.json").write_text(json.dumps(loaded))
    with pytest.raises(CheckpointError, match=r"a WordLevel tokenizer that does not mark words.*char_dim 0"):
        read_character_table(folder / "tokenizer.json")


@pytest.mark.parametrize("content", [None, "", "{}", "[]", '{"model": {"vocab": {}}}', '{"model": {"vocab": 3}}'])
def test_a_broken_tokenizer_is_refused(tmp_path: Path, content: str | None) -> None:
    """A missing or invalid tokenizer.json is named."""
    path = tmp_path / "tokenizer.json"
    if content is not None:
        path.write_text(content)
    with pytest.raises(CheckpointError, match=r"tokenizer\.json: "):
        read_character_table(path)


def test_another_alphabet_is_refused(tmp_path: Path) -> None:
    """A character encoder does not run with the tokenizer of another model."""
    table = read_character_table(make_bert(tmp_path / "bert") / "tokenizer.json")
    other = read_character_table(make_roberta(tmp_path / "roberta") / "tokenizer.json")
    with pytest.raises(
        CheckpointError, match=rf"its {len(other.alphabet)} characters are not the {len(table.alphabet)}"
    ):
        check_alphabet(tmp_path, tiny_config(table), other)
    with pytest.raises(ValueError, match="characters"):
        CharacterEncoder(other, tiny_config(table), CHAR_DIM)
    with pytest.raises(ValueError, match="char_dim"):
        CharacterEncoder(table, tiny_config(table), 0)
