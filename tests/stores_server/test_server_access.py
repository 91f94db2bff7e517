"""Access to a server: the environment, TLS with a private authority, a key inside a private network."""

from __future__ import annotations

import logging
import ssl
from collections.abc import Iterator
from pathlib import Path

import pytest
import trustme
from cli_runner import Run
from qdrant_double import QdrantDouble

from pearl_qdrant.errors import CollectionNotFoundError, SettingsError, StoreRejectedError
from pearl_qdrant.linking.linker import EntityLinker
from pearl_qdrant.settings import ServerAccess, store_location
from pearl_qdrant.store.server.store import ServerStore

VARIABLES = (
    "PEARL_QDRANT_STORE",
    "QDRANT_URL",
    "QDRANT_API_KEY",
    "PEARL_QDRANT_ALLOW_PLAIN_HTTP",
    "PEARL_QDRANT_CA",
    "PEARL_QDRANT_COMPRESS",
)


@pytest.fixture(autouse=True)
def _empty_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """No variable is set."""
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    """An authority that no machine trusts."""
    return trustme.CA()


@pytest.fixture
def ca_file(authority: trustme.CA, tmp_path: Path) -> Path:
    """Its certificate."""
    path = tmp_path / "ca.pem"
    authority.cert_pem.write_to_path(str(path))
    return path


@pytest.fixture
def encrypted(authority: trustme.CA) -> Iterator[QdrantDouble]:
    """A server with a certificate of that authority."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    with QdrantDouble(context) as double:
        yield double


def test_a_private_authority_is_trusted_when_it_is_named(encrypted: QdrantDouble, ca_file: Path) -> None:
    """A server with a certificate of my company's authority works with the authority's file, and only with it."""
    trusting = ServerStore.connect(encrypted.url, ServerAccess("secret", ca_file=str(ca_file)))
    assert trusting.collections() == []
    assert encrypted.headers["api-key"] == "secret"
    trusting.close()

    stranger = ServerStore.connect(encrypted.url)
    with pytest.raises(StoreRejectedError, match=r"certificate.*PEARL_QDRANT_CA"):
        stranger.collections()
    stranger.close()


def test_a_file_that_holds_no_certificate_is_named(tmp_path: Path) -> None:
    """A wrong file for the authority is an error with its path, before any request."""
    path = tmp_path / "ca.pem"
    for content in (None, "no certificate"):
        if content is not None:
            path.write_text(content, encoding="utf-8")
        with pytest.raises(SettingsError, match=r"ca\.pem.*PEM"):
            ServerStore.connect("https://q:6333", ServerAccess(ca_file=str(path)))


def test_a_key_goes_over_plain_http_only_where_that_is_allowed(caplog: pytest.LogCaptureFixture) -> None:
    """Inside a compose network I can allow the key without TLS; one warning is logged, without the key."""
    with pytest.raises(SettingsError, match="PEARL_QDRANT_ALLOW_PLAIN_HTTP=1"):
        ServerStore.connect("http://qdrant:6333", ServerAccess("secret"))
    with caplog.at_level(logging.WARNING):
        ServerStore.connect("http://qdrant:6333", ServerAccess("secret", allow_plain_http=True)).close()

    (record,) = caplog.records
    assert "plain HTTP to qdrant" in record.getMessage()
    assert "secret" not in record.getMessage()


def test_there_is_no_warning_without_a_risk(caplog: pytest.LogCaptureFixture) -> None:
    """Without a key, with TLS, or on this machine, allowing plain HTTP logs no warning."""
    with caplog.at_level(logging.WARNING):
        ServerStore.connect("http://qdrant:6333", ServerAccess(allow_plain_http=True)).close()
        ServerStore.connect("https://qdrant:6333", ServerAccess("secret", allow_plain_http=True)).close()
        ServerStore.connect("http://localhost:6333", ServerAccess("secret", allow_plain_http=True)).close()

    assert not caplog.records


def test_the_linker_reads_store_and_key_from_the_environment(
    double: QdrantDouble, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`EntityLinker.open` with only a name uses the server and the key of the environment."""
    monkeypatch.setenv("QDRANT_URL", double.url)
    monkeypatch.setenv("QDRANT_API_KEY", "from-environment")
    with pytest.raises(CollectionNotFoundError):
        EntityLinker.open("base")
    assert double.headers["api-key"] == "from-environment"

    with pytest.raises(CollectionNotFoundError):
        EntityLinker.open("base", store=double.url, api_key="given")
    assert double.headers["api-key"] == "given"


def test_linker_and_command_line_read_the_authority_from_the_environment(
    encrypted: QdrantDouble, ca_file: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """TLS with my own authority needs no code, only PEARL_QDRANT_CA; commands use the key of the environment too."""
    monkeypatch.setenv("PEARL_QDRANT_CA", str(ca_file))
    with pytest.raises(CollectionNotFoundError):
        EntityLinker.open("base", store=encrypted.url)
    monkeypatch.setenv("QDRANT_API_KEY", "secret")
    outcome = run("collections", "list", "--store", encrypted.url)

    assert outcome.status == 0, outcome.err
    assert encrypted.headers["api-key"] == "secret"


def test_empty_variables_count_as_absent() -> None:
    """An empty variable counts as not set."""
    assert ServerAccess.from_environment(dict.fromkeys(VARIABLES, "")) == ServerAccess()
    assert store_location({"PEARL_QDRANT_STORE": "", "QDRANT_URL": "http://q:6333"}) == "http://q:6333"
    assert store_location({"PEARL_QDRANT_STORE": "folder", "QDRANT_URL": "http://q:6333"}) == "folder"
    assert ServerAccess.from_environment({"PEARL_QDRANT_ALLOW_PLAIN_HTTP": "0"}) == ServerAccess()
    assert ServerAccess.from_environment({"PEARL_QDRANT_ALLOW_PLAIN_HTTP": "1"}).allow_plain_http


def test_answers_are_only_compressed_on_request(double: QdrantDouble) -> None:
    """Compressed answers stall for 40 ms on a kept-alive connection, so they are requested only if I ask for them."""
    for compress, n_compressed in ((False, 0), (True, 4)):
        store = ServerStore.connect(double.url, ServerAccess(compress=compress))
        assert [store.collections() for _ in range(3)] == [[], [], []]  # and one for the version
        store.close()
        assert double.n_compressed == n_compressed
