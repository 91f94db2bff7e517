"""Batches of names: each name once, bounded memory, little padding, errors of workers."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from effort import examples
from encoder_cases import cosines
from hypothesis import given, settings
from hypothesis import strategies as st
from onnxruntime.capi.onnxruntime_pybind11_state import RuntimeException as OnnxRuntimeError
from tiny_models import NAMES

from pearl_qdrant.encoder import batching
from pearl_qdrant.encoder.batching import BatchEncoder, BatchLimits, RunBatch
from pearl_qdrant.encoder.protocol import Encoder, FloatArray
from pearl_qdrant.encoder.tokens import Batch, NameTokenizer, plan_batches


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
    encoder = BatchEncoder(tokenizer, first_tokens, dim=1, never_seen=None, limits=limits)
    names = [letter + "x" * (i % 9) for i in range(4) for letter in "abcdefghijklmnopqrstuvwxyz"] * 2
    ids, _ = tokenizer.token_ids(names)
    assert encoder.encode(names).vectors[:, 0].tolist() == [name_ids[1] for name_ids in ids]
    assert len(rows) == len(set(names))


def test_an_error_in_a_worker_is_raised(folders: dict[str, Path]) -> None:
    """A failed batch is never a row of zeros."""

    def fail(batch: Batch) -> tuple[FloatArray, None]:
        raise MemoryError(f"{len(batch.input_ids)} names")

    limits = BatchLimits(max_tokens=32, max_names=2, workers=2)
    tokenizer = NameTokenizer(folders["bert"], max_length=16)
    encoder = BatchEncoder(tokenizer, fail, dim=1, never_seen=None, limits=limits)
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

    def run(batch: Batch) -> tuple[FloatArray, None]:
        sizes.append(len(batch.input_ids))
        if sizes[-1] > 3:
            raise error
        # The sum of its token ids tells a name from another.
        return np.repeat(batch.input_ids.sum(axis=1, keepdims=True).astype(np.float32), 2, axis=1), None

    tokenizer = NameTokenizer(folders["bert"], max_length=16)

    def encoded_by(run_batch: RunBatch) -> FloatArray:
        limits = BatchLimits(max_tokens=256, max_names=16, workers=1)
        return BatchEncoder(tokenizer, run_batch, dim=2, never_seen=None, limits=limits).encode(names).vectors

    names = [f"name {i} of {i * 7}" for i in range(40)]
    halved = encoded_by(run)
    assert max(sizes) > 3
    error = ValueError("another fault is not tried again")
    with pytest.raises(ValueError, match="another fault"):
        encoded_by(run)
    np.testing.assert_array_equal(
        halved, encoded_by(lambda b: (np.repeat(b.input_ids.sum(1)[:, None].astype(np.float32), 2, 1), None))
    )


def test_several_threads_may_encode_at_once(encoders: dict[str, Encoder]) -> None:
    """The threads of a server can share one encoder."""
    names = [f"{name} {i}" for name in NAMES for i in range(30)]
    expected = encoders["onnx"].encode(names).vectors
    with ThreadPoolExecutor(4) as pool:
        for encoded in pool.map(encoders["onnx"].encode, [names] * 8):
            assert cosines(encoded.vectors, expected).min() >= 0.9999


@given(
    lengths=st.lists(st.integers(1, 64), max_size=300),
    max_tokens=st.integers(1, 2048),
    max_names=st.integers(1, 256),
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


def test_little_padding_is_computed() -> None:
    """Names of a typical base cost at most a tenth more than their tokens."""
    lengths = np.clip(np.random.default_rng(0).poisson(4, 2000) + 3, 3, 64)
    batches = plan_batches(lengths, max_tokens=2048, max_names=256)
    cells = sum(len(batch) * int(lengths[batch].max()) for batch in batches)
    assert cells <= 1.1 * lengths.sum()
