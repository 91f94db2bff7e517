"""URLs and API keys: where a key is sent, and that it is never shown."""

from __future__ import annotations

import httpx
import pytest
from double_fixtures import connect
from qdrant_client.http.exceptions import ResponseHandlingException
from qdrant_double import QdrantDouble
from server_cases import KEY
from store_cases import manifest_of

from pearl_qdrant.errors import SettingsError, StoreRejectedError
from pearl_qdrant.settings import ServerAccess
from pearl_qdrant.store.server.errors import RetryPolicy
from pearl_qdrant.store.server.store import ServerStore


def test_the_key_is_sent_and_not_shown(double: QdrantDouble) -> None:
    """The key reaches the server, and no repr shows it; errors are in test_server_secrets.py."""
    store = connect(double.url, access=ServerAccess(f"{KEY}\n"))
    collection = store.create(manifest_of())

    assert double.headers["api-key"] == KEY
    assert not [text for text in (repr(store), repr(collection), store.location) if KEY in text]


@pytest.mark.parametrize(
    "url",
    [
        "http://qdrant.example.org:6333",
        "http://10.0.0.5:6333",
        "http://localhost.example.org:6333",
        "http://127.0.0.1.example.org",
        "http://0.0.0.0:6333",
    ],
)
def test_a_key_is_not_sent_in_plain_text_to_another_host(url: str) -> None:
    """Plain HTTP with a key is refused, except on this machine."""
    with pytest.raises(SettingsError, match="plain HTTP") as caught:
        ServerStore.connect(url, ServerAccess(KEY))
    assert KEY not in str(caught.value)


@pytest.mark.parametrize("url", ["https://qdrant.example.org", "http://localhost:6333", "http://[::1]:6333/"])
def test_a_key_may_go_over_tls_or_loopback(url: str) -> None:
    """A key may go over TLS or to this machine; without a key every URL works."""
    store = ServerStore.connect(url, ServerAccess(KEY))
    assert store.location == url.rstrip("/")
    store.close()
    ServerStore.connect("http://qdrant.example.org:6333", ServerAccess("")).close()


@pytest.mark.parametrize(
    "url",
    [
        "localhost:6333",
        "ftp://localhost",
        "http://",
        f"http://user:{KEY}@localhost",
        f"http://localhost?api-key={KEY}",
        "http://localhost:port",
    ],
)
def test_an_invalid_url_is_refused(url: str) -> None:
    """A URL without scheme or host, or with a secret, is a settings error that does not repeat the secret."""
    with pytest.raises(SettingsError) as caught:
        ServerStore.connect(url)
    assert KEY not in str(caught.value)


def test_a_key_that_is_not_valid_in_a_header_is_refused() -> None:
    """A key with control characters is an error that does not show it."""
    with pytest.raises(SettingsError, match="QDRANT_API_KEY") as caught:
        ServerStore.connect("https://qdrant.example.org", ServerAccess(f"{KEY}\n{KEY}"))
    assert KEY not in str(caught.value)


def test_tls_that_cannot_work_is_tried_once(double: QdrantDouble) -> None:
    """https:// to a server without TLS fails at the first try and says what to check."""
    double.requests.clear()
    store = ServerStore.connect(double.url.replace("http:", "https:"), retry=RetryPolicy(tries=3, first_wait_s=30.0))
    with pytest.raises(StoreRejectedError, match="https://"):
        store.collections()
    store.close()


def test_a_malformed_answer_is_not_retried() -> None:
    """Only errors that a later try may avoid are retried."""
    from pearl_qdrant.store.server.errors import is_transient

    assert is_transient(ResponseHandlingException(httpx.ReadTimeout("")))
    assert is_transient(ResponseHandlingException(httpx.RemoteProtocolError("closed")))
    assert not is_transient(ResponseHandlingException(ValueError("no JSON")))
    assert not is_transient(ResponseHandlingException(httpx.LocalProtocolError("bad header")))
