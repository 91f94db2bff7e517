"""The key of a server never shows in messages, attributes, tracebacks and logs, even if a server repeats it."""

from __future__ import annotations

import json
import logging
import traceback
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import pytest
from edge_cases import manifest_of
from qdrant_double import QdrantDouble
from qdrant_double_http import Fault

from pearl_qdrant.errors import StoreError
from pearl_qdrant.store.retry import RetryPolicy
from pearl_qdrant.store.server.collection import ServerCollection
from pearl_qdrant.store.server.store import ServerStore

KEY = 's3cret-"k3y"-of-30-characters/x'
ANY = r".*"


@pytest.fixture(scope="module")
def store(running: QdrantDouble) -> Iterator[ServerStore]:
    """A store that is opened with a key; requests are tried twice."""
    opened = ServerStore.connect(running.url, api_key=KEY, retry=RetryPolicy(tries=2, first_wait_s=0.001))
    yield opened
    opened.close()


@pytest.fixture
def double(running: QdrantDouble) -> QdrantDouble:
    """An empty server."""
    running.reset()
    return running


@pytest.fixture
def collection(double: QdrantDouble, store: ServerStore) -> ServerCollection:
    """An empty collection of that store."""
    return store.create(manifest_of())


def all_texts(error: BaseException) -> str:
    """Return all texts of an error: message, attributes, traceback with causes."""
    return "\n".join([str(error), repr(error), repr(vars(error)), *traceback.format_exception(error)])


@pytest.mark.parametrize("status", [400, 413, 429, 503])
@pytest.mark.parametrize("n_before", [0, 190, 270, 285, 299])
def test_no_part_of_a_key_that_a_server_repeats_is_shown(
    double: QdrantDouble, collection: ServerCollection, caplog: pytest.LogCaptureFixture, status: int, n_before: int
) -> None:
    """Long texts are shortened after the key is removed, so no part of it is left."""
    caplog.set_level(logging.DEBUG)
    double.faults = [Fault("status", ANY, status=status, error="x" * n_before + KEY + " was refused")] * 5

    with pytest.raises(StoreError) as told:
        collection.count()

    shown = all_texts(told.value) + caplog.text
    assert "s3cret" not in shown
    assert n_before > 270 or "***" in str(told.value)


@pytest.mark.parametrize("written", [KEY, quote(KEY, safe=""), KEY.replace('"', '\\"')])
def test_a_key_does_not_show_in_an_answer_that_is_not_qdrants(
    double: QdrantDouble, collection: ServerCollection, written: str
) -> None:
    """A proxy that answers with the request, plain, escaped or in a URL, does not bring the key into a message."""
    double.faults = [Fault("raw", ANY, status=502, error=f"<html>{'x' * 280}{written} was refused")] * 5

    with pytest.raises(StoreError) as told:
        collection.count()

    assert "s3cret" not in all_texts(told.value)


def test_a_key_does_not_show_in_the_error_of_an_optimizer(double: QdrantDouble, collection: ServerCollection) -> None:
    """The key is removed from the server's reports of its own failures too."""
    double.optimizer_error = f"cannot reach {KEY}"

    with pytest.raises(StoreError, match=r"cannot reach \*\*\*"):
        collection.finalize()


def test_the_last_failure_is_kept_without_the_key(double: QdrantDouble, collection: ServerCollection) -> None:
    """The attribute of the error has no key either."""
    double.faults = [Fault("status", ANY, error=f"busy with {KEY}")] * 5

    with pytest.raises(StoreError) as told:
        collection.count()

    error: Any = told.value
    assert error.last == "503 Service Unavailable: busy with ***"


def test_a_key_in_an_answer_of_another_shape_does_not_show(double: QdrantDouble, collection: ServerCollection) -> None:
    """A text in place of a number is not quoted in the error."""
    body = json.dumps({"result": {"count": "x" * 30 + KEY + "y" * 30}})
    double.faults = [Fault("raw", ANY, status=200, error=body)]

    with pytest.raises(StoreError, match=r"result\.count") as told:
        collection.count()

    assert "s3cret" not in all_texts(told.value)
