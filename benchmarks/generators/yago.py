"""Makes YAGO downloads of invented facts in the real formats.

YAGO 4 is N-Triples: labels in eight languages, with types and Wikidata ids in other files and in another order. YAGO
4.5 is Turtle: two rows in five are names, types and links; the rest are facts that a reader of names skips. The real
files have more of those.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

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
"""Mean number of facts of an entity that a reader of names skips; YAGO 4.5 has more."""


def entities(rng: random.Random) -> Iterator[tuple[str, str, str, str]]:
    """Endless tuples of local name, name, comment and class."""
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


def make_yago_4(folder: Path, n_bytes: int) -> None:
    """Write YAGO 4 into a new folder, with about `n_bytes` of labels."""
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


def make_yago_45(folder: Path, n_bytes: int) -> None:
    """Write YAGO 4.5 into a new folder, with about `n_bytes` of facts."""
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
