"""Names that a collection knows: their entities, by the linker."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pearl_qdrant.errors import UnknownTypeError
from pearl_qdrant.linking.linker import EntityLinker
from pearl_qdrant.resolution.names import Forms


@dataclass(frozen=True, slots=True)
class BaseLink:
    """The entity of a name.

    Attributes:
        entity_id, canonical_name, kb: As in `Link`.
        probability: In [0, 1].
        reason: The rule of the link, or "linked".
    """

    entity_id: str
    canonical_name: str
    kb: str
    probability: float
    reason: str


def link_names(
    linker: EntityLinker, forms: Forms, numbers: Sequence[int], threshold: float | None
) -> dict[int, BaseLink]:
    """Entities of distinct names, by their number in `forms.names`; those without an entity are left out.

    A type that the collections have is a filter; others are ignored.
    """
    by_type: dict[str, list[int]] = {}
    for number in numbers:
        by_type.setdefault(forms.names[number][1], []).append(number)
    found: dict[int, BaseLink] = {}
    for type_, rows in sorted(by_type.items()):
        names = [forms.names[row][0] for row in rows]
        try:
            links = linker.link_batch(names, types=[type_] if type_ else (), threshold=threshold)
        except UnknownTypeError:
            links = linker.link_batch(names, threshold=threshold)
        for row, link in zip(rows, links, strict=True):
            if link.entity_id is not None:
                found[row] = BaseLink(
                    *(link.entity_id, link.canonical_name or link.entity_id, link.kb or "", link.probability or 0.0),
                    f"linked: {link.rule}" if link.rule else "linked",
                )
    return found


def node_of(link: BaseLink, several: bool) -> str:
    """The node of an entity: its id, with its base where there are several."""
    return f"{link.kb}:{link.entity_id}" if several else link.entity_id


def unlinked(links: Mapping[int, BaseLink], apart: Mapping[int, Sequence[str]], several: bool) -> dict[int, BaseLink]:
    """The links without those to a node that a person decided to be another."""
    return {row: link for row, link in links.items() if node_of(link, several) not in apart.get(row, ())}
