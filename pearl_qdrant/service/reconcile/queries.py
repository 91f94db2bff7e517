"""What clients of reconciliation send: queries and extensions, as forms or JSON, and their description for OpenAPI.

Queries are read one by one, so that a bad query does not break its batch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal
from urllib.parse import parse_qs

import orjson
from pydantic import BaseModel, BeforeValidator, ConfigDict, FailFast, Field, ValidationError

from pearl_qdrant.service.errors import InvalidRequestError, LimitError
from pearl_qdrant.service.reconcile.evidence import Condition, MatchQuantifier
from pearl_qdrant.service.settings import ServiceSettings, Texts, check_number, check_text, cut_text
from pearl_qdrant.settings import DEFAULT_LIMIT

TypeStrict = Literal["any", "should", "all"]

FORM, JSON = "application/x-www-form-urlencoded", "application/json"

COMPARED_CHARACTERS = 500
"""Only so much of a property's value is compared, as limits count characters."""

MOST_VALUES = 1000
"""No cell of an extension has more values."""

_MAX_FIELDS = 20


class BatchTooLargeError(LimitError, status=413, code="batch_too_large"):
    """A batch has more queries, names or values than allowed."""


class UnsupportedBodyError(InvalidRequestError, status=415, code="unsupported_media_type"):
    """The body is of another media type."""


@dataclass(frozen=True, slots=True)
class Query:
    """A query of any version.

    Attributes:
        names: Names to look for; the best of them counts.
        ids: Ids of entities that are candidates.
        types: Only entities of these types, or preferably.
        type_strict: "any": entities of one of the types; "all": of all; "should": those of one of them first.
        limit: Most candidates.
        conditions: The properties.
    """

    names: tuple[str, ...]
    ids: tuple[str, ...]
    types: tuple[str, ...]
    type_strict: TypeStrict
    limit: int
    conditions: tuple[Condition, ...]


@dataclass(frozen=True, slots=True)
class BadQuery:
    """A query that cannot be answered.

    Attributes:
        code: What is wrong, for programs.
        message: What is wrong and what to do, for people.
    """

    code: str
    message: str


@dataclass(frozen=True, slots=True)
class Extension:
    """Which values a client asks for.

    Attributes:
        ids: Of entities.
        limits: Most values of each property, by its id.
    """

    ids: Sequence[str]
    limits: Mapping[str, int]


def _type_id(value: Any) -> Any:
    """A type may be sent as its id or as an object."""
    return value.get("id") if isinstance(value, Mapping) else value


def _as_list(value: Any) -> Any:
    return [one for one in (value if isinstance(value, list) else [value]) if one is not None]


def _as_text(value: Any) -> Any:
    """A property value as text: strings, numbers, booleans, and entities, of which the id counts, then the name."""
    if isinstance(value, Mapping):
        value = value.get("id") or value.get("name")
    if isinstance(value, bool):
        return "true" if value else "false"
    return f"{value:.15g}" if isinstance(value, float) else value


Types = Annotated[list[Annotated[str, BeforeValidator(_type_id)]], FailFast(), BeforeValidator(_as_list)]
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


class _ConditionBody(_Body):
    matchType: Literal["name", "id", "property"]  # noqa: N815 (the draft's names)
    pid: str | None = None
    v: Values
    required: bool = False
    matchQuantifier: MatchQuantifier = "any"  # noqa: N815
    matchQualifier: str | None = None  # noqa: N815


class _DraftQueryBody(_Body):
    type: Types = []
    limit: int | None = Field(None, ge=1)
    conditions: Annotated[list[_ConditionBody], FailFast()] = Field(min_length=1)


class _SettingsBody(BaseModel):
    limit: int = Field(0, ge=0)


class _ColumnBody(BaseModel):
    id: str = Field(min_length=1)
    settings: _SettingsBody | None = None


class _ExtensionBody(BaseModel):
    ids: Texts
    properties: Annotated[list[_ColumnBody], FailFast()]


def load_json(text: str | bytes, where: str) -> Any:
    """Read JSON that a client sends. Raises InvalidRequestError if it is none."""
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise InvalidRequestError(f"{where} is not valid JSON: {error}", where=where) from error


def read_form(body: bytes, content_type: str) -> dict[str, Any]:
    """What a request sends as `queries` or `extend`, in a form or as JSON. Returns the JSON of one of them, by its
    name. Raises UnsupportedBodyError if the body is something else; InvalidRequestError if it has neither of them, or
    both, or is not valid.
    """
    kind = content_type.partition(";")[0].strip().lower()
    if kind == JSON:
        loaded = load_json(body, "body")
        return _only_one({name: loaded[name] for name in _FIELDS if name in loaded} if isinstance(loaded, dict) else {})
    if kind != FORM:
        raise UnsupportedBodyError(f"The body is {kind or 'of no type'}. Send {FORM} or {JSON}.")
    try:
        fields = parse_qs(body.decode("utf-8"), keep_blank_values=True, max_num_fields=_MAX_FIELDS)
    except ValueError as error:  # UnicodeDecodeError too
        raise InvalidRequestError(f"The form is not valid: {error}", where="body") from error
    return only_text(**{name: fields[name][0] for name in _FIELDS if name in fields})


_FIELDS = ("queries", "extend")


def only_text(queries: str | None = None, extend: str | None = None) -> dict[str, Any]:
    """The JSON of the one of two fields that is given, by its name; raises as `read_form`."""
    texts = {"queries": queries, "extend": extend}
    return _only_one({name: load_json(text, name) for name, text in texts.items() if text is not None})


def _only_one(given: dict[str, Any]) -> dict[str, Any]:
    if len(given) != 1:
        raise InvalidRequestError("Send either queries or extend.", where="body")
    return given


def read_batch(batch: Any, settings: ServiceSettings) -> dict[str, Query | BadQuery]:
    """The queries of a batch of version 0.2, by their keys. Raises InvalidRequestError if it is no object;
    BatchTooLargeError if it has too many queries, or they are too much work together.
    """
    if not isinstance(batch, dict):
        raise InvalidRequestError(
            'queries is not an object. Send {"q0": {"query": "a name"}, "q1": ...}.', where="queries"
        )
    return dict(zip(batch, _read_all(list(batch.values()), _query, settings), strict=True))


def read_draft_batch(batch: Any, settings: ServiceSettings) -> list[Query | BadQuery]:
    """The queries of a batch of the 1.0 draft, in their order. Raises as `read_batch`."""
    queries = batch.get("queries") if isinstance(batch, dict) else None
    if not isinstance(queries, list):
        raise InvalidRequestError(
            'queries is not a list. Send {"queries": [{"conditions": [{"matchType": "name", "v": "a name"}]}]}.',
            where="queries",
        )
    return _read_all(queries, _draft_query, settings)


def _read_all(
    queries: Sequence[Any], read: Callable[[Any, ServiceSettings], Query], settings: ServiceSettings
) -> list[Query | BadQuery]:
    """The queries of a batch that is not much work as a whole, though each query is within its limits."""
    allowed = min(settings.reconcile_batch, settings.max_mentions)
    if len(queries) > allowed:
        raise BatchTooLargeError("reconcile_batch", allowed=allowed, found=len(queries), where="queries")
    found = [_read(read, query, settings) for query in queries]
    good = [query for query in found if isinstance(query, Query)]
    n_names = [len(query.names) + len(query.ids) for query in good]
    n_candidates = sum(n * query.limit for n, query in zip(n_names, good, strict=True))
    n_values = sum(len(condition.values) for query in good for condition in query.conditions)
    for limit, number, where in (
        ("max_mentions", sum(n_names), "names and ids of all queries"),
        ("max_candidates", n_candidates, "names x limit of all queries"),
        ("max_values", n_values, "values of the properties of all queries"),
    ):
        if number > (allowed := getattr(settings, limit)):
            raise BatchTooLargeError(limit, allowed=allowed, found=number, where=where)
    return found


def _read(read: Callable[[Any, ServiceSettings], Query], query: Any, settings: ServiceSettings) -> Query | BadQuery:
    if not isinstance(query, dict):
        return BadQuery("invalid", 'A query is an object, such as {"query": "a name"}.')
    try:
        return read(query, settings)
    except ValidationError as error:
        where, text = _first(error)
        return BadQuery("invalid", f"{where}: {text}" if where else text)
    except (InvalidRequestError, LimitError) as error:
        return BadQuery(error.code, str(error))


def _first(error: ValidationError) -> tuple[str, str]:
    """Where the first error is, and what it says."""
    first = error.errors(include_url=False, include_input=False)[0]
    return ".".join(map(str, first["loc"])), str(first["msg"])


def _query(given: Any, settings: ServiceSettings) -> Query:
    body = _QueryBody.model_validate(given)
    conditions = [Condition(one.pid, _cut(one.v)) for one in body.properties if one.v]
    names = [body.query] if body.query and body.query.strip() else []
    return _checked(names, [], body.type, body.type_strict or "any", body.limit, conditions, settings)


def _draft_query(given: Any, settings: ServiceSettings) -> Query:
    body = _DraftQueryBody.model_validate(given)
    names, ids, conditions = [], [], []
    for one in body.conditions:
        if one.matchQualifier is not None:
            raise InvalidRequestError(f"matchQualifier {one.matchQualifier!r} is not known. Leave it out.")
        if one.matchType == "name":
            names += one.v
        elif one.matchType == "id":
            ids += one.v
        elif not one.pid:
            raise InvalidRequestError("A condition with matchType property needs the id of the property as pid.")
        elif one.v:
            conditions.append(Condition(one.pid, _cut(one.v), one.matchQuantifier, one.required))
    return _checked(names, ids, body.type, "any", body.limit, conditions, settings)


def _cut(values: Sequence[str]) -> tuple[str, ...]:
    """The values of a property; of a long text the start is compared."""
    return tuple(cut_text(value, COMPARED_CHARACTERS) for value in values)


def _checked(
    names: Sequence[str],
    ids: Sequence[str],
    types: Sequence[str],
    type_strict: TypeStrict,
    limit: int | None,
    conditions: Sequence[Condition],
    settings: ServiceSettings,
) -> Query:
    """A query within the limits of the service; more candidates than allowed are as many as allowed. Raises
    InvalidRequestError if there is nothing to look for; LimitError if something is over a limit.
    """
    named = [
        one for condition in conditions if condition.property_id in ("name", "aliases") for one in condition.values
    ]
    names = [name for name in (names or named) if name.strip()]
    if not names and not ids and not conditions:
        raise InvalidRequestError("The query has no name. Send it as query, or as a condition of matchType name.")
    check_number(len(types), "max_types", settings, "type")
    check_number(len(conditions), "max_properties", settings, "properties")
    for values in ([*names, *ids], *(one.values for one in conditions)):
        check_number(len(values), "max_properties", settings, "v")
    for text in (*names, *ids):
        check_text(text, "max_mention_characters", settings, "query")
    wanted = min(limit or DEFAULT_LIMIT, settings.max_limit)
    return Query(tuple(names), tuple(ids), tuple(dict.fromkeys(types)), type_strict, wanted, tuple(conditions))


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


EXAMPLE_BATCH = '{"q0": {"query": "NYTimes", "limit": 3}, "q1": {"query": "Big Apple", "type": "city"}}'
EXAMPLE_EXTENSION = '{"ids": ["nyt"], "properties": [{"id": "description"}, {"id": "aliases"}]}'

QUERIES_TEXT = "A batch of queries as JSON: an object with a query for each key."
EXTEND_TEXT = "Which properties of which entities to return, as JSON."


def _object(*required: str, **properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, **({"required": list(required)} if required else {})}


def _list_of(items: Any, **further: Any) -> dict[str, Any]:
    return {"type": "array", "items": items, **further}


def _json_text(description: str, example: str) -> dict[str, Any]:
    return {"type": "string", "contentMediaType": JSON, "description": description, "examples": [example]}


def _body(**content: Any) -> dict[str, Any]:
    by_type = {{"json": JSON, "form": FORM}[kind]: one for kind, one in content.items()}
    return {"requestBody": {"required": True, "content": by_type}}


_STRING = {"type": "string"}
_COUNT = {"type": "integer", "minimum": 1}
_VALUE = {"description": "A value, or a list of them."}

_QUERY = _object(
    query=_STRING,
    type={"anyOf": [_STRING, _list_of(_STRING)]},
    type_strict={"enum": ["any", "should", "all"]},
    limit=_COUNT,
    properties=_list_of(_object("pid", "v", pid=_STRING, v=_VALUE)),
) | {"description": "A query; at least one of query and properties."}

_EXTENSION = _object(
    "ids",
    "properties",
    ids=_list_of(_STRING),
    properties=_list_of(_object("id", id=_STRING, settings={"type": "object"})),
)

_CONDITION = _object(
    "matchType",
    "v",
    matchType={"enum": ["name", "id", "property"]},
    pid={"type": "string", "description": "Id of the property, for matchType property."},
    v=_VALUE,
    required={"type": "boolean"},
    matchQuantifier={"enum": ["any", "all", "none"]},
)

FORM_BODY = _body(
    form={
        "schema": _object(
            queries=_json_text(QUERIES_TEXT, EXAMPLE_BATCH), extend=_json_text(EXTEND_TEXT, EXAMPLE_EXTENSION)
        ),
        "examples": {"queries": {"value": {"queries": EXAMPLE_BATCH}}},
    },
    json={
        "schema": _object(queries={"type": "object", "additionalProperties": _QUERY}, extend=_EXTENSION),
        "examples": {"queries": {"value": {"queries": {"q0": {"query": "NYTimes"}}}}},
    },
)
"""The body of a POST, for OpenAPI."""

MATCH_BODY = _body(
    json={
        "schema": _object(
            "queries",
            queries=_list_of(
                _object("conditions", type=_STRING, limit=_COUNT, conditions=_list_of(_CONDITION, minItems=1))
            ),
        ),
        "examples": {"match": {"value": {"queries": [{"conditions": [{"matchType": "name", "v": "NYTimes"}]}]}}},
    }
)
"""The body of a match of the 1.0 draft, for OpenAPI."""

EXTEND_BODY = _body(json={"schema": _EXTENSION})
"""The body of a data extension of the 1.0 draft, for OpenAPI."""
