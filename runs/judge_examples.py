r"""What the judge of two names learns from: entities of free sources with near names of others, and given mentions.

    python runs/judge_examples.py --data FOLDER --wordnet FOLDER --work FOLDER --dictionaries FOLDER \
        --translations FOLDER --out FILE

Then: pearl-qdrant train judge MODEL FILE JUDGE --wordnet FOLDER

    general     kb/general.tsv with alias_pairs/, and context/base_aida.tsv
    bio         kb/biomedical/, a pool for each ontology; exact synonyms where scopes are known
    wordnet     noun synsets of WordNet 3.0 (Debian: wordnet-base)
    world       territories, cities, languages, emoji in many languages (`multilingual.names`; the extra `names`)
    dict        words and their translations, dictionaries of FreeDict (Debian: dict-freedict-*, in /usr/share/dictd)
    phrases     what free programs and Debian's packages say of themselves, in many languages (`multilingual.phrases`)
    given       the mentions of --data's real/ with the candidates that `linking_model.py` found in its --work

Only entities of the training splits count, without any name of the others, and no name that a measured set asks (real/,
texts/). Near names are the nearest ones of other entities by the shipped encoder, in pools of a source. About ten
minutes on two cores.
"""

from __future__ import annotations

import gzip
import logging
import pickle
import random
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Set
from dataclasses import dataclass
from pathlib import Path

import click
import numpy as np
from linking_bases import JUDGE_FOLDS, judge_folds
from mini_en.examples import held_out_strings
from multilingual.names import held_out_names, read_entities
from multilingual.phrases import PACKAGES, read_phrases, some_names
from recipe_tables import exact_synonyms, read_tsv

from pearl_qdrant.cells import split_list
from pearl_qdrant.encoder.loading import load_encoder
from pearl_qdrant.encoder.protocol import Encoder
from pearl_qdrant.lexical.ngrams import fold_name
from training.examples.example import DEVELOPMENT_SPLITS, TEST_SPLITS, TRAIN_SPLITS, name_key, split_of
from training.examples.wordnet import read_synsets
from training.judge.differences import words_of_kind
from training.judge.examples import write_examples

LONGEST = 80  # characters of a name
QUERIES, NEAR = 14_000, 10
"""Names of a pool whose near names are searched, and how many are kept."""
POOLS = {"general": 3, "world": 2, "dict": 4, "phrases": 6}
"""Pools that a source is divided into; one for the others."""
MOST = {"general": 85_000, "bio": 7_000, "wordnet": 22_000, "world": 9_000, "dict": 2_200, "phrases": 30_000}
"""Entities of a source, those with several names first; of each ontology, dictionary, and of programs and packages."""
PAIRS = (
    "ara ces deu ell fra hin hrv hun ita lat lit nld pol por rus spa swe tur".split(),
    "fra ita lat nld por slk spa".split(),
)
"""Languages of the dictionaries from and into English that the judge learns from."""
GERMAN = "bul ell fin fra ind ita nld pol por rus spa swe tur".split()
"""Languages of the dictionaries from German that the encoder learns from, beside all from and into English."""
LONGEST_WORD, WORDS = 45, 5
"""Characters and words of a term of a dictionary."""
NOUNS_MARKED = 0.2
"""A dictionary that marks this share of its terms as nouns gives nouns alone."""

_log = logging.getLogger("judge_examples")


@dataclass(slots=True)
class Named:
    """An entity of a source."""

    source: str
    part: str  # of the source: an ontology, a dictionary
    names: list[str]
    types: tuple[str, ...] = ()
    kinds: tuple[str, ...] = ()


def is_for_training(key: str) -> bool:
    """Whether an entity id is in a training split."""
    return split_of(key) in TRAIN_SPLITS


def held_out(data: Path) -> set[str]:
    """The folded mentions of the sets that are measured."""
    files = [*(data / "real").glob("*/mentions.tsv"), *(data / "texts").glob("*/mentions.tsv")]
    return {fold_name(row["mention"]) for path in files for row in read_tsv(path)}


def held_out_aliases(data: Path) -> set[str]:
    """The case-folded names of entities outside the training splits, which other sources may have too."""
    return held_out_strings(data) | held_out_names(read_entities(), (*DEVELOPMENT_SPLITS, *TEST_SPLITS))


def from_tables(data: Path, nouns: frozenset[str]) -> Iterator[Named]:
    """The entities of the tables."""
    pairs: dict[str, list[str]] = defaultdict(list)
    for path in sorted((data / "alias_pairs").glob("*.tsv")):
        for row in read_tsv(path):
            pairs[row["id"]].append(row["alias"])
    for row in read_tsv(data / "kb" / "general.tsv"):
        if is_for_training(row["id"]):
            names = [row["name"], *split_list(row["aliases"] or ""), *pairs.get(row["id"], ())]
            kinds = words_of_kind(split_list(row["fine_type"] or ""), nouns)
            yield Named("general", "", names, tuple(filter(None, [row["onto_type"]])), kinds)
    for row in read_tsv(data / "context" / "base_aida.tsv"):
        if is_for_training(row["id"]):
            yield Named("general", "", [row["name"], *split_list(row["aliases"] or "")])
    for path in sorted((data / "kb" / "biomedical").glob("*.tsv")):
        for row in read_tsv(path):
            if is_for_training(row["id"]):
                aliases = exact_synonyms(row) if "alias_scopes" in row else split_list(row.get("aliases") or "")
                yield Named("bio", path.stem, [row["name"], *aliases])


def from_dictionary(path: Path) -> Iterator[Named]:
    """Words of one FreeDict dictionary in dictd's form with their first translations."""
    with gzip.open(path.with_suffix(".dict.dz")) as file:
        content = file.read()
    found: list[tuple[bool, list[str]]] = []
    for line in path.read_text("utf-8").splitlines():
        word, *place = line.split("\t")[:3]
        if word.startswith("00") or len(place) < 2:
            continue
        start, length = map(_number, place)
        lines = [one for one in content[start : start + length].decode("utf-8", "replace").split("\n") if one.strip()]
        if len(lines) < 2 or lines[1].strip().startswith(("see:", "Synonym", "Note", '"')):
            continue
        head = _plain(lines[0].split("/")[0].split(",")[0])
        senses = [_bare(one) for one in (lines[1], *(one for one in lines[2:6] if re.match(r"\s*2\.", one)))]
        translations = [one for one in map(_plain, re.split(r"[,;]", senses[0])) if _is_term(one)][: 3 - len(senses)]
        translations += [one for one in map(_plain, re.split(r"[,;]", senses[-1])) if _is_term(one)][:1]
        if _is_term(head) and translations and is_for_training(name_key(head)):
            is_noun = bool(re.search("<(n|pn|masc|fem|neut)[>,]", lines[0] + lines[1]))
            found.append((is_noun, list(dict.fromkeys([head, *translations]))))
    has_nouns = sum(is_noun for is_noun, _ in found) > NOUNS_MARKED * len(found)
    yield from (Named("dict", path.stem, names) for is_noun, names in found if is_noun or not has_nouns)


def _is_term(text: str) -> bool:
    return 1 < len(text) <= LONGEST_WORD and len(text.split()) <= WORDS and not re.search(r"[|=@:<>()\"]", text)


_DIGITS = {c: i for i, c in enumerate("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/")}


def _number(text: str) -> int:
    """A number in dictd's base 64."""
    value = 0
    for c in text:
        value = value * 64 + _DIGITS[c]
    return value


_ASIDE = re.compile(r"<[^>]*>|\{[^}]*\}|\([^()]*\)|\[[^\]]*\]|/[^/]*/|\u0301")


def _bare(text: str) -> str:
    """A text without what stands in brackets, one in another too, and without marks of stress."""
    while (bare := _ASIDE.sub("", text)) != text:
        text = bare
    return text


def _plain(text: str) -> str:
    """A word without grammar, brackets, marks of stress and its number."""
    bare = _bare(text)
    words = " ".join(re.sub(r"^\s*\d+\.\s*", "", bare).replace("~", " ").split()).strip(" ,;.")
    return re.sub(r"(?<=\D) \d$", "", words)


def all_entities(
    data: Path,
    wordnet: Path,
    dictionaries: Path,
    *,
    translations: Path | None = None,
    every_dictionary: bool = False,
) -> Iterator[Named]:
    """The entities of all sources, with the dictionaries of `PAIRS` or every one."""
    synsets = [one for one in read_synsets(wordnet) if one.lexical_class == "NP"]
    nouns = frozenset(name for synset in synsets for name in synset.names if name.islower())
    yield from from_tables(data, nouns)
    yield from (Named("wordnet", "", list(one.names)) for one in synsets if is_for_training(one.synset_id))
    rng = random.Random(7)
    for entity in read_entities():
        if entity.split in TRAIN_SPLITS:
            others = list(entity.names)
            rng.shuffle(others)
            yield Named("world", "", [entity.name, *others[:8]])
    for program, phrases in () if translations is None else read_phrases(translations):
        if is_for_training(name_key(phrases["en"])):
            part = "packages" if program == PACKAGES else "programs"
            yield Named("phrases", part, some_names(phrases, rng))
    stems = [*(f"eng-{code}" for code in PAIRS[0]), *(f"{code}-eng" for code in PAIRS[1])]
    if every_dictionary:
        stems = [path.stem.removeprefix("freedict-") for path in sorted(dictionaries.glob("freedict-*.index"))]
        stems = [one for one in stems if "eng" in one.split("-") or one in {f"deu-{code}" for code in GERMAN}]
    for stem in stems:
        path = dictionaries / f"freedict-{stem}.index"
        if path.exists():
            yield from from_dictionary(path)


def pools(
    entities: Iterator[Named], held: set[str], aliases: Set[str], most: Mapping[str, int] = MOST
) -> dict[str, list[Named]]:
    """Entities with the names that may be learnt, in the pools in which near names are searched: none that folds to one
    of `held`, or is one of `aliases` but for case. At most so many of a source or a part of it.
    """
    by_part: dict[tuple[str, str], list[Named]] = defaultdict(list)
    for one in entities:
        fitting = [name for name in dict.fromkeys(one.names) if 0 < len(name) <= LONGEST]
        fitting = [name for name in fitting if name.casefold() not in aliases]
        one.names = [name for name in fitting if (folded := fold_name(name)) and folded not in held]
        if one.names:
            by_part[one.source, one.part].append(one)
    found: dict[str, list[Named]] = defaultdict(list)
    for (source, part), some in sorted(by_part.items()):
        random.Random(f"{source} {part}").shuffle(some)
        chosen = sorted(some, key=lambda one: len(one.names) < 2)[: most.get(source)]
        n = POOLS.get(source, 1)
        for i, one in enumerate(chosen):
            found[f"{source} {part if source == 'bio' else i % n}"].append(one)
    return found


def with_near(some: list[Named], encoder: Encoder, rng: random.Random) -> Iterator[dict[str, object]]:
    """The entities of a pool that have other names near by, as examples."""
    names = [name for one in some for name in one.names]
    owner = np.repeat(np.arange(len(some)), [len(one.names) for one in some])
    vectors = encoder.encode(names).vectors
    owners: dict[str, set[int]] = defaultdict(set)
    for name, of in zip(names, owner.tolist(), strict=True):
        owners[fold_name(name)].add(of)
    rows = [i for i, of in enumerate(owner.tolist()) if len(some[of].names) > 1 or rng.random() < 0.25]
    rng.shuffle(rows)
    near: dict[int, dict[str, None]] = defaultdict(dict)
    for start in range(0, min(QUERIES, len(rows)), 256):
        part = rows[start : min(start + 256, QUERIES)]
        cosines = vectors[part] @ vectors.T
        n = min(4 * NEAR, len(names))
        first = np.argpartition(-cosines, n - 1, axis=1)[:, :n]
        for row, found, line in zip(part, first, cosines, strict=True):
            own = int(owner[row])
            # An entity that shares a name may be the same one.
            same = set().union(*(owners[fold_name(name)] for name in some[own].names))
            others = {int(owner[i]): names[i] for i in found[np.argsort(line[found])] if int(owner[i]) not in same}
            near[own].update(dict.fromkeys(list(others.values())[::-1][:NEAR]))
    for of, found_names in near.items():
        one = some[of]
        shown = {"source": one.source, "names": one.names, "near": list(found_names)[: 2 * NEAR]}
        yield {**shown, "types": one.types, "kinds": one.kinds}


def given(work: Path, fold: int | None) -> Iterator[dict[str, object]]:
    """The mentions of the real sets with their candidates, as `linking_model.py` kept them, without those of a fold."""
    paths = sorted(work.glob("real-*.pickle"))
    folds = judge_folds([path.stem[5:] for path in paths])
    for path in paths:
        if folds[path.stem[5:]] == fold:
            continue
        for task in pickle.loads(path.read_bytes()):  # noqa: S301 - of our own making
            for mention, names, right in zip(task.mentions, task.names, task.right, strict=True):
                if names:
                    shown = {"set": task.name, "mention": mention, "names": names}
                    yield {**shown, "right": right[: len(names)].tolist()}


@click.command()
@click.option("--data", type=click.Path(path_type=Path, exists=True), required=True)
@click.option("--wordnet", type=click.Path(path_type=Path, exists=True), required=True)
@click.option("--dictionaries", type=click.Path(path_type=Path, exists=True), required=True)
@click.option("--translations", type=click.Path(path_type=Path, exists=True), help="Folder of `multilingual.phrases`.")
@click.option("--work", type=click.Path(path_type=Path), help="Folder of linking_model.py, for given mentions.")
@click.option("--fold", type=click.IntRange(0, JUDGE_FOLDS - 1), help="Leave the given sets of this fold out.")
@click.option("--out", type=click.Path(path_type=Path), required=True)
def main(
    data: Path,
    wordnet: Path,
    dictionaries: Path,
    translations: Path | None,
    work: Path | None,
    fold: int | None,
    out: Path,
) -> None:
    """Write the examples."""
    logging.basicConfig(level=logging.INFO)
    encoder, rng = load_encoder(), random.Random(3)

    def rows() -> Iterator[dict[str, object]]:
        aliases, entities = held_out_aliases(data), all_entities(data, wordnet, dictionaries, translations=translations)
        for name, some in pools(entities, held_out(data), aliases).items():
            found = list(with_near(some, encoder, rng))
            _log.info("%s: %d of %d entities", name, len(found), len(some))
            yield from found
        if work is not None:
            yield from given(work, fold)

    write_examples(out, rows())


if __name__ == "__main__":
    main()
