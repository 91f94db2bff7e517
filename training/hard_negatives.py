"""Mines hard negatives, phrases that are spelled almost like a phrase and mean something else: `train negatives`.

    candidates   pairs within edit distance 2 (`edit_pairs`), and neighbours in three sorted orders of the phrases (from
                 the start, from the end, by the rarest word); edit distance up to half the length of the longer phrase
    skipped      of the same entity; equal after case and punctuation folding; cosine over 0.9
    kept         of the nearest 32 by edit distance, the 12 with the lowest cosine by the base encoder

A million phrases take a few minutes besides the encoder's time, and about 2 KB of memory each. Source: PEARL (Chen et
al. 2024), section 3.4; 12 kept and 2 drawn as in its published code.

Two strings within distance d share a variant with up to d characters deleted (SymSpell, Garbe 2012). The variants are
hashes, without a Python loop over strings; rapidfuzz measures the pairs that share one:

    prefix hash   P[0] = 0,  P[i + 1] = P[i] B + value(c_i)            mod 2^64, B odd
    one deletion  h(s without i) = P[L] + (P[i] - P[i + 1]) B^(L - 1 - i)
    two           h(s without i < j) = P[L] + d_j + d_i / B     where d_k = (P[k] - P[k + 1]) B^(L - 1 - k)

The cost is linear in the number of strings: in a block of strings that share a key, only a window around each is
searched, so that of thousands of names of one template some pairs are missed, but not the alphabetically nearest ones.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from itertools import combinations
from pathlib import Path

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_matrix

from pearl_qdrant.encoder.loading import load_encoder
from pearl_qdrant.lexical.ngrams import scramble
from pearl_qdrant.settings import DEFAULT_DEVICE, DEFAULT_MODEL
from training.examples.example import Phrase, fold_phrase
from training.examples.files import as_phrases, phrase_key, read_training_files, write_hard_negatives
from training.options import MINED, MiningConfig, Paths, StrPath, TrainingEvents, as_paths, refuse_overwriting

UInt64Array = npt.NDArray[np.uint64]
IntArray = npt.NDArray[np.int64]
Pairs = npt.NDArray[np.int64]

_MODULUS = 1 << 64
_BASE = 0x9E3779B97F4A7C15  # odd; 2^64 over the golden ratio
_INVERSE = pow(_BASE, -1, _MODULUS)

MAX_DISTANCE = 2
LONGEST = 40
"""Length of the longest strings that get variants with two deletions: 821 variants each."""
WINDOW = 256
"""Partners of a string in one block, at most.

Of 20,000 neighbouring names with many acronyms, a window of 64 finds 82 % of the pairs and 256 all.
"""
CHUNK = 1 << 21
"""Pairs, or hashes, processed at once."""
_AT_ONCE = 1 << 26  # hashes that are sorted together: half a gigabyte


def _variant_hashes(texts: Sequence[str], deletions: int) -> UInt64Array:
    """Return the hashes of all variants of strings with up to this many characters deleted. Returns (n, 1 + L) or (n, 1
    + L + L (L - 1) / 2); a string with a repeated character has some hashes twice. `texts`: n strings of one length L >
    0; lone surrogates are allowed. `deletions`: 1 or 2.
    """
    points = np.frombuffer("".join(texts).encode("utf-32-le", "surrogatepass"), dtype=np.uint32)
    values = scramble(points.astype(np.uint64)).reshape(len(texts), -1)
    length = values.shape[1]
    prefixes = np.zeros((len(texts), length + 1), dtype=np.uint64)
    for i in range(length):
        prefixes[:, i + 1] = prefixes[:, i] * np.uint64(_BASE) + values[:, i]
    powers = np.array([pow(_BASE, length - 1 - k, _MODULUS) for k in range(length)], dtype=np.uint64)
    whole = prefixes[:, -1:]
    changes = (prefixes[:, :-1] - prefixes[:, 1:]) * powers
    parts = [whole, whole + changes]
    if deletions > 1 and length > 1:
        first, second = np.array(list(combinations(range(length), 2))).T
        parts.append(whole + changes[:, second] + changes[:, first] * np.uint64(_INVERSE))
    return scramble(np.concatenate(parts, axis=1))


def edit_pairs(texts: Sequence[str], *, window: int = WINDOW, threads: int = 1) -> tuple[Pairs, npt.NDArray[np.uint8]]:
    """Return pairs of different strings within two edits (Levenshtein: insert, delete, substitute): pairs of indices,
    (m, 2), the smaller one first, each pair once and sorted; and their distances, (m,), at least 1: equal strings are
    not a pair. The strings are best in alphabetical order, so that the partners taken from a large block are near.
    """
    lengths = np.array([len(text) for text in texts], dtype=np.int64)
    found = [np.zeros(0, dtype=np.uint64)]
    for first, second in _sharing_a_variant(texts, lengths, window):
        close = np.abs(lengths[first] - lengths[second]) <= MAX_DISTANCE
        low, high = np.minimum(first[close], second[close]), np.maximum(first[close], second[close])
        found.append(np.unique(low.astype(np.uint64) << np.uint64(32) | high.astype(np.uint64)))
    keys = np.unique(np.concatenate(found))
    pairs = np.stack([keys >> np.uint64(32), keys & np.uint64(0xFFFFFFFF)], axis=1).astype(np.int64)
    distances = edit_distances(texts, pairs, limit=MAX_DISTANCE, threads=threads)
    near = (distances <= MAX_DISTANCE) & (distances > 0)
    return pairs[near], distances[near]


def edit_distances(texts: Sequence[str], pairs: Pairs, *, limit: int = 254, threads: int = 1) -> npt.NDArray[np.uint8]:
    """Return the edit distance of each pair, (m,); `limit` + 1, at most 255, for every distance over the limit."""
    from rapidfuzz.distance import Levenshtein
    from rapidfuzz.process import cpdist

    parts = [np.zeros(0, dtype=np.uint8)]
    for start in range(0, len(pairs), CHUNK // 4):
        chunk = pairs[start : start + CHUNK // 4]
        left, right = ([texts[i] for i in column] for column in chunk.T.tolist())
        distances = cpdist(
            left, right, scorer=Levenshtein.distance, score_cutoff=limit, dtype=np.uint8, workers=threads
        )
        parts.append(distances)
    return np.concatenate(parts)


def _sharing_a_variant(texts: Sequence[str], lengths: IntArray, window: int) -> Iterator[tuple[IntArray, IntArray]]:
    """Yield pairs of strings that share a variant, some of them several times."""
    groups = []  # rows of one length with the deletions of their variants, which are few enough for a pass
    n_hashes = 0
    for length in np.unique(lengths[lengths > 0]).tolist():
        deletions = MAX_DISTANCE if length <= LONGEST else 1
        each = 1 + length + (length * (length - 1) // 2 if deletions > 1 else 0)
        rows = np.flatnonzero(lengths == length)
        n_hashes += each * len(rows)
        step = max(1, CHUNK // each)
        groups += [(rows[start : start + step], deletions) for start in range(0, len(rows), step)]
    id_bits = np.uint64(max(1, len(texts)).bit_length())
    part_bits = np.uint64(max(0, n_hashes // _AT_ONCE).bit_length())
    for part in range(1 << int(part_bits)):
        keys = [np.zeros(0, dtype=np.uint64)]
        for rows, deletions in groups:
            hashes = _variant_hashes([texts[i] for i in rows.tolist()], deletions)
            owners = np.broadcast_to(rows[:, None].astype(np.uint64), hashes.shape)
            mine = hashes & ((np.uint64(1) << part_bits) - np.uint64(1)) == part
            keys.append(hashes[mine] >> id_bits << id_bits | owners[mine])
        ordered = np.concatenate(keys)
        ordered.sort()
        yield from _neighbours_of_one_key(ordered, id_bits, window)


def _neighbours_of_one_key(
    ordered: UInt64Array, id_bits: np.uint64, window: int
) -> Iterator[tuple[IntArray, IntArray]]:
    """Yield pairs of ids within `window` of each other under one key."""
    ids = (ordered & ((np.uint64(1) << id_bits) - np.uint64(1))).astype(np.int64)
    hashes = ordered >> id_bits
    at = np.arange(len(ordered) - 1)
    for step in range(1, window + 1):
        at = at[at + step < len(ordered)]
        at = at[hashes[at] == hashes[at + step]]
        if not len(at):
            return
        for start in range(0, len(at), CHUNK):
            chunk = at[start : start + CHUNK]
            yield ids[chunk], ids[chunk + step]


_log = logging.getLogger(__name__)

FloatArray = npt.NDArray[np.float32]
Encode = Callable[[Sequence[str]], FloatArray]
"""Encodes phrases as vectors, (n, dim), L2-normalised; zeros for a phrase without known tokens."""

_ID_BITS = 28  # of a packed (phrase, distance, phrase)
_CHUNK = 1 << 16  # phrases, or pairs x 8, handled at once
_MAX_COSINE = 0.9  # a candidate with a higher one means the same and is skipped


def mine_hard_negatives(
    phrases: Sequence[Phrase], encode: Encode, *, config: MiningConfig | None = None
) -> Iterator[tuple[str, list[str]]]:
    """Yield phrases with their hard negatives, lowest cosine first; phrases without any are skipped. `phrases`: phrases
    that differ only in case and white space count as one, with the text of the first. `config`: what counts as a hard
    negative.
    """
    config = config or MiningConfig()
    merged = _merge(phrases)
    texts = list(merged)
    merged_phrases = list(merged.values())
    near, distances = _find_near_pairs(texts, config)
    _log.info("%d phrases, %d pairs spelled alike", len(texts), len(near))
    allowed = _find_allowed(merged_phrases, near)
    pool = _keep_nearest(near[allowed], distances[allowed], MINED)
    yield from _keep_lowest_cosines(merged_phrases, pool, encode, config)


def _merge(phrases: Sequence[Phrase]) -> dict[str, Phrase]:
    """Merge phrases with the same case-folded text, in alphabetical order; their entities are united."""
    merged: dict[str, Phrase] = {}
    for phrase in phrases:
        key = " ".join(phrase.text.casefold().split())
        if not key:
            continue
        before = merged.get(key)
        if before is None:
            merged[key] = phrase
        elif before.entities != phrase.entities:
            merged[key] = Phrase(before.text, tuple(dict.fromkeys((*before.entities, *phrase.entities))))
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


def _find_allowed(merged_phrases: Sequence[Phrase], pairs: Pairs) -> npt.NDArray[np.bool_]:
    """Return which pairs may be negatives: no common entity, and not equal when folded."""
    folded = np.array([phrase_key(fold_phrase(phrase.text)) >> 1 for phrase in merged_phrases], dtype=np.int64)
    allowed: npt.NDArray[np.bool_] = folded[pairs[:, 0]] != folded[pairs[:, 1]]
    ids: dict[str, int] = {}
    flat = [ids.setdefault(entity, len(ids)) for phrase in merged_phrases for entity in phrase.entities]
    starts = np.cumsum([0, *(len(phrase.entities) for phrase in merged_phrases)])
    # Row i has the entities of phrase i.
    known = csr_matrix((np.ones(len(flat), dtype=bool), flat, starts), shape=(len(merged_phrases), max(1, len(ids))))
    for start in range(0, len(pairs), _CHUNK * 8):
        first, second = pairs[start : start + _CHUNK * 8].T
        allowed[start : start + _CHUNK * 8] &= known[first].multiply(known[second]).getnnz(axis=1) == 0
    return allowed


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
    merged_phrases: Sequence[Phrase], pool: Pairs, encode: Encode, config: MiningConfig
) -> Iterator[tuple[str, list[str]]]:
    """Yield the candidates of each phrase with the lowest cosines, without those that mean the same."""
    used = np.unique(pool)
    place = np.zeros(len(merged_phrases), dtype=np.int64)
    place[used] = np.arange(len(used))
    names = [merged_phrases[i].text for i in used.tolist()]
    parts = [encode(names[start : start + _CHUNK]).astype(np.float16) for start in range(0, len(names), _CHUNK)]
    vectors = np.concatenate(parts) if parts else np.zeros((0, 1), dtype=np.float16)
    owners, begins = np.unique(pool[:, 0], return_index=True)
    ends = np.append(begins[1:], len(pool))
    step = max(1, _CHUNK // MINED)
    for start in range(0, len(owners), step):
        stop = min(start + step, len(owners))
        rows = pool[begins[start] : ends[stop - 1]]
        left, right = place[rows[:, 0]], place[rows[:, 1]]
        cosines = np.einsum("nd,nd->n", vectors[left].astype(np.float32), vectors[right].astype(np.float32))
        encoded = vectors[right].any(axis=1) & vectors[left].any(axis=1)
        usable = encoded & (cosines <= _MAX_COSINE)
        order = np.lexsort((rows[:, 1], cosines, rows[:, 0]))
        order = order[usable[order]]
        chosen = rows[order]
        here, firsts, counts = np.unique(chosen[:, 0], return_index=True, return_counts=True)
        for owner, first, count in zip(here.tolist(), firsts.tolist(), counts.tolist(), strict=True):
            best = chosen[first : first + min(count, config.kept), 1].tolist()
            yield merged_phrases[owner].text, [merged_phrases[i].text for i in best]


_ENCODED = 1024  # names between two reports of progress


def mine_negatives(
    out: StrPath,
    *,
    phrases: Paths = (),
    aliases: Paths = (),
    model: StrPath = DEFAULT_MODEL,
    config: MiningConfig | None = None,
    device: str = DEFAULT_DEVICE,
    events: TrainingEvents | None = None,
) -> int:
    """Find phrases that are spelled almost like a phrase and mean something else, and write them to a file.

    Args:
        out: hard_negative.txt; its folder is created if absent.
        phrases, aliases: As for `read_training_files`.
        model: Encoder whose lowest cosines are kept.
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
    examples = read_training_files(phrases, aliases, events=events)
    encoder = load_encoder(str(model), device=device)

    def encode(names: Sequence[str]) -> FloatArray:
        parts = []
        for start in range(0, len(names), _ENCODED):
            parts.append(encoder.encode(names[start : start + _ENCODED]).vectors)
            events.names_encoded(len(parts[-1]))
        return np.concatenate(parts)

    return write_hard_negatives(Path(out), mine_hard_negatives(list(as_phrases(examples)), encode, config=config))
