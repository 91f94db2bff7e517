"""Batches of names: each name once, bounded memory, little padding, errors of workers.
The character encoder: builds words from token ids, in torch and in ONNX, for every kind of tokenizer.
"""

from __future__ import annotations

import json
import math
import threading
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import copy_context
from dataclasses import replace
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import onnxruntime as ort
import pytest
import torch
from character_models import CHAR_DIM, FAMILIES, make_network, tokenised, words_of
from effort import examples
from encoder_cases import cosines
from hypothesis import given, settings
from hypothesis import strategies as st
from onnxruntime.capi.onnxruntime_pybind11_state import RuntimeException as OnnxRuntimeError
from tiny_models import DIM, NAMES, make_bert

from pearl_qdrant.encoder import batching
from pearl_qdrant.encoder.batching import Batch, BatchEncoder, BatchLimits, NameTokenizer, RunBatch, plan_batches
from pearl_qdrant.encoder.character.network import CharacterEncoder, sinusoids
from pearl_qdrant.encoder.character.table import read_character_table
from pearl_qdrant.encoder.protocol import Encoder, FloatArray, ModelInfo
from pearl_qdrant.encoder.runtime.torch_runtime import PearlNetwork, join_parts
from pearl_qdrant.errors import CheckpointError
from pearl_qdrant.pieces import with_pauses
from training.export.int8_graph import write_int8_graph

INFO = ModelInfo("tiny", "", 1, "mean", "", False, "cpu", "fp32", "onnx")


@pytest.mark.parametrize("workers", [1, 3])
def test_each_distinct_name_is_encoded_once(
    folders: dict[str, Path], workers: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Repeated names cost nothing, across windows too, and every name gets its own vector."""
    monkeypatch.setattr(batching, "WINDOW_NAMES", 16)
    rows: list[int] = []

    def first_tokens(batch: Batch) -> tuple[FloatArray, None]:
        rows.extend([1] * len(batch.input_ids))
        return np.float32(batch.input_ids[:, 1:2]), None

    tokenizer = NameTokenizer(folders["bert"], max_length=16)
    limits = BatchLimits(max_tokens=64, max_names=8, workers=workers)
    encoder = BatchEncoder(tokenizer, first_tokens, info=INFO, never_seen=None, limits=limits)
    names = [letter + "x" * (i % 9) for i in range(4) for letter in "abcdefghijklmnopqrstuvwxyz"] * 2
    ids, _ = tokenizer.token_ids(names)
    assert encoder.encode(names).vectors[:, 0].tolist() == [name_ids[1] for name_ids in ids]
    assert len(rows) == len(set(names))


def test_a_small_call_does_not_wait_for_all_batches_of_a_large_one(
    folders: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The batches of calls are run in turn."""
    monkeypatch.setattr(batching, "MIN_SPLIT_TOKENS", 16)
    may_run, is_running, is_waiting = threading.Semaphore(0), threading.Event(), threading.Event()
    tokenizer = NameTokenizer(folders["bert"], max_length=16)
    ((large_ids, _), _) = tokenizer.token_ids(["a", "b"])

    def run(batch: Batch) -> tuple[FloatArray, None]:
        if (batch.input_ids[:, 1] == large_ids[1]).any():
            is_running.set()
            may_run.acquire()
        return np.float32(batch.input_ids[:, 1:2]), None

    encoder = BatchEncoder(
        tokenizer, run, info=INFO, never_seen=None, limits=BatchLimits(max_tokens=16, max_names=2, workers=2)
    )

    def small() -> None:
        with_pauses(is_waiting.set)
        encoder.encode([f"b {i}" for i in range(8)])

    with ThreadPoolExecutor(2) as threads:
        large = threads.submit(encoder.encode, ["a " + "b " * (i % 3) + str(i) for i in range(100)])
        assert is_running.wait(60)
        asked = threads.submit(copy_context().run, small)
        assert is_waiting.wait(60)
        for _ in range(12):
            may_run.release()
        asked.result(60)
        assert not large.done()
        may_run.release(100)


@pytest.mark.parametrize("before", ["nothing to encode", "an interrupted call"])
def test_a_call_waits_for_its_own_batches_alone(
    folders: dict[str, Path], before: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A call without a batch, or one that was interrupted while it started its batches, costs no later call a batch."""
    tokenizer = NameTokenizer(folders["bert"], max_length=16)
    limits = BatchLimits(max_tokens=32, max_names=2, workers=2)
    encoder = BatchEncoder(
        tokenizer, lambda batch: (np.float32(batch.input_ids[:, 1:2]), None), info=INFO, never_seen=None, limits=limits
    )
    names = [f"name {i}" for i in range(100)]
    if before == "nothing to encode":
        assert not encoder.encode([" ", ""]).encodable.any()
    else:
        monkeypatch.setattr(ThreadPoolExecutor, "submit", Mock(side_effect=[Future(), KeyboardInterrupt]))
        with pytest.raises(KeyboardInterrupt):
            encoder.encode(names)
        monkeypatch.undo()
    with ThreadPoolExecutor(1) as threads:
        found = threads.submit(encoder.encode, names).result(60)
    assert found.encodable.all()
    assert found.vectors.all()


def test_an_error_in_a_worker_is_raised(folders: dict[str, Path]) -> None:
    """A failed batch is never a row of zeros."""

    def fail(batch: Batch) -> tuple[FloatArray, None]:
        raise MemoryError(f"{len(batch.input_ids)} names")

    limits = BatchLimits(max_tokens=32, max_names=2, workers=2)
    tokenizer = NameTokenizer(folders["bert"], max_length=16)
    encoder = BatchEncoder(tokenizer, fail, info=INFO, never_seen=None, limits=limits)
    with pytest.raises(MemoryError):
        encoder.encode([f"name {i}" for i in range(200)])


@pytest.mark.parametrize(
    "error",
    [
        MemoryError("no"),
        RuntimeError("CUDA out of memory. Tried to allocate 2 GiB"),
        OnnxRuntimeError("[ONNXRuntimeError] : 6 : RUNTIME_EXCEPTION : Failed to allocate memory for requested buffer"),
    ],
)
def test_a_batch_that_runs_out_of_memory_is_halved(folders: dict[str, Path], error: Exception) -> None:
    """No name is lost, and every name gets its own vector."""
    sizes = []
    tokenizer = NameTokenizer(folders["bert"], max_length=16)
    names = [f"name {i} of {i * 7}" for i in range(40)]

    def sums(batch: Batch) -> tuple[FloatArray, None]:  # of token ids, which tell a name from another
        return np.repeat(batch.input_ids.sum(axis=1, keepdims=True).astype(np.float32), 2, axis=1), None

    def run(batch: Batch) -> tuple[FloatArray, None]:
        sizes.append(len(batch.input_ids))
        if sizes[-1] > 3:
            raise error
        return sums(batch)

    def encoded_by(run_batch: RunBatch) -> FloatArray:
        limits = BatchLimits(max_tokens=256, max_names=16, workers=1)
        encoder = BatchEncoder(tokenizer, run_batch, info=replace(INFO, dim=2), never_seen=None, limits=limits)
        return encoder.encode(names).vectors

    np.testing.assert_array_equal(encoded_by(run), encoded_by(sums))
    assert max(sizes) > 3
    error = ValueError("another fault is not tried again")
    with pytest.raises(ValueError, match="another fault"):
        encoded_by(run)


def test_several_threads_may_encode_at_once(encoders: dict[str, Encoder]) -> None:
    """The threads of a server can share one encoder."""
    names = [f"{name} {i}" for name in NAMES for i in range(30)]
    expected = encoders["onnx"].encode(names).vectors
    with ThreadPoolExecutor(4) as pool:
        for encoded in pool.map(encoders["onnx"].encode, [names] * 8):
            assert cosines(encoded.vectors, expected).min() >= 0.9999


@given(
    lengths=st.lists(st.integers(1, 64), max_size=300), max_tokens=st.integers(1, 2048), max_names=st.integers(1, 256)
)
@settings(max_examples=examples(100), deadline=None, derandomize=True)
def test_batches_contain_each_name_once_within_the_limits(lengths: list[int], max_tokens: int, max_names: int) -> None:
    """Memory stays bounded for all lengths of names."""
    array = np.array(lengths, dtype=np.int64)
    batches = list(plan_batches(array, max_tokens=max_tokens, max_names=max_names))
    assert sorted(row for batch in batches for row in batch.tolist()) == list(range(len(lengths)))
    for batch in batches:
        assert len(batch) <= max_names
        assert len(batch) == 1 or len(batch) * array[batch].max() <= max_tokens


@pytest.fixture(scope="module")
def families(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A tiny model of each family."""
    root = tmp_path_factory.mktemp("families")
    return {family: make(root / family.replace(" ", "-")) for family, make in FAMILIES.items()}


@pytest.fixture(scope="module")
def network(families: dict[str, Path]) -> PearlNetwork:
    """A tiny BERT with a character encoder."""
    return make_network(families["bert"])


@pytest.mark.parametrize(
    "family, expected",
    [
        ("bert", ["<the>1", "<y>1", "<x>1", "<->1", "<ray>3"]),
        ("cased bert", ["<the>1", "<york>2"]),
        ("roberta", ["<the>3", "<york>3"]),
        ("albert", ["<the>1", "<york>1"]),
        ("luke", ["<the>3", "<york>3"]),
        ("no words", []),
    ],
)
def test_words_come_out_of_token_ids(families: dict[str, Path], family: str, expected: list[str]) -> None:
    """The marks of words of each tokenizer are understood: ##, byte-level spaces, and those of SentencePiece."""
    texts = {"bert": "The y x-ray", "cased bert": "The yORK", "no words": "\N{SLIGHTLY SMILING FACE}"}
    folder = families["bert" if family == "no words" else family]

    assert words_of(folder, [texts.get(family, "the york"), "the"])[0] == expected


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
def test_a_phrase_is_the_mean_of_its_words(families: dict[str, Path], network: PearlNetwork) -> None:
    """The order of words does not change the character part; an additional word does."""
    encoder = network.character_encoder
    assert encoder is not None
    one, two, turned, three = encoder(*tokenised(families["bert"], ["york", "new york", "york new", "new york post"]))
    (new,) = encoder(*tokenised(families["bert"], ["new"]))

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


@pytest.mark.parametrize("family", sorted(FAMILIES))
@torch.no_grad()
def test_vectors_of_every_family_do_not_depend_on_other_names(families: dict[str, Path], family: str) -> None:
    """BERT, SpanBERT, RoBERTa, ALBERT and LUKE run with a character encoder; padding and batch change nothing."""
    network = make_network(families[family])
    ids, mask = tokenised(families[family], NAMES)
    together, logits = network(ids, mask)

    assert together.shape == (len(NAMES), DIM + CHAR_DIM)
    assert logits.shape == (len(NAMES), 95)
    torch.testing.assert_close(together.norm(dim=1), torch.ones(len(NAMES)))
    for i, n in enumerate(mask.sum(1).tolist()):
        alone, alone_logits = network(ids[i : i + 1, :n], mask[i : i + 1, :n])
        torch.testing.assert_close(alone[0], together[i], atol=1e-5, rtol=1e-4)
        torch.testing.assert_close(alone_logits[0], logits[i], atol=1e-3, rtol=1e-3)


@pytest.fixture(scope="module")
def sessions(
    families: dict[str, Path], tmp_path_factory: pytest.TempPathFactory
) -> list[tuple[PearlNetwork, ort.InferenceSession]]:
    """Networks with and without wordpieces, and their graphs."""
    made = []
    for max_pieces in (3, 0):
        path = tmp_path_factory.mktemp("graph") / "model.onnx"
        with_pieces = make_network(families["bert"], max_pieces=max_pieces)
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
