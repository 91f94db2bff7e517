"""The writer's side of what is published: it commits, and after a kill goes back to the last commit.

The engine itself keeps all that was written, also the first half of an edit: new names of an entity beside its old
ones. So after a kill what is published takes the place of the shard.
"""

from __future__ import annotations

import logging
import os
import shutil
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
from qdrant_edge import EdgeShard

from pearl_qdrant.errors import StoreError
from pearl_qdrant.store.atomic import sync_folder, write_atomically
from pearl_qdrant.store.edge import shard as edge_shard
from pearl_qdrant.store.edge.checksums import (
    CHECKSUMS_FILE,
    Verified,
    read_checksums,
    remove_checksums,
    sums_of,
    write_checksums,
)
from pearl_qdrant.store.edge.content import (
    INDEX_FILE,
    MANIFEST_FILE,
    PUBLISHED_FILE,
    PUBLISHED_FOLDER,
    SHARD_FOLDER,
    Published,
    boot_id,
    new_token,
    read_published,
    write_published,
)
from pearl_qdrant.store.edge.ledger import LEDGER_FILE
from pearl_qdrant.store.edge.placing import copy_file, make_log, place, shard_files, without_log

_NEW, _OLD = ".restored", ".replaced"  # folders beside the shard, while a killed writer's is replaced

log = logging.getLogger(__name__)


@dataclass(slots=True)
class Publisher:
    """The writer's side. Its user protects it from threads, and has the lock of the collection.

    No method fails if something cannot be published, as on a full disk: the writer goes on, the log has a warning, and
    readers keep the last state.

    Attributes:
        path: Folder of the collection.
        name: Its name.
    """

    path: Path
    name: str
    _state: Published = field(default_factory=lambda: Published(new_token()))
    _unchanged: Verified | None = None  # the closed collection, until the first change
    _is_changed: bool = False
    _needs_files: bool = False  # the published files are not those of the shard
    _is_warned: bool = False

    def begin(self, verified: Verified) -> bool:
        """Publish a collection before the shard is opened, or keep what a killed writer published.

        If opening leaves the files as they are, the closed collection is the state until `before_change`.

        Args:
            verified: What its checksums say.

        Returns:
            Whether its checksums stay.
        """
        found = read_published(self.path)
        if verified.is_settled and (found is None or found.folder is None):
            self._state = found or self._state
            self._unchanged = verified
        elif verified.sums is not None:
            self._publish_closed(found.token if found else new_token())
        elif found is not None and restore(self.path, self.name, found):
            self._state = found
        else:
            # What was acknowledged after the last commit is in the shard now: the next commit publishes it.
            self._state = found or self._state
            self._is_changed = self._needs_files = True
        self._remove_others()
        return self._unchanged is not None

    def before_change(self) -> None:
        """Publish the closed collection, if that is still to do: its files or its manifest change now.

        Raises:
            StoreError: If its checksums cannot be removed. Then nothing may change.
        """
        if self._unchanged is None:
            return
        self._publish_closed(self._state.token)
        self._withdraw_closed("writing to it")

    def check_opened(self) -> None:
        """Note that Edge changed files while it opened them, as another version of it may: the next commit publishes.

        Raises:
            StoreError: If the checksums cannot be removed.
        """
        if self._unchanged is not None and not self._is_as_closed():
            self._withdraw_closed("opening it")
            self.changed_files()

    def _withdraw_closed(self, doing: str) -> None:
        """Say that the files of the shard are no longer the state."""
        try:
            remove_checksums(self.path)
        except OSError as error:
            raise edge_shard.os_error(error, self.name, doing) from error
        self._unchanged = None

    def _is_as_closed(self) -> bool:
        """Whether nothing changed since the collection was closed, and its files are still the same."""
        with suppress(OSError):
            return self._unchanged is not None and self._unchanged.sums == sums_of(self.path / SHARD_FOLDER)
        return False

    @property
    def is_published(self) -> bool:
        """Whether readers find a state while the collection is open."""
        return self._unchanged is not None or self._state.folder is not None

    @property
    def token(self) -> str | None:
        """What names the published state; None if there is a newer one, which is not published."""
        return self._state.token if self.is_published and not self._is_changed else None

    def changed(self) -> None:
        """Note a change of the manifest or of the ledger."""
        self._is_changed = True

    def hand_over(self) -> None:
        """Note that a child changes the shard from now on: if it is killed, what it stored is kept."""
        self.changed_files()
        self._keep_shard()

    def changed_files(self) -> None:
        """Note that the files of the shard change."""
        self._is_changed = self._needs_files = True

    def commit(self, shard: EdgeShard) -> None:
        """Publish what changed since the last commit; nothing if nothing did. The shard is open and nobody uses it."""
        if not self._is_changed:
            return
        if self._needs_files:
            try:
                shard.flush()
            except Exception as error:  # noqa: BLE001 - Edge raises nothing else; the next write reports it
                self._keep_shard()
                self._warn(error)
                return
            self._publish(new_token(), lambda target: write_checksums(target / SHARD_FOLDER))
            self._remove_others()
            return
        try:
            self._write(self._content(Published(new_token(), self._state.folder)))
        except (OSError, ValueError) as error:
            self._needs_files = True
            self._keep_shard()
            self._warn(error)

    def end(self, *, is_settled: bool) -> None:
        """Write the checksums of the closed shard, and withdraw what is published; else leave it for readers.

        Args:
            is_settled: As for `write_checksums`.
        """
        if self._is_as_closed() or not write_checksums(self.path / SHARD_FOLDER, is_settled=is_settled):
            return
        token = new_token() if self._is_changed else self._state.token
        try:
            self._write(Published(token))
        except OSError as error:
            self._warn(error)
        else:
            shutil.rmtree(self.path / PUBLISHED_FOLDER, ignore_errors=True)

    def _publish_closed(self, token: str) -> None:
        self._publish(token, lambda target: copy_file(self.path / CHECKSUMS_FILE, target / CHECKSUMS_FILE))

    def _publish(self, token: str, write_sums: Callable[[Path], object]) -> None:
        """Publish the files as they are now."""
        folder = new_token()
        made = self.path / PUBLISHED_FOLDER / f".{folder}"
        shard = self.path / SHARD_FOLDER
        try:
            (made / SHARD_FOLDER).mkdir(parents=True)
            place(shard, shard_files(shard), made / SHARD_FOLDER, only_hard_links=True)
            write_sums(made)
            made.rename(made.with_name(folder))
            self._write(self._content(Published(token, folder)))
        except (OSError, ValueError) as error:  # ValueError: a manifest that is no valid text
            shutil.rmtree(made, ignore_errors=True)
            self._needs_files = self._is_changed = True
            if self._state.folder is None:  # say it to readers, who else wait in vain
                with suppress(OSError):
                    self._write(Published(token, problem=str(error)))
            self._keep_shard()
            self._warn(error)
        else:
            self._needs_files = False

    def _keep_shard(self) -> None:
        """Say that the shard has what is not published; if that cannot be written, nothing is published any more."""
        state, is_changed = self._state, self._is_changed
        if state.folder is None or state.keeps_shard:
            return
        try:
            self._write(msgspec.structs.replace(state, keeps_shard=True))
        except OSError:
            with suppress(OSError):
                (self.path / PUBLISHED_FILE).unlink()
        self._is_changed = is_changed

    def _content(self, state: Published) -> Published:
        """A state with the manifest, the state of the graph and the length of the ledger as they are now."""
        index, ledger = self.path / INDEX_FILE, self.path / LEDGER_FILE
        return msgspec.structs.replace(
            state,
            manifest=(self.path / MANIFEST_FILE).read_text("utf-8"),
            index=index.read_text("utf-8", "replace") if index.is_file() else "",
            ledger_bytes=ledger.stat().st_size if ledger.is_file() else 0,
            boot=boot_id(),
        )

    def _write(self, state: Published) -> None:
        write_published(self.path, state)
        self._state, self._is_changed = state, False

    def _remove_others(self) -> None:
        """Remove files of earlier states. A reader that is opening them begins again."""
        for folder in (self.path / PUBLISHED_FOLDER).glob("*"):
            if folder.name != self._state.folder:
                shutil.rmtree(folder, ignore_errors=True)

    def _warn(self, error: Exception) -> None:
        if self._is_warned:
            return
        self._is_warned = True
        log.warning("Collection '%s' cannot be published for readers, who keep its last state (%s)", self.name, error)


def restore(path: Path, name: str, state: Published) -> bool:
    """Replace the shard, the manifest and the ledger by a committed state.

    Args:
        path: Folder of the collection, which is locked, and was not closed.
        name: Its name.
        state: What is published of it.

    Returns:
        Whether it was done. Else the collection is as the killed process left it: nothing was published, a load was
        running, the machine has been restarted since, or the disk is full.
    """
    for folder in (_NEW, _OLD):
        shutil.rmtree(path / folder, ignore_errors=True)
    if state.folder is None or state.keeps_shard or not state.boot or state.boot != boot_id():
        return False
    try:
        _make_shard(path / PUBLISHED_FOLDER / state.folder, path / _NEW)
        _replace_shard(path)
        _restore_others(path, state)
    except (OSError, ValueError, StoreError) as error:
        shutil.rmtree(path / _NEW, ignore_errors=True)
        log.warning("Collection '%s' cannot be brought back to its last commit: %s", name, error)
        return False
    return True


def _make_shard(published: Path, shard: Path) -> None:
    """Make a shard of the published files."""
    sums = read_checksums(published)
    if sums is None or without_log(sums) != sums_of(published / SHARD_FOLDER):
        raise ValueError("its published files are not complete")
    place(published / SHARD_FOLDER, without_log(sums), shard, only_hard_links=True)
    make_log(shard)


def _replace_shard(path: Path) -> None:
    """Exchange the folders. If this process dies in between, the next one makes the shard again."""
    with suppress(FileNotFoundError):
        (path / SHARD_FOLDER).rename(path / _OLD)
    try:
        (path / _NEW).rename(path / SHARD_FOLDER)
    except OSError:
        (path / _OLD).rename(path / SHARD_FOLDER)
        raise
    sync_folder(path)
    shutil.rmtree(path / _OLD, ignore_errors=True)


def _restore_others(path: Path, state: Published) -> None:
    """Restore the manifest, the state of the graph, and the ledger, which only grows."""
    write_atomically(path / MANIFEST_FILE, state.manifest)
    if state.index:
        write_atomically(path / INDEX_FILE, state.index)
    else:
        (path / INDEX_FILE).unlink(missing_ok=True)
    with suppress(FileNotFoundError):
        # Without a committed line, it may be the kept ledger of a collection that was made again.
        if 0 < state.ledger_bytes < (path / LEDGER_FILE).stat().st_size:
            os.truncate(path / LEDGER_FILE, state.ledger_bytes)
