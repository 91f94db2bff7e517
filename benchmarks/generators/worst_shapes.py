"""The worst files for each reader, at any size. `reader_worst_cases.py` measures them."""

from __future__ import annotations

import bz2
import gzip
import io
import itertools
import json
import lzma
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import zstandard

Files = Mapping[str, bytes]

PREFIXES = b"""@prefix yago: <http://yago-knowledge.org/resource/> .
@prefix rdf: <http://www.w3.org/1999/02/22-rdf-syntax-ns#> .
@prefix rdfs: <http://www.w3.org/2000/01/rdf-schema#> .
@prefix schema: <http://schema.org/> .
@prefix ex: <http://a/> .
"""
LINE = 900_000  # bytes of a line that is long, but short enough for the readers


def many(n: int, row: Callable[[int], str], *, start: bytes = b"") -> bytes:
    """At least `n` bytes of rows; `row` makes each from its number."""
    parts, size = [start], len(start)
    for i in itertools.count():
        if size >= n:
            return b"".join(parts)
        parts.append(row(i).encode())
        size += len(parts[-1])
    raise AssertionError


def long_rows(n: int, start: str, piece: Callable[[int], str], end: str = "\n") -> bytes:
    """At least `n` bytes of rows of nearly `LINE` bytes each: a start, many pieces, an end."""
    numbers = itertools.count()
    rows = []
    while sum(map(len, rows)) < n:
        room, parts = min(n, LINE), list[str]()
        while room > 0:
            parts.append(piece(next(numbers)))
            room -= len(parts[-1])
        rows.append(f"{start.replace('#', str(len(rows)))}{''.join(parts)}{end}".encode())
    return b"".join(rows)


def packed(members: Iterable[tuple[str, bytes]]) -> bytes:
    """A zip archive of members, given by name and content."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as file:
        for name, content in members:
            file.writestr(zipfile.ZipInfo(name), content, zipfile.ZIP_DEFLATED)
    return buffer.getvalue()


def atom(cui: str, name: str) -> str:
    """A row of MRCONSO.RRF."""
    return f"{cui}|ENG|P||PF||Y|A1||||X|PT||{name}|0|N||\n"


def term(n: int | str, *lines: str) -> str:
    """A stanza of OBO."""
    return "\n".join(("[Term]", f"id: A:{n}", f"name: n {n}", *lines, "", ""))


def item(n: int, above: Iterable[int] = (), instance: Iterable[int] = (), **more: Any) -> str:
    """A line of Wikidata's JSON, with a comma."""
    claims = {
        name: [{"mainsnak": {"snaktype": "value", "datavalue": {"value": {"id": f"Q{one}"}}}} for one in numbers]
        for name, numbers in (("P279", above), ("P31", instance))
    }
    row = {"type": "item", "id": f"Q{n}", "labels": {"en": {"value": f"n{n}"}}, "claims": claims, **more}
    return json.dumps(row, separators=(",", ":")) + ",\n"


def wikidata(n: int, row: Callable[[int], str]) -> Files:
    """A dump of items, numbered from 1."""
    return {"dump.json": many(n, lambda i: row(i + 1), start=b"[\n")}


def yago(n: int, row: Callable[[int], str]) -> bytes:
    """Turtle."""
    return many(n, row, start=PREFIXES)


def label(subject: object, text: object) -> str:
    """A row of Turtle that names an entity."""
    return f'yago:{subject}\trdfs:label\t"{text}"@en\t.\n'


def above(lower: object, upper: object) -> str:
    """A row of Turtle that puts a class under another one."""
    return f"yago:{lower}\trdfs:subClassOf\tyago:{upper}\t.\n"


def typed(subject: object, kind: object) -> str:
    """A row of Turtle that gives an entity its class."""
    return f"yago:{subject}\trdf:type\tyago:{kind}\t.\n"


def truthy(n: int, predicate: str, value: object) -> str:
    """A row of Wikidata's truthy dump."""
    return f"<http://www.wikidata.org/entity/Q{n}> <{predicate}> {value} .\n"


def graphs(n: int) -> Iterator[tuple[str, Callable[[int], list[int]]]]:
    """Class graphs by name, as functions from a class (from 1) to its parents; a star has `n` points."""
    yield "chain", lambda i: [i + 1]
    yield "ladder", lambda i: [i + 1, i + 2]
    yield "cycle of 1,000", lambda i: [i % 1000 + 1]
    yield "star", lambda i: list(range(2, n)) if i == 1 else [1]


def tsv_shapes() -> Iterator[tuple[str, Callable[[int], Files]]]:
    """TSV, plain and compressed."""

    def alone(content: bytes) -> Files:
        return {"base.tsv": content}

    def wide(n: int, n_columns: int) -> bytes:
        header = "id\tname\t" + "\t".join(f"c{i}" for i in range(n_columns))
        return many(n, lambda i: f"{i}\tx\n", start=header.encode() + b"\n")

    yield "plain rows", lambda n: alone(many(n, lambda i: f"Q{i}\tname {i}\tPER\tother {i}\n"))
    yield "one line", lambda n: alone(b"Q1\tname\nQ2\t" + b"x" * n)
    yield "one id", lambda n: alone(many(n, lambda i: f"Q1\tname {i}\n"))
    yield "one id, long names", lambda n: alone(long_rows(n, "Q1\t#", lambda i: f"{i:9}"))
    yield "two ids in turn", lambda n: alone(many(n, lambda i: f"Q{i % 2}\tname {i}\n"))
    yield "aliases in a cell", lambda n: alone(long_rows(n, "Q#\tn\tPER\t", lambda i: f"{i}|"))
    yield "types in a cell", lambda n: alone(long_rows(n, "Q#\tn\t", lambda i: f"{i}|"))
    yield "backslashes", lambda n: alone(long_rows(n, "Q#\tn\tPER\ta|", lambda i: "\\" * 999))
    yield "columns", lambda n: alone(wide(n, min(n // 10, LINE) // 7))
    yield "4,000 columns, short rows", lambda n: alone(wide(n, 4_000))
    yield "tabs", lambda n: alone(long_rows(n, "Q#\tn", lambda i: "\t" * 999))
    yield "blank lines", lambda n: alone(b"Q1\tx\n" + b"\n" * n)
    yield "bad UTF-8", lambda n: alone(b"Q1\tx\n" + b"Q2\t\xff\xfe\n" * (n // 6))
    yield "bad UTF-8, long lines", lambda n: alone(b"Q1\tx\n" + (b"\xff" * LINE + b"\n") * (n // LINE + 1))
    yield "CRLF", lambda n: alone(many(n, lambda i: f"Q{i}\tn\r\n"))
    yield "gzip members", lambda n: alone(gzip.compress(b"Q1\tx\n") + gzip.compress(b"\n", mtime=0) * (n // 21))
    yield "bzip2 streams", lambda n: alone(bz2.compress(b"Q1\tx\n") + bz2.compress(b"") * (n // 14))
    yield "xz streams", lambda n: alone(lzma.compress(b"Q1\tx\n") + lzma.compress(b"") * (n // 32))
    frame = zstandard.ZstdCompressor(write_content_size=False).compress
    yield "zstd frames", lambda n: alone(frame(b"Q1\tx\n") + frame(b"\n") * (n // len(frame(b"\n"))))


def obo_shapes() -> Iterator[tuple[str, Callable[[int], Files]]]:
    """OBO."""

    def alone(content: bytes) -> Files:
        return {"base.obo": content}

    def graph(name: str, n: int) -> bytes:
        parents = dict(graphs(n // 40))[name]
        return many(n, lambda i: term(i + 1, *(f"is_a: A:{p}" for p in parents(i + 1))))

    def replaced(n: int) -> bytes:
        gone = many(n // 2, lambda i: term(f"x{i}", "is_obsolete: true", "replaced_by: A:1"))
        return gone + many(n // 2, lambda i: term(1 + i % 2, f'synonym: "{i}" EXACT []'))

    for name, _ in graphs(9):
        yield name, lambda n, name=name: alone(graph(name, n))  # type: ignore[misc]
    yield "one line", lambda n: alone(term(1).encode() + b"def: " + b"x" * n)
    yield "one id", lambda n: alone(many(n, lambda i: term(1, f'synonym: "s {i}" EXACT []')))
    yield "one stanza", lambda n: alone(many(n, lambda i: f'synonym: "s {i}" EXACT []\n', start=term(1).encode()[:-1]))
    yield "replaced ids", lambda n: alone(replaced(n))
    values = {
        "modifiers in doubt": ("name: a {", lambda i: "a=a", '"}'),
        "modifiers, blanks": ("name: a {", lambda i: "a=b  ", '"}'),
        "modifiers": ("name: a {", lambda i: f'k{i}="v", ', 'k="v"}'),
        "braces": ("name: a", lambda i: " {", "}"),
        "open quote": ('synonym: "', lambda i: "x" * 999, " EXACT []"),
        "quotes": ("name: a {", lambda i: 'a="\\""', "x}"),
        "backslashes": ('synonym: "', lambda i: "\\" * 999, '" EXACT []'),
        "comments": ("name: a", lambda i: " !x", ""),
        "brackets": ("def: ", lambda i: "[", ""),
    }
    for name, (start, piece, end) in values.items():
        yield (
            name,
            lambda n, start=start, piece=piece, end=end: alone(
                term(0).encode() + long_rows(n, f"[Term]\nid: A:#\nname: n\n{start}", piece, f"{end}\n")
            ),
        )
    yield "blank lines", lambda n: alone(b"\n" * n + term(1).encode())
    yield "bad UTF-8", lambda n: alone(term(1).encode() + b"name: \xff\n" * (n // 8))
    yield "CRLF", lambda n: alone(many(n, lambda i: term(i).replace("\n", "\r\n")))


def umls_shapes() -> Iterator[tuple[str, Callable[[int], Files]]]:
    """UMLS."""

    def meta(n: int, row: Callable[[int], str], **others: bytes) -> Files:
        tables = {f"{name}.RRF": content for name, content in others.items()}
        return {"MRCONSO.RRF": many(n, row), **tables}

    def turns(i: int) -> str:
        return atom(f"C000000{i % 2}", f"n {i}")

    yield "plain rows", lambda n: meta(n, lambda i: atom(f"C{i // 3:07}", f"n {i}"))
    yield "one line", lambda n: {"MRCONSO.RRF": atom("C0000001", "n").encode() + b"C2|" + b"x" * n}
    yield "one id", lambda n: meta(n, lambda i: atom("C0000001", f"n {i}"))
    yield "one id, one name", lambda n: meta(n, lambda i: "C1|ENG|||||||||||||n||N||\n")
    yield "two ids in turn", lambda n: meta(n, turns)
    yield "a long id", lambda n: meta(n, lambda i: atom("C" * 100_000 if i % 2_000 == 9 else f"C{i:07}", "n"))
    yield "tree number", lambda n: meta(999, turns, MRSTY=long_rows(n, "C000000#|T#|A", lambda i: ".1", "|x|||\n"))
    yield "TUIs", lambda n: meta(999, turns, MRSTY=many(n, lambda i: f"C{i:07}|T{i}|A1.1|x|||\n"))
    yield "TUIs of one id", lambda n: meta(999, turns, MRSTY=many(n, lambda i: f"C0000001|T{i % 9999}|A1.1|x|||\n"))
    definitions: Callable[[int], str] = lambda i: f"C0000001|A{i + 2}|||X|d{i}|N||\n"  # noqa: E731
    yield "definitions", lambda n: meta(n // 2, turns, MRDEF=many(n // 2, definitions))
    yield "blank lines", lambda n: {"MRCONSO.RRF": atom("C0000001", "n").encode() + b"\n" * n}
    yield "bad UTF-8", lambda n: {"MRCONSO.RRF": many(n, turns).replace(b"n ", b"\xff ")}
    yield "CRLF", lambda n: meta(n, lambda i: turns(i).replace("\n", "\r\n"))
    yield (
        "zip members",
        lambda n: {
            "b.zip": packed(
                [("MRCONSO.RRF", atom("C0000001", "n").encode()), *((f"{i:07}.rrf", b"") for i in range(n // 120))]
            )
        },
    )
    yield (
        "zips in a zip",
        lambda n: {
            "b.zip": packed(
                [
                    ("MRCONSO.RRF", atom("C0000001", "n").encode()),
                    *((f"{i:07}.nlm", packed([("x", b"x")])) for i in range(n // 250)),
                ]
            )
        },
    )


def yago_shapes() -> Iterator[tuple[str, Callable[[int], Files]]]:  # long: a list, one shape after the other
    """YAGO 4 and 4.5."""

    def facts(content: bytes) -> Files:
        return {"yago-facts.ttl": content}

    def classes(name: str, n: int) -> Files:
        half = n // 2
        parents = dict(graphs(half // 40))[name]
        rows = many(half, lambda i: "".join(above(f"C{i + 1}", f"C{p}") for p in parents(i + 1)), start=PREFIXES)
        return {"yago-taxonomy.ttl": rows, **facts(yago(half, lambda i: typed(f"E{i}", f"C{i + 1}")))}

    def beside(name: str, row: Callable[[int], str]) -> Callable[[int], Files]:
        def make(n: int) -> Files:
            turns = yago(n // 2, lambda i: label(f"E{i % 2}", "n"))
            return {"yago-wd-labels.nt": turns, f"yago-wd-{name}.nt": yago(n // 2, row)}

        return make

    for name, _ in graphs(9):
        yield name, lambda n, name=name: classes(name, n)  # type: ignore[misc]
    yield "one line", lambda n: facts(PREFIXES + label("E", "n").encode() + b"yago:E\trdfs:label\t" + b"x" * n)
    yield "one subject", lambda n: facts(yago(n, lambda i: label("E", i)))
    yield "two subjects in turn", lambda n: facts(yago(n, lambda i: label(f"E{i % 2}", i)))
    yield "classes of one", lambda n: facts(yago(n, lambda i: typed("E", i)))
    yield (
        "labels in turn",
        lambda n: {
            "yago-facts.ttl": yago(n // 2, lambda i: typed(f"E{i % 2}", "C")),
            "yago-labels.ttl": yago(n // 2, lambda i: label(f"E{i % 2}", i)),
        },
    )
    yield "types in turn", beside("full-types", lambda i: typed(f"E{i % 2}", f"C{i}"))
    yield (
        "prefixes",
        lambda n: facts(
            yago(n, lambda i: f"@prefix p{i}: <http://www.w3.org/2000/01/> .\n") + label("E", "n").encode()
        ),
    )
    yield (
        "colons",
        lambda n: facts(yago(n, lambda i: label(f"E{'a:' * 9}{i}", "n"))),
    )
    yield "over lines", lambda n: facts(yago(n, lambda i: "ex:a ex:b\n ex:c .\n") + label("E", "n").encode())
    yield (
        "backslashes",
        lambda n: facts(PREFIXES + long_rows(n, 'yago:E#\trdfs:label\t"', lambda i: "\\" * 998, '"@en\t.\n')),
    )
    yield (
        "dots",
        lambda n: facts(
            PREFIXES + label("E", "n").encode() + long_rows(n, "yago:E#\trdf:type\tyago:x", lambda i: " .", " x\n")
        ),
    )
    yield "blank lines", lambda n: facts(PREFIXES + label("E", "n").encode() + b"\n" * n)
    yield (
        "bad UTF-8",
        lambda n: facts(PREFIXES + label("E", "n").encode() + b'yago:E\trdfs:label\t"\xff"@en\t.\n' * (n // 30)),
    )
    yield "CRLF", lambda n: facts(yago(n, lambda i: label(f"E{i}", "n")).replace(b"\n", b"\r\n"))
    yield (
        "zip members",
        lambda n: {
            "b.zip": packed(
                [
                    ("yago-facts.ttl", PREFIXES + label("E", "n").encode()),
                    *((f"yago-{i:07}.ttl", b"\n") for i in range(n // 130)),
                ]
            )
        },
    )
    slow = "yago-wd-" * 8000 + "/x.nt"
    yield (
        "long names in a zip",
        lambda n: {
            "b.zip": packed(
                [
                    ("yago-facts.ttl", PREFIXES + label("E", "n").encode()),
                    *((f"{i}{slow}", b"\n") for i in range(n // 130_000)),
                ]
            )
        },
    )


def wikidata_shapes() -> Iterator[tuple[str, Callable[[int], Files]]]:
    """Wikidata as JSON."""

    def graph(name: str, n: int) -> Files:
        parents = dict(graphs(n // 200))[name]
        return wikidata(n, lambda i: item(i, parents(i)))

    def names(n: int) -> Iterable[dict[str, str]]:
        return [{"value": f"a{i}"} for i in range(n)]

    for name, _ in graphs(9):
        yield name, lambda n, name=name: graph(name, n)  # type: ignore[misc]
    yield "one line", lambda n: {"dump.json": b"[\n" + item(1).encode() + b'{"type":"item","x":"' + b"x" * n}
    yield "one id", lambda n: wikidata(n, lambda i: item(1, labels={"en": {"value": f"n{i}"}}))
    yield "two ids in turn", lambda n: wikidata(n, lambda i: item(1 + i % 2, labels={"en": {"value": f"n{i}"}}))
    yield "aliases", lambda n: {"dump.json": item(1, aliases={"en": names(n // 20)}).encode()}
    yield "sitelinks", lambda n: {"dump.json": item(1, sitelinks={f"{i:x}": {} for i in range(n // 11)}).encode()}
    yield "classes of one", lambda n: {"dump.json": item(1, instance=range(1, n // 80)).encode()}
    yield "deep JSON", lambda n: {"dump.json": b"[\n" + item(1).encode() + b'{"a":' * (n // 5)}
    yield (
        "deep JSON, lines",
        lambda n: wikidata(n, lambda i: item(i) if i == 1 else '{"id":"Q1","x":' + "[" * 900 + "\n"),
    )
    yield "blank lines", lambda n: {"dump.json": b"\n" * n + item(1).encode()}
    yield (
        "bad UTF-8",
        lambda n: {"dump.json": item(1).encode() + b'{"id":"Q2","labels":{"en":{"value":"\xff"}}}\n' * (n // 45)},
    )
    yield "CRLF", lambda n: {"dump.json": wikidata(n, item)["dump.json"].replace(b"\n", b"\r\n")}


def rdf_shapes() -> Iterator[tuple[str, Callable[[int], Files]]]:
    """Wikidata's truthy triples, RDF/XML and Turtle; YAGO has more."""
    subclass, direct_label = "http://www.wikidata.org/prop/direct/P279", "http://www.w3.org/2000/01/rdf-schema#label"
    xml = b'<rdf:RDF xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#" xmlns:x="http://x/"><rdf:Description>'
    yield (
        "truthy chain",
        lambda n: {
            "t.nt": many(
                n,
                lambda i: (
                    truthy(i + 1, subclass, f"<http://www.wikidata.org/entity/Q{i + 2}>")
                    + truthy(i + 1, direct_label, '"n"@en')
                ),
            )
        },
    )
    yield "truthy, one subject", lambda n: {"t.nt": many(n, lambda i: truthy(1, direct_label, f'"n{i}"@en'))}
    yield "truthy, blank lines", lambda n: {"t.nt": b"\n" * n + truthy(1, direct_label, '"n"@en').encode()}
    for name, part in (("elements", b"<x:a><rdf:Description>"), ("lists", b"("), ("blank nodes", b"[ ex:b ")):
        start = xml if name == "elements" else PREFIXES + b"<u:a> <u:b> "
        yield f"deep {name}", lambda n, part=part, start=start: {"x": start + part * (n // len(part))}  # type: ignore[misc]


SHAPES = {
    "tsv": tsv_shapes,
    "obo": obo_shapes,
    "umls": umls_shapes,
    "rdf": lambda: itertools.chain(yago_shapes(), rdf_shapes()),
    "wikidata": wikidata_shapes,
}
