"""Read any RDF: ontologies in OWL, thesauri in SKOS, YAGO 4 and 4.5, Wikidata's truthy dump, and names in general.

Syntaxes are in `ingest.readers.rdf_syntax`, vocabularies in `ingest.readers.rdf_entities`, entities in
`ingest.readers.rdf_entities`. Files, folders and zips of one base are read together: what several files say of a
subject is joined.

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

import re
from array import array
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from operator import itemgetter

import msgspec
import numpy as np
from pyoxigraph import Literal, NamedNode, Quad

from ingest.base.format import PathLike, ReadOptions
from ingest.base.merge import Hashes, RowStore, store_scattered
from ingest.base.reader import Reader
from ingest.base.type_map import TypeMap
from ingest.io import limits
from ingest.io.encoding import HEAD_BYTES
from ingest.io.report import NUL_CHARACTER, TOO_MANY_ROWS, ReadReport
from ingest.io.streams import ByteSource, list_inputs
from ingest.readers import rdf_entities as known
from ingest.readers.ontology import ClassTree, check_scopes
from ingest.readers.rdf_entities import (
    EntityMaker,
    Fact,
    ItemMaker,
    Profile,
    Vocabulary,
    entity_id,
    is_true,
    profiles,
    type_name,
)
from ingest.readers.rdf_syntax import check_syntax, read_triples
from ingest.readers.signs import RDF_ENDING, find_syntax
from ingest.readers.wikidata import ClassTypeFinder, check_languages, class_numbers, item_number
from pearl_qdrant.errors import FormatError
from pearl_qdrant.records import Entity

BLANK_NODE = "blank_node"

Run = tuple[str, list[Fact]]  # a subject and what is said of it in one place

_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(tuple[int, str, list[Fact]])

_MAX_SEEN = 1_000  # different properties that are remembered for a message, and subjects that show a vocabulary

# Files of YAGO that name nothing. In Turtle the taxonomy has the classes of the schema, too.
_UNUSED = re.compile(r"yago.*(?:wd-facts|annotated-facts|meta|shapes|statistics|log|schema\.ttl)\b", re.IGNORECASE)
_OLD_YAGO = re.compile(r"yago-wd-", re.IGNORECASE)


class RdfReader(Reader):
    """A base in RDF, in one or several files; a `Reader`. A row of its report is a statement that matters."""

    def __init__(self, paths: Sequence[PathLike], options: ReadOptions, type_map: TypeMap | None = None) -> None:
        """Open the files, folders and zips, and find their syntaxes; ``-`` is standard input. Raises FormatError if a
        path cannot be opened, or a file is not RDF; ValueError if an option makes no sense.
        """
        super().__init__(type_map=type_map, limit=options.limit)
        self._options = options
        self._scopes = check_scopes(options.scopes)
        check_languages(options.languages)
        given = options.label_properties, options.alias_properties, options.type_properties
        self._added = [known.expand(names) for names in given]
        self._survey: _Survey | None = None
        try:
            self._files = self._find_files(paths)
        except BaseException:
            self.close()
            raise

    def read(self, report: ReadReport, *, scattered: Hashes | None = None) -> Iterator[Entity]:
        """Entities, each id once; see `Reader.read`. The statements of an id are joined already, but for Wikidata."""
        if scattered is None and not self._read_survey().known.profile.is_items:
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

    def _make_maker(self, report: ReadReport) -> EntityMaker:
        vocabulary = self._read_survey().known
        kind = ItemMaker if vocabulary.profile.is_items else EntityMaker
        return kind(vocabulary, self._options, self._scopes, type_map=self.type_map, report=report)

    def _find_files(self, paths: Sequence[PathLike]) -> list[tuple[ByteSource, str]]:
        """The files with their syntaxes, in the order of the paths; those of a folder or zip by name."""
        if not paths:
            raise ValueError("nothing to read: no path was given")
        found = [(file, syntax) for path in paths for file, syntax in self._open(str(path)) if syntax]
        names = [re.split(r"[!/\\]", source.path)[-1] for source, _ in found]
        self._is_named_by_id = not any(map(_OLD_YAGO.match, names))  # in YAGO 4 the file of labels decides
        used = [one for one, name in zip(found, names, strict=True) if len(found) == 1 or not _UNUSED.match(name)]
        if not used:
            seen = ", ".join(names[:20]) or "no RDF"
            raise FormatError(str(paths[0]), None, f"has no file of RDF that names anything. There is: {seen}")
        return used

    def _open(self, path: str) -> Iterator[tuple[ByteSource, str | None]]:
        """The files under a path, zips in a folder included; what was named itself, or by its ending, must be RDF."""
        outer = list_inputs(path, n_levels=1)
        names = [inner for one in outer for inner in ([one] if one == path else list_inputs(one))]
        for source in self.open_sources(names) if names else ():
            head = source.head(HEAD_BYTES).removeprefix(b"\xef\xbb\xbf")
            must_be = names == [path] or RDF_ENDING.search(source.path)
            yield source, check_syntax(source.path, head) if must_be else find_syntax(head)

    def _read_survey(self) -> _Survey:
        """What a first pass over all files finds. Raises as `read`."""
        if self._survey is None:
            wanted = frozenset().union(*(one.extend(*self._added).properties() for one in profiles().values()))
            survey = _Survey()
            for source, syntax in self._files:
                for subject, facts in _read_runs(source, syntax, wanted, ReadReport(max_errors=None), survey):
                    survey.add(subject, facts)
            survey.finish(self._added, is_named_by_id=self._is_named_by_id)
            self._check(survey)
            if survey.known.profile.is_items:
                edges = ((low, (up,)) for low, up in zip(survey.lower, survey.upper, strict=True))
                numbers = class_numbers(self._options.classes)
                survey.known.finder = ClassTypeFinder(edges, type_map=self.type_map, wanted=numbers)
            self._survey = survey
        return self._survey

    def _check(self, survey: _Survey) -> None:
        """Refuse files without a name, and options that the vocabulary does not have."""
        (source, syntax), profile = self._files[0], survey.known.profile
        if profile.is_items and self._options.links:
            raise FormatError(source.path, None, "to keep the links between items, read the JSON dump")
        naming = (*profile.labels, *profile.aliases, *(profile.types if profile.is_named_by_id else ()))
        if survey.known.counts.keys().isdisjoint(naming):
            used = ", ".join(name for name, _ in survey.seen.most_common(8)) or "no statement"
            message = f"is {syntax} in which nothing has a name by a known property. It has: {used}"
            raise FormatError(
                source.path, None, f"{message}. Name the property of the names.", option="label_properties"
            )

    def _read_entities(self, maker: EntityMaker, report: ReadReport) -> Iterator[Entity]:
        """One entity for each subject: those with adjacent statements first."""
        survey, wanted = self._read_survey(), maker.profile.properties()
        with RowStore() as store:
            for number, (source, syntax) in enumerate(self._files):
                runs = _read_runs(source, syntax, wanted, report, None)
                for subject, facts in survey.take_scattered(runs, store, number):
                    report.place = source.path, facts[0][3]
                    entity = maker.make(subject, facts)
                    if entity is not None:
                        yield entity
            for subject, records in groupby(map(_decoder.decode, store.rows()), itemgetter(1)):
                entity = maker.make(subject, self._join(subject, records, report))
                if entity is not None:
                    yield entity

    def _join(self, subject: str, records: Iterable[tuple[int, str, list[Fact]]], report: ReadReport) -> list[Fact]:
        """The statements of a subject from several places, up to the limits."""
        joined = list[Fact]()
        for number, _, facts in records:
            path = self._files[number][0].path
            if not joined:
                report.place = path, facts[0][3]
            for fact in facts:
                if len(joined) >= limits.MAX_ROWS:
                    report.skip(TOO_MANY_ROWS, path=path, line=fact[3], text=f"{subject} {fact[1]}")
                else:
                    joined.append(fact)
        return joined


def _read_runs(
    source: ByteSource, syntax: str, wanted: frozenset[str], report: ReadReport, survey: _Survey | None
) -> Iterator[Run]:
    """Statements with the wanted properties, those of one subject together as long as they are adjacent; `rows` of the
    report counts them, and those beyond the limits of an entity are skipped. The survey sees the other statements.
    """
    last, facts = "", list[Fact]()
    for quad, line in read_triples(source, syntax, report):
        predicate = quad.predicate.value
        if predicate not in wanted:
            if survey is not None:
                survey.see(predicate, quad)
            continue
        node, target = quad.subject, quad.object
        if type(node) is not NamedNode:
            if predicate == known.LABEL:
                report.filter_out(BLANK_NODE)
            continue
        if not isinstance(target, (NamedNode, Literal)):
            continue
        # The first pass looks at links only.
        is_passed = survey is not None and type(target) is Literal and predicate != known.DEPRECATED
        text, language = ("", "") if is_passed else (target.value, _language_of(target))
        report.rows += 1
        subject = node.value
        if subject != last:
            if facts:
                yield last, facts
            last, facts = subject, []
        if "\0" in text or "\0" in subject:
            report.skip(NUL_CHARACTER, path=source.path, line=line, text=f"{subject} {text}")
        elif len(facts) >= limits.MAX_ROWS:
            report.skip(TOO_MANY_ROWS, path=source.path, line=line, text=f"{subject} {text}")
        else:
            facts.append((predicate, text, language, line))
    if facts:
        yield last, facts


def _language_of(target: NamedNode | Literal) -> str | None:
    """The language of a literal in lower case, "" if it has none; None for an IRI."""
    return (target.language or "").lower() if isinstance(target, Literal) else None


class _Survey:
    """The first pass: what it finds, statements of the first properties that no vocabulary knows, and edges between the
    classes of Wikidata.
    """

    def __init__(self) -> None:
        self.known = Vocabulary()
        self.seen = Counter[str]()
        self._concepts = ClassTree()
        self.lower, self.upper = array("i"), array("i")
        self._hashes = array("q")
        self._scattered = np.empty(0, dtype=np.int64)
        self._n = Counter[str]()
        self._keeps_hashes, self._skos = True, profiles()["skos"]

    def see(self, predicate: str, quad: Quad) -> None:
        """Take a statement that matters in no vocabulary."""
        if predicate in self.seen or len(self.seen) < _MAX_SEEN:
            self.seen[predicate] += 1
        if predicate == known.LITERAL_FORM:
            node, text = getattr(quad.subject, "value", ""), quad.object
            self.known.labels[node] = getattr(text, "value", ""), (getattr(text, "language", "") or "").lower()

    def add(self, subject: str, facts: Sequence[Fact]) -> None:
        """Take the adjacent statements of a subject that matter in some vocabulary."""
        identity, counts = entity_id(subject), self.known.counts
        if self._keeps_hashes:
            self._hashes.append(hash(identity))
        classes = set()
        for predicate, value, language, _ in facts:
            counts[predicate] += 1
            if predicate == known.RDF_TYPE:
                classes.add(value)
            elif language is None:
                self._add_edge(subject, predicate, value)
        names = {fact[0] for fact in facts}
        if not names.isdisjoint(known.REPLACED_BY):
            is_gone = any(fact[0] == known.DEPRECATED and is_true(fact[1]) for fact in facts)
            for predicate, value, _, _ in facts:
                if predicate in known.REPLACED_BY and (is_gone or predicate.endswith("isReplacedBy")):
                    self.known.tree.replace(identity, entity_id(value))
        self._count(subject, classes, has_label=known.LABEL in names)

    def _add_edge(self, subject: str, predicate: str, value: str) -> None:
        """Take a statement whose value is no literal."""
        if predicate == known.WIKIDATA_PARENT:
            lower, upper = item_number(entity_id(subject)), item_number(entity_id(value))
            if lower and upper:
                self.lower.append(lower)
                self.upper.append(upper)
            return
        is_down, is_class = predicate in self._skos.children, predicate == known.SUBCLASS_OF
        if is_down or is_class or predicate in self._skos.parents:
            below, above = map(type_name, (value, subject) if is_down else (subject, value))
            if below and above:
                (self.known.tree if is_class else self._concepts).add(below, above)

    def _count(self, subject: str, classes: set[str], *, has_label: bool) -> None:
        n = self._n
        n["subjects"] += 1
        n["items"] += subject.startswith(known.WIKIDATA)
        n["yago"] += subject.startswith(known.YAGO)
        if not known.CLASSES.isdisjoint(classes):
            n["classes"] += 1
            self.known.has_classes = self.known.has_classes or has_label
        elif known.CONCEPT in classes:
            n["concepts"] += 1
        elif not known.PROPERTIES.isdisjoint(classes):
            n["properties"] += 1
        elif any(not name.startswith(known.VOCABULARIES) for name in classes):
            n["instances"] += 1
        if n["subjects"] == _MAX_SEEN and self._choose().is_items:
            self._keeps_hashes, self._hashes = False, array("q")  # the largest base of all

    def _choose(self) -> Profile:
        """The vocabulary."""
        n, counts, found = self._n, self.known.counts, profiles()
        items, skos = found["wikidata"], self._skos
        if counts.keys() & {*items.types, *items.parents} or n["items"] * 2 > n["subjects"]:
            return items
        if n["yago"] and n["yago"] * 4 >= n["subjects"]:
            return found["yago"]
        if n["classes"] and n["classes"] >= max(n["concepts"], n["instances"]):
            return found["ontology"]
        signs = {*skos.parents, *skos.children, *skos.labels} - {known.LABEL}
        n_skos = sum(counts[name] for name in signs)
        n_names = sum(counts[name] for name in found["names"].labels if name not in signs)
        if n_skos and (n["concepts"] >= n["instances"] if n["concepts"] else n_skos > n_names):
            return skos
        return found["ontology" if n["properties"] and not n["instances"] else "names"]

    def finish(self, added: Sequence[tuple[str, ...]], *, is_named_by_id: bool) -> None:
        """Choose the vocabulary, with further properties of labels, aliases and types, and index what was taken."""
        found, chosen = self.known, self._choose()
        profile = chosen.extend(*added)
        found.profile = msgspec.structs.replace(profile, is_named_by_id=profile.is_named_by_id and is_named_by_id)
        if chosen is self._skos:
            self._concepts.replaced = found.tree.replaced
            found.tree = self._concepts
        found.tree.finish()
        if not chosen.is_items:
            values, counts = np.unique(np.asarray(self._hashes), return_counts=True)
            self._scattered = values[counts > 1]
        self._concepts, self._hashes = ClassTree(), array("q")

    def take_scattered(self, runs: Iterable[Run], store: RowStore, number: int) -> Iterator[Run]:
        """The id of an entity and all that is said of it, where that is one run; the others go into the store."""
        return store_scattered(
            ((entity_id(subject), facts) for subject, facts in runs),
            self._scattered,
            store,
            id_of=itemgetter(0),
            size_of=lambda run: sum([len(fact[1]) for fact in run[1]]),
            to_json=lambda run: _encoder.encode((number, *run)).decode(),
            hash_all=lambda ids: np.fromiter(map(hash, ids), dtype=np.int64, count=len(ids)),
        )
