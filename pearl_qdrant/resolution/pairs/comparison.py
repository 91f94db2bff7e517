"""The forms of names as arrays, the pairs of them that may mean the same, and the features of pairs.

Vectors are half floats in a temporary file, which is mapped. N-grams, neighbours and types are in memory, about 500
bytes a name. Both searches for pairs are near-linear: vectors are compared in blocks, beyond `EXACT_NAMES` within cells
around random names; n-grams are looked up in lists of the names that have them.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from pearl_qdrant.encoder.judge import shipped_judge
from pearl_qdrant.encoder.protocol import Encoder
from pearl_qdrant.lexical.keys import initials, skeleton
from pearl_qdrant.lexical.ngrams import IdfTable, SparseRows, folded_rows, join_rows, top_weighted_features
from pearl_qdrant.lexical.words import LEGAL_FORMS, legal_forms_of, without_legal_forms
from pearl_qdrant.linking.ranking.model import baseline_similarity
from pearl_qdrant.linking.ranking.name_parts import are_cut_words
from pearl_qdrant.linking.ranking.string_features import other_known_name
from pearl_qdrant.phrase_types import ENTITY_TYPES
from pearl_qdrant.resolution.contexts import Contexts
from pearl_qdrant.resolution.names import Forms, Types, is_acronym_like, plain_name
from pearl_qdrant.resolution.pairs.features import (
    FEATURES,
    Form,
    WordVectors,
    as_words,
    encode_mapped,
    form_of,
    replaced_words,
    string_pair,
)
from pearl_qdrant.resolution.pairs.model import doubt, has_title
from pearl_qdrant.resolution.pairs.same_words import Slots, have_other_forms, person_words, sameness


def pack_pairs(pairs: IntArray) -> IntArray:
    """Pairs, (p, 2), as one number each, (p,), the smaller number first."""
    packed: IntArray = pairs.min(axis=1) << 32 | pairs.max(axis=1)
    return packed


def unpack_pairs(packed: IntArray) -> IntArray:
    """The pairs, (p, 2), of `pack_pairs`."""
    return np.stack((packed >> 32, packed & 0xFFFFFFFF), axis=1)


N_NEIGHBOURS = 16  # Neighbours by vector that are kept of each name
DENSE_PAIRS, NGRAM_PAIRS, SKELETON_PAIRS = 10, 6, 4  # Candidates of each name: by vector, by n-grams, by consonants
LEAST_DENSE = 0.3  # Cosine above that of unrelated names, of a candidate: 99.5 % of the right ones have it, 66 % of all
NGRAM_FEATURES, SKELETON_FEATURES = 8, 6  # N-grams of each name that are looked up, the rarest
CROWD = slice(5, 12)  # Ranks of the neighbours that measure how many names are like a name
MOST_OF_A_SOURCE = 200  # Names of one source among which acronyms are looked for
CHANCE = 0.03  # Names that fit an acronym by chance, at most, for it to be that of the only one that fits

_COMPARED = 65_536

IntArray = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float32]


class Comparison:
    """Compares the forms of names, at least one."""

    def __init__(self, forms: Forms, encoder: Encoder, contexts: Contexts | None = None) -> None:
        self.forms = forms
        self._contexts = contexts or Contexts(lambda: encoder)
        self._names = [plain_name(forms.name(form)) for form in range(len(forms))]
        self._baseline = baseline_similarity(encoder)
        self._written = as_words(self._names)
        self._vectors, self._types = encode_mapped(self._written, encoder)
        self._nearest = nearest_names(self._vectors, N_NEIGHBOURS, np.random.default_rng(0))
        cosines = self._nearest.cosines[:, CROWD]
        self._crowd = np.where(cosines > -1, cosines, self._baseline).mean(axis=1)
        self._weighted = weighted_rows(forms.folded, IdfTable.from_names(self._names[:: max(1, len(forms) // 100_000)]))
        self.types = Types([key[1] for key in forms.keys])
        self._words = WordVectors(forms.folded, encoder, self._baseline)
        self.form = lru_cache(maxsize=50_000)(self._form)
        self._slots = Slots(self._distinct_contents())

    def _form(self, number: int) -> Form:
        return form_of(self._names[number], self.forms.folded[number])

    def _distinct_contents(self) -> Iterator[Sequence[str]]:
        """The content words of the forms, each once."""
        last: tuple[str, ...] = ()
        for number in range(len(self.forms)):
            content = self.form(number).strings.content
            if content != last:  # forms are sorted by their spelling
                yield content
            last = content

    def candidates(self) -> IntArray:
        """Pairs of forms of types that agree that may mean the same, as `pack_pairs` packs them, ascending."""
        keys = np.concatenate([pack_pairs(pairs) for pairs in self._proposals()])
        keys.sort()
        is_first = np.ones(len(keys), bool)
        is_first[1:] = keys[1:] != keys[:-1]
        keys = keys[is_first]
        a, b = (keys >> 32).astype(np.int32), (keys & 0xFFFFFFFF).astype(np.int32)
        packed: IntArray = keys[(a != b) & self.types.agree(a, b)]
        return packed[self._are_worth_a_look(unpack_pairs(packed))]

    def _are_worth_a_look(self, pairs: IntArray) -> npt.NDArray[np.bool_]:
        """Which pairs are worth a look, (p,): vectors are alike, or words are."""
        found = self.cosines(pairs) >= LEAST_DENSE
        for i in np.flatnonzero(~found):
            a, b = pairs[i].tolist()
            found[i] = self.is_equal(a, b) or self.has_all_words(a, b) or self.sameness(a, b) > 0
        return found

    def namesakes(self) -> Iterator[range]:
        """The forms of each spelling that has several types; they lie side by side."""
        keys = self.forms.keys
        start = 0
        for i in range(1, len(keys) + 1):
            if i == len(keys) or keys[i][0] != keys[start][0]:
                if i - start > 1:
                    yield range(start, i)
                start = i

    def _proposals(self) -> Iterator[IntArray]:
        n = len(self.forms)
        for start in range(0, n, _COMPARED):
            near = self._nearest.names[start : start + _COMPARED, :DENSE_PAIRS].astype(np.int64)
            pairs = np.stack((np.repeat(np.arange(start, start + len(near)), near.shape[1]), near.ravel()), axis=1)
            yield pairs[pairs[:, 1] >= 0]
        yield from ngram_pairs(self._weighted, features=NGRAM_FEATURES, k=NGRAM_PAIRS)
        skeletons = [skeleton(folded) for folded in self.forms.folded]
        rarity = IdfTable.from_names(skeletons[:: max(1, n // 100_000)])
        rows = weighted_rows(skeletons, rarity)
        del skeletons
        yield from ngram_pairs(rows, features=SKELETON_FEATURES, k=SKELETON_PAIRS)
        for group in self.namesakes():
            yield np.array([(a, b) for a in group for b in group if a < b], np.int64)

    def acronyms(self) -> Iterator[tuple[int, int]]:
        """Pairs of an acronym and its long form: defined by a context or name, of one source, or fitting by itself."""
        yield from self.forms.defined
        of_source: dict[int, list[int]] = {}
        for form, sources in self.forms.sources.items():
            for source in sources:
                of_source.setdefault(source, []).append(form)
        small = [forms for forms in of_source.values() if len(forms) <= MOST_OF_A_SOURCE]
        if not small:
            yield from self._fitting_acronyms()
        for of_one in small:
            for one in [form for form in of_one if is_acronym_like(self._names[form])]:
                letters = self.form(one).strings.joined
                yield from ((one, other) for other in of_one if other != one and letters in self._initials(other))

    def _fitting_acronyms(self) -> Iterator[tuple[int, int]]:
        """Acronyms with the names of these initials, where chance would give the list hardly one of them.

        What chance gives is the number of names with so many words, times how often words begin with each of the
        letters.
        """
        short: dict[str, list[int]] = {}
        for form, name in enumerate(self._names):
            if is_acronym_like(name):
                letters_of_it = "".join(c for c in name.casefold() if c.isalnum() or c == "&")
                short.setdefault(letters_of_it, []).append(form)
        long: dict[str, list[int]] = {}
        letters, n_words = Counter[str](), Counter[int]()
        for form, name in enumerate(self._names):
            strings = self.form(form).strings
            first = "".join(word[0] for word in without_legal_forms(strings.content))
            fitting = self._initials(form)
            if len(first) > 1:
                sides = re.split(r"\s*&\s*|\s+and\s+", name)
                pair = "&".join(side[:1].casefold() for side in sides) if len(sides) == 2 else first
                letters.update(pair)
                n_words[len(pair)] += 1
                fitting |= {pair, first}
            for one in fitting & short.keys():
                long.setdefault(one, []).append(form)
        for acronym, forms in long.items():
            share = math.prod(letters[letter] / max(letters.total(), 1) for letter in acronym)
            if n_words[len(acronym)] * share <= CHANCE:
                yield from ((a, b) for a in short[acronym] for b in forms if a != b)

    def _initials(self, form: int) -> set[str]:
        """The initials of a name, with and without its legal forms; of a word its ends and the number of letters
        between them: `i18n` of `internationalization`.
        """
        words = self.form(form).strings.folded.split()
        found = {_mixed_initials(self._names[form]), *self.form(form).strings.initials}
        for n in range(len(without_legal_forms(words)), len(words)):
            found |= initials(words[:n])
        return found | {
            f"{word[0]}{len(word) - 2}{word[-1]}" for word in words[:1] if len(words) == 1 and len(word) > 4
        }

    def alike_contexts(self, pairs: IntArray) -> npt.NDArray[np.float64]:
        """How alike the contexts of pairs of forms are (`contexts`), (p,); NaN where one has none."""
        found, said = np.full(len(pairs), np.nan), self.forms.contexts
        rows = [i for i, pair in enumerate(pairs.tolist() if said else ()) if said.keys() >= set(pair)]
        of = {one: [(self.forms.name(one), text) for text in said[one]] for one in pairs[rows].ravel().tolist()}
        self._contexts.encode([text for texts in of.values() for text in texts])
        found[rows] = [self._contexts.likeness(of[a], of[b]) for a, b in pairs[rows].tolist()]
        return found

    def is_equal(self, a: int, b: int) -> bool:
        """Whether two forms have one spelling, and differ in type."""
        return self.forms.keys[a][0] == self.forms.keys[b][0]

    def differ_in_signs(self, a: int, b: int) -> bool:
        """Whether two forms have the same letters, and signs that tell them apart: `C`, `C++`; `.NET`, `Net`."""
        return not self.is_equal(a, b) and self.form(a).strings.joined == self.form(b).strings.joined

    def is_person(self, a: int, b: int) -> bool:
        """Whether both are names of persons, by their types; else by their titles or the predicted types."""
        known = [one for one in (self.types.is_person(a), self.types.is_person(b)) if one is not None]
        if known:
            return all(known)
        if any(has_title(self.form(one).strings, _TITLES) for one in (a, b)):
            return True
        if self._has_legal_form(a) or self._has_legal_form(b):
            return False
        if self._types is None:
            return False
        ours, theirs = float(self._types[a, _PERSON]), float(self._types[b, _PERSON])
        if max(ours, theirs) ** 2 <= _BOTH:
            return False
        # `General Washington` is predicted to be one less surely.
        return ours * theirs > _BOTH or any(person_words(self.form(one).strings)[1] for one in (a, b))

    def sameness(self, a: int, b: int) -> int:
        """Whether two forms have the same words (`same_words.sameness`)."""
        return sameness(self.form(a), self.form(b), is_person=self.is_person(a, b))

    def differ_in_middle(self, a: int, b: int) -> bool:
        """Whether both are names of persons, and one has more words than the other, titles left out."""
        ours, theirs = (person_words(self.form(form).strings)[0] for form in (a, b))
        return len(ours) != len(theirs) and self.is_person(a, b)

    def have_other_forms(self, a: int, b: int) -> bool:
        """Whether each has a legal form that the other lacks (`same_words.have_other_forms`)."""
        return have_other_forms(self.form(a).strings, self.form(b).strings)

    def differ_in_form(self, a: int, b: int) -> bool:
        """Whether one alone has a legal form."""
        ours, theirs = (legal_forms_of(self.form(form).strings.folded.split()) for form in (a, b))
        return bool(ours) != bool(theirs)

    def has_cut_words(self, a: int, b: int) -> bool:
        """Whether every word of one name is a word of the other, cut short or whole; `Paul` is not `Paula`, cut."""
        one, two = self.form(a).strings, self.form(b).strings
        return are_cut_words(one, two) > 0 and not (other_known_name(one, two) and self.is_person(a, b))

    def has_all_words(self, a: int, b: int) -> bool:
        """Whether one has all words of the other."""
        one, two = (self.form(form).strings.content_set for form in (a, b))
        return one <= two or two <= one

    def differ_in_a_word(self, a: int, b: int) -> bool:
        """Whether one has all words of the other, and at most one more."""
        one, two = (self.form(form).strings.content_set for form in (a, b))
        return len(one ^ two) < 2 and bool(one & two)

    def doubt(self, a: int, b: int, *, is_same: bool) -> str:
        """Why a person should decide whether two forms mean the same, or ""; `is_same` if their words are."""
        if self.types.is_loose(a, b) and not is_same:
            return "another type"
        if self.have_other_forms(a, b):
            return "each has another legal form"
        if self._is_company_of_person(a, b):
            return "a company and a person"
        return doubt(
            *(self.form(a), self.form(b)),
            is_same=is_same,
            is_person=self.is_person(a, b),
            are_unknown_places=self._are_unknown_places(a, b),
        )

    def _are_unknown_places(self, a: int, b: int) -> bool:
        """Whether both have the type of a place, and the model does not know both as one."""
        if self._types is None or not (self.types.is_place(a) and self.types.is_place(b)):
            return False
        return any(self._types[one, _PLACES].sum() < _KNOWN for one in (a, b))

    def _is_company_of_person(self, a: int, b: int) -> bool:
        """Whether one has the legal form of a company, and the other is probably a person."""
        if self._types is None:
            return False
        return any(
            self._types[two, _PERSON] > _PROBABLY and self._has_legal_form(one) and not self._has_legal_form(two)
            for one, two in ((a, b), (b, a))
        )

    def _has_legal_form(self, form: int) -> bool:
        words = self.form(form).strings.folded.split()
        return len(words) > 1 and words[-1] in LEGAL_FORMS

    def features(self, pairs: IntArray) -> FloatArray:
        """Features of pairs in the order of `pairs.features.FEATURES`, (p, features)."""
        blocks = [self._block(pairs[start : start + _COMPARED]) for start in range(0, len(pairs), _COMPARED)]
        return np.concatenate([np.empty((0, len(FEATURES)), np.float32), *blocks])

    def cosines(self, pairs: IntArray) -> FloatArray:
        """Cosines of pairs above that of unrelated names, (p,)."""
        found: FloatArray = np.empty(len(pairs), np.float32)
        for start in range(0, len(pairs), _COMPARED):
            a, b = (np.asarray(self._vectors[one], np.float32) for one in pairs[start : start + _COMPARED].T)
            found[start : start + _COMPARED] = np.einsum("ij,ij->i", a, b)
        found -= np.float32(self._baseline)
        found /= np.float32(1 - self._baseline)
        return found

    def _scores(self, pairs: IntArray) -> list[npt.NDArray[np.floating]]:
        """The features `FROM_SCORES` of pairs, (p, 2)."""
        a, b = pairs[:, 0], pairs[:, 1]
        other: FloatArray = np.zeros(len(pairs), np.float32)
        if self._types is not None:
            other = np.asarray(self._types[a, _OTHER], np.float32) * np.asarray(self._types[b, _OTHER], np.float32)
        forms = [(self.form(one).strings, self.form(two).strings) for one, two in pairs.tolist()]
        return [
            self.cosines(pairs),
            (np.maximum(self._crowd[a], self._crowd[b]) - self._baseline) / (1 - self._baseline),
            np.array([self._slots.share(one.content, two.content) for one, two in forms], np.float32),
            other,
            self._words.cosines([replaced_words(one, two) for one, two in forms]),
        ]

    def judged(self, pairs: IntArray) -> npt.NDArray[np.float64]:
        """The judge's scores of pairs, (p,), the longer name as the mention: both directions say no more."""
        names = [sorted((self._written[a], self._written[b]), key=_length) for a, b in pairs.tolist()]
        return shipped_judge().scores([(long, short) for short, long in names])

    def _block(self, pairs: IntArray) -> FloatArray:
        strings = [string_pair(self.form(a), self.form(b), is_person=self.is_person(a, b)) for a, b in pairs.tolist()]
        return np.column_stack([*self._scores(pairs), np.array(strings)]).astype(np.float32)


def _length(name: str) -> tuple[int, str]:
    return len(name), name


_ROMAN = dict(zip("123456789", "i ii iii iv v vi vii viii ix".split(), strict=True))


def _mixed_initials(name: str) -> str:
    """Initials, but short words in capitals whole, and numbers in Roman: `wwii` of `World War 2`."""
    words = [] if name.isupper() else re.findall(r"\w+", name)
    return "".join(_ROMAN.get(w) or (w if _is_whole(w) else w[0]) for w in words).casefold()


def _is_whole(word: str) -> bool:
    """Whether initials have the whole word: a short one in capitals, and one with a number (`4o`)."""
    return word[0].isdigit() or (len(word) < 4 and word.isupper())


_PROBABLY = 0.95
"""Predicted probability of a person from which a name with a legal form more is asked: `Ford`, `Ford Inc`."""
_BOTH = 0.25
_KNOWN = 0.85
"""Predicted probability of a place from which it is a known one: that of countries and capitals is 0.88 and more."""
_PLACES = [ENTITY_TYPES.index(one) for one in ("GPE", "LOC")]
_TITLES = frozenset("mr mrs ms miss dr prof sir".split())  # What only persons have before their names

_PERSON, _OTHER = ENTITY_TYPES.index("PERSON"), ENTITY_TYPES.index("OTHER")


EXACT_NAMES = 30_000  # Names up to which each is compared with all others: 2 s for each core
CELL_NAMES = 500  # Names in a cell, on average

PROBES = 12
"""Cells that each name is compared with. Of the ten nearest names of 100,000 they have 94 % (docs/experiments)."""

LONGEST_LIST = 300  # Names with an n-gram, at most, for it to be looked up

_BLOCK = 2048

_FOLDED = 20_000  # Names whose n-grams are made at once
_CELLS = 8_000_000  # Cosines that are compared at once: 32 MB


@dataclass(frozen=True, slots=True)
class Nearest:
    """The nearest names of each name by vector, nearest first, and their cosines, (n, k); -1 where there are fewer."""

    names: npt.NDArray[np.int32]
    cosines: FloatArray


def nearest_names(vectors: npt.NDArray[np.float16] | FloatArray, k: int, rng: np.random.Generator) -> Nearest:
    """The `k` nearest names of each by cosine; `vectors`, (n, dim), have unit length or are zero."""
    n = len(vectors)
    found = Nearest(np.full((n, k), -1, np.int32), np.full((n, k), -1, np.float32))
    if n <= EXACT_NAMES:
        rows = np.arange(n)
        every = np.asarray(vectors, np.float32)
        block = max(1, min(_BLOCK, _CELLS // max(n, 1)))
        for start in range(0, n, block):
            _keep_best(found, rows[start : start + block], rows, every[start : start + block] @ every.T)
        return found
    centres, cells = _cells(vectors, rng)
    of_cell = np.argsort(cells[:, 0], kind="stable")
    starts = np.searchsorted(cells[of_cell, 0], np.arange(len(centres) + 1))
    askers = np.argsort(cells, axis=None, kind="stable")
    ask_starts = np.searchsorted(cells.ravel()[askers], np.arange(len(centres) + 1))
    for cell in range(len(centres)):
        members = of_cell[starts[cell] : starts[cell + 1]]
        if not len(members):
            continue
        own = np.asarray(vectors[members], np.float32)
        asking = askers[ask_starts[cell] : ask_starts[cell + 1]] // cells.shape[1]
        for start in range(0, len(asking), _BLOCK):
            rows = asking[start : start + _BLOCK]
            _keep_best(found, rows, members, np.asarray(vectors[rows], np.float32) @ own.T)
    return found


def _cells(vectors: npt.NDArray[np.float16] | FloatArray, rng: np.random.Generator) -> tuple[FloatArray, IntArray]:
    """Centres of cells, and the nearest `PROBES` cells of each name, the nearest first."""
    n = len(vectors)
    n_cells = n // CELL_NAMES
    sample = np.asarray(vectors[np.sort(rng.choice(n, min(n, 32 * n_cells), replace=False))], np.float32)
    centres = sample[rng.choice(len(sample), n_cells, replace=False)]
    for _ in range(3):  # of k-means; centres that are random names are half as even
        nearest = np.concatenate(
            [(sample[i : i + _BLOCK] @ centres.T).argmax(axis=1) for i in range(0, len(sample), _BLOCK)]
        )
        sums = np.zeros_like(centres)
        np.add.at(sums, nearest, sample)
        norms = np.linalg.norm(sums, axis=1, keepdims=True)
        centres = np.where(norms > 0, sums / np.maximum(norms, 1e-9), centres).astype(np.float32)
    probes = min(PROBES, n_cells)
    cells = np.empty((n, probes), np.int64)
    for start in range(0, n, _BLOCK):
        scores = np.asarray(vectors[start : start + _BLOCK], np.float32) @ centres.T
        best = np.argpartition(-scores, probes - 1, axis=1)[:, :probes]
        order = np.argsort(-np.take_along_axis(scores, best, axis=1), axis=1)
        cells[start : start + _BLOCK] = np.take_along_axis(best, order, axis=1)
    return centres, cells


def _keep_best(found: Nearest, rows: IntArray, columns: IntArray, cosines: FloatArray) -> None:
    """Put the best columns into the rows of `found`, beside what is there."""
    k = found.names.shape[1]
    cosines[rows[:, None] == columns[None, :]] = -1
    if len(columns) > k:
        best = np.argpartition(-cosines, k - 1, axis=1)[:, :k]
        names, values = columns[best], np.take_along_axis(cosines, best, axis=1)
    else:
        names, values = np.broadcast_to(columns, cosines.shape), cosines
    names = np.concatenate((found.names[rows], names), axis=1)
    values = np.concatenate((found.cosines[rows], values), axis=1)
    order = np.argsort(-values, axis=1, kind="stable")[:, :k]
    values = np.take_along_axis(values, order, axis=1)
    found.names[rows] = np.where(values > -1, np.take_along_axis(names, order, axis=1), -1)
    found.cosines[rows] = values


def weighted_rows(folded: Sequence[str], idf: IdfTable) -> SparseRows:
    """Weighted n-grams of folded names, n rows; made block by block, as they take ten times the memory meanwhile."""
    return join_rows([idf.weighted(folded_rows(folded[i : i + _FOLDED])) for i in range(0, len(folded), _FOLDED)])


def ngram_pairs(weighted: SparseRows, *, features: int, k: int) -> Iterator[IntArray]:
    """Pairs of names that share rare n-grams, (p, 2), block by block: of each name the `k` with the highest sum of
    shared weights, by its `features` rarest n-grams; a pair may come twice, in either order.
    """
    n = len(weighted)
    blocks = [range(i, min(i + _FOLDED, n)) for i in range(0, n, _FOLDED)]
    top = join_rows([top_weighted_features(weighted.take(block), features) for block in blocks])
    owner = np.repeat(np.arange(n, dtype=np.int32), np.diff(top.offsets))
    order = np.argsort(top.indices, kind="stable")
    lists, starts, lengths = np.unique(top.indices[order], return_index=True, return_counts=True)
    listed = owner[order]
    for first in range(0, n, _BLOCK):
        part = slice(int(top.offsets[first]), int(top.offsets[min(first + _BLOCK, n)]))
        at = np.searchsorted(lists, top.indices[part])
        is_short = lengths[at] <= LONGEST_LIST
        at, asking, weight = at[is_short], owner[part][is_short], top.values[part][is_short] ** 2
        counts = lengths[at]
        if not counts.sum():
            continue
        position = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
        other = listed[np.repeat(starts[at], counts) + position].astype(np.int64)
        key = np.repeat(asking.astype(np.int64), counts) << 32 | other
        unique, inverse = np.unique(key, return_inverse=True)
        shared = np.bincount(inverse, weights=np.repeat(weight, counts))
        a, b = unique >> 32, unique & 0xFFFFFFFF
        is_other = a != b
        a, b, shared = a[is_other], b[is_other], shared[is_other]
        best = np.lexsort((-shared, a))
        a, b = a[best], b[best]
        rank = np.arange(len(a)) - np.searchsorted(a, a)
        yield np.stack((a, b), axis=1)[rank < k]
