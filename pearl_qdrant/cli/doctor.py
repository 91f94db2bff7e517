"""`pearl-qdrant doctor`: what is installed, what works, and the fix for what does not."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import click

from pearl_qdrant._version import __version__
from pearl_qdrant.cli.common.options import json_option, store_option
from pearl_qdrant.cli.common.terminal import echo, echo_json
from pearl_qdrant.installing import install_command
from pearl_qdrant.settings import DEFAULT_MODEL

Check = tuple[str, str, str]
"""What was looked at; "ok", "note" or "fail"; what was found, with the fix if it failed."""

_TIMEOUT_S = 3.0
"""Of one request to a server."""

_NEEDED = ("qdrant-client", "qdrant-edge-py", "onnxruntime", "tokenizers", "numpy", "fastembed")


@click.command()
@store_option
@click.option(
    "--model",
    envvar="PEARL_QDRANT_MODEL",
    show_envvar=True,
    default=DEFAULT_MODEL,
    show_default=True,
    help="The model to check.",
)
@json_option
@click.pass_context
def doctor(context: click.Context, store: str, model: str, as_json: bool) -> None:
    """Check versions, devices, the store and the model. Exit status 1 if something needs a fix."""
    failed = False
    for subject, state, found in _checks(store, model):
        failed |= state == "fail"
        if as_json:
            echo_json({"check": subject, "state": state, "found": found})
        else:
            echo(f"{state:>5}  {subject:<10}  {found}")
    if failed:
        context.exit(1)


def _checks(store: str, model: str) -> Iterator[Check]:
    import platform

    yield "python", "ok", f"{platform.python_version()} on {platform.system()} {platform.machine()}"
    yield "package", "ok", f"pearl-qdrant {__version__}"
    for package in _NEEDED:
        yield _package(package)
    yield _torch()
    yield _guarded("model", lambda: _model(model))
    yield from _store(store)


def _package(name: str) -> Check:
    from importlib import metadata  # a quarter of the time of --help, if it stood at the top

    try:
        return name, "ok", metadata.version(name)
    except metadata.PackageNotFoundError:
        return name, "fail", f"not installed. Fix: pip install {name}"


def _torch() -> Check:
    """Whether a GPU can be used; torch is optional."""
    import importlib.util

    if importlib.util.find_spec("torch") is None:
        return (
            "torch",
            "note",
            f"not installed: the encoder runs on the CPU. For a GPU: {install_command('torch')}",
        )
    import torch

    if not torch.cuda.is_available():
        return "torch", "note", f"{torch.__version__}, no GPU: the encoder runs on the CPU"
    return "torch", "ok", f"{torch.__version__}, {torch.cuda.get_device_name(0)}"


def _guarded(subject: str, look: Callable[[], str]) -> Check:
    """Turn an error into a failed check; its message names the fix."""
    from pearl_qdrant.errors import PearlQdrantError

    try:
        return subject, "ok", look()
    except (PearlQdrantError, ValueError) as error:
        return subject, "fail", str(error)


def _model(model: str) -> str:
    """Load the model and encode something."""
    from pearl_qdrant.encoder.loading import load_encoder

    encoder = load_encoder(model, device="cpu")
    encoder.encode(["The New York Times"])
    info = encoder.info
    return f"{info.name}: {info.dim} dim, {info.runtime} {info.precision}, verified {info.weights_hash[:19]}"


def _store(location: str) -> Iterator[Check]:
    """Reach the store and list it; look at a server more closely."""
    from pearl_qdrant.errors import PearlQdrantError
    from pearl_qdrant.settings import ServerAccess
    from pearl_qdrant.store.open import is_url, open_store

    try:
        # Whoever asks what is wrong does not want to wait: one try, and a short one.
        store = open_store(location, access=ServerAccess.from_environment(), wait_s=0, timeout_s=_TIMEOUT_S)
    except (PearlQdrantError, ValueError) as error:
        yield "store", "fail", str(error)
        return
    try:
        names = store.collections()
        yield "store", "ok", f"{store.location}: {len(names)} collections{': ' if names else ''}{', '.join(names)}"
        if is_url(location):
            from pearl_qdrant.store.server.checks import check_server
            from pearl_qdrant.store.server.store import ServerStore

            assert isinstance(store, ServerStore)
            yield from check_server(store)
    except (PearlQdrantError, ValueError) as error:
        yield "store", "fail", str(error)
    finally:
        store.close()
