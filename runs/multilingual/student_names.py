"""The names that the student learns from: their tokens, groups and pairs."""

from __future__ import annotations

import os
import random
from collections.abc import Mapping
from dataclasses import dataclass
from multiprocessing import get_context
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from tokenizers import Tokenizer
from torch import Tensor, nn

from pearl_qdrant.phrase_types import PHRASE_TYPES
from training.augment.draw import edit_character

Ints = npt.NDArray[np.int64]

VIEWS = 3
"""Forms of each name that are tokenised: as written, and misspelt twice."""
GROUPS = {"foreign": 0.25, "names": 0.32, "words": 0.16, "text": 0.14, "sentences": 0.13}
"""Share of each group of names in a batch of distillation."""
MISSPELT = 0.25
MAX_TOKENS = 64


@dataclass(frozen=True, slots=True)
class Tokens:
    """Token ids of many texts, one after the other, on the device."""

    flat: Tensor
    starts: Tensor
    lengths: Tensor

    @classmethod
    def of(cls, views: list[Tokens]) -> Tokens:
        """All views, one after the other: row r of view v is v n + r."""
        ends = np.cumsum([0, *(len(view.flat) for view in views)])
        return cls(
            torch.cat([view.flat for view in views]),
            torch.cat([view.starts + int(end) for view, end in zip(views, ends[:-1], strict=True)]),
            torch.cat([view.lengths for view in views]),
        )

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
