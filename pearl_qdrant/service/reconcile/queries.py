"""Queries of clients: what they send, read one by one, so that a bad query does not break its batch."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import orjson
from pydantic import BaseModel, BeforeValidator, ConfigDict, FailFast, Field, ValidationError

from pearl_qdrant.service.bodies.limits import check_number, check_text, cut_text
from pearl_qdrant.service.errors import InvalidRequestError, LimitError
from pearl_qdrant.service.reconcile.properties.comparing import MatchQuantifier
from pearl_qdrant.service.reconcile.properties.evidence import Condition
from pearl_qdrant.service.settings import ServiceSettings
from pearl_qdrant.settings import DEFAULT_LIMIT

TypeStrict = Literal["any", "should", "all"]

COMPARED_CHARACTERS = 500
"""Only so much of a property's value is compared, as limits count characters."""


class BatchTooLargeError(LimitError):
    """A batch has more queries, names or values than allowed."""

    status = 413
    code = "batch_too_large"


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


TypeId = Annotated[str, BeforeValidator(_type_id)]
Value = Annotated[str, BeforeValidator(_as_text)]
Values = Annotated[list[Value], FailFast(), BeforeValidator(_as_list)]


class _Body(BaseModel):
    """Part of a query; what the service does not know is left out of account."""

    model_config = ConfigDict(extra="ignore", coerce_numbers_to_str=True)


class PropertyBody(_Body):
    """A property of a query of version 0.2."""

    pid: str = Field(min_length=1)
    v: Values


class QueryBody(_Body):
    """A query of version 0.2."""

    query: str | None = None
    type: Annotated[list[TypeId], FailFast(), BeforeValidator(_as_list)] = []
    type_strict: TypeStrict | None = None
    limit: int | None = Field(None, ge=1)
    properties: Annotated[list[PropertyBody], FailFast(), BeforeValidator(_as_list)] = []


class ConditionBody(_Body):
    """A condition of a query of the 1.0 draft."""

    matchType: Literal["name", "id", "property"]  # noqa: N815 (the draft's names)
    pid: str | None = None
    v: Values
    required: bool = False
    matchQuantifier: MatchQuantifier = "any"  # noqa: N815
    matchQualifier: str | None = None  # noqa: N815


class DraftQueryBody(_Body):
    """A query of the 1.0 draft."""

    type: Annotated[list[TypeId], FailFast(), BeforeValidator(_as_list)] = []
    limit: int | None = Field(None, ge=1)
    conditions: Annotated[list[ConditionBody], FailFast()] = Field(min_length=1)


def load_json(text: str | bytes, where: str) -> Any:
    """Read JSON that a client sends.

    Raises:
        InvalidRequestError: If it is none.
    """
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise InvalidRequestError(f"{where} is not valid JSON: {error}", where=where) from error


def _check_batch(queries: Sequence[object] | Mapping[str, object], settings: ServiceSettings) -> None:
    """Refuse a batch with too many queries, before any is read.

    Raises:
        BatchTooLargeError: It names the limit.
    """
    allowed = min(settings.reconcile_batch, settings.max_mentions)
    if len(queries) > allowed:
        raise BatchTooLargeError("reconcile_batch", allowed=allowed, found=len(queries), where="queries")


def _check_work(queries: Iterable[Query | BadQuery], settings: ServiceSettings) -> None:
    """Refuse a batch that is much work as a whole, though each query is within its limits.

    Raises:
        BatchTooLargeError: It names the limit.
    """
    read = [query for query in queries if isinstance(query, Query)]
    n_names = [len(query.names) + len(query.ids) for query in read]
    found = {
        ("max_mentions", "names and ids of all queries"): sum(n_names),
        ("max_candidates", "names x limit of all queries"): sum(
            n * query.limit for n, query in zip(n_names, read, strict=True)
        ),
        ("max_values", "values of the properties of all queries"): sum(
            len(condition.values) for query in read for condition in query.conditions
        ),
    }
    for (limit, where), number in found.items():
        if number > (allowed := getattr(settings, limit)):
            raise BatchTooLargeError(limit, allowed=allowed, found=number, where=where)


def read_batch(batch: Any, settings: ServiceSettings) -> dict[str, Query | BadQuery]:
    """The queries of a batch of version 0.2, by their keys.

    Raises:
        InvalidRequestError: If it is no object.
        BatchTooLargeError: If it has too many.
    """
    if not isinstance(batch, dict):
        raise InvalidRequestError(
            'queries is not an object. Send {"q0": {"query": "a name"}, "q1": ...}.', where="queries"
        )
    _check_batch(batch, settings)
    found = {key: _read(_query, query, settings) for key, query in batch.items()}
    _check_work(found.values(), settings)
    return found


def read_draft_batch(batch: Any, settings: ServiceSettings) -> list[Query | BadQuery]:
    """The queries of a batch of the 1.0 draft, in their order. Raises as `read_batch`."""
    queries = batch.get("queries") if isinstance(batch, dict) else None
    if not isinstance(queries, list):
        raise InvalidRequestError(
            'queries is not a list. Send {"queries": [{"conditions": [{"matchType": "name", "v": "a name"}]}]}.',
            where="queries",
        )
    _check_batch(queries, settings)
    found = [_read(_draft_query, query, settings) for query in queries]
    _check_work(found, settings)
    return found


def _read(read: Callable[[Any, ServiceSettings], Query], query: Any, settings: ServiceSettings) -> Query | BadQuery:
    if not isinstance(query, dict):
        return BadQuery("invalid", 'A query is an object, such as {"query": "a name"}.')
    try:
        return read(query, settings)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(map(str, first["loc"]))
        return BadQuery("invalid", f"{where}: {first['msg']}" if where else str(first["msg"]))
    except (InvalidRequestError, LimitError) as error:
        return BadQuery(error.code, str(error))


def _query(given: Any, settings: ServiceSettings) -> Query:
    body = QueryBody.model_validate(given)
    conditions = [Condition(one.pid, _cut(one.v)) for one in body.properties if one.v]
    names = [body.query] if body.query and body.query.strip() else []
    return _checked(names, [], body.type, body.type_strict or "any", body.limit, conditions, settings)


def _draft_query(given: Any, settings: ServiceSettings) -> Query:
    body = DraftQueryBody.model_validate(given)
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
    """A query within the limits of the service; more candidates than allowed are as many as allowed.

    Raises:
        InvalidRequestError: If there is nothing to look for.
        LimitError: If something is over a limit.
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
