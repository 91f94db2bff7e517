"""Encoding on a GPU: the rate beside sentence-transformers, and how far bfloat16 is from float32.

    python benchmarks/training/encoding_gpu.py --model FOLDER --plain FOLDER --names FILE [--device cuda]

--model is a checkpoint with weights for torch (`pearl-qdrant models export pearl-mini FOLDER --torch`), --plain a
folder of all-MiniLM-L6-v2, which both programs can load, --names a file with one name a line. Rates are the best of
three passes over the same names in random order, tokenisation included.
"""

from __future__ import annotations

import platform
import random
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import click
import numpy as np
import torch

from pearl_qdrant.encoder.loading import load_encoder

Encode = Callable[[Sequence[str]], Any]
PASSES = 3


def rate(encode: Encode, names: list[str]) -> float:
    """Names a second; the best of three passes, after a first one over some of the names."""
    encode(names[:4096])
    seconds = []
    for _ in range(PASSES):
        began = time.perf_counter()
        encode(names)
        seconds.append(time.perf_counter() - began)
    return len(names) / min(seconds)


def compare(exact: np.ndarray[Any, Any], fast: np.ndarray[Any, Any], names: list[str]) -> str:
    """How far two encodings of the same names are apart, and how often a name's nearest other name differs."""
    cosines = (exact * fast).sum(1)
    n = min(len(names), 20_000)
    same = 0
    for start in range(0, n, 2_000):
        nearest = []
        for vectors in (exact, fast):
            similarity = vectors[start : min(n, start + 2_000)] @ vectors[:n].T
            similarity[np.arange(len(similarity)), start + np.arange(len(similarity))] = -1
            nearest.append(similarity.argmax(1))
        same += int((nearest[0] == nearest[1]).sum())
    return (
        f"cosine of a name's two vectors: mean {cosines.mean():.6f}, least {cosines.min():.6f}; "
        f"same nearest of {n:,} names: {same / n:.2%}"
    )


@click.command()
@click.option("--model", type=click.Path(path_type=Path, exists=True), required=True)
@click.option("--plain", type=click.Path(path_type=Path, exists=True), required=True)
@click.option("--names", "names_path", type=click.Path(path_type=Path, exists=True), required=True)
@click.option("--device", default="cuda")
@click.option("--limit", type=int, default=200_000)
def main(model: Path, plain: Path, names_path: Path, device: str, limit: int) -> None:
    """Measure."""
    lines = dict.fromkeys(line for line in names_path.read_text("utf-8").splitlines() if line.strip())
    names = random.Random(0).sample(list(lines), min(limit, len(lines)))
    machine = torch.cuda.get_device_name(device) if device.startswith("cuda") else platform.processor()
    click.echo(f"{machine}, {torch.get_num_threads()} threads, torch {torch.__version__}, {len(names):,} names")
    for label, folder in (("the shipped model", model), ("all-MiniLM-L6-v2", plain)):
        vectors = {}
        for precision in ("fp32", "bf16"):
            encoder = load_encoder(str(folder), device=device, runtime="torch", precision=precision)
            click.echo(f"{label}, {precision}: {rate(encoder.encode, names):,.0f} names/s")
            vectors[precision] = encoder.encode(names).vectors
        click.echo(f"{label}: {compare(vectors['fp32'], vectors['bf16'], names)}")
    from sentence_transformers import SentenceTransformer

    for dtype in (torch.float32, torch.bfloat16):
        peer = SentenceTransformer(str(plain), device=device, model_kwargs={"dtype": dtype})
        for batch in (32, 1024):

            def encode(found: Sequence[str], peer: Any = peer, batch: int = batch) -> Any:
                return peer.encode(list(found), batch_size=batch, show_progress_bar=False)

            click.echo(f"sentence-transformers, {dtype}, batches of {batch}: {rate(encode, names):,.0f} names/s")


if __name__ == "__main__":
    main()
