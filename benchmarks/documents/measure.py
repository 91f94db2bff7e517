"""Measures linking in documents on mentions whose places are known: a dictionary, mentions alone, and documents.

    python benchmarks/documents/measure.py --data DATA --base base_aida.tsv --links links_aida.tsv --corpus aida-dev

DATA has documents.jsonl (corpus, doc_id, text), mentions.tsv (corpus, doc_id, start, end, gold_id) and the base. The
dictionary takes the most popular entity that has the mention as a name, up to case. An answer is right if it is one of
the gold ids, or NIL where the base has none. `first` is the first candidate of mentions whose entity is in the base,
`linkable` the answer for them, `all` the answers for all mentions, `wrong` another entity than a gold one.

--learn names a corpus whose mentions the linker learns.
"""

from __future__ import annotations

import hashlib
import re
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import click

from pearl_qdrant import EntityLinker, Link, load_base
from pearl_qdrant.lexical.ngrams import fold_name

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "runs"))
from recipe_tables import page_option, read_documents, read_tsv, write_rows, write_with_links

MOST_WORDS = 12
"""Words of a name that the dictionary tagger finds, at most."""

TITLES = {"aida-dev": "AIDA, news", "bio-bc5cdr-development": "BC5CDR, MeSH", "bio-ncbi-devel": "NCBI, MeSH"}
"""What a page calls a corpus."""


@dataclass(frozen=True, slots=True)
class Document:
    """A text with the places of its mentions and their right ids, none for NIL."""

    text: str
    spans: list[tuple[int, int]]
    gold: list[frozenset[str]]


def documents_of(data: Path, corpus: str, half: int | None = None) -> list[Document]:
    """The documents of a corpus that have mentions; of one half (0 or 1, by a digest of their ids), or all."""
    documents = []
    for one, rows in read_documents(data, [corpus]):
        if half is None or int(hashlib.sha1(one["doc_id"].encode()).hexdigest(), 16) % 2 == half:
            spans = [(int(row["start"]), int(row["end"])) for row in rows]
            gold = [frozenset(row["gold_id"].split("|")) - {"NIL"} for row in rows]
            documents.append(Document(one["text"], spans, gold))
    return documents


def dictionary(base: Path, types: Sequence[str] = ()) -> dict[str, str]:
    """The most popular entity of each name, up to case; of one of some types, if there are any."""
    best: dict[str, tuple[float, str]] = {}
    for row in read_tsv(base):
        if types and set(types).isdisjoint((row.get("types") or row.get("type") or "").split("|")):
            continue
        popularity = float(row.get("popularity") or 0)
        for name in (row["name"], *(row.get("aliases") or "").split("|")):
            key = name.casefold()
            if key and (key not in best or popularity > best[key][0]):
                best[key] = popularity, row["id"]
    return {name: key for name, (_, key) in best.items()}


def show(label: str, documents: Sequence[Document], answers: Sequence[tuple[str | None, str | None]]) -> str:
    """Print one line: answers are pairs of the first candidate and the answer, in the order of the mentions.

    Returns:
        `first` and `linkable`.
    """
    gold = [one for document in documents for one in document.gold]
    known = [(first, answer, one) for (first, answer), one in zip(answers, gold, strict=True) if one]
    right = sum(answer in one if one else answer is None for (_, answer), one in zip(answers, gold, strict=True))
    wrong = sum(answer is not None and answer not in one for (_, answer), one in zip(answers, gold, strict=True))
    first, linkable = (100 * sum(pair[i] in pair[2] for pair in known) / len(known) for i in (0, 1))
    click.echo(
        f"{label:34}  first {first:5.1f}  linkable {linkable:5.1f}  all {100 * right / len(gold):5.1f}  "
        f"wrong {100 * wrong / len(gold):5.1f}"
    )
    return f"{first:.1f}, {linkable:.1f}"


def _pair(link: Link) -> tuple[str | None, str | None]:
    return (link.candidates[0].entity_id if link.candidates else None), link.entity_id


@click.command()
@click.option("--data", type=click.Path(exists=True, path_type=Path), required=True)
@click.option("--base", default="base_aida.tsv", show_default=True)
@click.option("--links", help="Table of ids and the ids that they are linked to.")
@click.option("--corpus", "corpora", multiple=True, default=("aida-dev",), show_default=True)
@click.option("--documents", "n_documents", default=60, show_default=True, help="Documents of a corpus, at most.")
@click.option("--learn", "learned", multiple=True, help="Learn the mentions of this corpus, too; may be repeated.")
@click.option("--annotate", "has_annotate", is_flag=True, help="Find the mentions in the text, too.")
@click.option("--type", "types", multiple=True, help="With --annotate: look for entities of this type only.")
@click.option("--half", type=click.IntRange(0, 1), help="Documents of this half only: 0 to look at, 1 to measure.")
@click.option("--store", type=click.Path(path_type=Path), help="Keep the loaded base in this store.")
@page_option
def main(
    data: Path,
    base: str,
    links: str | None,
    corpora: Sequence[str],
    n_documents: int,
    learned: Sequence[str],
    has_annotate: bool,
    types: Sequence[str],
    half: int | None,
    store: Path | None,
    page: Path | None,
) -> None:
    """Load the base and print what is right."""
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        location = str(store or Path(folder) / "store")
        path = data / base if links is None else write_with_links(data / base, data / links, Path(folder) / base)
        name = Path(base).stem
        load_base(path, name, store=location)
        names = dictionary(data / base)
        with EntityLinker.open(name, store=location) as linker:
            for corpus in corpora:
                documents = documents_of(data, corpus, half)[:n_documents]
                click.echo(f"{corpus}: {len(documents)} documents, {sum(len(d.spans) for d in documents):,} mentions")
                shares = measure(linker, documents, names)
                rows.append([TITLES.get(corpus, corpus), *shares])
                if learned:
                    batch = linker.learn(labelled(data, learned), skip_unknown=True, again=True).batch
                    links = (
                        linker.link(document.text[start:end]) for document in documents for start, end in document.spans
                    )
                    show("learned, mentions alone", documents, [_pair(link) for link in links])
                    in_documents(linker, "learned, documents", documents)
                    linker.undo_learned(batch.number)
                if has_annotate:
                    of_types = names if not types else dictionary(data / base, types)
                    by_fold = {fold_name(one): key for one, key in reversed(of_types.items())}
                    score_spans("dictionary tagger", documents, lambda text, own=by_fold: tagged(text, own))
                    for is_document in (False, True):
                        score_spans(
                            f"annotate{', as documents' * is_document}",
                            documents,
                            lambda text, together=is_document: {
                                (one.start, one.end): one.link.entity_id
                                for one in linker.annotate(text, document=together, types=types)
                            },
                        )
    write_rows(page, __file__, "first, linked | dictionary | mentions alone | documents", rows)


def labelled(data: Path, corpora: Sequence[str]) -> list[tuple[str, str | None]]:
    """The mentions of some corpora with their ids, None for NIL."""
    return [
        (document.text[start:end], min(gold, default=None))
        for corpus in corpora
        for document in documents_of(data, corpus)
        for (start, end), gold in zip(document.spans, document.gold, strict=True)
    ]


def in_documents(linker: EntityLinker, label: str, documents: Sequence[Document]) -> str:
    """Print the figures of documents, and the time of a mention; returns what `show` does."""
    start = time.process_time()
    found = [one for d in documents for one in linker.link_document(d.text, d.spans)]
    seconds = time.process_time() - start
    shares = show(label, documents, [_pair(one.link) for one in found])
    click.echo(f"{'':34}  {1000 * seconds / len(found):.1f} ms of processor time a mention")
    return shares


def measure(linker: EntityLinker, documents: Sequence[Document], names: dict[str, str]) -> list[str]:
    """Print the figures of all ways to link given mentions; returns those of the dictionary, mentions and documents."""
    mentions = [document.text[start:end] for document in documents for start, end in document.spans]
    of_dictionary = [names.get(mention.casefold()) for mention in mentions]
    found = [show("dictionary with popularity", documents, [(one, one) for one in of_dictionary])]
    distinct = list(dict.fromkeys(mentions))
    alone = dict(zip(distinct, linker.link_batch(distinct), strict=True))
    found.append(show("mentions alone", documents, [_pair(alone[mention]) for mention in mentions]))
    found.append(in_documents(linker, "documents", documents))
    return found


Place = tuple[int, int]


def tagged(text: str, names: dict[str, str]) -> dict[Place, str]:
    """What a dictionary tagger finds: from left to right the longest run of words that is, folded, a name."""
    words = [match.span() for match in re.finditer(r"\w+", text)]
    found: dict[Place, str] = {}
    i = 0
    while i < len(words):
        for j in range(min(len(words), i + MOST_WORDS), i, -1):
            place = words[i][0], words[j - 1][1]
            if entity_id := names.get(fold_name(text[slice(*place)])):
                found[place] = entity_id
                i = j - 1
                break
        i += 1
    return found


def score_spans(label: str, documents: Sequence[Document], find: Callable[[str], Mapping[Place, str | None]]) -> None:
    """Print precision, recall and F1 of mentions that are found in texts: place and entity must be right."""
    right = n_found = n_gold = 0
    for one in documents:
        gold = {span: ids for span, ids in zip(one.spans, one.gold, strict=True) if ids}
        found = find(one.text)
        n_gold, n_found = n_gold + len(gold), n_found + len(found)
        right += sum(entity_id in gold.get(place, ()) for place, entity_id in found.items())
    precision, recall = right / max(1, n_found), right / max(1, n_gold)
    f1 = 2 * precision * recall / max(1e-9, precision + recall)
    click.echo(f"{label:34}  precision {100 * precision:.1f}  recall {100 * recall:.1f}  F1 {100 * f1:.1f}")


if __name__ == "__main__":
    main()
