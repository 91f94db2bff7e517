"""Check the installation: versions, devices, the model and the store, each with the fix for a failure."""

from __future__ import annotations

import platform
from collections.abc import Iterator, Sequence
from importlib import metadata
from importlib.util import find_spec

from pearl_qdrant._version import __version__
from pearl_qdrant.errors import PearlQdrantError
from pearl_qdrant.installing import install_command
from pearl_qdrant.settings import DEFAULT_MODEL, ServerAccess, is_url
from pearl_qdrant.store.administration import CollectionSummary, SummaryState, summarize_collections
from pearl_qdrant.store.open import location_of, open_store
from pearl_qdrant.store.protocol import Check, CheckState, Store

TIMEOUT_S = 3.0
"""For one request to a server."""

MAX_COLLECTIONS = 50
"""The most collections whose state is shown; `collections list` shows all."""

NEEDED_PACKAGES = ("qdrant-client", "qdrant-edge-py", "onnxruntime", "tokenizers", "numpy")


def run_checks(store: str | Sequence[str] | None = None, model: str = DEFAULT_MODEL) -> Iterator[Check]:
    """Check versions, devices, the model and the store, one after the other.

    Args:
        store: Folder, URL or URLs; None: from PEARL_QDRANT_STORE, else QDRANT_URL, else the user's data folder. The key
            of a server is read from the environment.
        model: The model to load.

    Yields:
        The checks. Errors of this package become failed checks.
    """
    yield Check("python", "ok", f"{platform.python_version()} on {platform.system()} {platform.machine()}")
    yield Check("package", "ok", f"pearl-qdrant {__version__}")
    for package in NEEDED_PACKAGES:
        yield check_package(package)
    yield check_torch()
    yield check_model(model)
    yield from check_store(store)


def check_package(name: str) -> Check:
    """Check that a package is installed."""
    try:
        return Check(name, "ok", metadata.version(name))
    except metadata.PackageNotFoundError:
        return Check(name, "fail", f"not installed. Fix: pip install {name}")


def check_torch() -> Check:
    """Check whether a GPU can be used; torch is optional."""
    if find_spec("torch") is None:
        text = f"not installed: the encoder runs on the CPU. For a GPU: {install_command('torch')}"
        return Check("torch", "note", text)
    import torch

    if not torch.cuda.is_available():
        return Check("torch", "note", f"{torch.__version__}, no GPU: the encoder runs on the CPU")
    return Check("torch", "ok", f"{torch.__version__}, {torch.cuda.get_device_name(0)}")


def check_model(model: str = DEFAULT_MODEL) -> Check:
    """Check that a model loads and encodes a name."""
    from pearl_qdrant.encoder.loading import load_encoder

    try:
        encoder = load_encoder(model, device="cpu")
        encoder.encode(["The New York Times"])
    except (PearlQdrantError, ValueError) as error:
        return Check("model", "fail", str(error))
    info = encoder.info
    found = f"{info.name}: {info.dim} dim, {info.runtime} {info.precision}, verified {info.weights_hash[:19]}"
    return Check("model", "ok", found)


def check_collections(store: Store) -> Iterator[Check]:
    """Check the state of each collection of this package: complete, with a graph, with a usable manifest. Raises
    StoreError if the store does not answer.
    """
    n_collections = len(store.collections())
    for one in summarize_collections(store, limit=MAX_COLLECTIONS):
        if not one.is_foreign:
            yield Check("collection", _CHECK_STATES[one.state], _describe(one))
    if n_collections > MAX_COLLECTIONS:
        found = f"only the first {MAX_COLLECTIONS} of {n_collections} were looked at"
        yield Check("collection", "note", found)


_CHECK_STATES: dict[SummaryState, CheckState] = {
    "ready": "ok",
    "no_graph": "note",
    "no_indexes": "fail",
    "unfinished": "fail",
    "unusable": "fail",
}


def _describe(summary: CollectionSummary) -> str:
    """A summary in one line."""
    counts = {"entities": summary.entities, "names": summary.names}
    facts = [
        summary.state.replace("_", " "),
        *(f"{n:,} {what}" for what, n in counts.items() if n is not None),
        *([f"model {summary.model}"] if summary.model else []),
        *(["calibrated"] if summary.is_calibrated else []),
    ]
    return f"{summary.name}: {', '.join(facts)}" + (f"; {summary.problem}" if summary.problem else "")


def check_store(store: str | Sequence[str] | None = None) -> Iterator[Check]:
    """Check that a store can be reached and listed, and the state of its collections.

    Of a server, version, key, strict mode, nodes and replicas are checked too.
    """
    try:
        location = location_of(store)
        # One short try: a check should not wait for a server.
        opened = open_store(location, access=ServerAccess.from_environment(), wait_s=0, timeout_s=TIMEOUT_S)
    except (PearlQdrantError, ValueError) as error:
        yield Check("store", "fail", str(error))
        return
    try:
        names = opened.collections()
        found = f"{opened.location}: {len(names)} collections{': ' if names else ''}{', '.join(names)}"
        yield Check("store", "ok", found)
        yield from check_collections(opened)
        if is_url(location):
            from pearl_qdrant.store.server.store import ServerStore, check_server

            assert isinstance(opened, ServerStore)
            yield from check_server(opened)
    except (PearlQdrantError, ValueError) as error:
        yield Check("store", "fail", str(error))
    finally:
        opened.close()
