"""Access to a server: the environment, TLS with a private authority, a key inside a private network."""

from __future__ import annotations

import json
import logging
import ssl
import traceback
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from urllib.parse import quote

import pytest
import trustme
from cli_runner import Run
from double_fixtures import connect
from qdrant_double import QdrantDouble
from qdrant_double_http import Fault
from store_cases import manifest_of

from pearl_qdrant import EntityLinker
from pearl_qdrant.errors import CollectionNotFoundError, SettingsError, StoreError, StoreRejectedError
from pearl_qdrant.settings import ServerAccess, default_store, store_location
from pearl_qdrant.store import open_store

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
    access = ServerAccess("secret\n", ca_file=str(ca_file))
    with closing(open_store(encrypted.url, access=access)) as trusting:
        assert trusting.collections() == []
        assert encrypted.headers["api-key"] == "secret"
        assert "secret" not in repr(trusting)
    with (
        closing(open_store(encrypted.url)) as stranger,
        pytest.raises(StoreRejectedError, match=r"certificate.*PEARL_QDRANT_CA"),
    ):
        stranger.collections()


def test_a_file_that_holds_no_certificate_is_named(tmp_path: Path) -> None:
    """A wrong file for the authority is an error with its path, before any request."""
    path = tmp_path / "ca.pem"
    for content in (None, "no certificate"):
        if content is not None:
            path.write_text(content, encoding="utf-8")
        with pytest.raises(SettingsError, match=r"ca\.pem.*PEM"):
            open_store("https://q:6333", access=ServerAccess(ca_file=str(path)))


PLAIN = ("qdrant:6333", "10.0.0.5:6333", "localhost.example.org:6333", "127.0.0.1.example.org", "0.0.0.0:6333")


@pytest.mark.parametrize("host", PLAIN)
def test_a_key_goes_over_plain_http_only_where_that_is_allowed(host: str, caplog: pytest.LogCaptureFixture) -> None:
    """Inside a compose network I can allow the key without TLS; one warning is logged, without the key."""
    with pytest.raises(SettingsError, match=r"plain HTTP.*PEARL_QDRANT_ALLOW_PLAIN_HTTP=1") as caught:
        open_store(f"http://{host}", api_key="secret")
    assert "secret" not in str(caught.value)
    with caplog.at_level(logging.WARNING):
        open_store(f"http://{host}", access=ServerAccess("secret", allow_plain_http=True)).close()

    (record,) = caplog.records
    assert "plain HTTP to" in record.getMessage()
    assert "secret" not in record.getMessage()


def test_there_is_no_warning_without_a_risk(caplog: pytest.LogCaptureFixture) -> None:
    """Without a key, with TLS, or on this machine, every URL works, and none needs a warning."""
    with caplog.at_level(logging.WARNING):
        for key, url in (
            ("", "http://qdrant:6333"),
            ("secret", "https://qdrant.example.org"),
            ("secret", "http://localhost:6333"),
            ("secret", "http://[::1]:6333"),
        ):
            store = open_store(url, access=ServerAccess(key))
            assert store.location == url
            store.close()

    assert not caplog.records


@pytest.mark.parametrize(
    "url", ["http://user:secret@localhost", "http://localhost?key=secret", "http://localhost:port"]
)
def test_an_invalid_url_is_refused(url: str) -> None:
    """A URL with a secret, or an odd port, is a settings error that does not repeat the secret."""
    with pytest.raises(SettingsError) as caught:
        open_store(url)
    assert "secret" not in str(caught.value)


def test_a_key_that_is_not_valid_in_a_header_is_refused() -> None:
    """A key with control characters is an error that does not show it."""
    with pytest.raises(SettingsError, match="QDRANT_API_KEY") as caught:
        open_store("https://qdrant.example.org", api_key="secret\nsecret")
    assert "secret" not in str(caught.value)


def test_tls_that_cannot_work_is_tried_once(double: QdrantDouble) -> None:
    """https:// to a server without TLS fails at the first try and says what to check."""
    with (
        closing(open_store(double.url.replace("http:", "https:"), wait_s=600)) as store,
        pytest.raises(StoreRejectedError, match="https://"),
    ):
        store.collections()


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
    assert store_location(dict.fromkeys(VARIABLES, "")) == str(default_store())
    assert store_location({"PEARL_QDRANT_STORE": "", "QDRANT_URL": "http://q:6333"}) == "http://q:6333"
    assert store_location({"PEARL_QDRANT_STORE": "folder", "QDRANT_URL": "http://q:6333"}) == "folder"
    assert ServerAccess.from_environment({"PEARL_QDRANT_ALLOW_PLAIN_HTTP": "0"}) == ServerAccess()
    assert ServerAccess.from_environment({"PEARL_QDRANT_ALLOW_PLAIN_HTTP": "1"}).allow_plain_http


def test_answers_are_only_compressed_on_request(double: QdrantDouble) -> None:
    """Compressed answers stall for 40 ms on a kept-alive connection, so they are requested only if I ask for them."""
    for compress, n_compressed in ((False, 0), (True, 4)):
        with closing(open_store(double.url, access=ServerAccess(compress=compress))) as store:
            assert [store.collections() for _ in range(3)] == [[], [], []]  # and one for the version
        assert double.n_compressed == n_compressed


LONG_KEY = 's3cret-"k3y"-of-30-characters/x'
REPEATED = [
    *(
        Fault("status", ".*", status=status, error="x" * n_before + LONG_KEY + " was refused")
        for status in (400, 403, 413, 429, 503)
        for n_before in (0, 190, 270, 285, 299)
    ),
    *(
        Fault("raw", ".*", status=502, error=f"<html>{'x' * 280}{written} was refused")
        for written in (LONG_KEY, quote(LONG_KEY, safe=""), LONG_KEY.replace('"', '\\"'))
    ),
    Fault("raw", ".*", status=200, error=json.dumps({"result": {"count": "x" * 30 + LONG_KEY + "y" * 30}})),
    Fault("drop", ".*"),
]


def test_no_part_of_a_key_that_a_server_repeats_is_shown(
    double: QdrantDouble, caplog: pytest.LogCaptureFixture
) -> None:
    """Neither message, attributes, traceback and log have it, in whatever form, nor the report of an optimizer."""
    caplog.set_level(logging.DEBUG)
    collection = connect(double.url, access=ServerAccess(LONG_KEY), tries=2, first_wait_s=0.001).create(manifest_of())
    for fault in REPEATED:
        double.faults = [fault] * 2
        with pytest.raises(StoreError) as told:
            collection.count()
        double.faults = []
        error, message = told.value, str(told.value)
        shown = [message, repr(error), repr(vars(error)), *traceback.format_exception(error), caplog.text]
        assert "s3cret" not in "\n".join(shown)
        if fault.error.startswith(LONG_KEY):
            assert "*** was refused" in message
            assert ("QDRANT_API_KEY" in message) == (fault.status == 403)
    double.optimizer_error = f"cannot reach {LONG_KEY}"
    with pytest.raises(StoreError, match=r"cannot reach \*\*\*"):
        collection.finalize()
