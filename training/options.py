"""Options of all stages, each written once: its default and bounds in the record's field, its help in the docstring.

The command line makes its options from these records (`pearl_qdrant.cli.records`); `check_bounds` refuses values
out of bounds. Imports nothing heavy. `FitRequest` and `UlrRequest` stand beside their stage.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Literal, TypeVar, Union, cast, get_args, get_origin, get_type_hints

from pearl_qdrant.errors import OptionError
from pearl_qdrant.settings import (
    DEFAULT_CHARACTER_DIM,
    DEFAULT_CHARACTER_SHARE,
    DEFAULT_DEVICE,
    DEFAULT_MAX_ERRORS,
    DEFAULT_MODEL,
)

T = TypeVar("T")

StrPath = str | os.PathLike[str]
Paths = StrPath | Sequence[StrPath]
"""One path or several."""


def as_paths(paths: Paths) -> list[Path]:
    """Return one path or several as a list."""
    many = [paths] if isinstance(paths, (str, os.PathLike)) else paths
    return [Path(path) for path in many]


@dataclass(frozen=True, slots=True)
class Within:
    """Bounds of a number, from `low` to `high`; None for no bound."""

    low: float | None = None
    high: float | None = None
    low_open: bool = False  # whether the bound itself is refused
    high_open: bool = False

    def __contains__(self, value: float) -> bool:
        above = self.low is None or value > self.low or (value == self.low and not self.low_open)
        below = self.high is None or value < self.high or (value == self.high and not self.high_open)
        return value == value and above and below

    def __str__(self) -> str:
        low = "" if self.low is None else f"over {self.low:g}" if self.low_open else f"at least {self.low:g}"
        high = "" if self.high is None else f"below {self.high:g}" if self.high_open else f"at most {self.high:g}"
        return " and ".join(filter(None, (low, high))) or "a number"


Count = Annotated[int, Within(1)]
Natural = Annotated[int, Within(0)]
Rate = Annotated[float, Within(0, low_open=True)]
Weight = Annotated[float, Within(0)]
Share = Annotated[float, Within(0, 1)]
PositiveShare = Annotated[float, Within(0, 1, low_open=True)]


@dataclass(frozen=True, slots=True)
class Hint:
    """The type of a field, taken apart."""

    kind: Any  # the type itself, or the union of types that a path may have
    bounds: Within | None = None  # of a number
    choices: tuple[str, ...] = ()  # of a literal
    is_many: bool = False  # whether the field has several of it


def hint_of(annotation: Any) -> Hint:
    """Take a type apart; None among its alternatives does not count."""
    kinds = [kind for kind in get_args(annotation) if kind is not type(None)]
    if get_origin(annotation) in (Union, UnionType) and len(kinds) == 1:
        return hint_of(kinds[0])
    if get_origin(annotation) is Annotated:
        return Hint(kinds[0], kinds[1])
    if get_origin(annotation) is Literal:
        return Hint(str, choices=tuple(kinds))
    if get_origin(annotation) in (tuple, Sequence):
        return replace(hint_of(kinds[0]), is_many=True)
    return Hint(frozenset(kinds) if get_origin(annotation) in (Union, UnionType) else annotation)


def hints_of(record: type[Any]) -> dict[str, Hint]:
    """Return the types of a record's fields."""
    return {name: hint_of(annotation) for name, annotation in get_type_hints(record, include_extras=True).items()}


def check_bounds(record: Any) -> None:
    """Refuse values of a record that are out of bounds or no choice. Raises OptionError with the name of the field,
    its value and what it must be.
    """
    for name, hint in hints_of(type(record)).items():
        given = getattr(record, name)
        for value in given if hint.is_many else (given,):
            if value is None:
                continue
            if hint.bounds is not None and value not in hint.bounds:
                raise OptionError(name, f"'{name}' is {value}, but must be {hint.bounds}.")
            if hint.choices and value not in hint.choices:
                raise OptionError(name, f"'{name}' is '{value}'. Give one of: {', '.join(hint.choices)}.")


def project(record: type[T], source: object, **changes: Any) -> T:
    """Return a dataclass with the values of the fields of the same name of another one, but for the changes."""
    names = {field.name for field in fields(cast("Any", source))}
    shared = (field.name for field in fields(cast("Any", record)) if field.name in names)
    return record(**{name: getattr(source, name) for name in shared} | changes)


def refuse_overwriting(out: StrPath, *inputs: StrPath | None) -> None:
    """Stop where a stage would write over its inputs. Raises OptionError if `out` is one of those that exist."""
    for path in inputs:
        if path is not None and Path(path).exists() and Path(path).resolve() == Path(out).resolve():
            raise OptionError("out", f"{out} is an input of this run. Write to another place.")


MIN_COUNT = 2
"""Occurrences that a phrase of a corpus needs. PEARL, section 3.3: phrases that appear less than twice are removed."""

AVERAGE_RATIO = 0.5
"""Share of the fine-tuned encoder in an average, as in PEARL."""


@dataclass(frozen=True, slots=True)
class EvaluationOptions:
    """How the tasks of an evaluation are measured.

    Attributes:
        n_seeds: Runs with other random splits, initial weights and typos.
        n_distractors: Names added to the dictionary of entity retrieval, at most.
        max_epochs: Passes of the classifiers on frozen vectors, at most.
        splits: Linking: entities whose aliases are the mentions, by SHA-1 of their id mod 10; by default 7 and 8, and
            all of a base of your own. Types: the names, by default 9.
        n_mentions: Linking: mentions of each base, at most; fuzzy joins use all, and everyday mentions of a large base
            are fewer.
        nil_shares: Linking: shares of mentions whose entity is removed.

    Raises:
        OptionError: If one is out of range.
    """

    n_seeds: Count = 3
    n_distractors: Natural = 100_000
    max_epochs: Count = 100
    splits: tuple[Annotated[int, Within(0, 9)], ...] = ()
    n_mentions: Count = 5000
    nil_shares: tuple[Annotated[float, Within(0, 1, high_open=True)], ...] = (0.0, 0.2, 0.5)

    def __post_init__(self) -> None:
        check_bounds(self)


DEFAULT_PARAPHRASER = "prithivida/parrot_paraphraser_on_T5"
DEFAULT_THRESHOLD = 0.7
"""Cosine above which two words count as synonyms; the paper leaves it open ("a certain threshold")."""


@dataclass(frozen=True, slots=True)
class ParaphraseOptions:
    """How paraphrases are generated.

    Attributes:
        n_variants: Paraphrases generated per phrase; those that equal the phrase or each other are dropped.
        sample: Draw tokens (top 50, 0.95 of the probability mass, as Parrot does) instead of a beam search, which is
            deterministic but varies less.
        seed: Seed of the draws.
        prefix: Text before each phrase.
        max_new_tokens: Longest paraphrase, in tokens.
        batch_size: Phrases generated at once.
    """

    n_variants: Count = 5
    sample: bool = False
    seed: int = 0
    prefix: str = "paraphrase: "
    max_new_tokens: Count = 32
    batch_size: Count = 64


@dataclass(frozen=True, slots=True)
class SynonymOptions:
    """How neighbours of words are found.

    Attributes:
        threshold: Cosine above which two words count as synonyms, in (0, 1].
        neighbours: Neighbours per word, at most.
        max_words: Words of the corpus that are compared; those with the most frequent vectors come first.
    """

    threshold: PositiveShare = DEFAULT_THRESHOLD
    neighbours: Count = 10
    max_words: Count = 50_000


DEFAULT_FIELD = "text"

DEFAULT_MAX_WORDS = 10
"""A longer constituent is hardly ever seen twice, and no name of a base is as long."""

DEFAULT_MAX_KEYS = 2_000_000
"""Distinct phrases in memory: about 400 MB."""


@dataclass(frozen=True, slots=True)
class CorpusOptions:
    """How a corpus is made.

    Attributes:
        typer: "distant" assigns types by names and rules; "ner" by the model `ner_model`.
        wordnet: A WordNet `dict` folder; texts need it.
        field: Field of JSON Lines that holds the text.
        min_count: Phrases that occur less often are skipped.
        max_words: Longer phrases are skipped.
        max_keys: Distinct phrases counted in memory; more go to temporary files.
        workers: Processes that parse.
        limit: At most this many texts.
        bases: Bases of entities, each read by the `ingest` reader that fits it.
        type_columns: Columns of the types, in bases that are TSV.
        typed_names: Lists of names with their types.
        max_errors: Bad rows that each input may have; None for any number.
        ner_model: Name, folder or hub id.
        device: Device of the NER model, as torch names it.
    """

    typer: Literal["distant", "ner"] = "distant"
    wordnet: StrPath | None = None
    field: str = DEFAULT_FIELD
    min_count: Count = MIN_COUNT
    max_words: Count = DEFAULT_MAX_WORDS
    max_keys: Count = DEFAULT_MAX_KEYS
    workers: Count = 1
    limit: Count | None = None
    bases: Paths = ()
    type_columns: tuple[str, ...] = ()
    typed_names: Paths = ()
    max_errors: Natural | None = DEFAULT_MAX_ERRORS
    ner_model: str | None = None
    device: str = "cpu"


@dataclass(frozen=True, slots=True)
class MiningConfig:
    """What counts as a hard negative.

    Attributes:
        kept: Hard negatives kept per phrase, at most.
        pool: Candidates per phrase that are encoded and compared: those at the smallest edit distance.
        neighbours: Neighbours compared on each side in each sorted order; 0 leaves only edit distance 2.
        max_share: Edit distance of a candidate divided by the length of the longer phrase, at most; in (0, 1].
        max_cosine: A candidate with a higher cosine means the same and is skipped.
        threads: Threads of rapidfuzz.
    """

    kept: Count = 12
    pool: Count = 32
    neighbours: Natural = 8
    max_share: PositiveShare = 0.5
    max_cosine: Annotated[float, Within(-1, 1)] = 0.9
    threads: Count = 2

    def __post_init__(self) -> None:
        check_bounds(self)
        if self.kept > self.pool:
            raise OptionError("kept", f"'kept' is {self.kept}, but must be at most 'pool' ({self.pool}).")


Sampling = Literal["lowest_score", "random_ngram", "random_span"]
"""How the n-gram of a sequence is chosen: by the lowest score (ULR, section 3.3), at random among its n-grams (the
published code), or words in a row at random (Table 7)."""

MAX_NGRAM_WORDS = 15
"""The longest n-gram that can be asked for."""

_LARGEST = 1 << 24  # tokens of a block; their ids fit into 32 bits many times


@dataclass(frozen=True, slots=True)
class NgramOptions:
    """How n-grams are found.

    Attributes:
        field: Field of JSON Lines that holds the text.
        max_words: Words of the longest n-gram. ULR, section 4: 6.
        min_count: N-grams that occur less often are skipped.
        threshold: Only n-grams with a higher PMI are kept, in nats.
        max_per_document: Distinct n-grams that a document keeps, those of the highest PMI. ULR, section 4: 3,000.
        factor: "length" divides the PMI by the number of words, as in ULR, section 3.1; "none" does not, as in the
            published code.
        max_sequence_words: Longer sentences are cut. ULR reads 128 tokens.
        limit: At most this many documents.
        max_errors: Bad rows that each input may have; None for any number.
        block_words: Words held in memory at a time.
    """

    field: str = DEFAULT_FIELD
    max_words: Annotated[int, Within(2, MAX_NGRAM_WORDS)] = 6
    min_count: Annotated[int, Within(1, (1 << 32) - 1)] = 5
    threshold: Annotated[float, Within()] = 3.0
    max_per_document: Annotated[int, Within(1, 1 << 32)] = 3000
    factor: Literal["length", "none"] = "length"
    max_sequence_words: Annotated[int, Within(2, 1 << 16)] = 128
    limit: Count | None = None
    max_errors: Natural | None = DEFAULT_MAX_ERRORS
    block_words: Annotated[int, Within(1, _LARGEST)] = 1 << 19


@dataclass(frozen=True, slots=True)
class CharacterWidths:
    """The size of a character encoder.

    Attributes:
        char_dim: Width of its part of the vector.
        share: Share of the cosine of two names that comes from their characters.
        embedding_dim: Width of the character embeddings; even.
        word_dim: Width of a word's vector.
        wordpieces: Whether wordpieces are embedded beside the characters.
    """

    char_dim: Count = DEFAULT_CHARACTER_DIM
    share: Annotated[float, Within(0, 1, low_open=True, high_open=True)] = DEFAULT_CHARACTER_SHARE
    embedding_dim: Annotated[int, Within(2)] = 64
    word_dim: Count = 128
    wordpieces: bool = True

    def __post_init__(self) -> None:
        check_bounds(self)
        if self.embedding_dim % 2:
            raise OptionError("embedding_dim", f"'embedding_dim' must be even, not {self.embedding_dim}.")


@dataclass(frozen=True, slots=True)
class LoveConfig:
    """How to pre-train.

    Attributes:
        epochs: How often each word is drawn.
        batch: Words per step.
        learning_rate: Learning rate of Adam at the start.
        decay: Factor of the learning rate per epoch.
        temperature: Temperature of the contrastive loss.
        typo_share: Share of the words of a batch that get one edit.
        hard_negatives: Look-alikes drawn for each word, at most; 0 for none.
        seed: Determines batches, edits and negatives.
    """

    epochs: Count = 20
    batch: Annotated[int, Within(2)] = 128
    learning_rate: Rate = 2e-3
    decay: PositiveShare = 0.97
    temperature: Rate = 0.07
    typo_share: Share = 0.5
    hard_negatives: Natural = 3
    seed: int = 0

    def __post_init__(self) -> None:
        check_bounds(self)


@dataclass(frozen=True, slots=True)
class HeadOptions:
    """How to fit a type head.

    Attributes:
        epochs: Passes over the data: per epoch as many names are drawn as there are.
        learning_rate: Peak of a cosine schedule.
        balance: 0 draws each name equally often, 1 each set of types; 0.5 weighs a set by the root of its size.
        max_each: Names of one set of types that are encoded, at most; the first ones by hash.
        hold_out: Whether a tenth of the names is kept for a test.
        seed: Determines everything.
    """

    epochs: Count = 12
    learning_rate: Rate = 3e-3
    balance: Share = 0.5
    max_each: Count = 20_000
    hold_out: bool = True
    seed: int = 0


STAGES = ("base", "start", "phrases", "negatives", "steps", "fit", "average", "head", "export", "measure")
"""In their order."""

Verdict = Literal["better", "worse", "no difference", "not measured"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RefreshRequest:
    """A refresh of an encoder, from a base to an exported model.

    Attributes:
        base: Files or folders of one base, in any format that `ingest` reads.
        out: Folder of the exported model.
        model: The encoder to start from: a shipped name or a checkpoint folder.
        work: Folder of everything in between, from which the same call resumes; by default `out` with `.work` added.
        minutes: About how long the fine-tuning takes, at least one step; the other stages come on top.
        steps: Steps of fine-tuning, instead of `minutes`.
        batch_size: Phrases of a step.
        ratio: Share of the fine-tuned weights in the average with the start.
        distil: Phrases whose vectors stay where the start has them, as `train corpus` writes them; by default words of
            the start's vocabulary, alone and in pairs.
        name: Name of the model; by default that of the folder `out`.
        seed: Determines everything.
        restart: Begin again, even if `work` holds a run.
        max_errors: Bad rows that the base may have; None for any number.
        device: auto, cpu, cuda or cuda:N.
    """

    base: Paths
    out: StrPath
    model: str = DEFAULT_MODEL
    work: StrPath | None = None
    minutes: Rate = 10.0
    steps: Count | None = None
    batch_size: Annotated[int, Within(4)] = 256
    ratio: PositiveShare = 0.5
    distil: Paths = ()
    name: str | None = None
    seed: int = 0
    restart: bool = False
    max_errors: Natural | None = DEFAULT_MAX_ERRORS
    device: str = DEFAULT_DEVICE


@dataclass(frozen=True, slots=True)
class Compared:
    """One figure of the refreshed model beside that of its start, on entities that were kept out of training.

    Attributes:
        task: What was measured.
        before: The start, in percent.
        after: The refreshed model, in percent.
        low: Lower bound of the 95 % interval of the difference, in points.
        high: Upper bound, in points.
    """

    task: str
    before: float
    after: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class RefreshResult:
    """What a refresh left.

    Attributes:
        model: Folder of the exported model.
        steps: Steps of fine-tuning.
        entities: Entities that it learned from.
        held_out: Entities that were kept out.
        has_new_head: Whether the type head was fitted to types of the base; else it is that of the start.
        figures: The model beside its start; empty if too few entities with aliases were kept out.
        verdict: Whether it helped, by the interval of the mean difference.
    """

    model: Path
    steps: int
    entities: int
    held_out: int
    has_new_head: bool
    figures: tuple[Compared, ...] = field(default=())
    verdict: Verdict = "not measured"


class RefreshEvents:
    """What a refresh reports while it runs. Override the methods of interest."""

    def stage(self, name: str, detail: str = "") -> None:
        """A stage of `STAGES` starts, or is done already (`detail`)."""


class TrainingEvents:
    """What a training stage reports while it runs. Override the methods of interest; calls never overlap."""

    def examples_read(self, count: int, skipped: Mapping[str, int]) -> None:
        """The inputs were read: so many training examples, and the rows that were not used, by reason."""

    def types_at_risk(self, kept: int, known: int) -> None:
        """The examples cover only `kept` of the `known` entity types of the type head, which will forget the others."""

    def names_encoded(self, count: int) -> None:
        """So many more names were encoded since the last call."""
