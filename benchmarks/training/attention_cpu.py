"""Measures a training step on a CPU with torch's fused attention, and with plain products, which training uses.

    python benchmarks/training/attention_cpu.py --model all-MiniLM-L6-v2/

A step is forward and backward pass of 320 names of 1 to 8 words, made of random letters, in passes of 64 sorted by
length. Both kernels take turns; the figure is the median over the steps, in seconds.
"""

from __future__ import annotations

import random
import statistics
import time
from pathlib import Path

import click
import torch
from tokenizers import Tokenizer
from torch.nn.attention import SDPBackend, sdpa_kernel

from pearl_qdrant.encoder.runtime.network import PearlNetwork, load_phrase_encoder
from training.networks.phrase_vectors import autocast, micro_batches

KERNELS = {"fused": SDPBackend.FLASH_ATTENTION, "plain": SDPBackend.MATH}


def make_names(n: int, rng: random.Random) -> list[str]:
    """Names of random letters."""

    def word() -> str:
        return "".join(rng.choices("abcdefghiklmnoprstuw", k=rng.randint(2, 8)))

    return [" ".join(word() for _ in range(rng.randint(1, 8))) for _ in range(n)]


@click.command()
@click.option("--model", type=click.Path(path_type=Path, exists=True, file_okay=False), required=True)
@click.option("--steps", type=click.IntRange(1), default=10, show_default=True)
@click.option("--threads", type=click.IntRange(1), default=2, show_default=True)
def main(model: Path, steps: int, threads: int) -> None:
    """Time both kernels in fp32 and bf16."""
    torch.set_num_threads(threads)
    tokenizer = Tokenizer.from_file(str(model / "tokenizer.json"))
    tokenizer.no_padding()
    tokenizer.no_truncation()
    network = PearlNetwork(load_phrase_encoder(model), None)
    batches = micro_batches(tokenizer, make_names(320, random.Random(0)), max_tokens=24, size=64)
    device = torch.device("cpu")
    for precision in ("fp32", "bf16"):
        seconds: dict[str, list[float]] = {name: [] for name in KERNELS}
        for _ in range(steps + 1):
            for name, kernel in KERNELS.items():
                began = time.perf_counter()
                for batch in batches:
                    with autocast(device, precision), sdpa_kernel(kernel):
                        ids, mask = torch.from_numpy(batch.input_ids), torch.from_numpy(batch.attention_mask)
                        vectors = network.pool(ids, mask)
                    torch.autograd.backward(vectors.square().sum())
                seconds[name].append(time.perf_counter() - began)
        medians = {name: statistics.median(found[1:]) for name, found in seconds.items()}
        shown = ", ".join(f"{name} {median:.3f} s" for name, median in medians.items())
        click.echo(f"{precision}: {shown}; plain / fused {medians['plain'] / medians['fused']:.2f}")


if __name__ == "__main__":
    main()
