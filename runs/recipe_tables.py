"""Tables that recipes and benchmarks read; and tables of figures in the documentation, which those that measure write.

What is read is TSV with a header and no quoting. A table of a page stands between `<!--SCRIPT-->` and `<!--/SCRIPT-->`,
SCRIPT being the path of what writes it. A run replaces the rows that it measured, by their first cells, and leaves the
others as they are.
"""

from __future__ import annotations

import csv
import gzip
import json
from collections.abc import Iterator, Sequence
from pathlib import Path

import click

from pearl_qdrant.cells import split_list

ROOT = Path(__file__).resolve().parents[1]

page_option = click.option(
    "--page", type=click.Path(path_type=Path, exists=True, dir_okay=False), help="Write the table into this page."
)


def write_rows(page: Path | None, script: str, head: str, rows: Sequence[Sequence[str]], *, part: str = "") -> None:
    """Write the rows of a table, and print them.

    Args:
        page: The page; None prints only.
        script: `__file__` of the script.
        head: The first row, cells separated by `|`.
        rows: Cells. A first cell is compared up to a colon.
        part: Which table of the script it is, where it writes several.

    Raises:
        click.ClickException: If the page has no such table.
    """
    lines = {cells[0].partition(":")[0]: f"| {' | '.join(cells)} |" for cells in rows}
    top = [f"| {head} |", "|---" * (head.count("|") + 1) + "|"]
    click.echo("\n".join([*top, *lines.values()]))
    if page is None:
        return
    name = Path(script).resolve().relative_to(ROOT).as_posix() + part
    begin, end = f"<!--{name}-->\n", f"<!--/{name}-->\n"
    text = page.read_text("utf-8")
    before, found, rest = text.partition(begin)
    table, closed, after = rest.partition(end)
    if not found or not closed:
        raise click.ClickException(f"{page} has no lines {begin.strip()} and {end.strip()}")
    kept = {line.removeprefix("| ").partition(" |")[0].partition(":")[0]: line for line in table.splitlines()[2:]}
    written = "".join(f"{line}\n" for line in [*top, *(kept | lines).values()])
    page.write_text(before + begin + written + end + after, "utf-8")


def read_tsv(path: Path) -> Iterator[dict[str, str]]:
    """Read the rows of a table, as column name to cell."""
    with path.open(encoding="utf-8", newline="") as file:
        yield from csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE)


def read_texts(path: Path) -> Iterator[str]:
    """Read the field `text` of each line of a gzipped file of JSON Lines."""
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        for line in lines:
            yield json.loads(line)["text"]


def exact_synonyms(row: dict[str, str]) -> list[str]:
    """The aliases of an ontology's entity in scope EXACT; all if it has no scopes."""
    aliases = split_list(row.get("aliases") or "")
    scopes = (row.get("alias_scopes") or "").split("|") if row.get("alias_scopes") else ["EXACT"] * len(aliases)
    return [alias for alias, scope in zip(aliases, scopes, strict=False) if scope == "EXACT"]


def read_documents(data: Path, corpora: Sequence[str]) -> Iterator[tuple[dict[str, str], list[dict[str, str]]]]:
    """Read the documents of some corpora that have mentions: rows of documents.jsonl (corpus, doc_id, text), each with
    its rows of mentions.tsv (corpus, doc_id, start, end, gold_id).
    """
    rows: dict[tuple[str, str], list[dict[str, str]]] = {}
    for row in read_tsv(data / "mentions.tsv"):
        if row["corpus"] in corpora:
            rows.setdefault((row["corpus"], row["doc_id"]), []).append(row)
    with (data / "documents.jsonl").open(encoding="utf-8") as lines:
        for one in map(json.loads, lines):
            if mentions := rows.get((one["corpus"], one["doc_id"])):
                yield one, mentions


def write_with_links(base: Path, links: Path, path: Path) -> Path:
    """Write a copy of a base with a column of the ids that its entities are linked to."""
    of_id = dict(line.split("\t") for line in links.read_text("utf-8").splitlines()[1:])
    header, *rows = base.read_text("utf-8").rstrip("\n").split("\n")
    lines = [f"{header}\tlinks_to", *(f"{row}\t{of_id.get(row.partition(chr(9))[0], '')}" for row in rows)]
    path.write_text("\n".join(lines) + "\n", "utf-8")
    return path
