"""Links the same mentions with pearl-qdrant and with what users write instead, in one run.

    python benchmarks/linking/peers.py --data base.tsv --entities 60000 --plain FOLDER

--data is a TSV of entities (id, name, aliases separated by `|`), --plain a folder of all-MiniLM-L6-v2. Every program
has a process of its own and links a thousand mentions at a time:

    pearl-qdrant            `ingest` into the embedded store, `link_batch` in one process, then a worker for each core
    sentence-transformers   `encode` in batches of 256, and a FAISS HNSW index (M 32, efConstruction 200, efSearch 64)
    n-grams                 TF-IDF of three characters with an nmslib HNSW index, as scispaCy has it (M 100,
                            efConstruction 500, efSearch 200)
    rapidfuzz               `process.cdist` with `ratio` over all names, on all cores

Mentions, drawn once and the same for all:

    as in text   entities by a Zipf distribution; 60 % a name of the entity, 20 % with one slip, 20 % an alias that no
                 program's base has
    slips        distinct names, each with one slip

Printed: seconds to build, peak RssAnon in MB, links a second, and the share of mentions whose first candidate is right
(an entity that shares the right one's name counts as right). It needs the packages of the extra `peers`.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import click
import numpy as np

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "benchmarks"), str(ROOT / "runs")]  # `memory`, `recipe_tables`

from recipe_tables import page_option, read_tsv, write_rows  # noqa: E402

CHUNK = 1000
COLLECTION = "peers"
PROGRAMS = ("pearl-qdrant", "sentence-transformers", "n-grams", "rapidfuzz")
Link = Callable[[Sequence[str]], list[int]]
"""Returns the row of the first candidate's entity for each mention, -1 without one."""


def draw(data: Path, n_entities: int, n_mentions: int, folder: Path) -> None:
    """Write the base, its names, and the mentions with the entities that are right."""
    from pearl_qdrant.cells import join_list, split_list
    from pearl_qdrant.lexical.ngrams import fold_name
    from training.augment.draw import edit_character

    rng = random.Random(0)
    rows = [
        (row["name"], [alias for alias in split_list(row.get("aliases") or "") if alias != row["name"]])
        for row in read_tsv(data)
    ]
    rows = rng.sample(rows, min(n_entities, len(rows)))
    held_out = {}
    for i, (_, aliases) in enumerate(rows):
        if len(aliases) > 1 and i % 3 == 0:
            held_out[i] = aliases.pop(rng.randrange(len(aliases)))
    owners: dict[str, set[int]] = {}
    for i, (name, aliases) in enumerate(rows):
        for one in (name, *aliases):
            owners.setdefault(fold_name(one), set()).add(i)
    with (folder / "base.tsv").open("w", encoding="utf-8") as file:
        file.write("id\tname\taliases\n")
        for i, (name, aliases) in enumerate(rows):
            cell = join_list(aliases)
            file.write(f"{i}\t{name}\t{cell}\n")
    ranked = rng.sample(range(len(rows)), len(rows))
    weights = [1 / n for n in range(1, len(ranked) + 1)]
    with_alias = [i for i in ranked if i in held_out]
    text = []
    for i in rng.choices(ranked, weights, k=n_mentions):
        name = rng.choice([rows[i][0], *rows[i][1]])
        kind = rng.random()
        if kind >= 0.8 and with_alias:
            i = rng.choices(with_alias, weights[: len(with_alias)])[0]
            name = held_out[i]
        elif kind >= 0.6:
            name = edit_character(name, rng)
        text.append((name, i))
    distinct = rng.sample(range(len(rows)), min(len(rows), n_mentions))
    slips = [(edit_character(rows[i][0], rng), i) for i in distinct if len(rows[i][0]) > 3]

    def right(i: int) -> list[int]:
        return sorted(set().union(*(owners[fold_name(one)] for one in (rows[i][0], *rows[i][1]))))

    names = [(name, i) for i, (first, aliases) in enumerate(rows) for name in dict.fromkeys((first, *aliases))]
    kinds = {kind: [(name, right(i)) for name, i in asked] for kind, asked in (("as in text", text), ("slips", slips))}
    (folder / "drawn.json").write_text(json.dumps({"names": names, "mentions": kinds}), encoding="utf-8")


def measure(label: str, link: Link, mentions: dict[str, list[tuple[str, list[int]]]], **others: float) -> None:
    """Link all mentions, and print a line of JSON."""
    link([name for name, _ in mentions["slips"][:64]])
    for kind, asked in mentions.items():
        found: list[int] = []
        start = time.perf_counter()
        for first in range(0, len(asked), CHUNK):
            found += link([name for name, _ in asked[first : first + CHUNK]])
        seconds = time.perf_counter() - start
        hits = sum(entity in right for entity, (_, right) in zip(found, asked, strict=True))
        line = {"program": label, "kind": kind, "rate": len(asked) / seconds, "right": hits / len(asked), **others}
        click.echo(json.dumps(line))


def run_pearl(folder: Path, names: list[tuple[str, int]], mentions: dict[str, Any], plain: Path | None) -> None:
    """Ours, by the command line and the Python call that the README has."""
    from pearl_qdrant.linking.linker import EntityLinker

    start = time.perf_counter()
    command = [sys.executable, "-m", "pearl_qdrant", "ingest", str(folder / "base.tsv"), "--collection", COLLECTION]
    subprocess.run([*command, "--store", str(folder / "store"), "--json"], check=True, capture_output=True)
    build = time.perf_counter() - start
    cores = os.cpu_count() or 1
    for label, workers in (("pearl-qdrant, one process", 1), (f"pearl-qdrant, {cores} workers", cores)):
        with EntityLinker.open(COLLECTION, store=str(folder / "store"), device="cpu", read_only=True) as linker:

            def link(asked: Sequence[str], linker: Any = linker, workers: int = workers) -> list[int]:
                answers = linker.link_batch(asked, workers=workers)
                return [int(answer.candidates[0].entity_id) if answer.candidates else -1 for answer in answers]

            link([f"{name} x" for name, _ in names[:64]])  # starts the workers; they stay for later batches
            measure(label, link, mentions, build=build)


def run_faiss(folder: Path, names: list[tuple[str, int]], mentions: dict[str, Any], plain: Path | None) -> None:
    """sentence-transformers and an HNSW index."""
    import faiss
    from sentence_transformers import SentenceTransformer

    model = SentenceTransformer(str(plain), device="cpu")

    def encode(texts: Sequence[str]) -> Any:
        return model.encode(list(texts), batch_size=256, normalize_embeddings=True, show_progress_bar=False)

    start = time.perf_counter()
    vectors = encode([name for name, _ in names])
    index = faiss.IndexHNSWFlat(vectors.shape[1], 32, faiss.METRIC_INNER_PRODUCT)
    index.hnsw.efConstruction = 200
    index.add(vectors)
    index.hnsw.efSearch = 64
    build = time.perf_counter() - start
    measure(
        "sentence-transformers, FAISS",
        lambda asked: [names[row][1] for row in index.search(encode(asked), 1)[1][:, 0]],
        mentions,
        build=build,
    )


def run_ngrams(folder: Path, names: list[tuple[str, int]], mentions: dict[str, Any], plain: Path | None) -> None:
    """TF-IDF of three characters, as scispaCy generates candidates."""
    import nmslib
    from sklearn.feature_extraction.text import TfidfVectorizer

    start = time.perf_counter()
    vectorizer = TfidfVectorizer(analyzer="char_wb", ngram_range=(3, 3), min_df=2, dtype=np.float32)
    rows = vectorizer.fit_transform([name for name, _ in names])
    kept = np.flatnonzero(np.diff(rows.indptr))  # a name without any n-gram has no vector
    index = nmslib.init(method="hnsw", space="cosinesimil_sparse", data_type=nmslib.DataType.SPARSE_VECTOR)
    index.addDataPointBatch(rows[kept])
    index.createIndex({"M": 100, "indexThreadQty": 2, "efConstruction": 500, "post": 0})
    index.setQueryTimeParams({"efSearch": 200})
    build = time.perf_counter() - start

    def link(asked: Sequence[str]) -> list[int]:
        found = index.knnQueryBatch(vectorizer.transform(asked), k=1, num_threads=2)
        return [names[kept[ids[0]]][1] if len(ids) else -1 for ids, _ in found]

    measure("TF-IDF n-grams, nmslib", link, mentions, build=build)


def run_rapidfuzz(folder: Path, names: list[tuple[str, int]], mentions: dict[str, Any], plain: Path | None) -> None:
    """The most similar name by edit distance."""
    from rapidfuzz import fuzz, process

    choices = [name.casefold() for name, _ in names]

    def link(asked: Sequence[str]) -> list[int]:
        found = []
        for first in range(0, len(asked), 100):
            texts = [name.casefold() for name in asked[first : first + 100]]
            scores = process.cdist(texts, choices, scorer=fuzz.ratio, workers=-1, dtype=np.uint8)
            found += [names[row][1] for row in scores.argmax(1)]
        return found

    measure("rapidfuzz cdist", link, mentions, build=0.0)


RUNS = dict(zip(PROGRAMS, (run_pearl, run_faiss, run_ngrams, run_rapidfuzz), strict=True))


def run_alone(program: str, folder: Path, plain: Path | None) -> Iterator[dict[str, Any]]:
    """Run one program in a process of its own."""
    from memory import peak_memory

    command = [sys.executable, __file__, "--one", program, "--folder", str(folder)]
    command += ["--plain", str(plain)] if plain else []
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        with peak_memory(process.pid) as peak:
            output, _ = process.communicate()
        if process.returncode:
            raise SystemExit(f"{program} failed")
    for line in output.splitlines():
        if line.startswith("{"):
            yield {**json.loads(line), "memory": peak.anonymous}


@click.command()
@click.option("--data", type=click.Path(path_type=Path, exists=True))
@click.option("--entities", default=60_000, show_default=True)
@click.option("--mentions", "n_mentions", default=6_000, show_default=True)
@click.option("--plain", type=click.Path(path_type=Path, exists=True))
@click.option("--only", type=click.Choice(PROGRAMS), multiple=True, default=PROGRAMS)
@page_option
@click.option("--one", type=click.Choice(PROGRAMS), hidden=True)
@click.option("--folder", type=click.Path(path_type=Path), hidden=True)
def main(
    data: Path | None,
    entities: int,
    n_mentions: int,
    plain: Path | None,
    only: tuple[str, ...],
    page: Path | None,
    one: str | None,
    folder: Path | None,
) -> None:
    """Measure ours and the peers."""
    if one is not None and folder is not None:
        drawn = json.loads((folder / "drawn.json").read_text("utf-8"))
        RUNS[one](folder, [(name, entity) for name, entity in drawn["names"]], drawn["mentions"], plain)
        return
    if data is None:
        raise click.UsageError("--data is missing: a TSV with id, name and aliases")
    with tempfile.TemporaryDirectory() as scratch:
        draw(data, entities, n_mentions, Path(scratch))
        lines = []
        for program in only:
            if program == "sentence-transformers" and plain is None:
                continue
            for line in run_alone(program, Path(scratch), plain):
                lines.append(line)
                click.echo(
                    f"{line['program']:<30} {line['kind']:<12} {line['rate']:8,.0f} links/s   "
                    f"right {line['right']:6.1%}   build {line['build']:6.0f} s   {line['memory']:7,.0f} MB"
                )
    rows: dict[str, list[str]] = {}
    for line in lines:
        rows.setdefault(line["program"], [line["program"]]).append(f"{line['rate']:,.0f}, {line['right']:.1%}")
    beside = {line["program"]: [f"{line['build']:.0f} s", f"{line['memory']:,.0f} MB"] for line in lines}
    head = "program | as in text: links/s, right | slips: links/s, right | build | RssAnon"
    write_rows(page, __file__, head, [[*cells, *beside[program]] for program, cells in rows.items()])


if __name__ == "__main__":
    main()
