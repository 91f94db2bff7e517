"""YAGO readers at size: MB/s of decompressed input, and memory, on generated files in the true form.

    python benchmarks/yago.py --megabytes 500

A base is generated (nothing of it is true): YAGO 4 as N-Triples, labels in eight languages and types and Wikidata ids
in another order, and YAGO 4.5 as Turtle, a third of whose rows are names, types and links. Each is read plain and as
gzip by one process, once through, as the scan before a load does. Anonymous memory is that of the process after the
tables beside the names are built, less what it was before.
"""

from __future__ import annotations

import gzip
import random
import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import click

from ingest.reader import ReadReport
from ingest.yago import YagoReader

RESOURCES = "http://yago-knowledge.org/resource/"
PREFIXES = {
    "yago": RESOURCES,
    "rdf": "http://www.w3.org/1999/02/22-rdf-syntax-ns#",
    "rdfs": "http://www.w3.org/2000/01/rdf-schema#",
    "owl": "http://www.w3.org/2002/07/owl#",
    "schema": "http://schema.org/",
    "wd": "http://www.wikidata.org/entity/",
}
LANGUAGES = ("de", "fr", "es", "it", "ru", "ja", "zh")
N_CLASSES = 2_000
N_FACTS = 6
"""Facts of an entity that no reader of names wants; YAGO 4.5 has more."""


def rss_anon() -> int:
    """Anonymous memory of this process, in bytes."""
    with Path("/proc/self/status").open(encoding="ascii") as file:
        return next(int(line.split()[1]) * 1024 for line in file if line.startswith("RssAnon"))


def entities(rng: random.Random) -> Iterator[tuple[str, str, str, str]]:
    """Local names, names, comments and classes, without end."""
    letters = "abcdefghijklmnopqrstuvwxyzé"
    words = ["".join(rng.choices(letters, k=rng.randint(3, 9))) for _ in range(5_000)]
    number = 0
    while True:
        number += 1
        name = " ".join(rng.choices(words, k=rng.randint(1, 3))).title()
        comment = " ".join(rng.choices(words, k=rng.randint(3, 9)))
        yield f"{name.replace(' ', '_')}_Q{number}", name, comment, f"Class_Q{int(rng.paretovariate(1)) % N_CLASSES}"


def full(term: str) -> str:
    """A prefixed name as an IRI."""
    prefix, _, local = term.partition(":")
    return f"<{PREFIXES[prefix]}{local}>"


def generate_4(folder: Path, n_bytes: int) -> int:
    """Files of YAGO 4, about `n_bytes` of labels; returns how many entities."""
    folder.mkdir()
    rng = random.Random(4)
    label, comment = full("rdfs:label"), full("rdfs:comment")
    alternate, a, same_as = full("schema:alternateName"), full("rdf:type"), full("owl:sameAs")
    beside = []
    with (folder / "yago-wd-labels.nt").open("w", encoding="utf-8") as file:
        for local, name, text, kind in entities(rng):
            subject = f"<{RESOURCES}{local}>"
            file.write(f'{subject}\t{label}\t"{name}"@en\t.\n{subject}\t{comment}\t"{text}"@en\t.\n')
            for language in LANGUAGES[: rng.randint(0, len(LANGUAGES))]:
                file.write(f'{subject}\t{label}\t"{name}"@{language}\t.\n')
            if rng.random() < 0.5:
                file.write(f'{subject}\t{alternate}\t"{name.upper()}"@en\t.\n')
            beside.append((subject, kind))
            if file.tell() > n_bytes:
                break
    rng.shuffle(beside)
    with (folder / "yago-wd-full-types.nt").open("w", encoding="utf-8") as file:
        file.writelines(f"{subject}\t{a}\t<{RESOURCES}{kind}>\t.\n" for subject, kind in beside)
    with (folder / "yago-wd-sameAs.nt").open("w", encoding="utf-8") as file:
        items = ((subject, subject[:-1].rpartition("_")[2]) for subject, _ in beside)
        file.writelines(f"{subject}\t{same_as}\t<{PREFIXES['wd']}{item}>\t.\n" for subject, item in items)
    with (folder / "yago-wd-class.nt").open("w", encoding="utf-8") as file:
        for i in range(1, N_CLASSES):
            file.write(f"<{RESOURCES}Class_Q{i}>\t{full('rdfs:subClassOf')}\t<{RESOURCES}Class_Q{i // 3}>\t.\n")
    return len(beside)


def generate_45(folder: Path, n_bytes: int) -> int:
    """Files of YAGO 4.5, about `n_bytes` of facts; returns how many entities."""
    folder.mkdir()
    rng = random.Random(45)
    header = "".join(f"@prefix {prefix}: <{namespace}> .\n" for prefix, namespace in PREFIXES.items())
    n = 0
    with (folder / "yago-facts.ttl").open("w", encoding="utf-8") as file:
        file.write(header)
        for local, name, text, kind in entities(rng):
            n += 1
            s = f"yago:{local}"
            file.write(f'{s}\trdf:type\tyago:{kind}\t.\n{s}\towl:sameAs\twd:Q{n}\t.\n{s}\trdfs:label\t"{name}"@en\t.\n')
            for i in range(rng.randint(0, 2 * N_FACTS)):
                file.write(f"{s}\tschema:property{i}\t{s}_{i}\t.\n")
            file.write(f'{s}\trdfs:comment\t"{text}"@en\t.\n')
            if file.tell() > n_bytes:
                break
    with (folder / "yago-taxonomy.ttl").open("w", encoding="utf-8") as file:
        file.write(header)
        for i in range(1, N_CLASSES):
            file.write(f"yago:Class_Q{i}\trdfs:subClassOf\tyago:Class_Q{i // 3}\t.\n")
    return n


def compress(folder: Path, target: Path) -> Path:
    """The same files as gzip."""
    target.mkdir()
    for path in folder.iterdir():
        with path.open("rb") as raw, gzip.open(target / f"{path.name}.gz", "wb", compresslevel=6) as packed:
            shutil.copyfileobj(raw, packed, 1 << 20)
    return target


def measure(what: str, folder: Path, n_bytes: int, n_entities: int) -> None:
    """Read once, and print one line."""
    before = rss_anon()
    with YagoReader([folder]) as reader:
        report = ReadReport(max_errors=0)
        start, cpu = time.perf_counter(), time.process_time()
        runs = reader.read_runs(report)
        n, held = 0, 0
        for n, _ in enumerate(runs, 1):
            if n == 1:
                held = rss_anon() - before
        seconds, cpu = time.perf_counter() - start, time.process_time() - cpu
        after = rss_anon() - before
    if n != n_entities:
        raise SystemExit(f"{what}: {n} entities came of {n_entities}")
    click.echo(
        f"{what:<12} {n_bytes / 1e6:7.0f} MB {n:10,} entities {seconds:7.1f} s {n_bytes / seconds / 1e6:6.0f} MB/s "
        f"({n_bytes / cpu / 1e6:.0f} by processor time)  RssAnon +{held / 1e6:.0f} MB with the tables "
        f"({held / n:.0f} bytes an entity), +{after / 1e6:.0f} MB at the end"
    )


@click.command()
@click.option("--megabytes", default=500, show_default=True, help="Size of the leading file of each base.")
@click.option("--folder", type=click.Path(file_okay=False, path_type=Path), help="Where to generate.")
def main(megabytes: int, folder: Path | None) -> None:
    """Generate a YAGO 4 and a YAGO 4.5, and read them."""
    with tempfile.TemporaryDirectory(dir=folder) as place:
        for what, generate in (("4.5", generate_45), ("4", generate_4)):
            plain = Path(place) / what
            n_entities = generate(plain, megabytes * 1_000_000)
            n_bytes = sum(path.stat().st_size for path in plain.iterdir())
            measure(f"{what} plain", plain, n_bytes, n_entities)
            measure(f"{what} gzip", compress(plain, Path(place) / f"{what}-gz"), n_bytes, n_entities)


if __name__ == "__main__":
    main()
