"""Read any RDF: ontologies in OWL, thesauri in SKOS, YAGO 4 and 4.5, Wikidata's truthy dump, and names in general.

Syntaxes are in `ingest.readers.rdf_syntax`, vocabularies in `ingest.readers.rdf_profiles`. Files, folders and zips of
one base are read together: what several files say of a subject is joined.

The input is read twice at least. The first pass, once for a reader, finds the vocabulary, the classes with those above
them, and the subjects whose statements are not adjacent: 8 bytes for each run of statements about one subject, 12 for
each edge between classes. In later passes a subject whose statements are adjacent is an entity at once. The statements
of the others that matter wait in a temporary SQLite database on disk; they become entities at the end, in the order of
their first statements. In Wikidata's dump all statements about an item are adjacent, so that nothing is kept of it.

The canonical name is a label in the first requested language that has one, then one without a language; an entity
without either keeps a name in another language. ``en-GB`` counts as ``en``. Other languages are left out; the language
``all`` makes them aliases. `extra` has ``language`` where the canonical name is not in the first requested language.
"""

from __future__ import annotations

import json
import re
import sqlite3
from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from ingest.base.ancestors import nearest_types
from ingest.base.format import HEAD_BYTES, Head, PathLike
from ingest.base.merge import batches
from ingest.base.reader import Hashes
from ingest.base.reader_base import ReaderBase
from ingest.io import limits
from ingest.io.archive import Member, is_zip, list_members
from ingest.io.report import NO_NAME, NUL_CHARACTER, TOO_MANY_ROWS, ReadReport
from ingest.io.streams import STDIN
from ingest.readers import rdf_profiles as known
from ingest.readers.obo import check_scopes
from ingest.readers.ontology import NOT_A_TERM, OBSOLETE, ClassTree, Term, clean, coarse_type, short_id
from ingest.readers.rdf_profiles import ONTOLOGY, SKOS, TRUTHY, YAGO_PROFILE, Profile, entity_id, type_name
from ingest.readers.rdf_syntax import check_syntax, detect_rdf, find_syntax, read_triples
from ingest.readers.wikidata_classes import ClassTypeFinder, item_number
from pearl_qdrant.errors import FormatError, InputError, OptionError
from pearl_qdrant.records import LINKS_FIELD, Entity

if TYPE_CHECKING:
    from ingest.base.type_map import TypeMap
    from ingest.formats import ReadOptions
    from ingest.io.streams import ByteSource

OTHER_LANGUAGE = "other_language"
OTHER_CLASS = "other_class"
NO_LABEL = "no_label"
NOT_AN_ITEM = "not_an_item"
WIKIMEDIA_INTERNAL = "wikimedia_internal"
GENERIC_INSTANCE = "generic_instance"
BLANK_NODE = "blank_node"

ALL_LANGUAGES = ("*", "all")
MULTILINGUAL, FALLBACK = "mul", "en"

Fact = tuple[str, str, str | None, int]
"""A statement without its subject: predicate, value, language in lower case, line. The language is "" for a literal
without one, None for an IRI."""

_MAX_SEEN = 1_000  # different predicates that are remembered for a message
_MAX_CACHED = 1 << 16
_MAX_CACHED_LENGTH = 1 << 10
_CACHE_KIB = 16_384
_LANGUAGE = re.compile(r"[A-Za-z][A-Za-z0-9-]*|\*")
_WIKIDATA_ITEM = re.compile(r"https?://www\.wikidata\.org/entity/(Q[1-9][0-9]*)")

# Files of YAGO that name nothing. In Turtle the taxonomy has the classes of the schema, too.
_UNUSED = re.compile(r"yago.*(?:wd-facts|annotated-facts|meta|shapes|statistics|log|schema\.ttl)\b", re.IGNORECASE)
_OLD_YAGO, _NEW_YAGO = re.compile(r"yago-wd-"), re.compile(r"yago-(?:facts|taxonomy|labels|beyond|tiny|schema)")
_GENERIC = "_generic_instance"
_GENERIC_LABEL = "Generic instance"

_Place = tuple[int, int, str]  # order among names: language, property, and the text itself where it counts


_ENDING = re.compile(r"\.(?:ttl|nt|nq|trig|owl|rdf|jsonld)(?:\.(?:gz|bz2|xz|zst))?$", re.IGNORECASE)


def detect(head: Head) -> bool:
    """Whether a file begins like RDF."""
    return detect_rdf(head)


def detect_names(names: Iterable[str]) -> bool:
    """Whether the names of the files in a folder or archive show RDF."""
    return any(_ENDING.search(name) for name in names)


def open_reader(paths: Sequence[PathLike], options: ReadOptions, type_map: TypeMap | None) -> RdfReader:
    """A reader of RDF. Raises as `RdfReader`."""
    return RdfReader(paths, options, type_map)


class RdfReader(ReaderBase):
    """A base in RDF, in one or several files; a `Reader`. A row of its report is a statement that matters."""

    def __init__(self, paths: Sequence[PathLike], options: ReadOptions, type_map: TypeMap | None = None) -> None:
        """Open the files and find their syntaxes.

        Args:
            paths: Files, folders and zips; ``-`` is standard input.
            options: `limit`, `languages`, `links`, `scopes`, `classes`, and properties of labels, aliases and types.
            type_map: From types to coarse types; the shipped one by default.

        Raises:
            FormatError: If a path cannot be opened, or a file is not RDF.
            ValueError: If an option makes no sense.
        """
        super().__init__(type_map=type_map, limit=options.limit)
        self._options = options
        self._languages = tuple(dict.fromkeys(language.lower() for language in options.languages or ("en",)))
        if not all(map(_LANGUAGE.fullmatch, self._languages)):
            raise ValueError(f"not codes of languages: {self._languages!r}. Give codes like en, fi, zh-hans, or all")
        self._scopes = check_scopes(options.scopes)
        self._added = [
            known.expand(names)
            for names in (options.label_properties, options.alias_properties, options.type_properties)
        ]
        self._survey: _Survey | None = None
        try:
            self._files = list(self._find_files(paths))
        except BaseException:
            self.close()
            raise

    def read(self, report: ReadReport, *, scattered: Hashes | None = None) -> Iterator[Entity]:
        """Entities, each id once; see `Reader.read`. The statements of an id are joined already, but for Wikidata."""
        survey = self._read_survey()
        if scattered is None and survey.profile is not TRUTHY:
            scattered = np.empty(0, dtype=np.uint64)
        yield from super().read(report, scattered=scattered)

    def read_runs(self, report: ReadReport) -> Iterator[Entity]:
        """Entities in the order of the input; see `Reader.read_runs`."""
        maker = self._make_maker(report)
        report.notes.extend(f"{source.path}: {syntax}, {maker.profile.title}" for source, syntax in self._files)
        yield from self.join_runs(self._read_entities(maker, report), report)
        report.notes.extend(maker.notes())  # also where the limit ends the pass early

    def read_rows(self, report: ReadReport) -> Iterator[Entity]:
        """One entity for each subject that has a name."""
        return self._read_entities(self._make_maker(report), report)

    def _make_maker(self, report: ReadReport) -> _Maker:
        survey = self._read_survey()
        kind = _ItemMaker if survey.profile.title == TRUTHY.title else _Maker
        return kind(survey, self._languages, self._options, self._scopes, self.type_map, report)

    def _find_files(self, paths: Sequence[PathLike]) -> Iterator[tuple[ByteSource, str]]:
        """The files with their syntaxes, in the order of the paths; those of a folder or zip by name."""
        if not paths:
            raise ValueError("nothing to read: no path was given")
        for path in map(str, paths):
            found = [(source, syntax) for source, syntax in self._open(path, is_named=True) if syntax]
            names = [re.split(r"[!/\\]", source.path)[-1] for source, _ in found]
            _check_is_one_release(path, names)
            has_full_types = any("full-types" in name for name in names) and any("class" in name for name in names)
            used = [
                file
                for file, name in zip(found, names, strict=True)
                if len(found) == 1 or not (_UNUSED.match(name) or (has_full_types and "simple-types" in name))
            ]
            if not used:
                raise FormatError(path, None, "has no file with RDF that names anything")
            yield from used

    def _open(self, path: str, *, is_named: bool) -> Iterator[tuple[ByteSource, str | None]]:
        """The files under a path; only one that was named itself must be RDF."""
        if path != STDIN and Path(path).is_dir():
            for child in sorted(Path(path).iterdir()):
                if child.is_file() and not child.name.startswith("."):
                    yield from self._open(str(child), is_named=False)
        elif path != STDIN and is_zip(path):
            for member in sorted(list_members(path)):
                source = Member(path, member)
                yield source, find_syntax(_head_of(source))
        else:
            source = self.open_sources([path])[0]
            head = _head_of(source)
            yield source, check_syntax(path, head) if is_named else find_syntax(head)

    def _read_survey(self) -> _Survey:
        """What a first pass over all files finds. Raises as `read`."""
        if self._survey is None:
            wanted = frozenset().union(*(profile.extend(*self._added).properties() for profile in known.PROFILES))
            survey = _Survey()
            self.held.callback(survey.close)
            for source, syntax in self._files:
                for subject, facts in _read_runs(source, syntax, wanted, ReadReport(max_errors=None), survey):
                    survey.add(subject, facts)
            survey.finish(self._added)
            self._check_has_names(survey)
            self._survey = survey
        return self._survey

    def _check_has_names(self, survey: _Survey) -> None:
        """Refuse files without a name, and options that the vocabulary does not have."""
        source, syntax = self._files[0]
        profile = survey.profile
        if profile.title == TRUTHY.title and self._options.links:
            raise FormatError(source.path, None, "to keep the links between items, read the JSON dump")
        if not any(name in survey.counts for name in (*profile.labels, *profile.aliases)) and not survey.n_yago:
            used = ", ".join(name for name, _ in survey.seen.most_common(8)) or "no statement"
            raise FormatError(
                source.path,
                None,
                f"is {syntax} in which nothing has a name by a known property. It has: {used}. Name the property of "
                "the names.",
                option="label_properties",
            )

    def _read_entities(self, maker: _Maker, report: ReadReport) -> Iterator[Entity]:
        """One entity for each subject: those with adjacent statements first."""
        survey, wanted = self._read_survey(), maker.profile.properties()
        with closing(_Store()) as store:
            for number, (source, syntax) in enumerate(self._files):
                runs = _read_runs(source, syntax, wanted, report, None)
                for subject, facts in survey.take_scattered(runs, store, number):
                    report.place = source.path, facts[0][3]
                    entity = maker.make(subject, facts)
                    if entity is not None:
                        yield entity
            for subject, records in store.subjects():
                report.place = self._files[records[0][0]][0].path, records[0][1][0][3]
                entity = maker.make(subject, list(self._join(subject, records, report)))
                if entity is not None:
                    yield entity

    def _join(self, subject: str, records: Iterable[tuple[int, list[Fact]]], report: ReadReport) -> Iterator[Fact]:
        """The statements of a subject from several places, up to the limits."""
        n_rows = n_chars = 0
        for number, facts in records:
            for fact in facts:
                n_rows, n_chars = n_rows + 1, n_chars + len(fact[1])
                if n_rows > limits.MAX_ROWS or n_chars > limits.MAX_ENTITY_BYTES:
                    path = self._files[number][0].path
                    report.skip(TOO_MANY_ROWS, path=path, line=fact[3], text=f"{subject} {fact[1]}")
                else:
                    yield fact


def _head_of(source: ByteSource) -> bytes:
    return source.head(HEAD_BYTES).removeprefix(b"\xef\xbb\xbf")


def _check_is_one_release(path: str, names: Sequence[str]) -> None:
    """Refuse files of YAGO 4 beside files of 4.5: names of one would be combined with types of the other."""
    old = next(filter(_OLD_YAGO.match, names), None)
    new = next(filter(_NEW_YAGO.match, names), None)
    if old and new:
        message = f"holds two releases of YAGO: 4 ({old}) and 4.5 ({new}). Name the files of one of them"
        raise FormatError(path, None, message)


def _read_runs(
    source: ByteSource, syntax: str, wanted: frozenset[str], report: ReadReport, survey: _Survey | None
) -> Iterator[tuple[str, list[Fact]]]:
    """Statements with the wanted properties, those of one subject together as long as they are adjacent.

    Args:
        source, syntax: The file.
        wanted: Properties.
        report: `rows` counts these statements; those beyond the limits of an entity are skipped.
        survey: Gets all properties, and the texts of labels that are nodes of their own.
    """
    from pyoxigraph import Literal, NamedNode

    last, facts, n_chars = "", list[Fact](), 0
    for quad, line in read_triples(source, syntax, report):
        predicate = quad.predicate.value
        if survey is not None:
            survey.note(predicate, quad)
        if predicate not in wanted:
            continue
        node, target = quad.subject, quad.object
        if type(node) is not NamedNode:
            if predicate == known.LABEL:
                report.filter_out(BLANK_NODE)
            continue
        if type(target) is Literal:
            value, language = target.value, (target.language or "").lower()
        elif type(target) is NamedNode:
            value, language = target.value, None
        else:
            continue
        report.rows += 1
        subject = node.value
        if subject != last:
            if facts:
                yield last, facts
            last, facts, n_chars = subject, [], 0
        n_chars += len(value)
        if "\0" in value or "\0" in subject:
            report.skip(NUL_CHARACTER, path=source.path, line=line, text=f"{subject} {value}")
        elif len(facts) >= limits.MAX_ROWS or n_chars > limits.MAX_ENTITY_BYTES:
            report.skip(TOO_MANY_ROWS, path=source.path, line=line, text=f"{subject} {value}")
        else:
            facts.append((predicate, value, language, line))
    if facts:
        yield last, facts


class _Survey:
    """What the first pass finds.

    Attributes:
        profile: The vocabulary.
        counts: Statements by property, of those that some profile knows.
        seen: Statements by property, of the first properties of the input.
        n_yago: Subjects of YAGO.
        has_classes: Some class of an ontology has a label.
        tree: Classes and those above them, and ids that were replaced.
    """

    def __init__(self) -> None:
        self.profile = known.NAMES
        self.counts, self.seen = Counter[str](), Counter[str]()
        self.n_yago = 0
        self.has_classes = False
        self.tree = ClassTree()
        self._concepts = ClassTree()
        self._item_edges = array("i"), array("i")
        self._hashes = array("q")
        self._scattered = np.empty(0, dtype=np.int64)
        self._n = Counter[str]()
        self._labels: _Store | None = None
        self._is_truthy = False

    def note(self, predicate: str, quad: object) -> None:
        """Take a statement of any subject."""
        if predicate in self.seen or len(self.seen) < _MAX_SEEN:
            self.seen[predicate] += 1
        if predicate == known.LITERAL_FORM:
            if self._labels is None:
                self._labels = _Store()
            subject, target = quad.subject, quad.object  # type: ignore[attr-defined]
            self._labels.add([(str(subject), 0, [("", target.value, (target.language or "").lower(), 0)])])

    def add(self, subject: str, facts: Sequence[Fact]) -> None:
        """Take the adjacent statements of a subject."""
        identity = entity_id(subject)
        if not self._is_truthy:
            self._hashes.append(hash(identity))
        classes, has_label, is_gone = [], False, False
        for predicate, value, language, _ in facts:
            self.counts[predicate] += 1
            if predicate == known.RDF_TYPE:
                classes.append(value)
            elif predicate == known.LABEL:
                has_label = True
            elif predicate == known.DEPRECATED:
                is_gone = _is_true(value)
            elif language is None:
                self._add_edge(subject, predicate, value)
        for predicate, value, _, _ in facts:
            if predicate in known.REPLACED_BY and (is_gone or predicate.endswith("isReplacedBy")):
                self.tree.replace(identity, short_id(value))
                self._concepts.replace(identity, short_id(value))
        self._count(subject, frozenset(classes), has_label=has_label)

    def _add_edge(self, subject: str, predicate: str, value: str) -> None:
        if predicate == known.SUBCLASS_OF:
            child, parent, tree = subject, value, self.tree
        elif predicate in SKOS.parents:
            child, parent, tree = subject, value, self._concepts
        elif predicate in SKOS.children:
            child, parent, tree = value, subject, self._concepts
        else:
            if predicate == known.WIKIDATA_PARENT:
                lower, upper = item_number(entity_id(subject)), item_number(entity_id(value))
                if lower and upper:
                    self._item_edges[0].append(lower)
                    self._item_edges[1].append(upper)
            return
        below, above = type_name(child), type_name(parent)
        if below and above:
            tree.add(below, above)

    def _count(self, subject: str, classes: frozenset[str], *, has_label: bool) -> None:
        n = self._n
        n["runs"] += 1
        n["items"] += subject.startswith(known.WIKIDATA)
        self.n_yago += subject.startswith(known.YAGO)
        if not known.CLASSES.isdisjoint(classes):
            n["classes"] += 1
            self.has_classes = self.has_classes or has_label
        elif known.CONCEPT in classes:
            n["concepts"] += 1
        elif not known.PROPERTIES.isdisjoint(classes):
            n["properties"] += 1
        elif any(not known.is_vocabulary(name) for name in classes):
            n["instances"] += 1
        if n["runs"] == _MAX_SEEN and self._choose().title == TRUTHY.title:
            self._is_truthy, self._hashes = True, array("q")  # its statements are adjacent, and it is the largest base

    def _choose(self) -> Profile:
        """The vocabulary."""
        n, counts = self._n, self.counts
        if counts.keys() & {*TRUTHY.types, *TRUTHY.parents} or n["items"] * 2 > n["runs"]:
            return TRUTHY
        if self.n_yago and self.n_yago * 4 >= n["runs"]:
            return YAGO_PROFILE
        if n["classes"] and n["classes"] >= max(n["concepts"], n["instances"]):
            return ONTOLOGY
        n_skos = sum(counts[name] for name in known.SKOS_SIGNS)
        n_names = sum(counts[name] for name in known.NAMES.labels if name not in known.SKOS_SIGNS)
        if n_skos and (n["concepts"] >= n["instances"] if n["concepts"] else n_skos > n_names):
            return SKOS
        return ONTOLOGY if n["properties"] and not n["instances"] else known.NAMES

    def finish(self, added: Sequence[tuple[str, ...]]) -> None:
        """Choose the vocabulary, with further properties of labels, aliases and types, and index what was taken."""
        chosen = self._choose()
        self.profile = chosen.extend(*added)
        self.tree = (self._concepts if chosen is SKOS else self.tree).finish()
        self._concepts = ClassTree()
        if chosen is not TRUTHY:
            values, counts = np.unique(np.asarray(self._hashes), return_counts=True)
            self._scattered = values[counts > 1]
        self._hashes = array("q")

    def take_scattered(
        self, runs: Iterable[tuple[str, list[Fact]]], store: _Store, number: int
    ) -> Iterator[tuple[str, list[Fact]]]:
        """Runs that are a whole entity, with its id; the others go into the store."""
        scattered = self._scattered
        if not len(scattered):
            for subject, facts in runs:
                yield entity_id(subject), facts
            return
        for batch in batches(runs, lambda run: sum([len(fact[1]) for fact in run[1]])):
            ids = [entity_id(subject) for subject, _ in batch]
            hashes = np.fromiter(map(hash, ids), dtype=np.int64, count=len(ids))
            places = np.minimum(np.searchsorted(scattered, hashes), len(scattered) - 1)
            is_found = (scattered[places] == hashes).tolist()
            rows = zip(ids, batch, is_found, strict=True)
            store.add((name, number, facts) for name, (_, facts), found in rows if found)
            yield from ((name, run[1]) for name, run, found in zip(ids, batch, is_found, strict=True) if not found)

    def text_of(self, node: str) -> tuple[str, str] | None:
        """The text and language of a label that is a node of its own (SKOS-XL)."""
        facts = self._labels.find(f"<{node}>") if self._labels is not None else None
        return (facts[0][1], facts[0][2] or "") if facts else None

    def item_edges(self) -> Iterator[tuple[int, tuple[int, ...]]]:
        """Edges between the classes of Wikidata."""
        return ((lower, (upper,)) for lower, upper in zip(*self._item_edges, strict=True))

    def close(self) -> None:
        """Remove what is on disk."""
        if self._labels is not None:
            self._labels.close()


def _is_true(value: str) -> bool:
    return value.strip().lower() in ("true", "1")


class _Store:
    """Statements by subject in an unnamed database on disk."""

    def __init__(self) -> None:
        # A load may start a reader in one thread and close it in another.
        self._database = sqlite3.connect("", isolation_level=None, check_same_thread=False)
        for statement in (
            f"PRAGMA cache_size = -{_CACHE_KIB}",
            "PRAGMA temp_store = FILE",
            "PRAGMA journal_mode = OFF",
            "PRAGMA synchronous = OFF",
            "CREATE TABLE ids (place INTEGER PRIMARY KEY, id TEXT UNIQUE NOT NULL)",
            "CREATE TABLE rows (sequence INTEGER PRIMARY KEY, id TEXT NOT NULL, record TEXT NOT NULL)",
        ):
            self._database.execute(statement)

    def add(self, runs: Iterable[tuple[str, int, list[Fact]]]) -> None:
        """Add statements: the subject, the number of the file, and what is said."""
        records = [(subject, json.dumps([number, facts])) for subject, number, facts in runs]
        with _as_input_error():
            self._database.execute("BEGIN")
            self._database.executemany("INSERT OR IGNORE INTO ids (id) VALUES (?)", [(row[0],) for row in records])
            self._database.executemany("INSERT INTO rows (id, record) VALUES (?, ?)", records)
            self._database.execute("COMMIT")

    def subjects(self) -> Iterator[tuple[str, list[tuple[int, list[Fact]]]]]:
        """Subjects in the order in which they came first, each with all its records."""
        order = "SELECT id, record FROM rows JOIN ids USING (id) ORDER BY place, sequence"
        last, records, size = "", list[tuple[int, list[Fact]]](), 0
        with _as_input_error():
            for subject, record in self._database.execute(order):
                if subject != last:
                    if records:
                        yield last, records
                    last, records, size = subject, [], 0
                size += len(record)
                if not records or size <= 4 * limits.MAX_ENTITY_BYTES:
                    records.append(json.loads(record))
        if records:
            yield last, records

    def find(self, subject: str) -> list[Fact] | None:
        """The first record of a subject."""
        with _as_input_error():
            query = "SELECT record FROM ids JOIN rows ON rows.sequence = ids.place WHERE ids.id = ?"
            row = self._database.execute(query, (subject,)).fetchone()
        return None if row is None else json.loads(row[0])[1]

    def close(self) -> None:
        """Remove the database."""
        self._database.close()


@contextmanager
def _as_input_error() -> Iterator[None]:
    try:
        yield
    except sqlite3.Error as error:
        advice = "Their subjects are scattered over the input: sort it by subject, or point TMPDIR to a larger disk"
        raise InputError("temporary file", None, f"statements cannot be stored: {error}. {advice}") from error


class _Languages:
    """Which languages names are taken of, and in which order."""

    def __init__(self, wanted: Sequence[str], profile: Profile) -> None:
        self._is_all = any(language in ALL_LANGUAGES for language in wanted)
        self._wanted = [language for language in wanted if language not in ALL_LANGUAGES] or ["en"]
        self._is_item = profile.title == TRUTHY.title
        self._others = profile.other_languages
        self._known: dict[str, tuple[int, bool] | None] = {}

    def rank(self, tag: str) -> tuple[int, bool] | None:
        """The place of a language, lower is better, and whether its names are aliases; None if it is not taken."""
        if tag not in self._known:
            if len(self._known) > _MAX_CACHED:
                self._known.clear()
            self._known[tag] = self._find(tag)
        return self._known[tag]

    def is_first(self, tag: str) -> bool:
        """Whether a language is the first requested one, or none."""
        first = self._wanted[0]
        return not tag or tag == first or (not self._is_item and tag.startswith(first + "-"))

    def _find(self, tag: str) -> tuple[int, bool] | None:
        n = len(self._wanted)
        for place, language in enumerate(self._wanted):
            if tag == language:
                return 2 * place, True
            if tag.startswith(language + "-") and not self._is_item:
                return 2 * place + 1, True
        if self._is_item:
            if tag == MULTILINGUAL or (tag == FALLBACK and not self._is_all):
                return 2 * n + (tag == FALLBACK), tag == MULTILINGUAL
        elif not tag:
            return 2 * n, True
        if self._is_all and tag:
            return 2 * n + 2, True
        return (2 * n + 2, False) if self._others else None


class _Text:
    """A name or description: where it stands in the order, its language, and whether it is taken as an alias."""

    __slots__ = ("is_wanted", "language", "place", "text")

    def __init__(self, place: _Place, text: str, language: str, *, is_wanted: bool) -> None:
        self.place, self.text, self.language, self.is_wanted = place, text, language, is_wanted


_LABEL, _ALIAS, _ABOUT = range(3)


class _Maker:
    """Makes entities from statements.

    Attributes:
        profile: The vocabulary.
    """

    def __init__(
        self,
        survey: _Survey,
        languages: Sequence[str],
        options: ReadOptions,
        scopes: frozenset[str],
        type_map: TypeMap,
        report: ReadReport,
    ) -> None:
        self.profile = survey.profile
        self._survey, self._report, self._type_map = survey, report, type_map
        self._languages = _Languages(languages, self.profile)
        self._scopes, self._links, self._classes = scopes, options.links, options.classes
        self._slots = {name: (_ABOUT, place) for place, name in enumerate(self.profile.descriptions)}
        self._slots |= {name: (_ALIAS, place) for place, name in enumerate(self.profile.aliases)}
        self._slots |= {name: (_LABEL, place) for place, name in enumerate(self.profile.labels)}
        if self.profile.is_ontology and self.profile.descriptions[0] in survey.counts:
            self._slots.pop(self.profile.descriptions[-1])  # comments are notes there, beside definitions
        self._types: dict[tuple[str, ...], tuple[tuple[str, ...], tuple[str, ...]]] = {}
        self._n_by_id = self._n_foreign = 0

    def make(self, identity: str, facts: Sequence[Fact]) -> Entity | None:
        """The entity of a subject, or None if it is excluded, which is counted."""
        classes = {value for predicate, value, language, _ in facts if predicate == known.RDF_TYPE}
        reason = self._find_reason(identity, facts, classes)
        if reason is None:
            names, language, description = self._find_names(identity, facts)
            if names:
                return self._make_entity(identity, facts, names, language, description)
            if self._has_text(facts) or not self.profile.parents or not classes <= known.PROPERTIES:
                reason = self._no_name()
        if reason is not None:
            self._report.filter_out(reason)
        return None

    def notes(self) -> Iterator[str]:
        """Notes for the user."""
        if self._n_by_id:
            yield f"{self._n_by_id:,} entities have no name in these languages; their ids are used as names"
        if self._n_foreign:
            yield f"{self._n_foreign:,} entities have no name in these languages; they keep one in another language"

    def _no_name(self) -> str:
        return NO_NAME

    def _has_text(self, facts: Sequence[Fact]) -> bool:
        return any(fact[0] in self._slots for fact in facts)

    def _find_reason(self, identity: str, facts: Sequence[Fact], classes: set[str]) -> str | None:
        """Why a subject is no entity, or None."""
        if any(fact[0] == known.DEPRECATED and _is_true(fact[1]) for fact in facts):
            return OBSOLETE
        if not known.NO_ENTITIES.isdisjoint(classes):
            return NOT_A_TERM
        is_class = not known.CLASSES.isdisjoint(classes)
        if self.profile.is_ontology:
            return NOT_A_TERM if self._survey.has_classes and not is_class else None
        if identity.endswith(_GENERIC) or any(fact[1] == _GENERIC_LABEL for fact in facts):
            return GENERIC_INSTANCE
        is_structure = is_class or not known.PROPERTIES.isdisjoint(classes)
        return NOT_A_TERM if is_structure and known.CONCEPT not in classes else None

    def _find_names(self, identity: str, facts: Sequence[Fact]) -> tuple[list[str], str, str | None]:
        """All names, the canonical one first, its language, and the description; no names if there is none."""
        texts: tuple[list[_Text], list[_Text], list[_Text]] = [], [], []
        n_other = 0
        scopes, is_by_text = self.profile.aliases, self.profile.is_named_by_id
        for predicate, value, language, _ in facts:
            slot = self._slots.get(predicate)
            if slot is None:
                continue
            if language is None:
                found = self._survey.text_of(value)
                if found is None:
                    continue
                value, language = found
            scope = scopes.get(predicate) if slot[0] == _ALIAS else None
            if scope and scope not in self._scopes:
                self._report.filter_out(f"{scope.lower()}_synonym")
                continue
            text, rank = clean(value), self._languages.rank(language)
            if not text:
                continue
            if rank is None:
                n_other += 1
            else:
                place = rank[0], slot[1] if slot[0] != _ALIAS else 0, text if is_by_text and slot[0] == _LABEL else ""
                texts[slot[0]].append(_Text(place, text, language, is_wanted=rank[1]))
        labels, aliases, abouts = (sorted(found, key=lambda one: one.place) for found in texts)
        first = self._choose_first(labels, aliases)
        language = first.language if first else ""
        taken = [one for one in (*labels, *aliases) if one.is_wanted or one.language == language]
        n_other += len(labels) + len(aliases) - len(taken)
        if n_other:
            self._report.filter_out(OTHER_LANGUAGE, n_other)
        about = next((one.text for one in abouts if one.is_wanted or one.language == language), None)
        if first is None:
            if not self.profile.is_named_by_id or not any(fact[0] in self.profile.types for fact in facts):
                return [], "", about
            self._n_by_id += 1
            return [known.name_of_id(identity) or identity], "", about
        self._n_foreign += not first.is_wanted and self.profile.other_languages
        return list(dict.fromkeys([first.text, *(one.text for one in taken)])), language, about

    def _choose_first(self, labels: Sequence[_Text], aliases: Sequence[_Text]) -> _Text | None:
        """The canonical name; both are in order."""
        for wanted in (labels, aliases):
            if wanted and wanted[0].is_wanted:
                return wanted[0]
        return next(iter((*labels, *aliases)), None)

    def _make_entity(
        self, identity: str, facts: Sequence[Fact], names: Sequence[str], language: str, description: str | None
    ) -> Entity | None:
        """The entity, or None if it is of another class than the requested ones."""
        profile = self.profile
        extra = self._find_extra(facts)
        if not self._languages.is_first(language):
            extra["language"] = language
        above = [type_name(fact[1]) for fact in facts if fact[0] in profile.parents and fact[2] is None]
        parents = list(filter(None, dict.fromkeys(above)))
        if profile.children:  # what is above may say so itself
            parents = list(dict.fromkeys((*parents, *self._survey.tree.parents(identity))))
        if profile.is_ontology:
            term = Term(identity, names, "", description, parents, extra=extra)
            term.namespace = next((fact[1] for fact in facts if fact[0] == known.NAMESPACE), "")
            term.alt_ids = [short_id(fact[1]) for fact in facts if fact[0] == known.ALT_ID]
            term.xrefs = [short_id(fact[1]) for fact in facts if fact[0] == known.XREF]
            entity = term.make_entity(self._survey.tree, self._type_map, self._report, links=self._links)
        else:
            own = [fact[1] if fact[2] is not None else type_name(fact[1]) for fact in facts if fact[0] in profile.types]
            kb_types, types = self._find_types(tuple(dict.fromkeys(filter(None, (*own, *parents)))))
            if identity in kb_types:
                kb_types = tuple(name for name in kb_types if name != identity)
            if parents and self._links:
                extra[LINKS_FIELD] = "|".join(parent for parent in parents if parent != identity)
            if gone := self._survey.tree.replaced.get(identity):
                extra["alt_ids"] = "|".join(gone)
            bounded = self._report.bound_names(identity, names)
            entity = Entity(identity, bounded[0], bounded[1:], kb_types, types, description, extra)
        if self._classes and set(self._classes).isdisjoint((identity, *entity.kb_types)):
            self._report.filter_out(OTHER_CLASS)
            return None
        return entity

    def _find_extra(self, facts: Sequence[Fact]) -> dict[str, str]:
        """Further fields."""
        extra = {}
        for predicate, value, _, _ in facts:
            if predicate in known.SAME_AS and (match := _WIKIDATA_ITEM.fullmatch(value)):
                extra.setdefault("wikidata_id", match[1])
            elif predicate == known.NOTATION and (text := clean(value)):
                extra["notation"] = f"{extra['notation']}|{text}" if "notation" in extra else text
        return extra

    def _find_types(self, own: tuple[str, ...]) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Native types with those above them, and coarse types; cached."""
        found = self._types.get(own)
        if found is None:
            if len(self._types) >= _MAX_CACHED:
                self._types.clear()
            walk = self._survey.tree.walk_up
            kb_types, heights = walk(own)
            type_of: Callable[[str], str | None] = lambda name: coarse_type(self._type_map, name)  # noqa: E731
            if len(own) == 1:
                types = nearest_types(kb_types, heights, type_of)
            else:
                each = (nearest_types(*walk((name,)), type_of) for name in own[: limits.MAX_KB_TYPES])
                types = tuple(dict.fromkeys(name for some in each for name in some))
            found = tuple(kb_types), types
            if sum(map(len, own)) <= _MAX_CACHED_LENGTH:
                self._types[own] = found
        return found


class _ItemMaker(_Maker):
    """Makes entities from the statements of Wikidata, as from its JSON dump."""

    def __init__(
        self,
        survey: _Survey,
        languages: Sequence[str],
        options: ReadOptions,
        scopes: frozenset[str],
        type_map: TypeMap,
        report: ReadReport,
    ) -> None:
        super().__init__(survey, languages, options, scopes, type_map, report)
        if wrong := [name for name in options.classes if not item_number(name)]:
            raise OptionError("classes", f"not the id of a class: {', '.join(wrong)}. Give ids like Q5")
        wanted = frozenset(map(item_number, options.classes))
        self._finder = ClassTypeFinder(survey.item_edges(), type_map=type_map, wanted=wanted)

    def _no_name(self) -> str:
        return NO_LABEL

    def _choose_first(self, labels: Sequence[_Text], aliases: Sequence[_Text]) -> _Text | None:
        return labels[0] if labels else None

    def _find_reason(self, identity: str, facts: Sequence[Fact], classes: set[str]) -> str | None:
        if not item_number(identity):
            return NOT_AN_ITEM
        types = self._finder.find(*self._find_classes(facts))
        if types.is_internal:
            return WIKIMEDIA_INTERNAL
        return None if types.is_included else OTHER_CLASS

    def _find_classes(self, facts: Sequence[Fact]) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Numbers of the classes that an item is an instance of, and of those it is a subclass of."""
        numbers = [
            dict.fromkeys(item_number(entity_id(fact[1])) for fact in facts if fact[0] in names and fact[2] is None)
            for names in (self.profile.types, self.profile.parents)
        ]
        instance_of, subclass_of = (tuple(filter(None, found)) for found in numbers)
        return instance_of, subclass_of

    def _make_entity(
        self, identity: str, facts: Sequence[Fact], names: Sequence[str], language: str, description: str | None
    ) -> Entity | None:
        types = self._finder.find(*self._find_classes(facts))
        extra = {} if self._languages.is_first(language) else {"language": language}
        bounded = self._report.bound_names(identity, names)
        return Entity(identity, bounded[0], bounded[1:], types.kb_types, types.types, description, extra)
