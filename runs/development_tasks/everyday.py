"""Everyday kinds of mentions: made from names of the Disease Ontology and of entities of Wikidata, by kind.

Each mention is looked for among all names of its base, or of a part of it, by cosine alone. A task is the mean over
bases and kinds. Letter case is no kind here: some encoders do not see it, and others lose nothing by it.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from pathlib import Path

from recipe_tables import read_tsv

from development_tasks.tasks import Search, SearchTask
from pearl_qdrant.cells import split_list
from pearl_qdrant.linking.mention_kinds import NamedEntity, make_mentions
from pearl_qdrant.linking.mention_kinds.make import NameOwners
from training.examples.example import split_of

GROUPS: Mapping[str, tuple[str, ...]] = {
    "everyday: slips": ("one slip", "two slips"),
    "everyday: spellings": ("punctuation", "no spaces", "plural", "order", "affix", "spelling", "initials"),
    "everyday: in words": ("in words",),
}
"""Kinds of `pearl_qdrant.linking.mention_kinds` in each task."""

N_MENTIONS = 80
"""Mentions of a kind, base and fold, at most."""
N_OTHERS = 1_500
"""Other entities of the base whose names are searched too."""
FEWEST = 20
"""A kind with fewer mentions of a base is left out: a kind weighs the same whatever their number."""


def everyday_tasks(data: Path, split: int) -> Iterator[SearchTask]:
    """Yield the tasks whose mentions are of entities of a split; deterministic."""
    searches: dict[str, list[Search]] = {task: [] for task in GROUPS}
    for base, entities in _bases(data).items():
        asked = [entity for entity in entities if split_of(entity.entity_id) == split]
        rest = [entity for entity in entities if split_of(entity.entity_id) != split]
        others = random.Random(base).sample(rest, min(N_OTHERS, len(rest)))
        owners = NameOwners((entity.entity_id, name) for entity in entities for name in entity.names)
        kinds = {kind: N_MENTIONS for group in GROUPS.values() for kind in group}
        made = make_mentions(asked, owners, per_kind=kinds) if asked else []
        names = tuple((name, entity.entity_id) for entity in [*asked, *others] for name in entity.names)
        for task, group in GROUPS.items():
            for kind in group:
                mentions = tuple((m.mention, frozenset([m.entity_id or ""])) for m in made if m.kind == kind)
                if len(mentions) >= FEWEST:
                    searches[task].append(Search(f"{base}: {kind}", names, mentions))
    for task, found in searches.items():
        if found:
            yield SearchTask(task, tuple(found), by_search=False)


def _bases(data: Path) -> dict[str, list[NamedEntity]]:
    """The entities of both bases."""
    (ontology,) = (data / "kb" / "biomedical").glob("doid[_.]*")
    wikidata = (row for row in read_tsv(data / "kb" / "general.tsv") if row["id"].startswith("Q"))
    return {"doid": list(map(_entity, read_tsv(ontology))), "wikidata": list(map(_entity, wikidata))}


def _entity(row: dict[str, str]) -> NamedEntity:
    names = dict.fromkeys([row["name"], *split_list(row.get("aliases") or "")])
    kind = row.get("onto_type") or ""
    return NamedEntity(row["id"], tuple(names), (kind,) if kind else ())
