"""Settings of commands that few need, by `--set NAME=VALUE`; those of training are the records of its stages."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from ingest.base.format import ReadOptions
from pearl_qdrant.linking.options import AnnotateOptions, LinkOptions, PassageFormat
from pearl_qdrant.options import Count, Device, Model, Natural, Options
from pearl_qdrant.settings import DEFAULT_DEVICE, DEFAULT_MAX_ERRORS, DEFAULT_PRECISION, DEFAULT_WAIT_S
from training.options import LoveConfig


class TargetSettings(Options):
    """Of commands with an encoder."""

    model: Model = None
    """Shipped name, folder or hub id, in place of the collection's own model."""


class ManySettings(TargetSettings):
    """What `link` and `annotate` share."""

    workers: Count | None = None
    """Processes that link what is in --file (embedded store), four a core at most. [default: one a core for many, else
    1, this one alone]"""


class LinkSettings(ManySettings, LinkOptions):
    """Of `link`."""

    format: Literal["lines", "jsonl"] | None = None
    """One mention a line (lines), or documents with the places of their mentions as JSON objects, one a line (jsonl):
    the mentions of a document are linked together. [default: jsonl for a file that ends in .jsonl or .ndjson, else
    lines]"""


class AnnotateSettings(ManySettings, AnnotateOptions):
    """Of `annotate`."""

    format: PassageFormat | None = None
    """Passages of the file: one a line (lines); JSON objects with text and maybe id, one a line (jsonl); the whole file
    is one passage (whole). [default: jsonl for a file that ends in .jsonl or .ndjson, else lines]"""


class LearnSettings(TargetSettings):
    """Of `learn`."""

    add_aliases: Count | None = None
    """Add a name to an entity that it meant at least so many times, and more often than anything else."""
    skip_unknown: bool = False
    """Leave out mentions whose entity id the collection lacks."""


class CalibrateSettings(TargetSettings):
    """Of `calibrate`."""

    precision: Annotated[float, Field(gt=0, lt=1)] | None = Field(
        default=None,
        description=f"Share of links that shall be right. [default: {DEFAULT_PRECISION}; with --labelled most right "
        "answers]",
    )
    figure: Path | None = None
    """Draw reliability diagrams to this PNG file."""
    questions: Count = 30
    """Mentions of --ask that are asked about: those that would tell most."""


class ResolveSettings(TargetSettings):
    """Of `resolve`."""

    precision: Annotated[float, Field(ge=0, le=1)] = 0.98
    """Share of the merges that should be right; what is less certain goes to --review."""
    decisions: Path | None = None
    """A review whose column `decision` says `same` or `different` where it should."""
    undo: tuple[str, ...] = ()
    """Take a name out of its node in --previous; may be repeated."""


class PushSettings(Options):
    """Of `collections push`, and of a load into a cluster."""

    shards: Count | None = None
    """Shards of a new collection in a cluster. [default: one a node]"""
    replicas: Count | None = None
    """Copies of each shard. [default: the server's, usually 1]"""


class LoveSettings(LoveConfig):
    """Of `train love`."""

    vectors: Path | None = None
    """Word vectors to mimic: a .vec file of FastText; by default BASE_MODEL's."""
    restart: bool = False
    """Start over, even if OUT holds the state of a run."""


class IngestSettings(PushSettings, ReadOptions):
    """Of `ingest`."""

    kb_version: str | None = None
    """Release of the base, for the record."""
    max_errors: Natural = DEFAULT_MAX_ERRORS
    """Bad rows to skip before giving up; where it is not given, also at most 1 % of the rows."""
    device: Device = DEFAULT_DEVICE
    """Device that runs the encoder: auto, cpu, cuda or cuda:N."""
    prefix: str | None = None
    """For a plain encoder: text put before each name."""
    ray: str | None = None
    """Encode and write by the workers of a Ray cluster, to a Qdrant server: auto starts one on this machine, HOST:PORT
    is one that runs. They load the model by its name."""
    wait_s: Annotated[float, Field(ge=0)] = DEFAULT_WAIT_S
    """Maximum time to wait for a Qdrant server that restarts or is busy, in seconds."""
    type_map: Path | None = None
    """File with rows to add to the table of types."""
    description_column: str | None = None
    """Tables: the column of descriptions, by name, number or path."""
    popularity_column: str | None = None
    """Tables: a column of numbers: how well known an entity is."""
    layouts: tuple[Path, ...] = ()
    """Tables: a base of your own, described as JSON; may be repeated."""
