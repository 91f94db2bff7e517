"""Bodies of requests: forms and JSON, and their description for OpenAPI."""

from __future__ import annotations

from typing import Any
from urllib.parse import parse_qs

from fastapi import Request

from pearl_qdrant.service.errors import InvalidRequestError
from pearl_qdrant.service.reconcile.queries import load_json

FORM, JSON = "application/x-www-form-urlencoded", "application/json"

_MAX_FIELDS = 20

EXAMPLE_BATCH = '{"q0": {"query": "NYTimes", "limit": 3}, "q1": {"query": "Big Apple", "type": "city"}}'
EXAMPLE_EXTENSION = '{"ids": ["nyt"], "properties": [{"id": "description"}, {"id": "aliases"}]}'

QUERIES_TEXT = "A batch of queries as JSON: an object with a query for each key."
EXTEND_TEXT = "Which properties of which entities to return, as JSON."


class UnsupportedBodyError(InvalidRequestError):
    """The body is of another media type."""

    status = 415
    code = "unsupported_media_type"


async def read_form(request: Request) -> dict[str, Any]:
    """What a request sends as `queries` or `extend`, in a form or as JSON.

    Returns:
        The JSON of one of them, by its name.

    Raises:
        UnsupportedBodyError: If the body is something else.
        InvalidRequestError: If it has neither of them, or both, or is not valid.
    """
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    body = await request.body()
    if kind == JSON:
        loaded = load_json(body, "body")
        given = {name: loaded[name] for name in ("queries", "extend") if name in loaded} if _is_dict(loaded) else {}
        return _only_one(given)
    if kind != FORM:
        raise UnsupportedBodyError(f"The body is {kind or 'of no type'}. Send {FORM} or {JSON}.")
    try:
        fields = parse_qs(body.decode("utf-8"), keep_blank_values=True, max_num_fields=_MAX_FIELDS)
    except ValueError as error:  # UnicodeDecodeError too
        raise InvalidRequestError(f"The form is not valid: {error}", where="body") from error
    given = {name: values[0] for name, values in fields.items()}
    return only_text(given.get("queries"), given.get("extend"))


def only_text(queries: str | None, extend: str | None) -> dict[str, Any]:
    """The JSON of the one of two fields that is given, by its name; raises as `read_form`."""
    texts = {"queries": queries, "extend": extend}
    return _only_one({name: load_json(text, name) for name, text in texts.items() if text is not None})


def _only_one(given: dict[str, Any]) -> dict[str, Any]:
    if len(given) != 1:
        raise InvalidRequestError("Send either queries or extend.", where="body")
    return given


def _is_dict(loaded: Any) -> bool:
    return isinstance(loaded, dict)


def _text_schema(description: str, example: str) -> dict[str, Any]:
    return {"type": "string", "contentMediaType": JSON, "description": description, "examples": [example]}


_QUERY_SCHEMA: dict[str, Any] = {
    "type": "object",
    "description": "A query; at least one of query and properties.",
    "properties": {
        "query": {"type": "string"},
        "type": {"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}]},
        "type_strict": {"enum": ["any", "should", "all"]},
        "limit": {"type": "integer", "minimum": 1},
        "properties": {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {"pid": {"type": "string"}, "v": {"description": "A value, or a list of them."}},
                "required": ["pid", "v"],
            },
        },
    },
}

_EXTENSION_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "ids": {"type": "array", "items": {"type": "string"}},
        "properties": {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {"id": {"type": "string"}, "settings": {"type": "object"}},
                "required": ["id"],
            },
        },
    },
    "required": ["ids", "properties"],
}

_CONDITION_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "matchType": {"enum": ["name", "id", "property"]},
        "pid": {"type": "string", "description": "Id of the property, for matchType property."},
        "v": {"description": "A value, or a list of them."},
        "required": {"type": "boolean"},
        "matchQuantifier": {"enum": ["any", "all", "none"]},
    },
    "required": ["matchType", "v"],
}


def _body(content: dict[str, Any]) -> dict[str, Any]:
    return {"requestBody": {"required": True, "content": content}}


FORM_BODY = _body(
    {
        FORM: {
            "schema": {
                "type": "object",
                "properties": {
                    "queries": _text_schema(QUERIES_TEXT, EXAMPLE_BATCH),
                    "extend": _text_schema(EXTEND_TEXT, EXAMPLE_EXTENSION),
                },
            },
            "examples": {"queries": {"value": {"queries": EXAMPLE_BATCH}}},
        },
        JSON: {
            "schema": {
                "type": "object",
                "properties": {
                    "queries": {"type": "object", "additionalProperties": _QUERY_SCHEMA},
                    "extend": _EXTENSION_SCHEMA,
                },
            },
            "examples": {"queries": {"value": {"queries": {"q0": {"query": "NYTimes"}}}}},
        },
    }
)
"""The body of a POST, for OpenAPI."""

MATCH_BODY = _body(
    {
        JSON: {
            "schema": {
                "type": "object",
                "properties": {
                    "queries": {
                        "type": "array",
                        "items": {
                            "type": "object",
                            "properties": {
                                "type": {"type": "string"},
                                "limit": {"type": "integer", "minimum": 1},
                                "conditions": {"type": "array", "minItems": 1, "items": _CONDITION_SCHEMA},
                            },
                            "required": ["conditions"],
                        },
                    }
                },
                "required": ["queries"],
            },
            "examples": {
                "match": {"value": {"queries": [{"conditions": [{"matchType": "name", "v": "NYTimes"}]}]}},
            },
        }
    }
)
"""The body of a match of the 1.0 draft, for OpenAPI."""

EXTEND_BODY = _body({JSON: {"schema": _EXTENSION_SCHEMA}})
"""The body of a data extension of the 1.0 draft, for OpenAPI."""
