"""Options of linking and annotating: a pydantic model each, with every default, bound and help written once.

The public methods take an options object, or its fields as keyword arguments, or both; a keyword overrides the field.
The `...Keywords` classes give type checkers the names and types of those keyword arguments.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Literal, Protocol, TypedDict

from pydantic import BeforeValidator, Field, PlainValidator
from pydantic.json_schema import SkipJsonSchema

from pearl_qdrant.errors import OptionError
from pearl_qdrant.linking.asking import Asking, LinkJudge
from pearl_qdrant.options import Count, Options
from pearl_qdrant.records import Assertion
from pearl_qdrant.settings import DEFAULT_LIMIT, DEFAULT_PASSAGE_THRESHOLD

if TYPE_CHECKING:
    from typing_extensions import Unpack

TypeMode = Literal["hard", "soft", "off"]
OnTie = Literal["canonical", "null", "first"]
CommonWords = Literal["skip", "capitalised", "all"]
Markup = Literal["html", "markdown"]
OffsetUnit = Literal["characters", "utf-16"]
PassageFormat = Literal["lines", "jsonl", "whole"]
"""One passage a line; one JSON object a line, with "text" and maybe "id" and "spans"; the whole file is one passage."""


def _as_tuple(values: Sequence[str]) -> tuple[str, ...]:
    return (values,) if isinstance(values, str) else tuple(values)


Names = Annotated[Sequence[str], BeforeValidator(_as_tuple)]
"""In Python one string is one name."""

Languages = Annotated[Sequence[str], BeforeValidator(lambda given: tuple(one.lower() for one in _as_tuple(given)))]
Assertions = Annotated[
    Sequence[Assertion], BeforeValidator(lambda given: tuple(str(one).replace("-", "_") for one in _as_tuple(given)))
]
Probability = Annotated[float, Field(ge=0, le=1)]
_UNCHECKED = PlainValidator(lambda given: given)
Judge = Annotated[Asking | LinkJudge | None, _UNCHECKED, SkipJsonSchema()]


class LinkOptions(Options):
    """How mentions are linked."""

    types: Names = ()
    """Only entities of these types, native or coarse, ancestors included. In Python one string is one type."""
    type_mode: TypeMode = "hard"
    """Admit only entities of one of the types (hard), prefer them (soft), or ignore types (off). But for off, the
    mention's predicted type also counts, weighted by its confidence."""
    limit: Count | None = None
    """Maximum number of candidates. [default: those that the answer needs, at most 10; in the case of a name of the
    base the entities of that name, which are found without encoding it]"""
    threshold: Probability | None = None
    """Minimum probability of a link; below it a mention is NIL. [default: the calibrated one, or 0.5]"""
    on_tie: OnTie = "canonical"
    """If several entities have the name: popularity or the canonical name decides, and if it does not, NIL (canonical);
    always NIL (null), for the reason `ambiguous`; the first of them (first). All of them are the first candidates in
    any case, in the order of canonical, then by id."""
    context: str | None = None
    """Text around the mentions, each of which is linked as a mention of it; chooses between their candidates."""
    nil_bias: float = 0.0
    """Added to the logit of NIL: below 0 more is linked."""
    languages: Languages = ()
    """Find only names in these languages, such as de, which includes de-at, and names without a stated language; may be
    repeated. Ids and learned names are found in any case."""
    split: bool = False
    """Link each name of a list (`X; Y`, `X and Y`), which is NIL as a whole; the links are its parts."""
    judge: Judge = None
    """A function that decides mentions of which linking is unsure, or an `Asking` with its settings; see
    `linking.asking`."""

    @property
    def most_candidates(self) -> int:
        """The limit, or the default where there is none."""
        return DEFAULT_LIMIT if self.limit is None else self.limit

    def updated(self, **keywords: Unpack[LinkKeywords]) -> LinkOptions:
        """These options with some fields replaced."""
        return LinkOptions(**{**self.__dict__, **keywords}) if keywords else self


class LinkKeywords(TypedDict, total=False):
    """The fields of `LinkOptions` as keyword arguments."""

    types: Names
    type_mode: TypeMode
    limit: Count | None
    threshold: Probability | None
    on_tie: OnTie
    context: str | None
    nil_bias: float
    languages: Languages
    split: bool
    judge: Judge


class TriggerTable(Protocol):
    """Words that say what a text says of a mention: `mention_detection.assertions.Triggers`."""

    def assertions(self, text: str, places: Sequence[tuple[int, int]]) -> list[tuple[Assertion, str | None]]:
        """For each of n mentions at (start, end), in characters, an assertion and the trigger as it is written."""
        ...


TriggersOrNone = Annotated[TriggerTable | None, _UNCHECKED, SkipJsonSchema()]
LabelTypes = Annotated[Mapping[str, str | Sequence[str]], SkipJsonSchema()]


class AnnotateOptions(Options):
    """How the mentions of a passage are found and linked."""

    types: Names = ()
    """Only entities of these types, native or coarse, ancestors included. In Python one string is one type."""
    threshold: Probability | None = None
    """Minimum probability of a mention. [default: 0.5]"""
    context: str | None = None
    """What the passage is about; chooses between entities that nothing else separates."""
    on_tie: OnTie = "canonical"
    """If several entities have the name: as for a link."""
    include_nil: bool = False
    """Also spans that look like mentions but have no entity."""
    nested: bool = False
    """Also mentions inside other mentions: York in New York."""
    document: bool = False
    """Link the mentions of a passage together, as those of a document: partial names, entities linked in the base."""
    common_words: CommonWords = "capitalised"
    """Whether a frequent word of the language is a mention of the entity with that name: never, if it stands alone
    (skip); where it is written as that name is, and not only because it starts a sentence (capitalised); always,
    whatever its case (all)."""
    assertions: Assertions = ()
    """Only mentions of which the text says one of these; may be repeated. In Python one string counts as one."""
    triggers: TriggersOrNone = None
    """Words that say so, of `mention_detection.assertions.read_triggers`; None for English ones."""
    label_types: LabelTypes = Field(default={})
    """For spans that the caller gives, the types of each label: {"PER": "PERSON", "Drug": ["drug"]}. A span with
    another label, or without one, is linked to `types`. Not for `document`."""
    markup: Markup | None = None
    """How the text is written: tags and signs are no text. Offsets are those of the original."""
    offsets: OffsetUnit = "characters"
    """What offsets count: "characters" (code points), or "utf-16" code units, as in JavaScript, Java and C#. It holds
    for what is returned and for `spans`; a spaCy `Doc` counts characters."""

    def model_post_init(self, _: Any) -> None:
        if self.label_types and self.document:
            message = "label_types is not for document=True, which links the mentions to `types`"
            raise OptionError("label_types", message)

    @property
    def least_probability(self) -> float:
        """The threshold, or the default where there is none."""
        return DEFAULT_PASSAGE_THRESHOLD if self.threshold is None else self.threshold

    def types_of(self, label: str) -> tuple[str, ...]:
        """The types that a span with a label is linked to."""
        return _as_tuple(self.label_types[label]) if label in self.label_types else tuple(self.types)

    def updated(self, **keywords: Unpack[AnnotateKeywords]) -> AnnotateOptions:
        """These options with some fields replaced."""
        return AnnotateOptions(**{**self.__dict__, **keywords}) if keywords else self


class AnnotateKeywords(TypedDict, total=False):
    """The fields of `AnnotateOptions` as keyword arguments."""

    types: Names
    threshold: Probability | None
    context: str | None
    on_tie: OnTie
    include_nil: bool
    nested: bool
    document: bool
    common_words: CommonWords
    assertions: Assertions
    triggers: TriggersOrNone
    label_types: LabelTypes
    markup: Markup | None
    offsets: OffsetUnit


def check_threshold(threshold: float | None) -> None:
    """Raise a ValueError unless the threshold is None or a probability."""
    if threshold is not None and not 0.0 <= threshold <= 1.0:
        raise ValueError(f"threshold is a probability in [0, 1], not {threshold}")
