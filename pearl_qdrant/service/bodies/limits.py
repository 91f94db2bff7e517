"""Limits of fields: declared once, checked by routes, and shown in OpenAPI."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from pydantic import BaseModel, ConfigDict

from pearl_qdrant.service.errors import InvalidRequestError, LimitError
from pearl_qdrant.service.settings import ServiceSettings


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
            found = int(value)
        elif self.of == "characters of each":
            found = max(map(len, value), default=0)
        else:
            found = len(value)
        if found > (allowed := getattr(settings, self.setting)):
            raise LimitError(self.setting, allowed=allowed, found=found, where=self.field)

    def show(self, schema: dict[str, Any], settings: ServiceSettings) -> None:
        """Put the limit into the JSON schema of the field."""
        allowed = getattr(settings, self.setting)
        keyword = {"items": "maxItems", "value": "maximum"}.get(self.of, "maxLength")
        kind = {"items": "array", "value": "integer", "characters": "string"}.get(self.of, "array")
        for one in (schema, *schema.get("anyOf", ())):
            if one.get("type") == kind:
                (one["items"] if self.of == "characters of each" else one)[keyword] = allowed


class Body(BaseModel):
    """A body that a client sends; an unknown field is an error, and so is a value of another type ("0.5" for 0.5).

    Attributes:
        limits: Of its fields.
    """

    model_config = ConfigDict(extra="forbid", strict=True)

    limits: ClassVar[Sequence[Limit]] = ()

    def check(self, settings: ServiceSettings) -> None:
        """Refuse what is over a limit, and text that is no valid Unicode, which no answer could repeat.

        Raises:
            LimitError: It names the limit.
            InvalidRequestError: It names the field.
        """
        for name, value in self:
            texts = value if isinstance(value, list) else [value]
            try:
                "".join(text for text in texts if isinstance(text, str)).encode()
            except UnicodeEncodeError as error:
                raise InvalidRequestError(f"{name} has half of a character: a lone surrogate.", where=name) from error
        for limit in self.limits:
            limit.check(getattr(self, limit.field), settings)


TYPES_LIMITS = (Limit("types", "max_types", "items"), Limit("types", "max_mention_characters", "characters of each"))
"""The limits of a list of types."""
