"""Options of linking and annotating: one frozen dataclass each, with every default written once.

The public methods take an options object, or its fields as keyword arguments, or both; a keyword overrides the field.
The `...Keywords` classes give type checkers the names and types of those keyword arguments.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import isfinite
from typing import TYPE_CHECKING, Literal, Protocol, TypedDict, cast, get_args

from pearl_qdrant.records import Assertion
from pearl_qdrant.settings import DEFAULT_LIMIT, DEFAULT_PASSAGE_THRESHOLD

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from pearl_qdrant.linking.asking import Asking, LinkJudge

TypeMode = Literal["hard", "soft", "off"]
OnTie = Literal["canonical", "null", "first"]
CommonWords = Literal["skip", "capitalised", "all"]
Markup = Literal["html", "markdown"]
OffsetUnit = Literal["characters", "utf-16"]
PassageFormat = Literal["lines", "jsonl", "whole"]


@dataclass(frozen=True, slots=True)
class LinkOptions:
    """How mentions are linked.

    Attributes:
        types: Only entities of these types, native or coarse, ancestors included. In Python one string is one type.
        type_mode: "hard" admits only entities of one of `types`; "soft" prefers them. In both modes the mention's
            predicted type also counts, weighted by its confidence. "off" ignores types altogether.
        limit: Maximum number of candidates, at least 1. [default: those that the answer needs, at most 10; in the case
            of a name of the base the entities of that name, which are found without encoding it]
        threshold: Minimum probability of a link, in [0, 1]; below it a mention is NIL. [default: the calibrated one, or
            0.5]
        on_tie: If several entities have the name: popularity or the canonical name decides, and if it does not, NIL
            (canonical); always NIL (null); the first of them (first). In Python: the reason of NIL is `ambiguous`; all
            of them are the first candidates in any case, in the order of "canonical", then by id.
        context: Text around the mentions; chooses between their candidates. In Python: each is linked as a mention of
            it (`linking.documents`).
        nil_bias: Added to the logit of NIL: below 0 more is linked.
        languages: Find only names in these languages, such as de, which includes de-at, and names without a stated
            language. In Python one string is one language. Ids and learned names are found in any case.
        split: Link each name of a list (`X; Y`, `X and Y`), which is NIL as a whole. In Python: `Link.parts`.
        judge: A function that decides mentions of which linking is unsure, or an `Asking` with its settings; see
            `linking.asking`.

    Raises:
        ValueError: If a value is out of range.
    """

    types: Sequence[str] = ()
    type_mode: TypeMode = "hard"
    limit: int | None = None
    threshold: float | None = None
    on_tie: OnTie = "canonical"
    context: str | None = None
    nil_bias: float = 0.0
    languages: Sequence[str] = ()
    split: bool = False
    judge: Asking | LinkJudge | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "types", _as_tuple(self.types))
        object.__setattr__(self, "languages", tuple(one.lower() for one in _as_tuple(self.languages)))
        if not isfinite(self.nil_bias):
            raise ValueError(f"nil_bias is a finite number, not {self.nil_bias}")
        if self.limit is not None and self.limit < 1:
            raise ValueError(f"limit must be at least 1, not {self.limit}")
        _check("type_mode", self.type_mode, TypeMode)
        check_threshold(self.threshold)
        _check("on_tie", self.on_tie, OnTie)

    @property
    def most_candidates(self) -> int:
        """The limit, or the default where there is none."""
        return DEFAULT_LIMIT if self.limit is None else self.limit

    def updated(self, **keywords: Unpack[LinkKeywords]) -> LinkOptions:
        """These options with some fields replaced."""
        return replace(self, **keywords) if keywords else self


class LinkKeywords(TypedDict, total=False):
    """The fields of `LinkOptions` as keyword arguments."""

    types: Sequence[str]
    type_mode: TypeMode
    limit: int | None
    threshold: float | None
    on_tie: OnTie
    context: str | None
    nil_bias: float
    languages: Sequence[str]
    split: bool
    judge: Asking | LinkJudge | None


class TriggerTable(Protocol):
    """Words that say what a text says of a mention: `mention_detection.assertions.Triggers`."""

    def assertions(self, text: str, places: Sequence[tuple[int, int]]) -> list[tuple[Assertion, str | None]]:
        """For each of n mentions at (start, end), in characters, an assertion and the trigger as it is written."""
        ...


@dataclass(frozen=True, slots=True)
class AnnotateOptions:
    """How the mentions of a passage are found and linked.

    Attributes:
        types: Only entities of these types, native or coarse, ancestors included. In Python one string is one type.
        threshold: Minimum probability of a mention, in [0, 1]. [default: 0.5]
        context: What the passage is about; chooses between entities that nothing else separates.
        on_tie: If several entities have the name: as for a link.
        include_nil: Also spans that look like mentions but have no entity.
        nested: Whether to return mentions inside other mentions, too: York in New York.
        document: Link the mentions of a passage together, as those of a document: partial names, entities linked in the
            base. In Python: `linking.documents`.
        common_words: Whether a frequent word of the language is a mention of the entity with that name: "skip" never,
            if it stands alone; "capitalised" where it is written as that name is, and not only because it starts a
            sentence; "all" always, whatever its case.
        assertions: Only mentions of which the text says one of these. In Python one string counts as one.
        triggers: Words that say so, of `mention_detection.assertions.read_triggers`; None for English ones.
        label_types: For spans that the caller gives, the types of each label: {"PER": "PERSON", "Drug": ["drug"]}. A
            span with another label, or without one, is linked to `types`. Not for `document`.
        markup: How the text is written: tags and signs are no text. In Python: offsets are those of the original.
        offsets: What offsets count: "characters" (code points), or "utf-16" code units, as in JavaScript, Java and C#.
            It holds for what is returned and for `spans`; a spaCy `Doc` counts characters.

    Raises:
        ValueError: If a value is out of range.
    """

    types: Sequence[str] = ()
    threshold: float | None = None
    context: str | None = None
    on_tie: OnTie = "canonical"
    include_nil: bool = False
    nested: bool = False
    document: bool = False
    common_words: CommonWords = "capitalised"
    assertions: Sequence[Assertion] = ()
    triggers: TriggerTable | None = None
    label_types: Mapping[str, str | Sequence[str]] = field(default_factory=dict, hash=False)
    markup: Markup | None = None
    offsets: OffsetUnit = "characters"

    def __post_init__(self) -> None:
        object.__setattr__(self, "types", _as_tuple(self.types))
        check_threshold(self.threshold)
        _check("on_tie", self.on_tie, OnTie)
        _check("common_words", self.common_words, CommonWords)
        if self.markup is not None:
            _check("markup", self.markup, Markup)
        _check("offsets", self.offsets, OffsetUnit)
        if self.label_types and self.document:
            raise ValueError("label_types is not for document=True, which links the mentions to `types`")
        wanted = (self.assertions,) if isinstance(self.assertions, str) else tuple(self.assertions)
        wanted = tuple(cast("Assertion", str(one).replace("-", "_")) for one in wanted)  # as a command line may have it
        object.__setattr__(self, "assertions", wanted)
        if unknown := [one for one in wanted if one not in get_args(Assertion)]:
            known = ", ".join(get_args(Assertion))
            raise ValueError(f"assertions are some of {known}, not {unknown[0]!r}")

    @property
    def least_probability(self) -> float:
        """The threshold, or the default where there is none."""
        return DEFAULT_PASSAGE_THRESHOLD if self.threshold is None else self.threshold

    def types_of(self, label: str) -> tuple[str, ...]:
        """The types that a span with a label is linked to."""
        return _as_tuple(self.label_types[label]) if label in self.label_types else tuple(self.types)

    def updated(self, **keywords: Unpack[AnnotateKeywords]) -> AnnotateOptions:
        """These options with some fields replaced."""
        return replace(self, **keywords) if keywords else self


class AnnotateKeywords(TypedDict, total=False):
    """The fields of `AnnotateOptions` as keyword arguments."""

    types: Sequence[str]
    threshold: float | None
    context: str | None
    on_tie: OnTie
    include_nil: bool
    nested: bool
    document: bool
    common_words: CommonWords
    assertions: Sequence[Assertion]
    triggers: TriggerTable | None
    label_types: Mapping[str, str | Sequence[str]]
    markup: Markup | None
    offsets: OffsetUnit


def _as_tuple(values: Sequence[str]) -> tuple[str, ...]:
    return (values,) if isinstance(values, str) else tuple(values)


def check_threshold(threshold: float | None) -> None:
    """Raise a ValueError unless the threshold is None or a probability."""
    if threshold is not None and not 0.0 <= threshold <= 1.0:
        raise ValueError(f"threshold is a probability in [0, 1], not {threshold}")


def _check(name: str, value: str, kind: object) -> None:
    """Raise a ValueError unless the value of an option is one of a `Literal`."""
    *others, last = map(repr, get_args(kind))
    if value not in get_args(kind):
        raise ValueError(f"{name} is {', '.join(others)} or {last}, not {value!r}")
