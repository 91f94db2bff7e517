"""Options of all stages, each written once, with its default, bounds and help. The command line has those that most
need as flags, and all by `--set`. Imports nothing heavy. `FitRequest` and `UlrRequest` stand beside their stage.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

from pydantic import Field

from pearl_qdrant.errors import OptionError
from pearl_qdrant.options import Count, Device, Natural, Options
from pearl_qdrant.settings import (
    DEFAULT_CHARACTER_DIM,
    DEFAULT_CHARACTER_SHARE,
    DEFAULT_DEVICE,
    DEFAULT_MAX_ERRORS,
    DEFAULT_MODEL,
)

AnyOptions = TypeVar("AnyOptions", bound=Options)

StrPath = str | os.PathLike[str]
Paths = StrPath | Sequence[StrPath]
"""One path or several."""


def as_paths(paths: Paths) -> list[Path]:
    """Return one path or several as a list."""
    many = [paths] if isinstance(paths, (str, os.PathLike)) else paths
    return [Path(path) for path in many]


Rate = Annotated[float, Field(gt=0)]
Weight = Annotated[float, Field(ge=0)]
Share = Annotated[float, Field(ge=0, le=1)]
PositiveShare = Annotated[float, Field(gt=0, le=1)]


def project(record: type[AnyOptions], source: Options, **changes: Any) -> AnyOptions:
    """Return options with the values of the fields of the same name of other ones, but for the changes."""
    shared = type(source).model_fields.keys() & record.model_fields.keys()
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


class EvaluationOptions(Options):
    """How the tasks of an evaluation are measured."""

    n_seeds: Count = 3
    """Runs with other random splits, initial weights and typos."""
    n_distractors: Natural = 100_000
    """Names added to the dictionary of entity retrieval, at most."""
    max_epochs: Count = 100
    """Passes of the classifiers on frozen vectors, at most."""
    splits: tuple[Annotated[int, Field(ge=0, le=9)], ...] = ()
    """Linking: entities whose aliases are the mentions, by SHA-1 of their id mod 10; by default 7 and 8, and all
    of a base of your own. Types: the names, by default 9."""
    n_mentions: Count = 5000
    """Linking: mentions of each base, at most; fuzzy joins use all, and everyday mentions of a large base are
    fewer."""
    nil_shares: tuple[Annotated[float, Field(ge=0, lt=1)], ...] = (0.0, 0.2, 0.5)
    """Linking: shares of mentions whose entity is removed."""


DEFAULT_PARAPHRASER = "prithivida/parrot_paraphraser_on_T5"

DEFAULT_FIELD = "text"

DEFAULT_MAX_WORDS = 10
"""A longer constituent is hardly ever seen twice, and no name of a base is as long."""

DEFAULT_MAX_KEYS = 2_000_000
"""Distinct phrases in memory: about 400 MB."""


class CorpusOptions(Options):
    """How a corpus is made."""

    typer: Literal["distant", "ner"] = "distant"
    """"distant" assigns types by names and rules; "ner" by the model `ner_model`."""
    wordnet: StrPath | None = None
    """A WordNet `dict` folder; texts need it."""
    field: str = DEFAULT_FIELD
    """Field of JSON Lines that holds the text."""
    min_count: Count = MIN_COUNT
    """Phrases that occur less often are skipped."""
    max_words: Count = DEFAULT_MAX_WORDS
    """Longer phrases are skipped."""
    max_keys: Count = DEFAULT_MAX_KEYS
    """Distinct phrases counted in memory; more go to temporary files."""
    workers: Count = 1
    """Processes that parse."""
    limit: Count | None = None
    """At most this many texts."""
    bases: Paths = ()
    """Bases of entities, each read by the `ingest` reader that fits it."""
    typed_names: Paths = ()
    """Lists of names with their types."""
    max_errors: Natural | None = DEFAULT_MAX_ERRORS
    """Bad rows that each input may have; None for any number."""
    ner_model: str | None = None
    """Name, folder or hub id."""
    device: str = "cpu"
    """Device of the NER model, as torch names it."""


MINED = 32
"""Candidates per phrase that are encoded and compared: those at the smallest edit distance."""


class MiningConfig(Options):
    """What counts as a hard negative."""

    kept: Annotated[int, Field(ge=1, le=MINED)] = 12
    """Hard negatives kept per phrase, at most."""
    neighbours: Natural = 8
    """Neighbours compared on each side in each sorted order; 0 leaves only edit distance 2."""
    max_share: PositiveShare = 0.5
    """Edit distance of a candidate divided by the length of the longer phrase, at most; in (0, 1]."""
    threads: Count = 2
    """Threads of rapidfuzz."""


Sampling = Literal["lowest_score", "random_ngram", "random_span"]
"""How the n-gram of a sequence is chosen: by the lowest score (ULR, section 3.3), at random among its n-grams (the
published code), or words in a row at random (Table 7)."""

MAX_NGRAM_WORDS = 15
"""The longest n-gram that can be asked for."""

_LARGEST = 1 << 24  # tokens of a block; their ids fit into 32 bits many times


class NgramOptions(Options):
    """How n-grams are found."""

    field: str = DEFAULT_FIELD
    """Field of JSON Lines that holds the text."""
    max_words: Annotated[int, Field(ge=2, le=MAX_NGRAM_WORDS)] = 6
    """Words of the longest n-gram. ULR, section 4: 6."""
    min_count: Annotated[int, Field(ge=1, le=(1 << 32) - 1)] = 5
    """N-grams that occur less often are skipped."""
    min_pmi: float = 3.0
    """Only n-grams with a higher PMI are kept, in nats."""
    max_per_document: Annotated[int, Field(ge=1, le=1 << 32)] = 3000
    """Distinct n-grams that a document keeps, those of the highest PMI. ULR, section 4: 3,000."""
    factor: Literal["length", "none"] = "length"
    """"length" divides the PMI by the number of words, as in ULR, section 3.1; "none" does not, as in the
    published code."""
    max_sequence_words: Annotated[int, Field(ge=2, le=1 << 16)] = 128
    """Longer sentences are cut. ULR reads 128 tokens."""
    limit: Count | None = None
    """At most this many documents."""
    max_errors: Natural | None = DEFAULT_MAX_ERRORS
    """Bad rows that each input may have; None for any number."""
    block_words: Annotated[int, Field(ge=1, le=_LARGEST)] = 1 << 19
    """Words held in memory at a time."""


class CharacterWidths(Options):
    """The size of a character encoder."""

    char_dim: Count = DEFAULT_CHARACTER_DIM
    """Width of its part of the vector."""
    share: Annotated[float, Field(gt=0, lt=1)] = DEFAULT_CHARACTER_SHARE
    """Share of the cosine of two names that comes from their characters."""
    embedding_dim: Annotated[int, Field(ge=2)] = 64
    """Width of the character embeddings; even."""
    word_dim: Count = 128
    """Width of a word's vector."""

    def model_post_init(self, _: Any) -> None:
        if self.embedding_dim % 2:
            raise OptionError("embedding_dim", f"'embedding_dim' must be even, not {self.embedding_dim}.")


class LoveConfig(Options):
    """How to pre-train."""

    epochs: Count = 20
    """How often each word is drawn."""
    batch: Annotated[int, Field(ge=2)] = 128
    """Words per step."""
    learning_rate: Rate = 2e-3
    """Learning rate of Adam at the start."""
    decay: PositiveShare = 0.97
    """Factor of the learning rate per epoch."""
    temperature: Rate = 0.07
    """Temperature of the contrastive loss."""
    hard_negatives: Natural = 3
    """Look-alikes drawn for each word, at most; 0 for none."""
    seed: int = 0
    """Determines batches, edits and negatives."""


class HeadOptions(Options):
    """How to fit a type head."""

    epochs: Count = 12
    """Passes over the data: per epoch as many names are drawn as there are."""
    learning_rate: Rate = 3e-3
    """Peak of a cosine schedule."""
    max_each: Count = 20_000
    """Names of one set of types that are encoded, at most; the first ones by hash."""
    seed: int = 0
    """Determines everything."""


STAGES = ("base", "start", "phrases", "negatives", "steps", "fit", "average", "head", "export", "measure")
"""In their order."""

Verdict = Literal["better", "worse", "no difference", "not measured"]


class RefreshRequest(Options):
    """A refresh of an encoder, from a base to an exported model."""

    base: Paths
    """Files or folders of one base, in any format that `ingest` reads."""
    out: StrPath
    """Folder of the exported model."""
    model: str = DEFAULT_MODEL
    """The encoder to start from: a shipped name or a checkpoint folder."""
    work: StrPath | None = None
    """Folder of everything in between, from which the same call resumes; by default `out` with `.work` added."""
    minutes: Rate = 10.0
    """About how long the fine-tuning takes, at least one step; the other stages come on top."""
    steps: Count | None = None
    """Steps of fine-tuning, instead of `minutes`."""
    batch_size: Annotated[int, Field(ge=4)] = 256
    """Phrases of a step."""
    ratio: PositiveShare = 0.5
    """Share of the fine-tuned weights in the average with the start."""
    distil: Paths = ()
    """Phrases whose vectors stay where the start has them, as `train corpus` writes them; by default words of
    the start's vocabulary, alone and in pairs."""
    name: str | None = None
    """Name of the model; by default that of the folder `out`."""
    seed: int = 0
    """Determines everything."""
    restart: bool = False
    """Begin again, even if `work` holds a run."""
    max_errors: Natural | None = DEFAULT_MAX_ERRORS
    """Bad rows that the base may have; None for any number."""
    device: Device = DEFAULT_DEVICE
    """auto, cpu, cuda or cuda:N."""


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
