"""Settings and fixtures for all tests."""

from __future__ import annotations

import contextlib
import gc
import io
import os
import shutil
import signal
import sys
import tempfile
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

# The models of the tests are tiny: torch is faster on one thread, above all where the cores are shared.
os.environ.setdefault("OMP_NUM_THREADS", "1")
# Tests start hundreds of Python processes, each of which would compile our modules again without cached bytecode.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

import hypothesis
import pytest
from cli_runner import Outcome, Run
from linker_base import ENTITIES, fill
from store_cases import LIMITS, manifest_of
from tiny_models import make_bert, make_pearl

from pearl_qdrant.cli import main
from pearl_qdrant.encoder.loading import load_encoder
from pearl_qdrant.encoder.protocol import Encoder
from pearl_qdrant.settings import DEFAULT_MODEL, ServerAccess
from pearl_qdrant.store.protocol import Collection, Store

# An example may be slow on a busy machine. Only hangs are bounded, by pytest's timeout.
hypothesis.settings.register_profile(
    "any machine", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow]
)
hypothesis.settings.load_profile("any machine")


FREE_BYTES = 4 << 30
"""Free bytes that a file system in memory needs for the folders of the tests."""


def pytest_configure() -> None:
    """Restore the handler of Ctrl-C, since a shell lets its background jobs ignore it; keep folders in memory."""
    gc.disable()  # until all is imported, of which nothing is garbage
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    # The embedded store waits for the disk at each flush. In memory the tests take half the time.
    memory = Path("/dev/shm")
    if os.access(memory, os.W_OK) and shutil.disk_usage(memory).free > FREE_BYTES:
        os.environ.setdefault("TMPDIR", str(memory))  # pytest's folders, linkers without a store, and child processes
        tempfile.tempdir = None  # found before


KINDS: list[Any] = ["edge", "server-http", "server-limited", "server-tls", "server-faulty"]
if os.environ.get("QDRANT_URL"):
    KINDS.append(pytest.param("server-real", marks=pytest.mark.server))

SLOW_KINDS = ("server-limited", "server-tls", "server-faulty")
"""Kinds that differ from `server-http` in limits and connection alone, which `tests/stores_server` tests too."""


@pytest.hookimpl(tryfirst=True)  # before tests are chosen by their marks
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what repeats a test on another kind of server as slow."""
    for item in items:
        call = getattr(item, "callspec", None)
        if call and call.params.get("store") in SLOW_KINDS:
            item.add_marker(pytest.mark.slow)


def pytest_collection_finish() -> None:
    """Leave what the imports made out of the garbage collections to come, which took a twentieth of the run."""
    gc.collect()
    gc.freeze()
    gc.enable()


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny checkpoint."""
    folder = tmp_path_factory.mktemp("model") / "tiny"
    make_pearl(folder)
    return folder


@pytest.fixture(scope="session")
def encoder(model: Path) -> Encoder:
    """That checkpoint, loaded."""
    return load_encoder(str(model), device="cpu")


@pytest.fixture(scope="session")
def bert(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny BERT."""
    return make_bert(tmp_path_factory.mktemp("models") / "bert")


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    """The event loop of asynchronous tests."""
    return "asyncio"


@pytest.fixture(scope="session")
def models(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """Two models of one width."""
    folders = [tmp_path_factory.mktemp("models") / name for name in ("first", "second")]
    for seed, folder in enumerate(folders):
        make_pearl(folder, seed=seed)
    return str(folders[0]), str(folders[1])


@pytest.fixture(scope="session")
def shipped() -> Encoder:
    """The model that ships: to load it takes a second."""
    return load_encoder(DEFAULT_MODEL, device="cpu")


@pytest.fixture(scope="session")
def base_store(tmp_path_factory: pytest.TempPathFactory, model: Path) -> Path:
    """A store with the collection `base`, which no test changes."""
    path = tmp_path_factory.mktemp("base") / "store"
    fill(path, "base", str(model), ENTITIES, is_loaded=True)
    return path


@pytest.fixture
def run(tmp_path: Path, model: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Runs `pearl-qdrant` in this process, with a store of its own."""
    for name in ("QDRANT_URL", "QDRANT_API_KEY", "PEARL_QDRANT_DEVICE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PEARL_QDRANT_STORE", str(tmp_path / "store"))

    def call(*words: str, stdin: bytes = b"") -> Outcome:
        monkeypatch.setattr(sys, "argv", ["pearl-qdrant", *words])
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin), encoding="utf-8"))
        capsys.readouterr()
        with pytest.raises(SystemExit) as stop:
            main()
        captured = capsys.readouterr()
        return Outcome(int(stop.value.code or 0), captured.out, captured.err)

    return call


@pytest.fixture
def name() -> str:
    """A unique name for a collection."""
    return f"pearl-test-{uuid.uuid4().hex[:12]}"


@contextlib.contextmanager
def served(facts: dict[str, Any], context: Any = None, **settings: Any) -> Iterator[Store]:
    """A store on the double of a server with these facts."""
    from qdrant_double import QdrantDouble

    from pearl_qdrant.store.server import collection
    from pearl_qdrant.store.server.store import ServerStore

    with QdrantDouble(context) as double, pytest.MonkeyPatch.context() as patch:
        patch.setattr(collection, "POLL_S", 0.01)
        for fact, value in facts.items():
            setattr(double, fact, value)
        opened = ServerStore(double.url, **settings)
        yield opened
        opened.close()


@pytest.fixture(scope="module")
def http() -> Iterator[Store]:
    """A server over HTTP in strict mode, as in managed clusters."""
    with served({"strict": True, "optimizer_polls": 2}) as opened:
        yield opened


@pytest.fixture(scope="module")
def limited() -> Iterator[Store]:
    """A server in strict mode with low limits, which compresses its answers."""
    with served({"strict": True, "limits": LIMITS}, access=ServerAccess(compress=True)) as opened:
        yield opened


@pytest.fixture(scope="module")
def tls(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    """A server with a certificate of a private authority."""
    import ssl

    import trustme

    authority, context = trustme.CA(), ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    path = tmp_path_factory.mktemp("tls") / "ca.pem"
    authority.cert_pem.write_to_path(str(path))
    with served({}, context, access=ServerAccess("k", ca_file=str(path))) as opened:
        yield opened


@pytest.fixture(scope="module")
def faulty() -> Iterator[Store]:
    """A server that drops every third request or its answer, or is too busy."""
    from pearl_qdrant.store.server.errors import RetryPolicy

    with served({"drop_every": 3}, retry=RetryPolicy(first_wait_s=0.001, max_wait_s=0.01)) as opened:
        yield opened


@pytest.fixture(scope="module")
def real() -> Iterator[Store]:
    """The server at QDRANT_URL."""
    from pearl_qdrant.store.server.store import ServerStore

    opened = ServerStore(os.environ["QDRANT_URL"], ServerAccess(os.environ.get("QDRANT_API_KEY")))
    yield opened
    opened.close()


@pytest.fixture(params=KINDS)
def store(request: pytest.FixtureRequest, tmp_path: Path, name: str) -> Iterator[Store]:
    """A store of each kind; collections of a test are deleted after it."""
    if request.param == "edge":
        from pearl_qdrant.store import open_store

        embedded = open_store(tmp_path / "store")
        yield embedded
        embedded.close()
        return
    shared: Store = request.getfixturevalue(request.param.removeprefix("server-"))
    yield shared
    for left in shared.collections():
        if left.startswith(name):
            shared.delete(left)


@pytest.fixture
def collection(store: Store, name: str) -> Iterator[Collection]:
    """An empty collection in each store."""
    created = store.create(manifest_of(name))
    yield created
    created.close()
