"""What commands share: options, and functions that open the store, files and linker they name; a progress bar."""

from __future__ import annotations

import io
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, TypeVar, cast

import click

from pearl_qdrant.cli.terminal import echo
from pearl_qdrant.errors import ModelError
from pearl_qdrant.installing import install_command
from pearl_qdrant.progress import counting_bar
from pearl_qdrant.settings import DEFAULT_DEVICE, DEFAULT_MODEL, check_store_location, default_store

if TYPE_CHECKING:
    from pearl_qdrant.linking.linker import EntityLinker

F = TypeVar("F", bound=Callable[..., Any])


def _check_store(context: click.Context, parameter: click.Parameter, location: str) -> str:
    """Refuse an invalid location before anything is read."""
    check_store_location(location)
    return location


store_option: Callable[[F], F] = click.option(
    "--store",
    envvar=["PEARL_QDRANT_STORE", "QDRANT_URL"],
    show_envvar=True,
    default=lambda: str(default_store()),
    show_default="the user's data folder",
    metavar="DIR|URL",
    callback=_check_store,
    help="Folder of an embedded store, or URL of a Qdrant server (key: QDRANT_API_KEY); with commas between, several "
    "nodes of a cluster.",
)


def shipped_model_option(help: str) -> Callable[[F], F]:  # noqa: A002 - click's name
    """`--model` with the shipped model as its default."""
    return click.option(
        "--model", envvar="PEARL_QDRANT_MODEL", show_envvar=True, default=DEFAULT_MODEL, show_default=True, help=help
    )


def device_of_environment() -> str:
    """The device of a command that is told none."""
    return os.environ.get("PEARL_QDRANT_DEVICE") or DEFAULT_DEVICE


def model_of_environment() -> str | None:
    """The model in place of a collection's own, for a command that is told none."""
    return os.environ.get("PEARL_QDRANT_MODEL") or None


def encoder_of_environment() -> dict[str, Any]:
    """Both, as arguments of the library."""
    return {"device": device_of_environment(), "model": model_of_environment()}


def check_folder_of(path: Path, what: str) -> None:
    """Refuse a file to write whose folder does not exist."""
    if not path.resolve().parent.is_dir():
        raise click.UsageError(f"Folder {path.parent} for the {what} does not exist: create it first.")


def threshold_option(default: str) -> Callable[[F], F]:
    """`--threshold`, with what counts where it is not given."""
    kind, text = click.FloatRange(0, 1), "Minimum probability of a link; below it there is none (NIL)."
    return click.option("--threshold", type=kind, show_default=default, help=text)


def named_option(*flags: str, names: Callable[[], Iterable[tuple[str, str]]], **attributes: Any) -> Callable[[F], F]:
    """An option whose value `help` prints the values that it takes, each with what it means, and ends."""

    def explain(context: click.Context, _: click.Parameter, value: Any) -> Any:
        if "help" in (value if isinstance(value, tuple) else (value,)) and not context.resilient_parsing:
            listed = [*names()]
            width = max(len(name) for name, _ in listed)
            echo(*(f"{name:<{width}}  {meaning}" for name, meaning in listed))
            context.exit()
        return value

    return click.option(*flags, is_eager=True, callback=explain, **attributes)


json_option: Callable[[F], F] = click.option("--json", "as_json", is_flag=True, help="Print JSON Lines.")


def yes_option(help: str = "Do not ask for confirmation.") -> Callable[[F], F]:  # noqa: A002 - click's name
    """`--yes`: go ahead without a question, or where the command refuses."""
    return click.option("--yes", is_flag=True, help=help)


class InputFile(click.File):
    """A file opened for reading bytes; - is standard input. A named pipe without a writer is reported."""

    def __init__(self) -> None:
        super().__init__("rb")

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        from ingest.io.streams import warn_while_waiting

        with warn_while_waiting(str(value)):
            return super().convert(value, param, ctx)


class Utf8File(io.RawIOBase):
    """An open file as UTF-8, whatever its encoding, which is found as that of a base. `found` says which one it was, if
    it is not UTF-8, when the part that shows it was read.
    """

    def __init__(self, file: BinaryIO) -> None:
        from ingest.io.encoding import OpenSource, Utf8Source

        self.name = name_of(file)
        self._source = Utf8Source(OpenSource(file, self.name))
        self._chunks, self._rest = self._source.chunks(), b""

    @property
    def found(self) -> str | None:
        return self._source.found

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        self._rest = self._rest or next(self._chunks, b"")
        some, self._rest = self._rest[: len(buffer)], self._rest[len(buffer) :]
        buffer[: len(some)] = some
        return len(some)


def name_of(file: BinaryIO) -> str:
    """The path of an open file, for errors; - for standard input."""
    name = str(getattr(file, "name", "-"))
    return "-" if name == "<stdin>" else name


def only_collection(location: str) -> str:
    """The only collection of a store, for a command without --collection."""
    from pearl_qdrant.store.open import use_store

    with use_store(location) as store:
        names = store.collections()
    if len(names) == 1:
        return names[0]
    if not names:
        raise click.UsageError(f"The store at {location} is empty. Fill it with: pearl-qdrant ingest FILE")
    raise click.UsageError(f"Choose a collection with --collection, one of: {', '.join(names)}")


@dataclass(frozen=True, slots=True)
class Target:
    """Which collections a command works on, and with which encoder.

    Attributes:
        store: Folder or URL.
        given: The collections that are named; none for the only one of the store.
        model: In place of the collection's own.
    """

    store: str
    given: tuple[str, ...] = ()
    model: str | None = None

    @property
    def names(self) -> tuple[str, ...]:
        """The collections that are named, or the only one of the store."""
        return self.given or (only_collection(self.store),)

    @property
    def has_several(self) -> bool:
        """Whether several collections are named, so that output tells their bases apart."""
        return len(set(self.given)) > 1

    def opening(self) -> dict[str, Any]:
        """The arguments that say where the collections are, and with what they are encoded."""
        return {"store": self.store, "model": self.model, "device": device_of_environment()}

    def open(self, *, threshold: float | None = None, read_only: bool = True) -> EntityLinker:
        from pearl_qdrant.linking.linker import EntityLinker

        return EntityLinker.open(*self.names, **self.opening(), threshold=threshold, read_only=read_only)


def target_options(*, many: bool = False) -> Callable[[F], F]:
    """A decorator that adds the options of a `Target`, which the command takes as `target`.

    Args:
        many: Whether the command searches several collections.
    """
    one = click.option("--collection", metavar="NAME", help="The collection; optional if the store has only one.")
    several = click.option("--collection", multiple=True, metavar="NAME", help="Collection to search; may be repeated.")

    def decorate(command: F) -> F:
        @wraps(command)
        def targeted(*, collection: str | tuple[str, ...] | None, store: str, **given: Any) -> Any:
            names = (collection,) if isinstance(collection, str) else collection or ()
            model = given.get("settings", {}).pop("model", None) or model_of_environment()
            return command(target=Target(store, names, model), **given)

        return cast("F", (several if many else one)(store_option(targeted)))

    return decorate


def report_newer_state(linker: EntityLinker) -> None:
    """Say on standard error if a collection changed after it was opened, so that a long run is not of its newest state.

    Args:
        linker: It has answered everything.
    """
    if linker.is_outdated:
        echo("A collection changed meanwhile. All answers are of its state at the beginning.", err=True)


@contextmanager
def progress_bar(doing: str, unit: str = " names") -> Iterator[Callable[[int, int], None]]:
    """Yield a function that moves a bar on stderr; nothing is shown where stderr is no terminal.

    Args:
        doing: Stands before the bar.
    """
    bars: list[Any] = []

    def report(done: int, total: int) -> None:
        if not bars:
            bars.append(counting_bar(doing, unit, total))
        bars[0].total = total
        bars[0].update(done - bars[0].n)

    try:
        yield report
    finally:
        for bar in bars:
            bar.close()


@contextmanager
def needs_extra(extra: str) -> Iterator[None]:
    """Turn a missing library of an extra into an error that says what to install."""
    try:
        yield
    except ModuleNotFoundError as error:
        raise ModelError(
            f"{error.name} is not installed, and this command needs it. Install it with: {install_command(extra)}"
        ) from error
