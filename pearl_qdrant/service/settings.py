"""`ServiceSettings`, everything that the service can be told, and the limits of fields that follow from it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, FailFast, Field, SecretStr

from pearl_qdrant.errors import OptionError, PearlQdrantError
from pearl_qdrant.options import Device, Model, Options
from pearl_qdrant.settings import DEFAULT_DEVICE, DEFAULT_LIMIT, is_url
from pearl_qdrant.store.open import location_of

Names = Annotated[tuple[str, ...], BeforeValidator(lambda given: given.split(",") if isinstance(given, str) else given)]


class ServiceSettings(Options):
    """Settings of the service. Nothing is read from the environment here; the command does that."""

    store: str | None = None
    """Folder of an embedded store or URL of a server; None for the store that the environment names."""
    collections: tuple[str, ...] = ()
    """The collections to serve; empty: all of the store, new ones too."""
    model: Model = None
    """Model in place of the one that a collection names."""
    device: Device = DEFAULT_DEVICE
    """Device that runs the encoder: auto, cpu, cuda or cuda:N."""
    host: str = "127.0.0.1"
    """Address to listen on."""
    port: int = Field(default=8765, ge=0, le=65535)
    """Port to listen on; 0: a free one."""
    workers: int = Field(default=1, ge=1)
    """Processes that answer. Each has its own view of an embedded collection."""
    allow_writing: bool = False
    """Whether clients may accept and reject links, with a key. Embedded collections are then open for writing,
    which keeps other writers out, and there can be one worker only."""
    cache: str | None = None
    """Folder for indexes of names; None: the user's cache folder, else that for temporary files."""
    api_keys: tuple[SecretStr, ...] = ()
    """Keys that clients send in a header; empty: no key is needed."""
    allowed_hosts: Names = ()
    """Names of the machine that requests may have as their host, beside localhost, `host` and that of
    `public_url`; * for any."""
    max_body_bytes: int = Field(default=1 << 20, ge=1)
    """Largest body of a request."""
    max_mentions: int = Field(default=1000, ge=1)
    """Most mentions of a request, or spans of a document."""
    max_mention_characters: int = Field(default=1000, ge=1)
    """Longest mention."""
    max_text_characters: int = Field(default=20_000, ge=1)
    """Longest text or context."""
    max_types: int = Field(default=32, ge=1)
    """Most types of a request."""
    max_limit: int = Field(default=100, ge=1)
    """Most candidates of a mention, or results of a search."""
    max_candidates: int = Field(default=20_000, ge=1)
    """Most candidates of all mentions of a request: mentions x limit."""
    max_map_size: int = Field(default=2000, ge=1)
    """Most entities of a map."""
    max_properties: int = Field(default=50, ge=1)
    """Most properties of a query of reconciliation, or values of one."""
    max_values: int = Field(default=2000, ge=1)
    """Most values of all properties of all queries of a batch of reconciliation."""
    reconcile_batch: int = Field(default=100, ge=1)
    """Most queries of a batch of reconciliation."""
    reconcile_origins: Names = ("*",)
    """Origins of web pages that may read what reconciliation answers; * for all."""
    public_url: str | None = Field(default=None, pattern=r"^https?://[^\s?#]+$")
    """Address under which clients reach the service, where it is behind a proxy; None: that of the request."""
    max_queued_mentions: int = Field(default=1024, ge=1)
    """Mentions that may wait for one collection; more are refused with 429."""
    timeout_s: float = Field(default=30.0, gt=0)
    """Time in which a request is answered, in seconds; after it, 504."""
    store_wait_s: float = Field(default=5.0, ge=0)
    """How long to wait for a server that does not answer, in seconds; after it, 503."""
    reload_s: float = Field(default=1.0, gt=0)
    """Seconds between two looks for a newer state of an embedded collection."""
    server_reload_s: float = Field(default=30.0, gt=0)
    """The same for a collection on a server, where a look asks the server."""


def check_settings(settings: ServiceSettings) -> None:
    """Refuse settings that exclude each other. Raises OptionError if clients may write without a key, or several
    workers are to write to an embedded store.
    """
    if not settings.allow_writing:
        return
    if not settings.api_keys:
        raise OptionError(
            "api_keys",
            "With allow_writing, clients need a key: without one, every program and every page of the web that reaches "
            "the service could write. Make one with: openssl rand -hex 32 > keys.txt, and give the file as api_keys, "
            "or the key in PEARL_QDRANT_SERVICE_KEYS.",
        )
    if settings.workers > 1 and not is_url(location_of(settings.store)):
        raise OptionError(
            "workers",
            "An embedded collection has one writer: with allow_writing there is one worker. Use one worker, or a "
            "Qdrant server as the store.",
        )


Texts = Annotated[list[str], FailFast()]
"""Strings of a body. Only the first that is none is reported: a body has room for half a million."""


@dataclass(frozen=True, slots=True)
class Limit:
    """The limit of a field: that of items of a list, characters of a text or of each item, or the value of a number."""

    field: str
    setting: str  # the field of `ServiceSettings` with the limit
    of: Literal["items", "characters", "characters of each", "value"]

    def check(self, value: Any, settings: ServiceSettings) -> None:
        """Refuse a value over the limit; None passes. Raises LimitError with the limit."""
        if value is None:
            return
        if self.of == "value":
            check_number(int(value), self.setting, settings, self.field)
        for one in {"items": (value,), "characters": (value,), "characters of each": value}.get(self.of, ()):
            check_number(len(one), self.setting, settings, self.field)

    def show(self, schema: dict[str, Any], settings: ServiceSettings) -> None:
        """Put the limit into the JSON schema of the field."""
        allowed = getattr(settings, self.setting)
        keyword = {"items": "maxItems", "value": "maximum"}.get(self.of, "maxLength")
        kind = {"items": "array", "value": "integer", "characters": "string"}.get(self.of, "array")
        for one in (schema, *schema.get("anyOf", ())):
            if one.get("type") == kind:
                (one["items"] if self.of == "characters of each" else one)[keyword] = allowed


def check_number(number: int, limit: str, settings: ServiceSettings, where: str) -> None:
    """Refuse a number over a limit, a field of `ServiceSettings`. Raises LimitError with the limit, and what was found
    where.
    """
    if number > (allowed := getattr(settings, limit)):
        raise LimitError(limit, allowed=allowed, found=number, where=where)


class Strict(BaseModel):
    """What a client sends; an unknown field is an error, and so is a value of another type ("0.5" for 0.5)."""

    model_config = ConfigDict(extra="forbid", strict=True)


LIMITS = (
    Limit("types", "max_types", "items"),
    Limit("types", "max_mention_characters", "characters of each"),
    Limit("languages", "max_types", "items"),
    Limit("languages", "max_mention_characters", "characters of each"),
    Limit("type", "max_types", "items"),  # a type that can be given once has none
    Limit("mentions", "max_mentions", "items"),
    Limit("mentions", "max_mention_characters", "characters of each"),
    Limit("text", "max_text_characters", "characters"),
    Limit("context", "max_text_characters", "characters"),
    Limit("spans", "max_mentions", "items"),
    Limit("limit", "max_limit", "value"),
    Limit("size", "max_map_size", "value"),
    Limit("cursor", "max_mentions", "value"),
    *(
        Limit(name, "max_mention_characters", "characters")
        for name in ("mention", "entity_id", "collection", "q", "prefix", "id")
    ),
)
"""The limits of fields of bodies, and of query parameters, by their names."""


class Body(Strict):
    """A body that a client sends, with the `LIMITS` of its fields; the items of the field `linked` get up to `limit`
    candidates each.
    """

    linked: ClassVar[str | None] = None

    collection: str | None = Field(None, description="Name of the collection; optional if there is only one.")

    def check(self, settings: ServiceSettings) -> None:
        check_fields(settings, **dict(self))
        if self.linked is not None:
            asked = len(getattr(self, self.linked)) * int(getattr(self, "limit", None) or DEFAULT_LIMIT)
            check_number(asked, "max_candidates", settings, f"{self.linked} x limit")


def check_fields(settings: ServiceSettings, /, **given: Any) -> None:
    """Refuse values over the limits of their names. Raises LimitError with the limit."""
    for limit in LIMITS:
        if limit.field in given:
            limit.check(given[limit.field], settings)


def show_limits(fields: Mapping[str, dict[str, Any]], settings: ServiceSettings) -> None:
    """Put the limits into the schemas of fields, by their names."""
    for limit in LIMITS:
        if limit.field in fields:
            limit.show(fields[limit.field], settings)


class ServiceError(PearlQdrantError):
    """A request that the service does not answer, with its HTTP status, a code for programs, further fields of the
    answer, and after how many seconds it may be sent again.
    """

    status = 500
    code = "internal"

    def __init_subclass__(cls, *, status: int, code: str) -> None:
        cls.status, cls.code = status, code

    def __init__(
        self,
        message: str,
        *,
        status: int | None = None,
        code: str | None = None,
        retry_after_s: float | None = None,
        **facts: str | int | float,
    ) -> None:
        super().__init__(message)
        self.status, self.code = status or self.status, code or self.code
        self.facts = facts
        self.retry_after_s = retry_after_s


_LARGEST = 2**53  # Larger numbers are not exact in JSON


class LimitError(ServiceError, status=422, code="over_limit"):
    """Something in a request is over a limit, a field of `ServiceSettings`; `where` is the field of the body. Numbers
    over 2**53 are shown as that.
    """

    def __init__(self, limit: str, *, allowed: int, found: int, where: str) -> None:
        found = min(found, _LARGEST)
        super().__init__(
            f"{where} is over the limit {limit}: {found:,}, allowed are {allowed:,}. Send less in one request.",
            limit=limit,
            allowed=allowed,
            found=found,
            where=where,
        )


class InvalidRequestError(ServiceError, status=422, code="invalid"):
    """A field has a value that does not fit."""


class TimedOutError(ServiceError, status=504, code="timed_out"):
    """No answer in the time that a request has."""


def queue_full(what: str, allowed: int, *, retry_after_s: float) -> ServiceError:
    """The error of a full queue."""
    seconds = max(1, math.ceil(retry_after_s))
    text = f"Too much is waiting ({what}: at most {allowed:,}). Send it again in {seconds} s."
    return ServiceError(text, status=429, code="busy", retry_after_s=seconds, allowed=allowed)


def timed_out(timeout_s: float) -> TimedOutError:
    """The error of a call that took too long."""
    return TimedOutError(
        f"There was no answer within timeout_s = {timeout_s:g} s. Send less in one request, or again later.",
        limit="timeout_s",
        allowed=timeout_s,
    )


class ClientGoneError(ServiceError, status=499, code="client_gone"):  # as nginx has it
    """The client hung up before its turn came; nobody gets this answer."""
