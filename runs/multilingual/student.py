"""One network that learns the vectors of the two that a joint model has, on a GPU, in the time that it is given.

All names are tokenised once, with two misspelt forms of each; all vectors of the teachers are computed once. Then, by
share of the time:

    0.55   distillation: 20 (1 - cos) to the teachers' vector of the name as it is written, and the divergence of the
           distribution over the other names of the batch (temperature 0.05), half of which are spelled like others.
           Words are trained too, and are 4-bit blocks in every step (`blocks`), so that they ship as they were trained.
    0.45   the same with pairs of names: NT-Xent masked by entity, string and teacher, hard negatives, phrase types.
           Words are frozen.

The target of a name in another language is half its own, half that of its English names (Reimers & Gurevych 2020). The
network is written out, since launching its kernels is what a step of this size waits for.
"""

from __future__ import annotations

import json
import lzma
import math
import os
import random
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import click
import numpy as np
import numpy.typing as npt
import torch
from tokenizers import Tokenizer
from torch import Tensor, nn

from multilingual.joint import mostly_latin
from multilingual.packed import POSITIONS, Arrays, pack_blocks, pack_rows, unpack
from pearl_qdrant.encoder.character.network import CharacterEncoder
from pearl_qdrant.encoder.character.table import CharacterConfig, read_character_table
from pearl_qdrant.encoder.runtime.network import join_parts, new_type_head
from pearl_qdrant.phrase_types import PHRASE_TYPES
from training.augment.draw import edit_character
from training.finetune.losses import MASKED_LOGIT, closer_than_positive, nt_xent, summed_type_loss

Ints = npt.NDArray[np.int64]
Rates = Sequence[tuple[list[Tensor], float]]
"""Weights and the peak rate of each group."""

VIEWS = 3
"""Forms of each name that are tokenised: as written, and misspelt twice."""
GROUPS = {"foreign": 0.27, "names": 0.36, "words": 0.14, "text": 0.15, "sentences": 0.08}
"""Share of each group of names in a batch of distillation."""
MISSPELT = 0.25
FOREIGN = 0.5
"""Share of its English names in the target of a name in another language."""
DISTIL_STEP, PAIRS, PLAIN = 4096, 2048, 2048
"""Names a step of the first part; pairs, and names beside them, of the second."""
TEMPERATURE = 0.05
FIRST = 0.55
RATES = {"layers": 5e-4, "words": 3e-4, "pairs": 2e-4}
CHUNKS = 4
MAX_TOKENS = 64


def blocks(table: Tensor) -> Tensor:
    """Rows of word embeddings as the 4-bit blocks in which they ship; the gradient passes through. Shape as given."""
    parts = table.reshape(-1, 32)
    with torch.no_grad():
        largest = parts.gather(1, parts.abs().argmax(1, keepdim=True))
        scales = (largest / -8).half().float()
        whole = torch.where(scales == 0, 0.0, parts / torch.where(scales == 0, 1.0, scales)).round().clamp(-8, 7)
        error = whole * scales - parts
    return (parts + error).reshape(table.shape)


class Encoder(nn.Module):
    """A BERT with mean pooling.

    Args:
        tensors: The weights by their names in transformers' BertModel.
        heads: Attention heads.
    """

    def __init__(self, tensors: Mapping[str, npt.NDArray[Any]], *, heads: int = 12) -> None:
        super().__init__()
        given = {name: torch.from_numpy(np.ascontiguousarray(array)) for name, array in tensors.items()}
        self.heads = heads
        self.words = nn.Parameter(given["embeddings.word_embeddings.weight"])
        positions = given["embeddings.position_embeddings.weight"][:POSITIONS]
        self.positions = nn.Parameter(positions + given["embeddings.token_type_embeddings.weight"][0])
        self.first = _norm(given, "embeddings.LayerNorm")
        n = 1 + max(int(name.split(".")[2]) for name in given if name.startswith("encoder.layer."))
        self.layers = nn.ModuleList(Layer(given, f"encoder.layer.{i}", heads) for i in range(n))

    def forward(self, ids: Tensor, mask: Tensor, *, in_blocks: bool = False) -> Tensor:
        """Return the mean of the last layer over real tokens, (b, dim), float32."""
        words = nn.functional.embedding(ids, self.words)
        x = self.first((blocks(words) if in_blocks else words) + self.positions[: ids.shape[1]])
        wide = mask[:, None, None, :]
        for layer in self.layers:
            x = layer(x, wide)
        weights = mask.unsqueeze(-1).float()
        pooled: Tensor = (x.float() * weights).sum(1) / weights.sum(1).clamp(min=1)
        return pooled

    def tensors(self) -> dict[str, Tensor]:
        """The weights by their names in BertModel, on the CPU; token types are in the positions."""
        found: dict[str, Tensor] = {
            "embeddings.word_embeddings.weight": self.words,
            "embeddings.position_embeddings.weight": self.positions,
        }
        found |= _named("embeddings.LayerNorm", self.first)
        for i, layer in enumerate(self.layers):
            assert isinstance(layer, Layer)
            found |= layer.tensors(f"encoder.layer.{i}")
        return {name: tensor.detach().float().cpu() for name, tensor in found.items()}


class Layer(nn.Module):
    """One layer; queries, keys and values in one product."""

    def __init__(self, given: Mapping[str, Tensor], name: str, heads: int) -> None:
        super().__init__()
        own = [f"{name}.attention.self.{part}" for part in ("query", "key", "value")]
        self.heads = heads
        self.qkv = _linear(*(torch.cat([given[f"{one}.{kind}"] for one in own]) for kind in ("weight", "bias")))
        self.mixed = _linear(
            given[f"{name}.attention.output.dense.weight"], given[f"{name}.attention.output.dense.bias"]
        )
        self.between = _norm(given, f"{name}.attention.output.LayerNorm")
        self.inner = _linear(given[f"{name}.intermediate.dense.weight"], given[f"{name}.intermediate.dense.bias"])
        self.outer = _linear(given[f"{name}.output.dense.weight"], given[f"{name}.output.dense.bias"])
        self.after = _norm(given, f"{name}.output.LayerNorm")

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        b, t, dim = x.shape
        q, k, v = self.qkv(x).view(b, t, 3, self.heads, dim // self.heads).permute(2, 0, 3, 1, 4)
        mixed = nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        x = self.between(self.mixed(mixed.transpose(1, 2).reshape(b, t, dim)) + x)
        found: Tensor = self.after(self.outer(nn.functional.gelu(self.inner(x))) + x)
        return found

    def tensors(self, name: str) -> dict[str, Tensor]:
        """The weights by their names in BertModel."""
        found: dict[str, Tensor] = {}
        for kind, joined in (("weight", self.qkv.weight), ("bias", self.qkv.bias)):
            for part, tensor in zip(("query", "key", "value"), joined.chunk(3), strict=True):
                found[f"{name}.attention.self.{part}.{kind}"] = tensor
        found |= _named(f"{name}.attention.output.dense", self.mixed)
        found |= _named(f"{name}.attention.output.LayerNorm", self.between)
        found |= _named(f"{name}.intermediate.dense", self.inner)
        return found | _named(f"{name}.output.dense", self.outer) | _named(f"{name}.output.LayerNorm", self.after)


def _linear(weight: Tensor, bias: Tensor) -> nn.Linear:
    layer = nn.Linear(weight.shape[1], weight.shape[0])
    layer.weight, layer.bias = nn.Parameter(weight), nn.Parameter(bias)
    return layer


def _norm(given: Mapping[str, Tensor], name: str) -> nn.LayerNorm:
    layer = nn.LayerNorm(given[f"{name}.weight"].shape[0], eps=1e-12)
    layer.weight, layer.bias = nn.Parameter(given[f"{name}.weight"]), nn.Parameter(given[f"{name}.bias"])
    return layer


def _named(name: str, layer: nn.Linear | nn.LayerNorm) -> dict[str, Tensor]:
    return {f"{name}.weight": layer.weight, f"{name}.bias": layer.bias}


@dataclass(frozen=True, slots=True)
class Tokens:
    """Token ids of many texts, one after the other, on the device."""

    flat: Tensor
    starts: Tensor
    lengths: Tensor

    def batch(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        """Return ids and mask of rows, (b, t), padded to the longest, to a multiple of 8."""
        lengths = self.lengths[rows]
        place = torch.arange(-(-int(lengths.max()) // 8) * 8, device=rows.device)
        mask = place < lengths[:, None]
        return self.flat[(self.starts[rows, None] + place).clamp(max=len(self.flat) - 1)].long() * mask, mask


_TOKENIZERS: dict[str, Tokenizer] = {}


def _tokenise(task: tuple[list[str], list[bool], int, Mapping[str, str]]) -> list[list[Ints]]:
    """Token ids of a part of the names: for each tokenizer the flat ids and the lengths."""
    names, latin, seed, paths = task
    rng = random.Random(seed)
    for key, path in paths.items():
        if key not in _TOKENIZERS:
            _TOKENIZERS[key] = Tokenizer.from_file(path)
            _TOKENIZERS[key].no_padding()
            _TOKENIZERS[key].enable_truncation(MAX_TOKENS)
    views = [[edit_character(name, rng) for name in names] for _ in range(VIEWS - 1)]
    found = []
    for key, texts in (("english", [n if is_latin else "" for n, is_latin in zip(names, latin, strict=True)]),
                       *(("world", one) for one in (names, *views))):  # fmt: skip
        ids = [encoding.ids for encoding in _TOKENIZERS[key].encode_batch(texts)]
        lengths = np.fromiter(map(len, ids), np.int32, len(ids))
        found.append([np.concatenate([np.asarray(one, np.int32) for one in ids]), lengths])
    return found


def tokenise(names: list[str], latin: list[bool], paths: Mapping[str, str], device: str) -> tuple[Tokens, list[Tokens]]:
    """Return the tokens of the English teacher, empty for names that it does not read, and those of each view."""
    size = 20_000
    parts = [(names[i : i + size], latin[i : i + size], i, paths) for i in range(0, len(names), size)]
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    with get_context("fork").Pool(max(1, (os.cpu_count() or 2) - 1)) as pool:
        done = pool.map(_tokenise, parts, chunksize=1)
    found = []
    for k in range(1 + VIEWS):
        flat = np.concatenate([part[k][0] for part in done])
        lengths = np.concatenate([part[k][1] for part in done])
        starts = np.concatenate([[0], np.cumsum(lengths)[:-1]])
        found.append(
            Tokens(*(torch.from_numpy(array.astype(kind)).to(device)
                     for array, kind in ((flat, np.int32), (starts, np.int64), (lengths, np.int64))))
        )  # fmt: skip
    return found[0], found[1:]


@torch.inference_mode()
def encode(network: Any, tokens: Tokens, rows: Tensor, *, budget: int = 131_072) -> Tensor:
    """Unit vectors of rows, (n, dim), float16, in the order of the rows."""
    order, parts, at = tokens.lengths[rows].argsort(), [], 0
    while at < len(order):
        longest = int(tokens.lengths[rows[order[min(at + 8_192, len(order)) - 1]]])
        n = max(1, min(8_192, budget // longest))
        vectors = network(*tokens.batch(rows[order[at : at + n]]))
        parts.append(nn.functional.normalize(vectors.float(), dim=-1))
        at += n
    found = torch.empty_like(joined := torch.cat(parts))
    found[order] = joined
    return found.half()


class English(nn.Module):
    """The English teacher: phrase encoder and character encoder."""

    def __init__(self, tensors: Arrays, characters: Arrays, config: Mapping[str, Any], tokenizer: Path) -> None:
        super().__init__()
        self.phrase = Encoder(tensors)
        table = read_character_table(tokenizer)
        self.characters = CharacterEncoder(table, CharacterConfig(**config["character"]), int(config["char_dim"]))
        state = {name: torch.from_numpy(array) for name, array in characters.items()}
        self.characters.load_state_dict(state, strict=False)

    def forward(self, ids: Tensor, mask: Tensor) -> Tensor:
        phrase = self.phrase(ids, mask)
        with torch.autocast(ids.device.type, enabled=False):
            shares = self.characters.shares(ids, mask)
            return join_parts(phrase, self.characters(ids, mask).float(), share=shares)


class Names:
    """What is learned from, as numbers of names.

    Attributes:
        names: All names, each once.
        groups: Numbers of the names of each group, sorted by name.
        translated: Names in another language, with those of their entities in English.
        sources: For each source its weight, and its examples: entity, types, numbers of names.
    """

    def __init__(self, stored: Mapping[str, Any]) -> None:
        place: dict[str, int] = {}
        groups: dict[str, dict[int, None]] = {name: {} for name in GROUPS}

        def add(name: str, group: str) -> int:
            found = place.setdefault(name, len(place))
            groups[group][found] = None
            return found

        self.translated: dict[int, list[int]] = {}
        self.sources: list[tuple[float, list[tuple[str, tuple[int, ...], list[int]]]]] = []
        n_kinds, words = stored["n_foreign_sources"], stored["word_sources"]
        for i, (weight, examples) in enumerate(zip(stored["weights"], stored["examples"], strict=True)):
            group = "words" if i in words else "names"
            rows = []
            for name, others, entity, allowed in examples:
                first = add(name, group)
                numbers = [first, *(add(o, "foreign" if i < n_kinds else group) for o in others if o != name)]
                if i < n_kinds:
                    for other in numbers[1:]:
                        self.translated.setdefault(other, []).append(first)
                rows.append((entity, tuple(allowed), list(dict.fromkeys(numbers))))
            self.sources.append((weight, rows))
        for name in stored["plain"]:
            add(name, "text")
        for group in ("names", "text", "sentences"):
            for name in stored["more"][group]:
                add(name, group)
        english = {first for _, rows in self.sources[n_kinds:] for _, _, numbers in rows for first in numbers[:1]}
        self.translated = {k: sorted(set(v)) for k, v in self.translated.items() if k not in english}
        self.names = list(place)
        order = np.argsort(np.array([name.casefold() for name in self.names], dtype=object), kind="stable")
        rank = np.empty(len(order), np.int64)
        rank[order] = np.arange(len(order))
        self.groups = {group: np.array(sorted(found, key=rank.__getitem__)) for group, found in groups.items()}
        folded: dict[str, int] = {}
        self.folded = np.array([folded.setdefault(n.casefold(), len(folded)) for n in self.names])
        self.negatives = {
            place[name]: [place[n] for n in found if n in place] for name, found in stored["negatives"] if name in place
        }


class Pairs:
    """Draws pairs of names of one entity, neighbours by spelling together."""

    def __init__(self, names: Names) -> None:
        self.names = names
        weights = np.array([weight for weight, _ in names.sources])
        self.shares = weights / weights.sum()
        entities: dict[str, int] = {}
        kinds: dict[tuple[int, ...], int] = {(): 0}
        self.tables = []
        for _, rows in names.sources:
            ends = np.cumsum([len(numbers) for _, _, numbers in rows])
            self.tables.append(
                (
                    np.concatenate([numbers for _, _, numbers in rows]),
                    np.concatenate([[0], ends[:-1]]),
                    np.array([len(numbers) for _, _, numbers in rows]),
                    np.array([entities.setdefault(entity, len(entities)) for entity, _, _ in rows]),
                    np.array([kinds.setdefault(allowed, len(kinds)) for _, allowed, _ in rows]),
                )
            )
        self.kinds = np.zeros((len(kinds), len(PHRASE_TYPES)), np.bool_)
        for allowed, i in kinds.items():
            self.kinds[i, list(allowed)] = True

    def draw(self, n: int, rng: np.random.Generator) -> dict[str, Ints]:
        """Draw n pairs: numbers of names, views of the positives, entities, sets of types; and hard negatives."""
        parts: list[list[Ints]] = []
        for (numbers, starts, sizes, entities, kinds), count in zip(
            self.tables, rng.multinomial(n // 2, self.shares), strict=True
        ):
            if not count:
                continue
            one = rng.integers(0, max(1, len(starts) - 1), count)
            rows = np.minimum(np.stack([one, one + 1], 1).ravel(), len(starts) - 1)
            size = sizes[rows]
            alone = (size == 1) | (rng.random(len(rows)) >= 0.85)
            first = (rng.random(len(rows)) * size).astype(np.int64)
            second = (first + 1 + (rng.random(len(rows)) * np.maximum(size - 1, 1)).astype(np.int64)) % size
            first, second = np.where(alone, 0, first), np.where(alone, 0, second)
            misspelt = alone | (rng.random(len(rows)) < 0.2)
            view = np.where(misspelt, rng.integers(1, VIEWS, len(rows)), 0)
            parts.append(
                [numbers[starts[rows] + first], numbers[starts[rows] + second], view, entities[rows], kinds[rows]]
            )
        anchors, positives, view, entities, kinds = (np.concatenate(column) for column in zip(*parts, strict=True))
        table = self.names.negatives
        hard = [found[int(rng.integers(len(found)))] for a in anchors.tolist() if (found := table.get(a))]
        return {"anchors": anchors, "positives": positives, "view": view, "entities": entities, "kinds": kinds,
                "negatives": np.array(hard[: n // 2], dtype=np.int64)}  # fmt: skip


def draw_plain(names: Names, n: int, rng: np.random.Generator) -> tuple[Ints, Ints]:
    """Draw names to distil, half of them beside their neighbours by spelling, and their views."""
    parts = []
    for group, share in GROUPS.items():
        own, count = names.groups[group], round(n * share)
        if len(own):
            starts = rng.integers(0, max(1, len(own) - 1), count // 2)
            parts.append(own[np.minimum(np.concatenate([starts, starts + 1]), len(own) - 1)])
    rows = np.unique(np.concatenate(parts))
    return rows, np.where(rng.random(len(rows)) < MISSPELT, rng.integers(1, VIEWS, len(rows)), 0)


def relations(vectors: Tensor, wanted: Tensor) -> Tensor:
    """Divergence of the student's distribution over the other names of a batch from the teachers', (), in nats."""
    own = torch.eye(len(vectors), dtype=torch.bool, device=vectors.device)
    target = (wanted @ wanted.T / TEMPERATURE).masked_fill(own, MASKED_LOGIT).log_softmax(1)
    found = (vectors @ vectors.T / TEMPERATURE).masked_fill(own, MASKED_LOGIT).log_softmax(1)
    return nn.functional.kl_div(found, target, log_target=True, reduction="batchmean")


def train(packed: Path, out: Path, *, seconds: float, device: str, limit: int | None = None) -> None:
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

    with lzma.open(packed / "names.xz", "rt", encoding="utf-8") as file:
        stored = json.load(file)
    if limit:
        stored["examples"] = [rows[:: max(1, len(rows) * 45 // limit)] for rows in stored["examples"]]
        stored["plain"] = stored["plain"][: limit // 10]
        stored["more"] = {key: found[: limit // 10] for key, found in stored["more"].items()}
        stored["negatives"] = stored["negatives"][:2_000]
    held = stored["more"].pop("held")
    names = Names(stored)
    n_learned = len(names.names)
    texts = [*names.names, *held]
    say(f"{n_learned} names: " + ", ".join(f"{k} {len(v)}" for k, v in names.groups.items()))

    config = json.loads((packed / "config.json").read_text("utf-8"))
    paths = {key: str(packed / f"tokenizer-{key}.json") for key in ("english", "world")}
    latin = [mostly_latin(text) for text in texts]
    for i in names.translated:
        latin[i] = False
    english_tokens, views = tokenise(texts, latin, paths, device)
    say("tokenised")

    with np.load(packed / "teachers.npz") as loaded:
        arrays = dict(loaded)
    parts = {part: unpack({k.partition("/")[2]: v for k, v in arrays.items() if k.startswith(part + "/")})
             for part in ("english", "characters", "world", "joint")}  # fmt: skip
    student = Encoder(parts["world"]).to(device)
    rows = torch.arange(len(texts), device=device)
    half = torch.float16 if device == "cuda" else torch.bfloat16
    with torch.autocast(device, half, enabled=device == "cuda"):
        world = encode(student, views[0], rows)
        teacher = English(parts["english"], parts["characters"], config, packed / "tokenizer-english.json").to(device)
        read = torch.from_numpy(np.flatnonzero(np.array(latin))).to(device)
        english = encode(teacher, english_tokens, read)
    del teacher
    first, second = (torch.from_numpy(parts["joint"][key]).to(device) for key in ("english", "world"))
    wanted = world.float() @ second
    wanted[read] += english.float() @ first
    del english
    wanted = nn.functional.normalize(wanted, dim=-1)
    # Turned into the space of the student as it starts: the orthogonal map that fits best (Schoenemann 1966).
    some = torch.randperm(len(texts), device=device)[:100_000]
    u, _, v = torch.linalg.svd(wanted[some].double().T @ world[some].double())
    wanted = wanted @ (u @ v).float()
    say(f"cosine of student and teachers before training {(wanted * world.float()).sum(1).mean():.4f}")
    own = wanted.clone()
    keys = list(names.translated)
    for at in range(0, len(keys), 50_000):
        some_keys = keys[at : at + 50_000]
        flat = torch.tensor([n for k in some_keys for n in names.translated[k]], device=device)
        counts = torch.tensor([len(names.translated[k]) for k in some_keys], device=device)
        of = torch.repeat_interleave(torch.arange(len(some_keys), device=device), counts)
        mean = torch.zeros(len(some_keys), own.shape[1], device=device).index_add_(0, of, own[flat]) / counts[:, None]
        number = torch.tensor(some_keys, device=device)
        wanted[number] = (1 - FOREIGN) * own[number] + FOREIGN * mean
    wanted = nn.functional.normalize(wanted, dim=-1).half()
    del own, world
    say("targets")

    joined = Tokens(
        torch.cat([view.flat for view in views]),
        torch.cat([view.starts + offset for view, offset in zip(views, _offsets(views), strict=True)]),
        torch.cat([view.lengths for view in views]),
    )
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


def _offsets(views: list[Tokens]) -> list[int]:
    return [sum(len(view.flat) for view in views[:i]) for i in range(len(views))]


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
