"""One network that learns the vectors of the two that a joint model has, on a GPU, in the time that it is given.

All names are tokenised once, with two misspelt forms of each; all vectors of the teachers are computed once. Then, by
share of the time:

    0.55   distillation: 20 (1 - cos) to the teachers' vector of the name as it is written, and the divergence of the
           distribution over the other names of the batch (temperature 0.05), half of which are spelled like others.
           Words are trained too, and are 4-bit blocks in every step (`blocks`), so that they ship as they were trained.
    0.45   the same with pairs of names: NT-Xent masked by entity, string and teacher, hard negatives, phrase types.
           Words are frozen.

The target of a name in another language is half its own, half that of its English names (Reimers & Gurevych 2020). The
network (`student_network.py`) is written out, since launching its kernels is what a step of this size waits for.
"""

from __future__ import annotations

import json
import lzma
import math
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import click
import numpy as np
import torch
from torch import Tensor, nn

from multilingual.joint import mostly_latin
from multilingual.packed import POSITIONS, Arrays, pack_blocks, pack_rows, unpack
from multilingual.student_names import Ints, Names, Pairs, Tokens, draw_plain, encode, tokenise
from multilingual.student_network import Encoder, English, blocks
from pearl_qdrant.encoder.runtime.torch_runtime import new_type_head
from training.finetune.losses import MASKED_LOGIT, nt_xent, summed_type_loss

Rates = Sequence[tuple[list[Tensor], float]]
"""Weights and the peak rate of each group."""

FOREIGN = 0.5
"""Share of its English names in the target of a name in another language."""
DISTIL_STEP, PAIRS, PLAIN = 8192, 4096, 4096
"""Names a step of the first part; pairs, and names beside them, of the second."""
TEMPERATURE = 0.05
FIRST = 0.55
RATES = {"layers": 6e-4, "words": 4e-4, "pairs": 2e-4}
CHUNKS = 4


def closer_than_positive(vectors: Tensor, n_pairs: int, *, floor: float) -> Tensor:
    """Where a teacher finds a column closer to the row than the row's own partner and the floor, (2n, 2n + m) (GIST).

    Args:
        vectors: The teacher's unit vectors: n anchors, n positives, m negatives.
    """
    rows = vectors[: 2 * n_pairs]
    cosines = rows @ vectors.T
    partner = torch.arange(2 * n_pairs, device=vectors.device).roll(n_pairs)
    own = cosines.gather(1, partner[:, None]).clamp(min=floor)
    return cosines > own


def relations(vectors: Tensor, wanted: Tensor) -> Tensor:
    """Divergence of the student's distribution over the other names of a batch from the teachers', (), in nats."""
    own = torch.eye(len(vectors), dtype=torch.bool, device=vectors.device)
    target = (wanted @ wanted.T / TEMPERATURE).masked_fill(own, MASKED_LOGIT).log_softmax(1)
    found = (vectors @ vectors.T / TEMPERATURE).masked_fill(own, MASKED_LOGIT).log_softmax(1)
    return nn.functional.kl_div(found, target, log_target=True, reduction="batchmean")


def read_names(packed: Path, limit: int | None) -> tuple[Names, list[str]]:
    """Read the names that are learned, of at most so many examples, and texts that are held out."""
    with lzma.open(packed / "names.xz", "rt", encoding="utf-8") as file:
        stored = json.load(file)
    if limit:
        stored["examples"] = [rows[:: max(1, len(rows) * 45 // limit)] for rows in stored["examples"]]
        stored["plain"] = stored["plain"][: limit // 10]
        stored["more"] = {key: found[: limit // 10] for key, found in stored["more"].items()}
        stored["negatives"] = stored["negatives"][:2_000]
    held = stored["more"].pop("held")
    return Names(stored), held


def targets(
    packed: Path, english: Tokens, tokens: Tokens, latin: Ints, translated: Mapping[int, list[int]], device: str
) -> tuple[Encoder, Tensor]:
    """Return the student as it starts, and the vector that it shall give each text, (n, 384), float16.

    Args:
        packed: Folder with `teachers.npz`, `config.json` and the English tokenizer.
        english, tokens: Tokens of each text for the English teacher, and for the student.
        latin: Numbers of the texts that the English teacher reads.
        translated: Names in another language, with those of their entities in English.
        device: "cuda" or "cpu".
    """
    with np.load(packed / "teachers.npz") as loaded:
        arrays = dict(loaded)
    parts = {
        part: unpack({key.partition("/")[2]: array for key, array in arrays.items() if key.startswith(part + "/")})
        for part in ("english", "characters", "world", "joint")
    }
    config = json.loads((packed / "config.json").read_text("utf-8"))
    student, n = Encoder(parts["world"]).to(device), len(tokens.lengths)
    teacher = English(parts["english"], parts["characters"], config, packed / "tokenizer-english.json").to(device)
    read = torch.from_numpy(latin).to(device)
    with torch.autocast(device, torch.float16, enabled=device == "cuda"):
        world = encode(student, tokens, torch.arange(n, device=device)).float()
        first = encode(teacher, english, read).float()
    of_english, of_world = (torch.from_numpy(parts["joint"][key]).to(device) for key in ("english", "world"))
    wanted = world @ of_world
    wanted[read] += first @ of_english
    wanted = nn.functional.normalize(wanted, dim=-1)
    # Turned into the space of the student as it starts: the orthogonal map that fits best (Schoenemann 1966).
    some = torch.randperm(n, device=device)[:100_000]
    u, _, v = torch.linalg.svd(wanted[some].double().T @ world[some].double())
    own = wanted @ (u @ v).float()
    wanted, keys = own.clone(), list(translated)
    for at in range(0, len(keys), 50_000):
        part = keys[at : at + 50_000]
        flat = torch.tensor([number for key in part for number in translated[key]], device=device)
        counts = torch.tensor([len(translated[key]) for key in part], device=device)
        of = torch.repeat_interleave(torch.arange(len(part), device=device), counts)
        mean = torch.zeros(len(part), own.shape[1], device=device).index_add_(0, of, own[flat]) / counts[:, None]
        numbers = torch.tensor(part, device=device)
        wanted[numbers] = (1 - FOREIGN) * own[numbers] + FOREIGN * mean
    return student, nn.functional.normalize(wanted, dim=-1).half()


def train(  # long: one run, from the names to the files
    packed: Path, out: Path, *, seconds: float, device: str, limit: int | None = None
) -> None:
    """Train for about so many seconds, reading included, and write the network; see the module.

    Args:
        packed: Folder with `names.xz`, `teachers.npz`, `config.json` and both tokenizers.
        out: Folder of the results.
        seconds: Time for all of it.
        device: "cuda" or "cpu".
        limit: Names to use, for a trial.
    """
    began = time.monotonic()
    out.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(0)
    # cuDNN plans anew for each shape, which takes longer than the product.
    torch.backends.cuda.enable_cudnn_sdp(False)

    def say(text: str) -> None:
        click.echo(f"{time.monotonic() - began:6.1f} s  {text}")

    names, held = read_names(packed, limit)
    n_learned, texts = len(names.names), [*names.names, *held]
    say(f"{n_learned} names: " + ", ".join(f"{k} {len(v)}" for k, v in names.groups.items()))
    latin = [mostly_latin(text) for text in texts]
    for i in names.translated:
        latin[i] = False
    paths = {key: str(packed / f"tokenizer-{key}.json") for key in ("english", "world")}
    english, views = tokenise(texts, latin, paths, device)
    say("tokenised")
    student, wanted = targets(packed, english, views[0], np.flatnonzero(latin), names.translated, device)
    say("targets")
    joined = Tokens.of(views)
    n_texts = len(texts)
    scale = 1.0 if device == "cuda" else 1 / 16
    head = new_type_head(384).to(device)
    loop = _Loop(student, head, joined, wanted, n_texts, device)
    pairs = Pairs(names)
    kinds = torch.from_numpy(pairs.kinds).to(device)
    held_rows = torch.arange(n_learned, n_texts, device=device)
    rng = np.random.default_rng(1)
    start = time.monotonic()
    left = seconds - (start - began) - 15 * scale
    middle = start + FIRST * left

    def validate() -> str:
        with torch.no_grad(), torch.autocast(device, torch.bfloat16):
            found = encode(lambda ids, mask: student(ids, mask, in_blocks=True), joined, held_rows).float()
        goal = wanted[held_rows].float()
        cosine = (found * goal).sum(1).mean()
        own = torch.eye(len(found), dtype=torch.bool, device=device)
        nearest = [(x @ x.T).masked_fill(own, -2).argmax(1) for x in (found, goal)]
        return f"held-out cosine {cosine:.4f}, nearest equal {(nearest[0] == nearest[1]).float().mean():.3f}"

    say("start: " + validate())
    layers: list[Tensor] = [p for name, p in student.named_parameters() if name != "words"]
    first_rates: Rates = [(layers, RATES["layers"]), ([student.words], RATES["words"])]
    for step, part in loop.steps(first_rates, start, middle):
        plain, view = draw_plain(names, int(DISTIL_STEP * scale), rng)
        losses = loop.distil(plain, view)
        part(losses)
        if step % 500 == 0:
            say(f"step {step}: {loop.shown(losses)}")
        if step % 2000 == 0:
            say(validate())
    say("first part: " + validate())
    after_first = {name: tensor for name, tensor in student.tensors().items() if "word_embeddings" not in name}
    trained = {"names": n_learned, "first": step}
    write(out, student, head, after_first, trained)
    say("written")

    student.words.requires_grad_(False)
    with torch.no_grad():
        student.words.copy_(blocks(student.words))
    second_rates: Rates = [(layers, RATES["pairs"]), (list(head.parameters()), 10 * RATES["pairs"])]
    for step, part in loop.steps(second_rates, middle, start + left):
        drawn = pairs.draw(int(PAIRS * scale), rng)
        plain, view = draw_plain(names, int(PLAIN * scale), rng)
        losses = loop.pairs(drawn, plain, view, kinds, names.folded)
        part(losses)
        if step % 500 == 0:
            say(f"step {step}: {loop.shown(losses)}")
    say("second part: " + validate())
    write(out, student, head, after_first, trained | {"second": step})
    say("written")


class _Loop:
    """The steps of training, with the losses of each part."""

    def __init__(
        self, student: Encoder, head: nn.Linear, tokens: Tokens, wanted: Tensor, n_texts: int, device: str
    ) -> None:
        self.student, self.head, self.tokens, self.wanted = student, head, tokens, wanted
        self.n_texts, self.device = n_texts, device

    def steps(self, groups: Rates, start: float, end: float) -> Iterator[tuple[int, Any]]:
        """Yield the number of a step and what takes it, until the time is over; the rate follows the time."""
        optimizer = torch.optim.AdamW(
            [{"params": params, "lr": rate} for params, rate in groups],
            betas=(0.9, 0.98),
            weight_decay=0.01,
            fused=self.device == "cuda",
        )
        every = [p for params, _ in groups for p in params]
        step, began = 0, time.monotonic()
        while (now := time.monotonic()) < end:
            done = (now - began) / max(end - began, 1e-9)
            factor = min(done / 0.04, 1.0) * (0.02 + 0.98 * (0.5 + 0.5 * math.cos(math.pi * done)))
            for group, (_, rate) in zip(optimizer.param_groups, groups, strict=True):
                group["lr"] = rate * factor

            def take(losses: dict[str, Tensor]) -> None:
                torch.autograd.backward([torch.stack(list(losses.values())).sum()])
                nn.utils.clip_grad_norm_(every, 5.0, foreach=True)
                optimizer.step()
                optimizer.zero_grad(set_to_none=True)

            step += 1
            yield step, take

    def vectors(self, rows: Tensor, views: Tensor, *, in_blocks: bool) -> Tensor:
        """Pooled vectors of names in their views, (n, dim), in order; of similar lengths together."""
        numbers = views * self.n_texts + rows
        order = self.tokens.lengths[numbers].argsort()
        with torch.autocast(self.device, torch.bfloat16):
            parts = [
                self.student(*self.tokens.batch(numbers[chunk]), in_blocks=in_blocks) for chunk in order.chunk(CHUNKS)
            ]
        return torch.cat(parts)[order.argsort()]

    def distil(self, rows: Ints, views: Ints) -> dict[str, Tensor]:
        """Losses of the first part."""
        number = torch.from_numpy(rows).to(self.device)
        found = nn.functional.normalize(self.vectors(number, torch.from_numpy(views).to(self.device), in_blocks=True))
        wanted = self.wanted[number].float()
        return {"cosine": 20 * (1 - (found * wanted).sum(1)).mean(), "relations": relations(found, wanted)}

    def pairs(self, drawn: dict[str, Ints], rows: Ints, views: Ints, kinds: Tensor, folded: Ints) -> dict[str, Tensor]:
        """Losses of the second part."""
        n, m = len(drawn["anchors"]), len(drawn["negatives"])
        names = np.concatenate([drawn["anchors"], drawn["positives"], drawn["negatives"], rows])
        seen = np.concatenate([np.zeros(n, np.int64), drawn["view"], np.zeros(m, np.int64), views])
        number = torch.from_numpy(names).to(self.device)
        pooled = self.vectors(number, torch.from_numpy(seen).to(self.device), in_blocks=False)
        found, wanted = nn.functional.normalize(pooled), self.wanted[number].float()
        k = 2 * n + m
        entities = torch.from_numpy(drawn["entities"]).to(self.device).repeat(2)
        strings = torch.from_numpy(folded[names[:k]]).to(self.device)
        same = strings[: 2 * n, None] == strings[None, :]
        same[:, : 2 * n] |= entities[:, None] == entities[None, :]
        same |= closer_than_positive(wanted[:k], n, floor=0.5)
        contrastive = nt_xent(
            found[:n], found[n : 2 * n], temperature=TEMPERATURE, negatives=found[2 * n : k], same=same
        )
        allowed = kinds[torch.from_numpy(drawn["kinds"]).to(self.device)]
        total, count = summed_type_loss(self.head(pooled[:n]), allowed)
        return {
            "cosine": 20 * (1 - (found * wanted).sum(1)).mean(),
            "relations": relations(found[k:], wanted[k:]),
            "pairs": contrastive,
            "types": 0.1 * total / max(count, 1),
        }

    @staticmethod
    def shown(losses: dict[str, Tensor]) -> str:
        return ", ".join(f"{name} {float(loss.detach()):.3f}" for name, loss in losses.items())


def _savez(path: Path, arrays: Mapping[str, Any]) -> None:
    np.savez(path, **arrays)


def write(out: Path, student: Encoder, head: nn.Linear, first: dict[str, Tensor], trained: dict[str, int]) -> None:
    """Write the words in 4-bit blocks, the layers in half precision, and how the layers were after the first part.

    Each file has at most 15 MiB.
    """
    tensors = student.tensors()
    words = tensors.pop("embeddings.word_embeddings.weight")
    parts = words.reshape(len(words), -1, 32)
    largest = parts.gather(2, parts.abs().argmax(2, keepdim=True))
    scales = (largest / -8).half()
    whole = (parts / torch.where(scales == 0, 1, scales).float()).round().clamp(-8, 7).to(torch.int8)
    packed = pack_blocks("words", whole.reshape(words.shape).numpy(), scales[..., 0].numpy())
    pieces = np.array_split(np.arange(len(words)), 1 + len(words) * 216 // (15 << 20))
    for i, rows in enumerate(pieces):
        _savez(out / f"words-{i}.npz", {name: array[rows] for name, array in packed.items()})
    named = {name: tensor.half().numpy() for name, tensor in tensors.items()} | {
        "head": head.weight.detach().float().half().cpu().numpy(),
        "trained": np.array(json.dumps(trained)),
    }
    keys = sorted(named)
    cut = len(keys) // 2
    _savez(out / "layers-0.npz", {name: named[name] for name in keys[:cut]})
    _savez(out / "layers-1.npz", {name: named[name] for name in keys[cut:]})
    changes: Arrays = {}
    for name, tensor in tensors.items():
        change = (first[name] - tensor).numpy()
        changes |= pack_rows(name, change) if change.ndim == 2 and change.shape[0] > POSITIONS else {name: change}
    _savez(out / "first-part.npz", changes)
