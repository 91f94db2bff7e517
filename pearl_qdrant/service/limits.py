"""Limits of fields: declared once, checked by routes, and shown in OpenAPI."""

from __future__ import annotations

import unicodedata
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import accumulate, takewhile
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, FailFast, model_validator

from pearl_qdrant.service.errors import LimitError
from pearl_qdrant.service.settings import ServiceSettings
from pearl_qdrant.settings import DEFAULT_LIMIT

Texts = Annotated[list[str], FailFast()]
"""Strings of a body. Only the first that is none is reported: a body has room for half a million."""


def count_characters(text: str) -> int:
    """Characters of a text as limits count them: what stands for several (U+FDFA for 18) counts as these (NFKC)."""
    if text.isascii():
        return len(text)
    # One by one: of a whole text, sorting a long run of combining marks takes time quadratic in its length.
    return sum(len(unicodedata.normalize("NFKC", one)) * times for one, times in Counter(text).items())


@dataclass(frozen=True, slots=True)
class Limit:
    """The limit of a field.

    Attributes:
        field: Name of the field.
        setting: The field of `ServiceSettings` with the limit.
        of: "items" of a list, "characters" of a text, "characters of each" item of a list, or "value" of a number.
    """

    field: str
    setting: str
    of: Literal["items", "characters", "characters of each", "value"]

    def check(self, value: Any, settings: ServiceSettings) -> None:
        """Refuse a value over the limit; None passes.

        Raises:
            LimitError: It names the limit.
        """
        if value is None:
            return
        if self.of == "value":
            check_number(int(value), self.setting, settings, self.field)
        elif self.of == "items":
            check_number(len(value), self.setting, settings, self.field)
        else:
            for text in (value,) if self.of == "characters" else value:
                check_text(text, self.setting, settings, self.field)

    def show(self, schema: dict[str, Any], settings: ServiceSettings) -> None:
        """Put the limit into the JSON schema of the field."""
        allowed = getattr(settings, self.setting)
        keyword = {"items": "maxItems", "value": "maximum"}.get(self.of, "maxLength")
        kind = {"items": "array", "value": "integer", "characters": "string"}.get(self.of, "array")
        for one in (schema, *schema.get("anyOf", ())):
            if one.get("type") == kind:
                (one["items"] if self.of == "characters of each" else one)[keyword] = allowed


def check_number(number: int, limit: str, settings: ServiceSettings, where: str) -> None:
    """Refuse a number over a limit.

    Args:
        number: What a request has, or asks for.
        limit: Name of the limit, a field of `ServiceSettings`.
        settings: Of the service.
        where: The field of the request.

    Raises:
        LimitError: If it is more than allowed.
    """
    if number > (allowed := getattr(settings, limit)):
        raise LimitError(limit, allowed=allowed, found=number, where=where)


def check_text(text: str, limit: str, settings: ServiceSettings, where: str) -> None:
    """Refuse a text with more characters than allowed, as `check_number`; see `count_characters`."""
    check_number(len(text), limit, settings, where)  # first, so that no time is spent on what is far too long
    check_number(count_characters(text), limit, settings, where)


def cut_text(text: str, most: int) -> str:
    """The start of a text, so long that limits count at most so many characters."""
    start = text[:most]
    if not start.isascii():
        counts = accumulate(len(unicodedata.normalize("NFKC", one)) for one in start)
        start = start[: sum(1 for _ in takewhile(lambda count: count <= most, counts))]
    return start


class Strict(BaseModel):
    """What a client sends; an unknown field is an error, and so is a value of another type ("0.5" for 0.5)."""

    model_config = ConfigDict(extra="forbid", strict=True)

    @model_validator(mode="before")
    @classmethod
    def _has_known_fields(cls, given: Any) -> Any:
        """Refuse the first unknown field, where pydantic reports each: a body has room for 100,000."""
        if isinstance(given, dict) and (
            unknown := next((name for name in given if name not in cls.model_fields), None)
        ):
            raise ValueError(f"There is no field {unknown[:100]!r}; there are: {', '.join(cls.model_fields)}")
        return given


LIMITS = (
    Limit("types", "max_types", "items"),
    Limit("types", "max_mention_characters", "characters of each"),
    Limit("type", "max_types", "items"),  # a type that can be given once has none
    Limit("mentions", "max_mentions", "items"),
    Limit("mentions", "max_mention_characters", "characters of each"),
    Limit("text", "max_text_characters", "characters"),
    Limit("context", "max_text_characters", "characters"),
    Limit("spans", "max_spans", "items"),
    Limit("limit", "max_limit", "value"),
    Limit("size", "max_map_size", "value"),
    Limit("cursor", "max_mentions", "value"),
    *(
        Limit(name, "max_mention_characters", "characters")
        for name in ("mention", "entity_id", "collection", "q", "prefix", "id")
    ),
)
"""The limits of fields of bodies, and of query parameters, by their names."""

TYPES_LIMITS = tuple(one for one in LIMITS if one.field == "types")
"""The limits of a list of types."""


class Body(Strict):
    """A body that a client sends, with the `LIMITS` of its fields.

    Attributes:
        linked: The field whose items get up to `limit` candidates each; None: no field.
    """

    linked: ClassVar[str | None] = None

    def check(self, settings: ServiceSettings) -> None:
        """Refuse what is over a limit.

        Raises:
            LimitError: It names the limit.
        """
        check_fields(settings, **dict(self))
        if self.linked is not None:
            asked = len(getattr(self, self.linked)) * int(getattr(self, "limit", None) or DEFAULT_LIMIT)
            check_number(asked, "max_candidates", settings, f"{self.linked} x limit")


def check_fields(settings: ServiceSettings, **given: Any) -> None:
    """Refuse values over the limits of their names.

    Raises:
        LimitError: It names the limit.
    """
    for limit in LIMITS:
        if limit.field in given:
            limit.check(given[limit.field], settings)


def show_limits(fields: Mapping[str, dict[str, Any]], settings: ServiceSettings) -> None:
    """Put the limits into the schemas of fields, by their names."""
    for limit in LIMITS:
        if limit.field in fields:
            limit.show(fields[limit.field], settings)
