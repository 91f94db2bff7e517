"""Mine hard negatives, phrases that are spelled almost like a phrase and mean something else: `train negatives`.

    candidates   pairs within edit distance 2 (`edit_pairs`), and neighbours in three sorted orders of the phrases (from
                 the start, from the end, by the rarest word); edit distance up to half the length of the longer phrase
    skipped      of the same entity; equal after case and punctuation folding; teacher cosine over 0.9
    kept         of the nearest 32 by edit distance, the 12 with the lowest cosine by the base encoder

Cost: linear in the number of phrases; a million take a few minutes besides the encoder's time. Memory: about 2 KB per
phrase, of which 768 bytes are its vector in half precision.

Source: PEARL (Chen et al. 2024), section 3.4; 12 kept and 2 drawn as in its published code.

from pearl_qdrant import mine_negatives

mine_negatives("corpus/hard_negative.txt", phrases="corpus")
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from pearl_qdrant.encoder.loading import load_encoder
from pearl_qdrant.settings import DEFAULT_DEVICE, DEFAULT_MAX_ERRORS, DEFAULT_MODEL
from training.examples.example import Phrase, fold_phrase
from training.examples.files import as_phrases, phrase_key, read_training_files, write_hard_negatives
from training.mining.edit_pairs import Pairs, edit_distances, edit_pairs
from training.options import MIN_COUNT, MiningConfig, Paths, StrPath, TrainingEvents, as_paths, refuse_overwriting

_log = logging.getLogger(__name__)

FloatArray = npt.NDArray[np.float32]
IntArray = npt.NDArray[np.int64]
Encode = Callable[[Sequence[str]], FloatArray]
"""Encodes phrases as vectors, (n, dim), L2-normalised; zeros for a phrase without known tokens."""

_ID_BITS = 28  # of a packed (phrase, distance, phrase)
_CHUNK = 1 << 16  # phrases, or pairs x 8, handled at once


def mine_hard_negatives(
    phrases: Sequence[Phrase], encode: Encode, *, teacher: Encode | None = None, config: MiningConfig | None = None
) -> Iterator[tuple[str, list[str]]]:
    """Yield phrases with their hard negatives, lowest cosine first; phrases without any are skipped.

    Args:
        phrases: Phrases that differ only in case and white space count as one, with the text of the first.
        encode: The base encoder.
        teacher: Decides what means the same; by default the base encoder.
        config: What counts as a hard negative.
    """
    config = config or MiningConfig()
    merged = _merge(phrases)
    texts = list(merged)
    merged_phrases = list(merged.values())
    near, distances = _find_near_pairs(texts, config)
    _log.info("%d phrases, %d pairs spelled alike", len(texts), len(near))
    allowed = _find_allowed(merged_phrases, near, config)
    pool = _keep_nearest(near[allowed], distances[allowed], config.pool)
    yield from _keep_lowest_cosines(merged_phrases, pool, encode, teacher, config)


def _merge(phrases: Sequence[Phrase]) -> dict[str, Phrase]:
    """Merge phrases with the same case-folded text, in alphabetical order; entities and types are united."""
    merged: dict[str, Phrase] = {}
    for phrase in phrases:
        key = " ".join(phrase.text.casefold().split())
        if not key:
            continue
        before = merged.get(key)
        if before is None:
            merged[key] = phrase
        elif before.entities != phrase.entities or before.types != phrase.types:
            entities = tuple(dict.fromkeys((*before.entities, *phrase.entities)))
            types = tuple(sorted({*before.types, *phrase.types}))
            merged[key] = Phrase(before.text, entities, types)
    return {key: merged[key] for key in sorted(merged)}


def _find_near_pairs(texts: Sequence[str], config: MiningConfig) -> tuple[Pairs, npt.NDArray[np.uint8]]:
    """Return pairs with similar spelling, smaller index first, each once; and their edit distances."""
    lengths = np.fromiter((len(text) for text in texts), dtype=np.int64, count=len(texts))
    pairs, distances = edit_pairs(texts, threads=config.threads)
    close = distances <= config.max_share * lengths[pairs].max(axis=1, initial=1)
    pairs, distances = pairs[close], distances[close]
    if config.neighbours:
        wide = _sorted_neighbours(texts, config.neighbours)
        longer = lengths[wide].max(axis=1, initial=1)
        # The lengths alone exclude many pairs before any distance is computed.
        wide = wide[np.abs(lengths[wide[:, 0]] - lengths[wide[:, 1]]) <= config.max_share * longer]
        far = edit_distances(texts, wide, threads=config.threads)
        close = (far > 0) & (far <= config.max_share * lengths[wide].max(axis=1, initial=1)) & (far < 255)
        pairs, distances = np.concatenate([pairs, wide[close]]), np.concatenate([distances, far[close]])
    keys = pairs[:, 0] << 32 | pairs[:, 1]
    _, first = np.unique(keys, return_index=True)
    return pairs[first], distances[first]


def _sorted_neighbours(texts: Sequence[str], width: int) -> Pairs:
    """Return pairs within `width` of each other in one of three orders; `texts` is in the first of them."""
    counts = Counter(word for text in texts for word in set(text.split()))
    orders = [
        range(len(texts)),
        sorted(range(len(texts)), key=lambda i: texts[i][::-1]),
        sorted(range(len(texts)), key=lambda i: (min((counts[w], w) for w in texts[i].split()), i)),
    ]
    found: list[Pairs] = []
    for order in orders:
        at = np.fromiter(order, dtype=np.int64, count=len(texts))
        steps = range(1, min(width, len(at) - 1) + 1)
        found += [np.stack([at[:-step], at[step:]], axis=1) for step in steps]
    pairs = np.sort(np.concatenate([np.zeros((0, 2), dtype=np.int64), *found]), axis=1)
    keys = np.unique(pairs[:, 0] << 32 | pairs[:, 1])
    return np.stack([keys >> 32, keys & 0xFFFFFFFF], axis=1)


def _find_allowed(merged_phrases: Sequence[Phrase], pairs: Pairs, config: MiningConfig) -> npt.NDArray[np.bool_]:
    """Return which pairs may be negatives: no common entity, not equal when folded, of another type if requested."""
    folded = np.array([phrase_key(fold_phrase(phrase.text)) >> 1 for phrase in merged_phrases], dtype=np.int64)
    allowed: npt.NDArray[np.bool_] = folded[pairs[:, 0]] != folded[pairs[:, 1]]
    if config.different_type:
        masks = [sum(1 << kind for kind in set(phrase.types)) for phrase in merged_phrases]
        low = np.array([mask & (1 << 63) - 1 for mask in masks], dtype=np.int64)
        high = np.array([mask >> 63 for mask in masks], dtype=np.int64)
        known = (low | high) != 0
        shared = (low[pairs[:, 0]] & low[pairs[:, 1]]) | (high[pairs[:, 0]] & high[pairs[:, 1]])
        allowed &= known[pairs[:, 0]] & known[pairs[:, 1]] & (shared == 0)
    both = np.array([bool(phrase.entities) for phrase in merged_phrases], dtype=bool)[pairs].all(axis=1)
    checked = np.flatnonzero(allowed & both)
    allowed[checked[_share_entity(merged_phrases, pairs[checked])]] = False
    return allowed


def _share_entity(merged_phrases: Sequence[Phrase], pairs: Pairs) -> npt.NDArray[np.bool_]:
    """Return whether the phrases of a pair have an entity in common; exact for any number of entities."""
    ids: dict[str, int] = {}
    degrees = np.array([len(phrase.entities) for phrase in merged_phrases], dtype=np.int64)
    flat = [ids.setdefault(entity, len(ids)) for phrase in merged_phrases for entity in phrase.entities]
    entities = np.array(flat, dtype=np.int64)
    starts = np.concatenate([[0], np.cumsum(degrees)])
    owners = np.repeat(np.arange(len(merged_phrases)), degrees)
    known = np.sort(entities << 32 | owners)
    shared = np.zeros(len(pairs), dtype=bool)
    for start in range(0, len(pairs), _CHUNK * 8):
        first, second = pairs[start : start + _CHUNK * 8].T
        counts = degrees[first]
        row = np.repeat(np.arange(len(first)), counts)
        offset = np.arange(len(row)) - np.repeat(np.cumsum(counts) - counts, counts)
        wanted = entities[starts[first][row] + offset] << 32 | second[row]
        at = np.searchsorted(known, wanted)
        hit = known[np.minimum(at, len(known) - 1)] == wanted
        shared[start + row[hit]] = True
    return shared


def _keep_nearest(pairs: Pairs, distances: npt.NDArray[np.uint8], pool: int) -> Pairs:
    """Return the `pool` partners of each phrase at the smallest distance: (m, 2), phrase and candidate."""
    first, second = pairs.T.astype(np.uint64)
    far = distances.astype(np.uint64) << np.uint64(_ID_BITS)
    shift = np.uint64(_ID_BITS + 8)
    packed = np.concatenate([first << shift | far | second, second << shift | far | first])
    packed.sort()
    owner = (packed >> shift).astype(np.int64)
    begins = np.flatnonzero(np.diff(owner, prepend=-1))
    rank = np.arange(len(owner)) - np.repeat(begins, np.diff(begins, append=len(owner)))
    kept = rank < pool
    candidate = (packed[kept] & np.uint64((1 << _ID_BITS) - 1)).astype(np.int64)
    return np.stack([owner[kept], candidate], axis=1)


def _keep_lowest_cosines(
    merged_phrases: Sequence[Phrase], pool: Pairs, encode: Encode, teacher: Encode | None, config: MiningConfig
) -> Iterator[tuple[str, list[str]]]:
    """Yield the candidates of each phrase with the lowest cosines, without those that mean the same."""
    used = np.unique(pool)
    place = np.zeros(len(merged_phrases), dtype=np.int64)
    place[used] = np.arange(len(used))
    names = [merged_phrases[i].text for i in used.tolist()]
    vectors = _encode_all(encode, names)
    teacher_vectors = vectors if teacher is None else _encode_all(teacher, names)
    owners, begins = np.unique(pool[:, 0], return_index=True)
    ends = np.append(begins[1:], len(pool))
    step = max(1, _CHUNK // config.pool)
    for start in range(0, len(owners), step):
        stop = min(start + step, len(owners))
        rows = pool[begins[start] : ends[stop - 1]]
        left, right = place[rows[:, 0]], place[rows[:, 1]]
        cosines = _cosines(vectors, left, right)
        meaning = cosines if teacher is None else _cosines(teacher_vectors, left, right)
        encoded = vectors[right].any(axis=1) & vectors[left].any(axis=1)
        usable = encoded & (meaning <= config.max_cosine)
        order = np.lexsort((rows[:, 1], cosines, rows[:, 0]))
        order = order[usable[order]]
        chosen = rows[order]
        here, firsts, counts = np.unique(chosen[:, 0], return_index=True, return_counts=True)
        for owner, first, count in zip(here.tolist(), firsts.tolist(), counts.tolist(), strict=True):
            best = chosen[first : first + min(count, config.kept), 1].tolist()
            yield merged_phrases[owner].text, [merged_phrases[i].text for i in best]


def _encode_all(encode: Encode, names: Sequence[str]) -> npt.NDArray[np.float16]:
    """Encode all names; vectors in half precision, (n, dim)."""
    parts = [encode(names[start : start + _CHUNK]).astype(np.float16) for start in range(0, len(names), _CHUNK)]
    return np.concatenate(parts) if parts else np.zeros((0, 1), dtype=np.float16)


def _cosines(vectors: npt.NDArray[np.float16], left: IntArray, right: IntArray) -> FloatArray:
    """Cosine of each pair of rows."""
    product: FloatArray = np.einsum("nd,nd->n", vectors[left].astype(np.float32), vectors[right].astype(np.float32))
    return product


_ENCODED = 1024  # names between two reports of progress


def mine_negatives(
    out: StrPath,
    *,
    phrases: Paths = (),
    aliases: Paths = (),
    model: StrPath = DEFAULT_MODEL,
    teacher: StrPath | None = None,
    config: MiningConfig | None = None,
    min_count: int = MIN_COUNT,
    max_errors: int | None = DEFAULT_MAX_ERRORS,
    device: str = DEFAULT_DEVICE,
    events: TrainingEvents | None = None,
) -> int:
    """Find phrases that are spelled almost like a phrase and mean something else, and write them to a file.

    Args:
        out: hard_negative.txt, or JSON Lines if the name ends in .jsonl; its folder is created if absent.
        phrases, aliases, min_count, max_errors: As for `read_training_files`.
        model: Encoder whose lowest cosines are kept.
        teacher: Encoder that decides what means the same; by default `model`.
        config: What counts as a hard negative.
        device: auto, cpu, cuda or cuda:N.
        events: Gets `examples_read` and `names_encoded`.

    Returns:
        Phrases with hard negatives, the rows of the file.

    Raises:
        OptionError: If there is no input, or `out` is one.
        InputError: If an input cannot be read, or has too many bad rows.
        ModelError: If a model cannot be loaded.
    """
    refuse_overwriting(out, *as_paths(phrases), *as_paths(aliases))
    events = events or TrainingEvents()
    examples = read_training_files(phrases, aliases, min_count=min_count, max_errors=max_errors, events=events)
    encode_as_teacher = None if teacher is None else _load(teacher, device, "teacher", events)
    encode = _load(model, device, "encode", events)
    found = mine_hard_negatives(list(as_phrases(examples)), encode, teacher=encode_as_teacher, config=config)
    path = Path(out)
    path.parent.mkdir(parents=True, exist_ok=True)
    return write_hard_negatives(path, found)


def _load(model: StrPath, device: str, task: str, events: TrainingEvents) -> Encode:
    """Load a model as a function that reports its progress."""
    encoder = load_encoder(str(model), device=device)

    def encode(names: Sequence[str]) -> FloatArray:
        parts = []
        for start in range(0, len(names), _ENCODED):
            parts.append(encoder.encode(names[start : start + _ENCODED]).vectors)
            events.names_encoded(task, len(parts[-1]))
        return np.concatenate(parts)

    return encode
