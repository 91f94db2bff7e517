"""Names to sparse vectors of hashed character n-grams and words, for lexical search, and how rare these are in a base.

    fold      case, accents, Greek letters, punctuation, number formats      "Type II, β-cells" -> "type 2 beta cells"
    features  all runs of three characters of " type 2 beta cells ", and its words
    hash      32 bits per feature, the same in every process and release
    value     square root of the number of occurrences, scaled to a row of unit length

There is no vocabulary, so a base is read once and a mention needs no table. numpy does the work for a whole batch of
names at once.

Names of other scripts get n-grams of their Latin letters beside their own (Москва -> moskva, 北京 -> beijing), by
anyascii: one rule for each character. Vowels that a script leaves out stay away.

The lexical score weights n-grams by their rarity (IDF):

    weight of a feature = its value in the name * idf(feature)
    lexical_score       = cosine of the weighted vectors of mention and name, in [0, 1]
    mention_coverage    = share of the mention's squared weight on features that the name has

Qdrant's own sparse score only finds names: it is unbounded, and it changes with the base. The IDF table is computed
from a sample of the base when a load ends, and stored in the manifest: 2^18 hashed buckets of one byte each.
"""

from __future__ import annotations

import base64
import re
import unicodedata
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain, islice

import numpy as np
import numpy.typing as npt
from anyascii import anyascii

VERSION = 7
"""Version of folding and hashing, and of the keys and parts that are stored beside n-grams (`keys.py`). A
collection of another one has to be ingested again."""

N = 3
_GREEK = "alpha beta gamma delta epsilon zeta eta theta iota kappa lambda mu nu xi omicron pi rho sigma tau upsilon phi"
_GREEK_LETTERS = {0x3B1 + i + (i > 16): name for i, name in enumerate([*_GREEK.split(), "chi", "psi", "omega"])}
_SYMBOLS = re.compile("(?<![\u03b1-\u03c9])[\u03b1-\u03c9]{1,3}(?![\u03b1-\u03c9])")
"""Greek letters that are symbols, as in TNF\u03b1, and no word."""
# Letters that Unicode does not decompose.
_LETTERS: dict[int, int | str] = {
    ord(a): b for a, b in zip("æœøłđðþıħŋς", "ae oe o l d d th i h n σ".split(), strict=True)
}
# Arabic letters that Persian and Urdu write in another form, or that are often written for each other; the stroke that
# lengthens a word.
_LETTERS |= dict(zip(map(ord, "\u0649\u06cc\u06d2\u06a9\u0629\u06c1\u06be\u06d5"), "ييي" + "ك" + "ه" * 4, strict=True))
_LETTERS[0x640] = ""
_LETTERS[0x2212] = "-"  # the minus sign, to which superscript ones are decomposed
_LETTERS |= {kana: kana + 0x60 for kana in range(0x3041, 0x3097)}  # Hiragana to Katakana
# Long i and u and the sign of a nasal vowel are often confused with short ones and with the other sign. The blocks of
# nine Indic scripts have one order.
_CONFUSED = {0x01: 0x02, 0x08: 0x07, 0x0A: 0x09, 0x40: 0x3F, 0x42: 0x41}
_LETTERS |= {block + a: block + b for block in range(0x900, 0xD80, 0x80) for a, b in _CONFUSED.items()}

_ROMAN = {name: str(i) for i, name in enumerate("ii iii iv v vi vii viii ix x xi xii xiii xiv xv xvi".split(), start=2)}
_ROMAN_OR_I = frozenset(("i", *_ROMAN))
_AMBIGUOUS = frozenset(("v", "x"))  # letters, unless the word before announces a number
_ROMAN_AFTER = frozenset(
    "type stage class grade phase group part volume chapter factor war ww level category generation mark".split()
)

_MARKED = re.compile("[\u0900-\u1aaf\u3099\u309a\ua800-\uabff\U00011000-\U00011fff]")
"""Scripts whose marks are letters: Indic ones, Thai and their like, and the marks of voiced Kana."""

_LONG = 256  # characters; up to this length, sorting a run of combining marks takes no noticeable time
_MARKS = 16
_WORD = re.compile(r"[^\W\d_]+|\d+")
_POSSESSIVE = re.compile(r"['\u2019](?=s\b)")

_SIGNS = (
    ("+", re.compile(r"(?<=[^\W_])\++(?![^\W_]|\+)"), lambda found: " plus" * len(found[0])),
    ("#", re.compile(r"(?<![^\W_])([^\W\d_])#(?![^\W_])"), r"\1 sharp"),
    ("*", re.compile(r"(?<![^\W_])([^\W\d_])\*(?![^\W_])"), r"\1 star"),
    ("-", re.compile(r"(?<=\d)-(?=[\s)\],;]|$)"), " minus"),
)
"""Signs at the end of a word that tell names apart, as they are read: `C++`, `HER2+`, `C#`, `A*`, `CD4-`."""

UInt32Array = npt.NDArray[np.uint32]
FloatArray = npt.NDArray[np.float32]
IntArray = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class SparseRows:
    """Sparse vectors in one flat array each of indices and values (compressed sparse rows)."""

    indices: UInt32Array  # (nnz,), ascending and distinct within each row
    values: FloatArray  # (nnz,), > 0
    # (n + 1,); row i is `indices[offsets[i]:offsets[i + 1]]`. The row of a name without letters and digits is empty.
    offsets: IntArray

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def row(self, i: int) -> tuple[UInt32Array, FloatArray]:
        """Indices and values of one row."""
        part = slice(int(self.offsets[i]), int(self.offsets[i + 1]))
        return self.indices[part], self.values[part]

    def take(self, rows: Sequence[int] | IntArray) -> SparseRows:
        """The given rows, in the order given."""
        wanted = np.asarray(rows, np.int64)
        lengths = self.offsets[wanted + 1] - self.offsets[wanted]
        offsets = np.concatenate((np.zeros(1, np.int64), np.cumsum(lengths)))
        at = np.repeat(self.offsets[wanted] - offsets[:-1], lengths) + np.arange(offsets[-1])
        return SparseRows(self.indices[at], self.values[at], offsets)


def join_rows(tables: Sequence[SparseRows]) -> SparseRows:
    """The rows of some tables, one after the other; none for no tables."""
    lengths = [np.diff(table.offsets) for table in tables]
    return SparseRows(
        np.concatenate([np.empty(0, np.uint32), *(table.indices for table in tables)]),
        np.concatenate([np.empty(0, np.float32), *(table.values for table in tables)]),
        np.cumsum(np.concatenate([np.zeros(1, np.int64), *lengths])),
    )


def equal_rows(features: Sequence[Sequence[int] | UInt32Array], value: float = 1.0) -> SparseRows:
    """Rows of some features each, all with one value; ascending where these are."""
    offsets = np.cumsum([0, *map(len, features)], dtype=np.int64)
    indices = np.fromiter(chain.from_iterable(features), np.uint32, int(offsets[-1]))
    return SparseRows(indices, np.full(len(indices), value, np.float32), offsets)


def merge_rows(tables: Sequence[SparseRows]) -> SparseRows:
    """The features of n rows of all tables as one, ascending; where two have the same feature, that of the first."""
    n = len(tables[0])
    owners = [np.repeat(np.arange(n), np.diff(rows.offsets)) for rows in tables]
    packed = [owner << 32 | rows.indices.astype(np.int64) for owner, rows in zip(owners, tables, strict=True)]
    unique, first = np.unique(np.concatenate(packed), return_index=True)
    values = np.concatenate([rows.values for rows in tables])[first]
    offsets = np.concatenate((np.zeros(1, np.int64), np.cumsum(np.bincount(unique >> 32, minlength=n))))
    return SparseRows((unique & 0xFFFFFFFF).astype(np.uint32), values.astype(np.float32), offsets)


def fold_name(name: str) -> str:
    """The folded form of a name: its normalised words, joined by spaces. Spellings of one name have equal forms.

    Case, accents, vowel points, ligatures and width are removed, and so are the forms that Arabic letters have in other
    languages; Hiragana becomes Katakana. Greek letters that are no words are spelled out. Punctuation separates words,
    and so does a change between letters and digits ("IL2" and "IL-2" become "il 2"). Roman numerals from II on become
    Arabic, and numbers lose leading zeros. Signs at the end of a word that tell names apart are read ("C++" is "c plus
    plus", "CD4- T cell" is "cd 4 minus t cell"). A legal form at the end loses its dots ("S.p.A." is "spa"). A name
    without letters and digits gives "".
    """
    words = _words(name)
    folded = " ".join(words)
    has_zeros = "0" in folded and any(len(word) < 5 and word[0] == "0" for word in words)
    if not has_zeros and _ROMAN_OR_I.isdisjoint(words):
        return folded
    return " ".join([_number(word, words[i - 1] if i else "") for i, word in enumerate(words)])


_DOTTED = re.compile(r"(?<=[\w)] |\w,) ?((?:[a-z]\.){2,4})$", re.IGNORECASE)
_DOTTED_FORMS = frozenset("sa spa nv bv gmbh llc plc srl sarl sas".split())
"""Legal forms that initials are not likely to be, unlike `A.G.` and `A.B.`."""


def _words(name: str) -> list[str]:
    """The words of a name, normalised but for numbers; fast paths for ASCII and letters alone, as most names are."""
    if name.endswith(".") and (found := _DOTTED.search(name)):
        letters = found[1].replace(".", "")
        name = f"{name[: found.start()]} {letters}" if letters.lower() in _DOTTED_FORMS else name
    if name.isascii():
        text = name.lower()
        if text.replace(" ", "").isalpha():
            return text.split()
        return _WORD.findall(_read_signs(_POSSESSIVE.sub("", text)))
    return _words_of_unicode(name)


def _words_of_unicode(name: str) -> list[str]:
    """Words of a name that is not ASCII: decomposed (NFKD), case-folded, without accents and vowel points."""
    text = _POSSESSIVE.sub("", name).casefold()
    if len(text) > _LONG:
        text = _with_short_runs(text)
    text = unicodedata.normalize("NFKD", text)
    text = unicodedata.normalize("NFKD", text.casefold())  # case folding can create new composed characters
    has_letters = _MARKED.search(text) is not None
    category = unicodedata.category
    kept = "".join(
        [c for c in text if c < "\x80" or category(c) not in ("Mn", "Cf") or (has_letters and _is_letter(c))]
    )
    kept = _SYMBOLS.sub(lambda found: found[0].translate(_GREEK_LETTERS), kept.translate(_LETTERS))
    kept = _read_signs(kept)
    if not has_letters:
        return _WORD.findall(kept)
    # To `re`, a vowel of an Indic script is no letter.
    letters = "".join("a" if _is_letter(c) else c for c in kept)
    return [kept[slice(*found.span())] for found in _WORD.finditer(letters)]


def _read_signs(text: str) -> str:
    """The text with the signs that tell names apart in words."""
    for sign, at_end, words in _SIGNS:
        if sign in text:
            text = at_end.sub(words, text)
    return text


def _is_letter(character: str) -> bool:
    """Whether a character is a mark that makes another letter: a vowel in Indic scripts and Thai, the voice in Kana.
    The dot of Indic scripts (nukta) is often left out, and is none.
    """
    is_mark = unicodedata.category(character) in ("Mn", "Mc") and unicodedata.combining(character) != 7
    return is_mark and _MARKED.match(character) is not None


def _with_short_runs(text: str) -> str:
    """A long text with at most `_MARKS` combining marks in a row. Unicode normalisation sorts each run of marks, in
    time quadratic in its length; a hostile name could take minutes.
    """
    kept, run = [], 0
    for character in text:
        run = run + 1 if unicodedata.combining(character) else 0
        if run <= _MARKS:
            kept.append(character)
    return "".join(kept)


def _number(word: str, before: str) -> str:
    """A word as an Arabic number without leading zeros, if it is a number; `before` is the word in front of it."""
    if word in _ROMAN and (word not in _AMBIGUOUS or before in _ROMAN_AFTER):
        return _ROMAN[word]
    if word == "i" and before in _ROMAN_AFTER:
        return "1"
    return (word.lstrip("0") or "0") if word[0] == "0" and word.isdigit() else word


def folded_rows(folded: Sequence[str]) -> SparseRows:
    """Sparse vectors of folded names, of unit length; empty rows for names without letters and digits."""
    n = len(folded)
    # All names as one array of code points, each padded with a space on both sides, so that the first and last n-gram
    # of a name differ from those inside a word. `row` is the name of each code point.
    texts = [f" {text} " if text else "" for text in folded]
    codes = np.frombuffer("".join(texts).encode("utf-32-le", "surrogatepass"), dtype=np.uint32).astype(np.uint64)
    lengths = np.fromiter(map(len, texts), dtype=np.int64, count=n)
    if not len(codes):
        return SparseRows(np.empty(0, np.uint32), np.empty(0, np.float32), np.zeros(n + 1, np.int64))
    row = np.repeat(np.arange(n), lengths)
    hashes, rows = _ngram_hashes(codes, row)
    word_hashes, word_rows = _word_hashes(codes, row)
    # Row and hash packed into one 64-bit key, row << 32 | hash: one sort (in np.unique) groups equal features of a
    # row, counts them, and leaves the rows in order with ascending indices.
    keys = np.concatenate(((rows << 32) | hashes, (word_rows << 32) | word_hashes))
    unique, counts = np.unique(keys, return_counts=True)
    owner = unique >> 32
    values = np.sqrt(counts.astype(np.float32))
    squares = np.bincount(owner, weights=counts, minlength=n)
    values = (values / np.sqrt(squares[owner])).astype(np.float32)
    offsets = np.concatenate((np.zeros(1, np.int64), np.cumsum(np.bincount(owner, minlength=n))))
    return SparseRows((unique & 0xFFFFFFFF).astype(np.uint32), values, offsets)


def word_indices(words: Sequence[str]) -> UInt32Array:
    """The indices of single folded words among the features, (n,); words without spaces, not empty."""
    texts = [f" {word} " for word in words]
    codes = np.frombuffer("".join(texts).encode("utf-32-le", "surrogatepass"), dtype=np.uint32).astype(np.uint64)
    hashes, _ = _word_hashes(codes, np.repeat(np.arange(len(texts)), [len(text) for text in texts]))
    return hashes.astype(np.uint32)


def _ngram_hashes(codes: npt.NDArray[np.uint64], row: IntArray) -> tuple[IntArray, IntArray]:
    """Hashes of all runs of three characters within a row, and their rows."""
    is_whole = row[2:] == row[:-2]  # not a run across two names
    # A code point has 21 bits, so three of them fit into 63 bits without a collision before the hash.
    hashes = _hash(codes[:-2] | codes[1:-1] << np.uint64(21) | codes[2:] << np.uint64(42))
    return hashes[is_whole], row[2:][is_whole]


def _word_hashes(codes: npt.NDArray[np.uint64], row: IntArray) -> tuple[IntArray, IntArray]:
    """Hashes of the words of each row, and their rows."""
    is_letter = codes != 32
    starts = np.flatnonzero(is_letter[1:] & ~is_letter[:-1]) + 1
    if not len(starts):
        return np.empty(0, np.int64), np.empty(0, np.int64)
    length = np.diff(np.append(starts, len(codes)))
    position = (np.arange(starts[0], len(codes)) - np.repeat(starts, length)).astype(np.uint64)
    tail = codes[starts[0] :]
    # Each letter is mixed with its position in the word, and the results are summed over the word (modulo 2^64). So
    # words of any length need no loop, and the order of letters matters. Spaces count 0. The constant separates
    # the hashes of words from those of n-grams.
    letters = scramble(tail + (position << np.uint64(21))) * is_letter[starts[0] :]
    return _hash(np.add.reduceat(letters, starts - starts[0]) ^ np.uint64(0x5DEECE66D)), row[starts]


def scramble(values: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """Mix 64 bits: the finalizer of splitmix64 (Steele et al. 2014). Overflow wraps around, as it should."""
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    scrambled: npt.NDArray[np.uint64] = values ^ (values >> np.uint64(31))
    return scrambled


def _hash(values: npt.NDArray[np.uint64]) -> IntArray:
    """A hash of 32 bits: the upper half of one splitmix64 step, as int64."""
    hashes: IntArray = (scramble(values + np.uint64(0x9E3779B97F4A7C15)) >> np.uint64(32)).astype(np.int64)
    return hashes


LONGEST = 10_000  # letters that are kept: one character of Chinese has up to six, and no mention has more of its own
_CACHED = 500  # characters; of longer strings, a thousand would fill many MB


def latin(folded: str) -> str:
    """A folded name in at most `LONGEST` Latin letters; the same string where it has no others."""
    if folded.isascii():
        return folded
    return _cached(folded) if len(folded) <= _CACHED else _written(folded)


def _written(folded: str) -> str:
    return fold_name(anyascii(folded[:LONGEST])[:LONGEST])


_cached = lru_cache(maxsize=1000)(_written)


def with_latin(folded: str) -> str:
    """A folded name, and behind it the same in Latin letters where it has others: what n-grams are made of."""
    return folded if folded.isascii() else f"{folded} {latin(folded)}"


BUCKETS = 1 << 18
"""Features in the same bucket share one IDF. A base of 571,000 names has 300,000 features; most of them are words that
occur once, so sharing a bucket changes little."""

SAMPLE_NAMES = 100_000
"""Names that the table is computed from. Point ids are hashes, so the first points are a random sample."""

_STEPS = 16  # per unit of IDF, so a byte holds up to 15.9: the natural logarithm of 8 million
_CHUNK = 10_000


class IdfTable:
    """Inverse document frequency of hashed features, (BUCKETS,), in steps of 1/16. Raises ValueError for another shape
    or type.
    """

    def __init__(self, table: npt.NDArray[np.uint8]) -> None:
        if table.shape != (BUCKETS,) or table.dtype != np.uint8:
            raise ValueError(f"an IDF table has {BUCKETS} bytes, this one is {table.dtype} of shape {table.shape}")
        self._table = table
        self._idf = table.astype(np.float32) / _STEPS
        self._highest = max(float(self._idf.max()), 1e-9)

    @classmethod
    def from_names(cls, names: Iterable[str]) -> IdfTable:
        """Count features in at most `SAMPLE_NAMES` names. Without names, all features are equally rare."""
        counts = np.zeros(BUCKETS, dtype=np.int64)
        n_names = 0
        names = iter(islice(names, SAMPLE_NAMES))
        while chunk := list(islice(names, _CHUNK)):
            rows = folded_rows([with_latin(fold_name(name)) for name in chunk])
            counts += np.bincount(rows.indices % BUCKETS, minlength=BUCKETS)
            n_names += len(chunk)
        # As Qdrant's IDF modifier: log((n - df + 0.5) / (df + 0.5) + 1). A feature counts once per name, but several
        # features in one bucket can exceed the number of names.
        idf = np.log((n_names - np.minimum(counts, n_names) + 0.5) / (counts + 0.5) + 1)
        return cls(np.clip(np.rint(idf * _STEPS), 1, 255).astype(np.uint8))

    def to_text(self) -> str:
        """The table as ASCII text, about 60 KB."""
        return base64.b64encode(zlib.compress(self._table.tobytes(), 9)).decode()

    @classmethod
    def from_text(cls, text: str) -> IdfTable:
        """Read what `to_text` wrote. Raises ValueError if it is not an IDF table."""
        try:
            # One byte more than the table: a longer one is refused without unpacking all of it.
            unpacker = zlib.decompressobj()
            table = unpacker.decompress(base64.b64decode(text, validate=True), BUCKETS + 1)
        except zlib.error as error:
            raise ValueError(f"not an IDF table: {error}") from error
        return cls(np.frombuffer(table, dtype=np.uint8))

    def word_frequencies(self, words: Sequence[str]) -> dict[str, float]:
        """How frequent folded words are in the base, in [0, 1]: 0 for words that no name has, logarithmic above. Words
        share buckets with other features, so a word that no name has may get the value of a rare one.
        """
        if not words:
            return {}
        rarity = self._idf[word_indices(words) % BUCKETS] / self._highest
        return dict(zip(words, (1.0 - rarity).tolist(), strict=True))

    def weighted(self, rows: SparseRows) -> SparseRows:
        """Rows with each feature multiplied by its IDF, scaled to unit length again."""
        values = rows.values * self._idf[rows.indices % BUCKETS]
        owner = np.repeat(np.arange(len(rows)), np.diff(rows.offsets))
        norms = np.sqrt(np.bincount(owner, weights=values.astype(np.float64) ** 2, minlength=len(rows)))
        return SparseRows(rows.indices, (values / norms[owner]).astype(np.float32), rows.offsets)


def top_weighted_features(weighted: SparseRows, n: int) -> SparseRows:
    """The `n` features of each row of `IdfTable.weighted` with the largest weights: enough for a search, at half the
    cost.
    """
    owner = np.repeat(np.arange(len(weighted)), np.diff(weighted.offsets))
    order = np.lexsort((-weighted.values, owner))  # by row, then by falling weight
    rank = np.arange(len(owner)) - weighted.offsets[owner]  # within its row: rows keep their lengths when sorted
    kept = np.sort(order[rank < n])
    offsets = np.concatenate((np.zeros(1, np.int64), np.cumsum(np.bincount(owner[kept], minlength=len(weighted)))))
    return SparseRows(weighted.indices[kept], weighted.values[kept], offsets)


def score_pairs(
    mentions: SparseRows, names: SparseRows, pairs: Sequence[tuple[int, int]] | npt.NDArray[np.int64]
) -> tuple[FloatArray, FloatArray]:
    """Lexical scores of p pairs of a row of the mentions and one of the names, sorted by mention, and how much of the
    mention each name covers, both (p,), in [0, 1]; 0 where one side has no features. Rows are weighted.
    """
    n_pairs = len(pairs)
    if not n_pairs or not len(mentions.indices) or not len(names.indices):
        zeros = np.zeros(n_pairs, dtype=np.float32)
        return zeros, zeros
    both = np.asarray(pairs, dtype=np.int64)
    # All features of all names in one flat array, pair after pair: `pair` is the pair of each of them, `at` its
    # position in `names`.
    lengths = np.diff(names.offsets)[both[:, 1]]
    pair = np.repeat(np.arange(n_pairs), lengths)
    position = np.arange(len(pair)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    at = np.repeat(names.offsets[both[:, 1]], lengths) + position
    # Row and feature packed into one 64-bit key: one binary search finds each feature of a name in its mention.
    owner = np.repeat(np.arange(len(mentions)), np.diff(mentions.offsets))
    known = owner << 32 | mentions.indices.astype(np.int64)  # ascending, as rows and indices are
    wanted = np.repeat(both[:, 0], lengths) << 32 | names.indices[at].astype(np.int64)
    found = np.minimum(np.searchsorted(known, wanted), len(known) - 1)
    is_shared = known[found] == wanted
    of_mention = np.where(is_shared, mentions.values[found], 0.0).astype(np.float64)
    of_name = np.where(is_shared, names.values[at], 0.0).astype(np.float64)

    def total(values: npt.NDArray[np.float64]) -> FloatArray:
        # Rounding can take a sum of squares just past 1.
        return np.minimum(np.bincount(pair, weights=values, minlength=n_pairs), 1.0).astype(np.float32)

    return total(of_mention * of_name), total(of_mention**2)
