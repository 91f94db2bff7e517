"""Every error that pearl-qdrant raises on purpose.

    PearlQdrantError
    ├── SettingsError            an option or environment variable is not valid
    │   └── OptionError          an option does not fit the input or the collection; also a ValueError
    ├── ModelError
    │   ├── ModelNotFoundError   no shipped model, folder or hub id of that name
    │   ├── CheckpointError      a checkpoint file is missing, truncated, changed or foreign
    │   └── DeviceError          the requested device is not available
    ├── StoreError
    │   ├── CollectionNotFoundError
    │   │   └── NoCurrentVersionError  what names its current version on a server is lost
    │   ├── CollectionExistsError
    │   ├── ManifestError        a collection without a manifest, or with an unreadable one
    │   ├── ModelMismatchError   the collection was made by another model
    │   ├── IncompleteError      a load or an update of the collection did not finish
    │   ├── StoreLockedError     another process has the embedded collection open for writing
    │   ├── CollectionMovedError another version of the collection took its place; open it again
    │   ├── ReadOnlyError        a change of something that was opened read-only
    │   ├── StoreForkedError     a handle of another process was used in its fork
    │   ├── StoreClosedError     a store, collection or writer was used after it was closed
    │   ├── StoreUnavailableError  no answer after all retries; trying later can help
    │   ├── ShardUnavailableError  a node of a cluster that has a shard does not answer
    │   ├── StoreRejectedError   the store refused the request; trying again cannot help
    │   │   └── AccessRefusedError  the server refused the key
    │   ├── StoreFullError       no space left on the device
    │   └── InvalidPointError    a vector or payload that must not be stored
    ├── InputError               a file cannot be read; has path and line
    │   ├── FormatError          the file has another format than expected
    │   ├── TooManyErrorsError   more bad rows than allowed
    │   ├── EmptyBaseError       no entity is left to load
    │   └── MissingDataError     a folder has none of the evaluation's files
    ├── TrainingError            a run cannot continue: it diverged, or its folder holds another run
    ├── UnknownTypeError         a filter for a type that no entity has
    ├── CalibrationError         too few labelled mentions, or a precision that no threshold reaches
    ├── LearningError            names cannot be learned: unknown ids, learned already, no such batch
    ├── EntityNotFoundError
    ├── InvalidEntityError       a new entity is not valid; also a TypeError and a ValueError
    ├── JudgeError               a judge of the caller's raised an error, or its answer is none
    ├── LinkerClosedError        a linker was used after it was closed
    └── WorkerError              a worker process that links mentions ended, or could not start

A wrong argument of a Python call is a ``ValueError``. Messages say what happened, with the values, and what to do; the
values are attributes too. A message does not name a command-line flag: `option` names the argument that would help,
and the command line adds its flag.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from difflib import get_close_matches


class PearlQdrantError(Exception):
    """Base of all errors that this package raises on purpose.

    Attributes:
        option: Name of the argument that would help, as in "store"; None if there is none.
        message: What happened, without `advice`, which is for those who have a shell: a service tells its clients this.
    """

    def __init__(self, message: str = "", *, option: str | None = None, advice: str = "") -> None:
        super().__init__(f"{message} {advice}".rstrip())
        self.option, self.message = option, message

    def __reduce__(self) -> tuple[object, ...]:
        """As its attributes, not as what made them: errors of worker processes arrive as they were raised."""
        return _remade, (type(self), self.args, self.__dict__)


def _remade(kind: type[PearlQdrantError], args: tuple[object, ...], attributes: dict[str, object]) -> PearlQdrantError:
    error = kind.__new__(kind, *args)
    error.args = args
    error.__dict__.update(attributes)
    return error


class SettingsError(PearlQdrantError):
    """An option or environment variable is not valid."""


class OptionError(SettingsError, ValueError):
    """An option does not fit the input or the collection."""

    option: str

    def __init__(self, option: str, message: str) -> None:
        super().__init__(message, option=option)


class ModelError(PearlQdrantError):
    """Base of the errors about a model."""


class ModelNotFoundError(ModelError):
    """No model of that name: it is not shipped, not a folder, and not on the hub or in its cache."""

    def __init__(self, model: str, message: str) -> None:
        super().__init__(message)
        self.model = model


class CheckpointError(ModelError):
    """A file of a checkpoint folder is missing, truncated, changed or foreign."""

    def __init__(self, path: str, message: str) -> None:
        super().__init__(f"{path}: {message}")
        self.path = path


class DeviceError(ModelError):
    """The requested device is not available, or its runtime is not installed."""

    def __init__(self, device: str, message: str) -> None:
        super().__init__(message)
        self.device = device


class StoreError(PearlQdrantError):
    """Base of the errors about a store."""


class CollectionNotFoundError(StoreError):
    """The collection does not exist; the message lists those that do."""

    def __init__(self, collection: str, existing: Iterable[str] = ()) -> None:
        self.collection, self.existing = collection, tuple(existing)
        others = ", ".join(self.existing) or "none"
        super().__init__(
            f"Collection '{collection}' does not exist (there are: {others}).",
            advice="Create it with pearl-qdrant ingest, or in Python with pearl_qdrant.load_base.",
        )


class NoCurrentVersionError(CollectionNotFoundError):
    """A collection has versions on a server (`existing`), but what says which one is current is lost, as `why` says."""

    def __init__(self, collection: str, existing: Iterable[str], why: str = "", *, advice: str = "") -> None:
        self.collection, self.existing = collection, tuple(existing)
        lost = why or f"its alias '{collection}' is missing"
        StoreError.__init__(
            self,
            f"Nobody knows which version of collection '{collection}' is current: {lost}. Nothing was "
            f"deleted now. On the server there are: {', '.join(self.existing)}. "
            + (advice or f"Let an alias '{collection}' name one of them (POST /collections/aliases)."),
        )


class CollectionExistsError(StoreError):
    """A collection of that name exists already."""

    def __init__(self, collection: str, *, option: str | None = None) -> None:
        self.collection = collection
        super().__init__(
            f"Collection '{collection}' exists already.",
            option=option,
            advice=f"Choose another name, or delete it with: pearl-qdrant collections delete {collection}",
        )


class ManifestError(StoreError):
    """The collection has no manifest, or an unreadable one: another program made it, or the manifest is damaged."""

    def __init__(self, collection: str, reason: str, *, is_other_version: bool = False) -> None:
        self.collection, self.reason = collection, reason
        advice = "another program made it, or the manifest is damaged. Nothing was changed. Restore it from a copy, or "
        if is_other_version:
            advice = "another version of pearl-qdrant made it. Nothing was changed. Ingest the base again, or "
        super().__init__(
            f"Collection '{collection}' has no usable manifest ({reason}): {advice}use another collection."
        )


class ModelMismatchError(StoreError):
    """A collection holds vectors of another model (`expected`) than the one in use (`actual`), with dims and hashes."""

    def __init__(self, collection: str, *, expected: str, actual: str, expected_name: str) -> None:
        self.collection, self.expected, self.actual = collection, expected, actual
        advice = f"Query with the model {expected_name}"
        if actual.partition(" (")[0] == expected_name:
            advice = "The model of that name has changed since: query with the old one"
        super().__init__(
            f"Collection '{collection}' holds vectors of {expected}, but the model in use is {actual}.",
            option="model",
            advice=f"{advice}, or encode its names again with another model: "
            f"pearl-qdrant reencode {collection} --model MODEL",
        )


class CollectionMovedError(StoreError):
    """Another version of a collection took the place of the one that is open: what was written may not count."""

    def __init__(self, collection: str) -> None:
        self.collection = collection
        super().__init__(
            f"Collection '{collection}' was replaced by another version of it while it was open here. Open it again, "
            f"and repeat the last change."
        )


class IncompleteError(StoreError):
    """A load or an update of `collections` did not finish, and the caller asked for complete collections only."""

    def __init__(self, collections: Iterable[str], warnings: Iterable[str]) -> None:
        self.collections = tuple(collections)
        super().__init__(" ".join(warnings))


class StoreLockedError(StoreError):
    """Another process has the embedded collection open for writing."""

    def __init__(self, collection: str, owner: str) -> None:
        self.collection, self.owner = collection, owner
        super().__init__(
            f"Collection '{collection}' is open for writing in another process ({owner}). One process writes at a "
            f"time: end that one, open the collection read-only to search it, or use a Qdrant server as the store, as "
            f"in http://localhost:6333.",
            option="store",
        )


class ReadOnlyError(StoreError):
    """A change of `collections` that were opened read-only, with what was tried in `doing`."""

    def __init__(self, collections: Iterable[str], doing: str) -> None:
        self.collections, self.doing = tuple(collections), doing
        super().__init__(
            f"{', '.join(self.collections)} is open read-only, which does not allow {doing}. Open it for writing, as "
            f"with EntityLinker.open(..., read_only=False)."
        )


class StoreForkedError(StoreError):
    """A handle (`what`) that one process (`owner`) opened was used in a process (`pid`) that was forked from it."""

    def __init__(self, what: str, *, owner: int, pid: int) -> None:
        self.what, self.owner, self.pid = what, owner, pid
        super().__init__(
            f"{what} was opened by process {owner} and cannot be used by process {pid}, which was forked from it. Open "
            f"it in this process (an embedded one after process {owner} has closed it), or start processes with "
            f"multiprocessing's 'spawn' method."
        )


class StoreClosedError(StoreError):
    """A store, a collection or a writer was used after it was closed, or a writer before it was entered."""


class StoreUnavailableError(StoreError):
    """The store did not answer after all retries, which took `seconds`; `last` is the error of the last one."""

    def __init__(
        self,
        url: str,
        *,
        tries: int,
        seconds: float,
        last: str,
        limits_rate: bool = False,
        advice: str = "Start it with: docker compose up -d",
    ) -> None:
        self.url, self.tries, self.seconds, self.last = url, tries, seconds, last
        tried = f"{tries} {'try' if tries == 1 else 'tries'} in {seconds:.0f} s (last: {last}). {advice}"
        if limits_rate:
            super().__init__(f"Qdrant at {url} limits the rate of requests, and had no room for one after {tried}")
        else:
            super().__init__(f"Qdrant at {url} did not answer after {tried}")


class ShardUnavailableError(StoreError):
    """A node of a cluster, at `url`, answers, but another one that has a shard of the collection does not."""

    def __init__(self, url: str, collection: str | None, *, tries: int, last: str) -> None:
        self.url, self.collection, self.tries, self.last = url, collection, tries, last
        what = f"a shard of collection '{collection}'" if collection else "a shard"
        super().__init__(
            f"Qdrant at {url} answers, but {what} is on a node that does not ({last}; {tries} tries).",
            advice="Start the node again. A collection with 2 replicas can be searched without it. "
            "See: pearl-qdrant doctor",
        )


class StoreRejectedError(StoreError):
    """The store refused a request; sending it again cannot help."""


class AccessRefusedError(StoreRejectedError):
    """The server refused the key, or wants one."""


class StoreFullError(StoreError):
    """No space is left on the store's disk."""


class InvalidPointError(StoreError):
    """A vector or payload that must not be stored (NaN, zero, wrong width, lone surrogate)."""


_MAX_MESSAGE = 2_000
"""Characters of a message about an input; a library's may hold a word of a megabyte."""


class InputError(PearlQdrantError):
    """An input cannot be read: a file, ``-`` for standard input, and a line from 1, or None for the whole file."""

    def __init__(self, path: str, line: int | None, message: str, *, option: str | None = None) -> None:
        self.path, self.line = path, line
        if len(message) > _MAX_MESSAGE:
            message = f"{message[: _MAX_MESSAGE // 2]} ... {message[-_MAX_MESSAGE // 2 :]}"
        super().__init__(f"{path}: {message}" if line is None else f"{path}:{line}: {message}", option=option)


class FormatError(InputError):
    """The file has another format than expected."""


class TooManyErrorsError(InputError):
    """More bad rows than allowed."""


class EmptyBaseError(InputError):
    """No entity of a base is left to load; `skip_counts` has the skipped rows, by reason."""

    def __init__(self, paths: Iterable[str], skip_counts: Mapping[str, int]) -> None:
        self.skip_counts = dict(skip_counts)
        reasons = ", ".join(f"{reason} {n:,}" for reason, n in sorted(self.skip_counts.items()))
        super().__init__(" ".join(paths), None, f"no entity is left (skipped: {reasons or 'nothing'})")


class MissingDataError(InputError):
    """A folder has none of the evaluation's files."""


class TrainingError(PearlQdrantError):
    """A training run cannot continue: its loss is not a number, or its folder holds another run."""


class CalibrationError(PearlQdrantError):
    """The linker cannot be calibrated: too few mentions, unknown ids, or a precision that no threshold reaches."""


class LearningError(PearlQdrantError):
    """Names cannot be learned or unlearned: unknown ids, learned already, no such batch."""


class EntityNotFoundError(PearlQdrantError):
    """No open collection has an entity of that id."""

    def __init__(self, entity_id: str, collections: Iterable[str]) -> None:
        self.entity_id, self.collections = entity_id, tuple(collections)
        super().__init__(
            f"No entity '{entity_id}' in {', '.join(self.collections)}.",
            advice="Ids are case-sensitive; find one with: pearl-qdrant link NAME",
        )


class InvalidEntityError(PearlQdrantError, TypeError, ValueError):
    """A new entity is not an `Entity`, or has no id or name."""


class JudgeError(PearlQdrantError):
    """A judge of the caller's raised an error, or what it returned is no answer."""


class LinkerClosedError(PearlQdrantError):
    """A linker to `collections` was used after it was closed."""

    def __init__(self, collections: Iterable[str]) -> None:
        self.collections = tuple(collections)
        super().__init__(
            f"The linker to {', '.join(self.collections)} is closed. Use it within its `with` block, or open another "
            f"one with EntityLinker.open."
        )


class WorkerError(PearlQdrantError):
    """A worker process that links mentions could not start, or ended before it answered."""

    def __init__(self, message: str) -> None:
        super().__init__(message, option="workers")


class UnknownTypeError(PearlQdrantError):
    """No entity in the open collections has that type."""

    def __init__(self, type_name: str, collections: Iterable[str], known: Iterable[str]) -> None:
        self.type_name, self.collections = type_name, tuple(collections)
        by_folded = {name.casefold(): name for name in sorted(known)}
        folded = get_close_matches(type_name.casefold(), by_folded, n=3, cutoff=0.6)
        self.near = tuple(by_folded[name] for name in folded)
        hint = f" Similar: {', '.join(self.near)}." if self.near else ""
        super().__init__(
            f"No entity of type '{type_name}' in {', '.join(self.collections)}.{hint}",
            advice=f"List all types with: pearl-qdrant collections show {self.collections[0]}",
        )
