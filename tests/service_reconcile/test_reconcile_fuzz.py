"""Anything that a client sends is answered, and never with an error of the service."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import quote_plus

import pytest
from fastapi.testclient import TestClient
from hypothesis import given, settings
from hypothesis import strategies as st
from reconcile_cases import ENDPOINT
from specification import ResultBatch

pytestmark = pytest.mark.slow

FORM = {"Content-Type": "application/x-www-form-urlencoded"}

TEXTS = st.text(max_size=30) | st.sampled_from(["Springfield", "NYTimes", "city", "state", "Illinois", "", "none"])
SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXTS
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=4), max_leaves=8
)


def shaped(**fields: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """An object with these fields, each of them there or not, right or wrong."""
    return st.fixed_dictionaries({}, optional={name: one | VALUES for name, one in fields.items()}) | VALUES


PROPERTY = shaped(pid=TEXTS, v=SCALARS | st.lists(SCALARS, max_size=4))
QUERY = shaped(
    query=TEXTS,
    type=TEXTS | st.lists(TEXTS, max_size=3),
    type_strict=st.sampled_from(["any", "should", "all"]),
    limit=st.integers(-1, 200),
    properties=st.lists(PROPERTY, max_size=3),
)
EXTENSION = shaped(ids=st.lists(TEXTS, max_size=3), properties=st.lists(shaped(id=TEXTS, settings=VALUES), max_size=3))


def form(name: str, value: Any) -> bytes:
    """JSON in a field of a form."""
    return f"{name}={quote_plus(json.dumps(value), errors='replace')}".encode()


@settings(max_examples=150)
@given(batch=st.dictionaries(TEXTS, QUERY, max_size=4))
def test_any_batch_is_answered(client: TestClient, batch: Any) -> None:
    """A batch of any queries has a result of the specification's shape for each of its keys."""
    answer = client.post(ENDPOINT, content=form("queries", batch), headers=FORM)

    assert answer.status_code in (200, 422), answer.text
    if answer.status_code == 200:
        ResultBatch.model_validate(answer.json())


@settings(max_examples=100)
@given(asked=EXTENSION)
def test_any_extension_is_answered(client: TestClient, asked: Any) -> None:
    """An extension of any form is answered, or refused."""
    assert client.post(ENDPOINT, content=form("extend", asked), headers=FORM).status_code in (200, 422)


@settings(max_examples=100)
@given(body=st.binary(max_size=60), kind=st.sampled_from(["application/json", FORM["Content-Type"], "x", ""]))
def test_any_bytes_are_answered(client: TestClient, body: bytes, kind: str) -> None:
    """Bytes of any kind are refused with an error of the client."""
    answer = client.post(ENDPOINT, content=body, headers={"Content-Type": kind})

    assert 400 <= answer.status_code < 500


@settings(max_examples=60)
@given(text=st.text(max_size=40))
def test_any_parameter_is_answered(client: TestClient, text: str) -> None:
    """Prefixes and ids of any kind are answered."""
    for path in ("entity", "type", "property"):
        assert client.get(f"{ENDPOINT}/suggest/{path}", params={"prefix": text}).status_code == 200
        assert client.get(f"{ENDPOINT}/flyout/{path}", params={"id": text}).status_code == 200
    assert client.get(f"{ENDPOINT}/preview", params={"id": text}).status_code in (200, 404)
    assert client.get(f"{ENDPOINT}/extend/propose", params={"type": text}).status_code == 200
