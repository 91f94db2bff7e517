"""The key of a server never shows in messages, attributes, tracebacks and logs, even if a server repeats it."""

from __future__ import annotations

import json
import logging
import traceback
from collections.abc import Iterator
from urllib.parse import quote

import pytest
from qdrant_double import QdrantDouble
from qdrant_double_http import Fault
from store_cases import manifest_of

from pearl_qdrant.errors import StoreError
from pearl_qdrant.settings import ServerAccess
from pearl_qdrant.store.server.collection import ServerCollection
from pearl_qdrant.store.server.errors import RetryPolicy
from pearl_qdrant.store.server.store import ServerStore

KEY = 's3cret-"k3y"-of-30-characters/x'
ANY = r".*"


@pytest.fixture(scope="module")
def store(running: QdrantDouble) -> Iterator[ServerStore]:
    """A store that is opened with a key; requests are tried twice."""
    opened = ServerStore.connect(running.url, ServerAccess(KEY), retry=RetryPolicy(tries=2, first_wait_s=0.001))
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


@pytest.mark.parametrize("status", [400, 403, 413, 429, 503])
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
    assert ("QDRANT_API_KEY" in str(told.value)) == (status == 403)
    if status == 503 and not n_before:
        assert vars(told.value)["last"] == "503 Service Unavailable: *** was refused"


OTHERS = [
    *(
        Fault("raw", ANY, status=502, error=f"<html>{'x' * 280}{written} was refused")
        for written in (KEY, quote(KEY, safe=""), KEY.replace('"', '\\"'))
    ),
    Fault("raw", ANY, status=200, error=json.dumps({"result": {"count": "x" * 30 + KEY + "y" * 30}})),
    Fault("drop", ANY),
]


@pytest.mark.parametrize("fault", OTHERS, ids=["plain", "in a URL", "escaped", "in place of a number", "no answer"])
def test_a_key_does_not_show_in_an_answer_that_is_not_qdrants(
    double: QdrantDouble, collection: ServerCollection, fault: Fault
) -> None:
    """A proxy that answers with the request, in whatever form, does not bring the key into a message."""
    double.faults = [fault] * 5

    with pytest.raises(StoreError) as told:
        collection.count()

    assert "s3cret" not in all_texts(told.value)


def test_a_key_does_not_show_in_the_error_of_an_optimizer(double: QdrantDouble, collection: ServerCollection) -> None:
    """The key is removed from the server's reports of its own failures too."""
    double.optimizer_error = f"cannot reach {KEY}"

    with pytest.raises(StoreError, match=r"cannot reach \*\*\*"):
        collection.finalize()
