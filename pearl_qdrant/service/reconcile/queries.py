"""What clients of reconciliation send: queries and extensions, as forms or JSON.

Queries are read one by one, so that a bad query does not break its batch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal
from urllib.parse import parse_qs

import orjson
from pydantic import BaseModel, BeforeValidator, ConfigDict, FailFast, Field, ValidationError

from pearl_qdrant.service.settings import InvalidRequestError, LimitError, ServiceSettings, Texts, check_number
from pearl_qdrant.settings import DEFAULT_LIMIT

TypeStrict = Literal["any", "should", "all"]

FORM, JSON = "application/x-www-form-urlencoded", "application/json"

COMPARED_CHARACTERS = 500  # Only so much of a property's value is compared
MOST_VALUES = 1000  # No cell of an extension has more values

_MAX_FIELDS = 20


class BatchTooLargeError(LimitError, status=413, code="batch_too_large"):
    """A batch has more queries, names or values than allowed."""


@dataclass(frozen=True, slots=True)
class Condition:
    """A property that a query gives, with at least one value."""

    property_id: str
    values: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Query:
    """A query: the best of its names counts; `type_strict` as the specification has it: entities of any of the types,
    of all, or those of one of them first.
    """

    names: tuple[str, ...]
    types: tuple[str, ...]
    type_strict: TypeStrict
    limit: int
    conditions: tuple[Condition, ...]


@dataclass(frozen=True, slots=True)
class BadQuery:
    """A query that cannot be answered: a code for programs, a message for people."""

    code: str
    message: str


@dataclass(frozen=True, slots=True)
class Extension:
    """Which values a client asks for: most values of each property, by its id."""

    ids: Sequence[str]
    limits: Mapping[str, int]


def _as_list(value: Any) -> Any:
    return [one for one in (value if isinstance(value, list) else [value]) if one is not None]


def _as_text(value: Any) -> Any:
    """A property value as text: strings, numbers, booleans, and entities, of which the id counts, then the name."""
    if isinstance(value, Mapping):
        value = value.get("id") or value.get("name")
    if isinstance(value, bool):
        return "true" if value else "false"
    return f"{value:.15g}" if isinstance(value, float) else value


_TypeId = Annotated[str, BeforeValidator(lambda given: given.get("id") if isinstance(given, Mapping) else given)]
Types = Annotated[list[_TypeId], FailFast(), BeforeValidator(_as_list)]
Values = Annotated[list[Annotated[str, BeforeValidator(_as_text)]], FailFast(), BeforeValidator(_as_list)]


class _Body(BaseModel):
    """Part of what is sent; what the service does not know is left out of account."""

    model_config = ConfigDict(extra="ignore", coerce_numbers_to_str=True)


class _PropertyBody(_Body):
    pid: str = Field(min_length=1)
    v: Values


class _QueryBody(_Body):
    query: str | None = None
    type: Types = []
    type_strict: TypeStrict | None = None
    limit: int | None = Field(None, ge=1)
    properties: Annotated[list[_PropertyBody], FailFast(), BeforeValidator(_as_list)] = []


class _SettingsBody(BaseModel):
    limit: int = Field(0, ge=0)


class _ColumnBody(BaseModel):
    id: str = Field(min_length=1)
    settings: _SettingsBody | None = None


class _ExtensionBody(BaseModel):
    ids: Texts
    properties: Annotated[list[_ColumnBody], FailFast()]


_FIELDS = ("queries", "extend")


def read_body(body: bytes, content_type: str) -> dict[str, Any]:
    """What a request sends as `queries` or `extend`, in a form or as JSON. Returns the JSON of one of them, by its
    name. Raises InvalidRequestError if the body is something else, has neither of them, or both, or is not valid.
    """
    kind = content_type.partition(";")[0].strip().lower()
    if kind == JSON:
        loaded = _load_json(body, "body")
        return _only_one({name: loaded[name] for name in _FIELDS if name in loaded} if isinstance(loaded, dict) else {})
    if kind != FORM:
        text = f"The body is {kind or 'of no type'}. Send {FORM} or {JSON}."
        raise InvalidRequestError(text, status=415, code="unsupported_media_type")
    try:
        fields = parse_qs(body.decode("utf-8"), keep_blank_values=True, max_num_fields=_MAX_FIELDS)
    except ValueError as error:  # UnicodeDecodeError too
        raise InvalidRequestError(f"The form is not valid: {error}", where="body") from error
    return read_texts(**{name: fields[name][0] for name in _FIELDS if name in fields})


def read_texts(queries: str | None = None, extend: str | None = None) -> dict[str, Any]:
    """The JSON of the one of two fields that is given, by its name; raises as `read_body`."""
    texts = {"queries": queries, "extend": extend}
    return _only_one({name: _load_json(text, name) for name, text in texts.items() if text is not None})


def _load_json(text: str | bytes, where: str) -> Any:
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise InvalidRequestError(f"{where} is not valid JSON: {error}", where=where) from error


def _only_one(given: dict[str, Any]) -> dict[str, Any]:
    if len(given) != 1:
        raise InvalidRequestError("Send either queries or extend.", where="body")
    return given


def read_batch(batch: Any, settings: ServiceSettings) -> dict[str, Query | BadQuery]:
    """The queries of a batch, by their keys. Raises InvalidRequestError if it is no object; BatchTooLargeError if it
    has too many queries, or they are too much work together, though each is within its limits.
    """
    if not isinstance(batch, dict):
        raise InvalidRequestError(
            'queries is not an object. Send {"q0": {"query": "a name"}, "q1": ...}.', where="queries"
        )
    allowed = min(settings.reconcile_batch, settings.max_mentions)
    if len(batch) > allowed:
        raise BatchTooLargeError("reconcile_batch", allowed=allowed, found=len(batch), where="queries")
    found = {key: _read_query(query, settings) for key, query in batch.items()}
    good = [query for query in found.values() if isinstance(query, Query)]
    for limit, number, where in (
        ("max_mentions", sum(len(query.names) for query in good), "names of all queries"),
        ("max_candidates", sum(len(query.names) * query.limit for query in good), "names x limit of all queries"),
        (
            "max_values",
            sum(len(condition.values) for query in good for condition in query.conditions),
            "values of the properties of all queries",
        ),
    ):
        if number > (allowed := getattr(settings, limit)):
            raise BatchTooLargeError(limit, allowed=allowed, found=number, where=where)
    return found


def _read_query(given: Any, settings: ServiceSettings) -> Query | BadQuery:
    """A query within the limits of the service; more candidates than allowed are as many as allowed."""
    if not isinstance(given, dict):
        return BadQuery("invalid", 'A query is an object, such as {"query": "a name"}.')
    try:
        body = _QueryBody.model_validate(given)
        conditions = tuple(
            Condition(one.pid, tuple(value[:COMPARED_CHARACTERS] for value in one.v))
            for one in body.properties
            if one.v
        )
        named = [one for found in conditions if found.property_id in ("name", "aliases") for one in found.values]
        names = [name for name in ([body.query] if body.query and body.query.strip() else named) if name.strip()]
        if not names and not conditions:
            raise InvalidRequestError("The query has no name. Send it as query.")
        check_number(len(body.type), "max_types", settings, "type")
        check_number(len(conditions), "max_properties", settings, "properties")
        for values in (names, *(one.values for one in conditions)):
            check_number(len(values), "max_properties", settings, "v")
        for text in names:
            check_number(len(text), "max_mention_characters", settings, "query")
    except ValidationError as error:
        where, text = _first(error)
        return BadQuery("invalid", f"{where}: {text}" if where else text)
    except (InvalidRequestError, LimitError) as error:
        return BadQuery(error.code, str(error))
    wanted = min(body.limit or DEFAULT_LIMIT, settings.max_limit)
    return Query(tuple(names), tuple(dict.fromkeys(body.type)), body.type_strict or "any", wanted, conditions)


def _first(error: ValidationError) -> tuple[str, str]:
    first = error.errors(include_url=False, include_input=False)[0]
    return ".".join(map(str, first["loc"])), str(first["msg"])


def read_extension(given: Any, settings: ServiceSettings) -> Extension:
    """Which values a client asks for. Raises InvalidRequestError if it is not valid; LimitError if it asks for too
    much.
    """
    try:
        body = _ExtensionBody.model_validate(given)
    except ValidationError as error:
        at, text = _first(error)
        where = f"extend.{at}" if at else "extend"
        raise InvalidRequestError(
            f'{where}: {text}. Send {{"ids": ["Q1"], "properties": [{{"id": "description"}}]}}.', where=where
        ) from error
    check_number(len(body.ids), "max_mentions", settings, "ids")
    check_number(len(body.properties), "max_properties", settings, "properties")
    limits = {one.id: (one.settings.limit if one.settings else 0) or MOST_VALUES for one in body.properties}
    return Extension(list(dict.fromkeys(body.ids)), limits)
