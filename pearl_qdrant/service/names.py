"""Type-ahead over the names of a collection: prefixes of names and of their words, and prefixes with a slip.

The index of one state of a collection is an SQLite file that is written once and read by all workers:

    entities    what is shown of each, as JSON
    names       as they are written, with their entity
    starts      the names by their words: what follows from each word on is a text; rows are numbered by what to show
                first
    texts       all texts, sorted
    found       FTS5: each text is one token, so that a prefix of it is a prefix of a token; beside it are the types of
                its entity. Answers come in the order of `starts`, so that the ten best of 100,000 names that begin with
                a letter take no longer than those of a rare one.
"""

from __future__ import annotations

import hashlib
import json
import logging
import multiprocessing
import os
import sqlite3
import stat
import sys
import tempfile
import threading
import unicodedata
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, fields, replace
from functools import lru_cache
from multiprocessing.process import BaseProcess
from pathlib import Path

import msgspec
import orjson
import portalocker
from rapidfuzz.distance import Prefix

from pearl_qdrant.errors import StoreError
from pearl_qdrant.lexical.ngrams import fold_name
from pearl_qdrant.settings import ServerAccess
from pearl_qdrant.store.open import open_store
from pearl_qdrant.store.protocol import Collection
from pearl_qdrant.store.schema import NamePoint

log = logging.getLogger(__name__)

MAX_BYTES = 120  # Only so much of a folded name is indexed and looked for; nobody types more
MAX_WORDS = 8  # Only so many words of a name can be its start for the search
MIN_SLIP_CHARACTERS = 4  # A shorter query is a prefix of so many names that a slip says nothing
ENOUGH = 3  # Entities without a slip from which on none with a slip are looked for: that takes most of the time
MIN_TWO_SLIPS_CHARACTERS = 12  # From this length on, a query without any answer may have two slips

MAX_SLIP_BYTES = 48
"""A longer query is pasted, not typed: no spelling of it is tried, since their number and length grow with it."""

IN_PROCESS_NAMES = 20_000
"""Up to this many names an index is built here: it takes less time than a child process takes to start."""

KEPT_LETTERS = 20_000
"""Characters whose folded form is kept; those of most scripts, while clients may send any of a million."""

_MOST_HALVES = 4  # Spellings with the first of two slips that are followed
_MOST_FOLLOWING = 100  # Characters that a slip may have put in at a place; a script of thousands has more
_KEPT = 2  # Indexes of former states of a collection that stay, for workers that still read them
_VERSION = 4  # Of the files; one of another version is built again

_GREEK = range(0x370, 0x400)
_KEPT_SIGNS = frozenset("#%&@")
_DROPPED = frozenset("'\u2019\u2018`\u00ad")


@lru_cache(KEPT_LETTERS)
def _fold_character(character: str) -> str:
    if character in _DROPPED or unicodedata.category(character) in ("Mn", "Cf"):
        return ""
    if ord(character) in _GREEK and (spelled := fold_name(character)):
        return spelled
    plain = unicodedata.normalize("NFKD", character.casefold())
    kept = "".join(c for c in plain if unicodedata.category(c) != "Mn")
    return "".join(c if _is_kept(c) else " " for c in kept.casefold())


def _is_kept(character: str) -> bool:
    return character.isalnum() or character in _KEPT_SIGNS or unicodedata.category(character) in ("Sm", "Sc", "So")


def fold(text: str) -> str:
    """The folded form: words of letters, digits and symbols, with single spaces; "" if there are none.

    Greek letters are spelled out, as in `lexical.ngrams.fold_name`. Numbers stay as they are, since a word that is
    being typed may not be complete.
    """
    return " ".join("".join(map(_fold_character, text)).split())


def _key(text: str) -> str:
    """The folded form, cut to what is indexed."""
    return fold(text).encode("utf-8", "ignore")[:MAX_BYTES].decode("utf-8", "ignore")


# The signs that a text may have count as letters: all of it is one token. ":" comes from no name, and marks types.
_SCHEMA = """
PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF; PRAGMA temp_store = FILE;
CREATE TABLE entities (id INTEGER PRIMARY KEY, record BLOB);
CREATE TABLE names (id INTEGER PRIMARY KEY, name TEXT, entity INTEGER);
CREATE TABLE starts (rank INTEGER PRIMARY KEY, name INTEGER);
CREATE TABLE texts (text TEXT PRIMARY KEY) WITHOUT ROWID;
CREATE TABLE types (name TEXT PRIMARY KEY, id INTEGER) WITHOUT ROWID;
CREATE VIRTUAL TABLE found USING fts5(text, content = '', columnsize = 0, detail = none, prefix = '1 2 3 4 5',
    tokenize = "ascii tokenchars ' #%&@+<=>|~$:'");
CREATE TEMP TABLE read (text TEXT, name INTEGER, types TEXT, word INTEGER, popularity REAL, is_alias INTEGER,
    length INTEGER);
"""

_RANKED = """
INSERT INTO texts SELECT DISTINCT text FROM read ORDER BY text;
CREATE TEMP TABLE ranked (rank INTEGER PRIMARY KEY, text TEXT, name INTEGER, types TEXT);
INSERT INTO ranked (text, name, types) SELECT text, name, types FROM read
    ORDER BY word > 0, popularity DESC, is_alias, length, name, word;
INSERT INTO starts SELECT rank, name FROM ranked;
INSERT INTO found (rowid, text) SELECT rank, text || char(10) || types FROM ranked;
INSERT INTO found (found) VALUES ('optimize');
"""


def build_index(points: Iterable[NamePoint], path: Path) -> None:
    """Write the index of some names; the file appears when it is whole. Raises OSError if it cannot be written."""
    path.parent.mkdir(parents=True, exist_ok=True)
    made = path.with_name(f".{path.name}-{uuid.uuid4().hex[:8]}")
    try:
        with closing(sqlite3.connect(made, isolation_level=None)) as db:
            db.executescript(_SCHEMA)
            db.execute("BEGIN")
            _write_names(db, points)
            db.executescript(f"BEGIN; {_RANKED} COMMIT;")
        made.replace(path)
    except sqlite3.Error as error:
        raise OSError(f"the index {made} cannot be written: {error}") from error
    finally:
        made.unlink(missing_ok=True)


def _write_names(db: sqlite3.Connection, points: Iterable[NamePoint]) -> None:
    entities: dict[tuple[str, str], tuple[int, str]] = {}
    types: dict[str, int] = {}

    def rows() -> Iterator[tuple[object, ...]]:
        for number, (point, text) in enumerate((one, text) for one in points if (text := _key(one.name))):
            if (key := (point.kb, point.entity_id)) not in entities:
                of_type = "\n".join(f":{types.setdefault(one, len(types))}" for one in point.filter_types)
                entities[key] = len(entities), of_type
                db.execute("INSERT INTO entities VALUES (?, ?)", (entities[key][0], _record(point)))
            entity, of_type = entities[key]
            name = point.name.encode("utf-8", "replace").decode()
            db.execute("INSERT INTO names VALUES (?, ?, ?)", (number, name, entity))
            popularity = -1.0 if point.popularity is None else point.popularity
            at, length = 0, len(text.encode())
            for word in range(MAX_WORDS):
                yield text[at:], number, of_type, word, popularity, not point.is_canonical, length
                if (at := text.find(" ", at) + 1) == 0:
                    break

    db.executemany("INSERT INTO read VALUES (?, ?, ?, ?, ?, ?, ?)", rows())
    db.executemany("INSERT INTO types VALUES (?, ?)", types.items())


_FOLLOWING = """
WITH RECURSIVE following (place, prefix, text, n) AS (
    SELECT key, value, (SELECT text FROM texts WHERE text > value ORDER BY text LIMIT 1), 1 FROM json_each(?)
    UNION ALL
    SELECT place, prefix, (SELECT texts.text FROM texts WHERE texts.text >= prefix
        || char(unicode(substr(following.text, length(prefix) + 1, 1)) + 1) ORDER BY texts.text LIMIT 1), n + 1
    FROM following WHERE n <= ? AND substr(following.text, 1, length(prefix)) = prefix)
SELECT place, text FROM following WHERE substr(text, 1, length(prefix)) = prefix
"""


@dataclass(frozen=True, slots=True)
class FoundName:
    """An entity that has a name like the query.

    Attributes:
        entity_id, kb, canonical_name, types, kb_types, description, popularity: As in `records.Candidate`.
        name: The name that was found.
        match: "name": it is the query; "prefix": it, or one of its words, starts with the query; "slip": it does with
            one letter changed, missing, added, or two swapped.
    """

    entity_id: str
    kb: str
    canonical_name: str
    types: tuple[str, ...]
    kb_types: tuple[str, ...]
    description: str | None
    popularity: float | None
    name: str = ""
    match: str = ""


_SHOWN = tuple(one.name for one in fields(FoundName) if one.name not in ("name", "match"))
_read_record = msgspec.json.Decoder(FoundName).decode


def _record(point: NamePoint) -> bytes:
    """What is shown of an entity."""
    return orjson.dumps({name: getattr(point, name) for name in _SHOWN})


class NameIndex:
    """Finds names in the file of an index; for one thread at a time."""

    def __init__(self, path: Path) -> None:
        address = f"{path.absolute().as_uri()}?mode=ro&immutable=1"
        self._db = sqlite3.connect(address, uri=True, check_same_thread=False, isolation_level=None)
        self._db.execute("PRAGMA mmap_size = 1073741824")
        self._types = dict(self._db.execute("SELECT name, id FROM types"))

    def __del__(self) -> None:
        if hasattr(self, "_db"):  # not before: a search of another thread may go on beside a newer index
            self._db.close()

    def find(self, query: str, *, types: Sequence[str] = (), limit: int = 10) -> list[FoundName]:
        """Entities with a name like the query, each once, best first; `types`: only entities of one of these, empty for
        all.

        First those whose name, or the rest of it from a word on, is the query; then those where it starts with the
        query; if there are fewer than `ENOUGH`, and none is the query, those where it does with one slip, which is not
        in the last letter unless there are no others. Of a query over `MAX_BYTES` the start is looked for, and one over
        `MAX_SLIP_BYTES` has no slips.
        """
        text = _key(query)
        wanted = [f'":{number}"' for one in set(types) if (number := self._types.get(one)) is not None]
        if not text or (types and not wanted):
            return []
        found: dict[int, tuple[str, str]] = {}
        typed = f"({' OR '.join(wanted)})" if types else ""
        self._take(found, [f'"{text}"'], typed, limit, "name")
        is_name = bool(found)  # what is a name as it stands has no slip
        self._take(found, [f'"{text}"*'], typed, limit, "prefix")
        if len(text.encode()) <= MAX_SLIP_BYTES and not is_name and len(found) < min(limit, ENOUGH):
            # Beside names without a slip, another last letter would only undo what was typed last.
            until = len(text) - 1 if found else len(text)
            slips = self._slips(text, 0, until) if len(text) >= MIN_SLIP_CHARACTERS else []
            self._take_slips(found, slips, typed, limit)
            if not found and len(text) >= MIN_TWO_SLIPS_CHARACTERS:
                self._take_slips(found, self._two_slips(text), typed, limit)
        return [self._record(entity, name, match) for entity, (name, match) in found.items()]

    def _take(
        self, found: dict[int, tuple[str, str]], tokens: Sequence[str], typed: str, limit: int, match: str
    ) -> None:
        """Add the best entities that have one of some tokens, until there are `limit`."""
        if not tokens or len(found) >= limit:
            return
        any_of = f"({' OR '.join(tokens)})"
        rows = self._db.execute(
            "SELECT names.entity, names.name FROM found JOIN starts ON starts.rank = found.rowid "
            "JOIN names ON names.id = starts.name WHERE found MATCH ? ORDER BY found.rowid",
            (f"{any_of} AND {typed}" if typed else any_of,),
        )
        for entity, name in rows:
            if entity not in found:
                found[entity] = name, match
                if len(found) >= limit:
                    return

    def _take_slips(self, found: dict[int, tuple[str, str]], slips: Sequence[str], typed: str, limit: int) -> None:
        """Add entities whose text starts with one of some spellings: those that end there, then whole words."""
        for form in ('"{}"', '"{} "*', '"{}"*'):
            self._take(found, [form.format(one) for one in slips], typed, limit, "slip")

    def _slips(self, text: str, start: int, until: int) -> list[str]:
        """The prefixes of names that are one edit from a text, between two of its characters."""
        near = [one for one, _ in self._edited(text, start, until)]
        rows = self._db.execute(
            "SELECT value, (SELECT text FROM texts WHERE text >= value ORDER BY text LIMIT 1) FROM json_each(?)",
            (json.dumps(near, ensure_ascii=False),),
        )
        return [one for one, following in rows if following and following.startswith(one)]

    def _two_slips(self, text: str) -> list[str]:
        """The same with two edits; few first ones are followed, those that share most with a name."""
        near = [(self._shared(one), one, at) for one, at in self._edited(text, 0, len(text))]
        far = sorted(near, key=lambda one: -one[0])[:_MOST_HALVES]
        return [slip for _, one, at in far for slip in self._slips(one, at + 1, len(one))]

    def _edited(self, text: str, start: int, until: int) -> list[tuple[str, int]]:
        """The strings that are one edit from a text, and its place; nothing changes from `until` on.

        What stands before the edit is the start of a name, and so is what the edit puts behind it.
        """
        found: dict[str, int] = {}
        places = range(start, min(until, self._shared(text) + 1))
        for i, put_in in zip(places, self._following([text[:i] for i in places]), strict=True):
            before, after = text[:i], text[i + 1 :]
            found.setdefault(before + after, i)
            if i + 1 < until:
                found.setdefault(before + after[0] + text[i] + after[1:], i)
            for other in put_in:
                found.setdefault(before + other + after, i)
                found.setdefault(before + other + text[i:], i)
        found.pop(text, None)
        return [(one, i) for one, i in found.items() if len(one) >= MIN_SLIP_CHARACTERS - 1]

    def _following(self, prefixes: Sequence[str]) -> list[list[str]]:
        """The characters that follow each prefix in some name: each is looked for behind the one before."""
        found: list[list[str]] = [[] for _ in prefixes]
        for place, text in self._db.execute(_FOLLOWING, (json.dumps(prefixes, ensure_ascii=False), _MOST_FOLLOWING)):
            found[place].append(text[len(prefixes[place])])
        return found

    def _shared(self, text: str) -> int:
        """How many of its first characters a text shares with a name: one beside it in the order of all."""
        rows = self._db.execute(
            "SELECT (SELECT text FROM texts WHERE text >= ?1 ORDER BY text LIMIT 1), "
            "(SELECT text FROM texts WHERE text < ?1 ORDER BY text DESC LIMIT 1)",
            (text,),
        )
        return max(Prefix.similarity(text, one or "") for one in rows.fetchone())

    def _record(self, entity: int, name: str, match: str) -> FoundName:
        [record] = self._db.execute("SELECT record FROM entities WHERE id = ?", (entity,)).fetchone()
        return replace(_read_record(record), name=name, match=match)


def usable_cache(environment: Mapping[str, str] = os.environ) -> Path:
    """A folder for indexes: the platform's place for files that can be made again, else one for temporary files."""
    try:
        home = Path.home() / ("Library/Caches" if sys.platform == "darwin" else ".cache")
        folder = Path(environment.get("XDG_CACHE_HOME") or home) / "pearl-qdrant"
        folder.mkdir(parents=True, exist_ok=True)
        if os.access(folder, os.W_OK):
            return folder
    except (OSError, RuntimeError):  # a read-only file system; a user without a home
        pass
    return _own_temporary_folder()


def _own_temporary_folder() -> Path:
    """A folder of this user alone among temporary files, where anyone may make a folder or a link of any name."""
    if not hasattr(os, "geteuid"):  # on Windows they are the user's own
        return Path(tempfile.gettempdir()) / "pearl-qdrant"
    folder = Path(tempfile.gettempdir()) / f"pearl-qdrant-{os.geteuid()}"
    with suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    status = folder.lstat()
    if stat.S_ISDIR(status.st_mode) and status.st_uid == os.geteuid() and not status.st_mode & 0o077:
        return folder
    log.warning("%s is not a folder of this user alone: the indexes of names go to a new one", folder)
    return Path(tempfile.mkdtemp(prefix="pearl-qdrant-"))


class NameKeeper:
    """Keeps the index of one collection: builds it once, in a child process if it is large, and opens it."""

    def __init__(self, folder: Path, location: str, name: str, access: ServerAccess) -> None:
        whose = hashlib.blake2b(f"{os.path.realpath(location)}\0{location}\0{name}".encode(), digest_size=8).hexdigest()
        self._folder = folder / "names" / f"{name[:40]}-{whose}"
        self._location, self._name, self._access = location, name, access
        self._building = threading.Lock()
        self._path: Path | None = None
        self._child: BaseProcess | None = None
        self._is_closed = False
        self.index: NameIndex | None = None

    def update(self, collection: Collection) -> None:
        """Open the index of the collection's state, built before if there is none; the former one answers meanwhile. A
        failure is logged.
        """
        if not self._building.acquire(blocking=False):
            return
        try:
            path = self._folder / f"{state_of(collection)}.sqlite"
            if path == self._path:
                return
            if not path.exists():
                self._build(collection, path)
            if path.exists():
                self.index, self._path = NameIndex(path), path
        except (OSError, sqlite3.Error, StoreError, portalocker.LockException):
            log.exception("the index of the names of %s cannot be built", self._name)
        finally:
            self._building.release()

    def close(self) -> None:
        self._is_closed = True
        if self._child is not None and self._child.is_alive():
            self._child.terminate()

    def _build(self, collection: Collection, path: Path) -> None:
        """Build an index, unless another worker does; that one is opened with the next update."""
        self._folder.mkdir(parents=True, exist_ok=True)
        lock = portalocker.Lock(self._folder / "lock", timeout=0, flags=portalocker.LOCK_EX | portalocker.LOCK_NB)
        try:
            lock.acquire()
        except portalocker.AlreadyLocked:
            return
        try:
            if path.exists():
                return
            self._remove_old()
            if collection.count() <= IN_PROCESS_NAMES:
                build_index(collection.scroll(), path)
                return
            log.info("building the index of the names of %s", self._name)
            self._child = child = multiprocessing.get_context("spawn").Process(
                target=_build_in_child, args=(self._location, self._access, self._name, path), daemon=True
            )
            child.start()
            child.join()
            if child.exitcode and not self._is_closed:
                raise OSError(f"the process that builds the index of names ended with status {child.exitcode}")
        finally:
            lock.release()

    def _remove_old(self) -> None:
        """Remove what builds left behind that were killed, and all but the newest indexes."""
        made = sorted(self._folder.glob("[!.]*.sqlite"), key=lambda one: one.stat().st_mtime)
        for old in (*self._folder.glob(".*"), *made[:-_KEPT]):
            old.unlink(missing_ok=True)


def _build_in_child(location: str, access: ServerAccess, name: str, path: Path) -> None:
    """Build the index of a collection in a process of its own, beside the answers of the service."""
    os.nice(5)
    with closing(open_store(location, access=access)) as store:
        build_index(store.open(name, read_only=True).scroll(), path)


def state_of(collection: Collection) -> str:
    """What names the state of a collection's names, as a name of a file.

    On a server, where no state has a name, it is what the manifest says, and the number of names.
    """
    token = collection.state_token
    said = collection.manifest.model_dump_json(exclude={"calibration", "ngram_rarity", "checkpoints"})
    content = f"{_VERSION}\0{said}\0{collection.count() if token is None else token}"
    return hashlib.blake2b(content.encode("utf-8", "surrogatepass"), digest_size=12).hexdigest()
