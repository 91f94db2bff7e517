"""How a corpus is made; imports nothing heavy, so that the command line can show the defaults."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from pearl_qdrant.settings import DEFAULT_MAX_ERRORS
from training.defaults import MIN_COUNT
from training.paths import Paths, StrPath

DEFAULT_FIELD = "text"
DEFAULT_SPACY = "en_core_web_md"
DEFAULT_BENEPAR = "benepar_en3"

DEFAULT_MAX_WORDS = 10
"""A longer constituent is hardly ever seen twice, and no name of a base is as long."""

DEFAULT_MAX_KEYS = 2_000_000
"""Distinct phrases in memory: about 400 MB."""


@dataclass(frozen=True, slots=True)
class CorpusOptions:
    """How a corpus is made.

    Attributes:
        parser: "builtin" needs `wordnet`; "benepar" needs the extra `corpus` and its models.
        typer: "distant" assigns types by names and rules; "ner" by the model `ner_model`.
        wordnet: A WordNet `dict` folder.
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
        spacy_model, benepar_model, ner_model: Names, folders or hub ids.
        device: Device of the NER model, as torch names it.
    """

    parser: Literal["builtin", "benepar"] = "builtin"
    typer: Literal["distant", "ner"] = "distant"
    wordnet: StrPath | None = None
    field: str = DEFAULT_FIELD
    min_count: int = MIN_COUNT
    max_words: int = DEFAULT_MAX_WORDS
    max_keys: int = DEFAULT_MAX_KEYS
    workers: int = 1
    limit: int | None = None
    bases: Paths = ()
    type_columns: tuple[str, ...] = ()
    typed_names: Paths = ()
    max_errors: int | None = DEFAULT_MAX_ERRORS
    spacy_model: str = DEFAULT_SPACY
    benepar_model: str = DEFAULT_BENEPAR
    ner_model: str | None = None
    device: str = "cpu"
