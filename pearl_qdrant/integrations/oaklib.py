"""oaklib: a collection as a vocabulary with which `runoak` annotates texts, and which it searches by names.

    runoak -i pearl:doid annotate "She denies asthma."
    get_adapter("pearl:doid").annotate_text("She denies asthma.")

oaklib finds the class by the entry point `pearl` of its group `oaklib.plugins`. The store is that of
`EntityLinker.open`, `PEARL_QDRANT_STORE` or the default. There is no hierarchy: a collection has names alone. Needs the
extra `oaklib`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from oaklib.datamodels.search import SearchConfiguration
from oaklib.datamodels.text_annotator import TextAnnotation, TextAnnotationConfiguration
from oaklib.datamodels.vocabulary import HAS_EXACT_SYNONYM, LABEL_PREDICATE
from oaklib.interfaces import SearchInterface, TextAnnotatorInterface

from pearl_qdrant.errors import EntityNotFoundError, OptionError
from pearl_qdrant.integrations.metadata import types_of
from pearl_qdrant.linking.linker import EntityLinker
from pearl_qdrant.linking.options import AnnotateOptions, LinkOptions
from pearl_qdrant.records import Annotation, Entity
from pearl_qdrant.settings import DEFAULT_LIMIT


@dataclass
class PearlImplementation(TextAnnotatorInterface, SearchInterface):  # type: ignore[misc, unused-ignore]
    """An adapter of oaklib over one collection, which is opened when it is needed first, for reading alone.

    Attributes:
        linker: An open linker in place of a collection: `get_adapter("pearl:", linker=linker)`; it is left open.
    """

    linker: EntityLinker | None = None

    def annotate_text(
        self, text: str, configuration: TextAnnotationConfiguration | None = None
    ) -> Iterator[TextAnnotation]:
        """The linked mentions of a text, or with `matches_whole_text` the link of all of it; what is NIL is left out.

        Places count from 1, and the last character is in. `categories` are types; words of `token_exclusion_list` are
        no mentions. What the text says of a mention (negated, possible, ...) is in `info`.
        """
        asked = configuration or TextAnnotationConfiguration()
        if asked.matches_whole_text:
            link = self._open().link(text, LinkOptions(types=tuple(asked.categories)))
            found = [Annotation(text, 0, len(text), link)]
        else:
            found = self._open().annotate(text, AnnotateOptions(types=tuple(asked.categories)))
        kept = [one for one in found if one.link.entity_id is not None and one.text not in asked.token_exclusion_list]
        for one in kept[: asked.limit]:
            yield self._as_annotation(one, text, with_aliases=bool(asked.include_aliases))

    def basic_search(self, search_term: str, config: SearchConfiguration | None = None) -> Iterator[str]:
        """The ids of the entities that a name may mean, most probable first."""
        limit = (config.limit if config else None) or DEFAULT_LIMIT
        yield from (one.entity_id for one in self._open().link(search_term, LinkOptions(limit=limit)).candidates)

    def label(self, curie: str, lang: str | None = None) -> str | None:
        """The canonical name of an entity; None if the collection has no such entity."""
        entity = self._find(curie)
        return None if entity is None else entity.canonical_name

    def definition(self, curie: str, lang: str | None = None) -> str | None:
        """The description of an entity, where the base has one."""
        entity = self._find(curie)
        return None if entity is None else entity.description

    def entity_alias_map(self, curie: str) -> dict[str, list[str]]:
        """The canonical name as label, the aliases as exact synonyms."""
        entity = self._find(curie)
        return {} if entity is None else {
            LABEL_PREDICATE: [entity.canonical_name], HAS_EXACT_SYNONYM: list(entity.aliases)
        }  # fmt: skip

    def _open(self) -> EntityLinker:
        if self.linker is None:
            if not self.resource.slug:
                raise OptionError("collections", "Name a collection behind the colon: runoak -i pearl:umls")
            self.linker = EntityLinker.open(self.resource.slug, read_only=True)
        return self.linker

    def _find(self, curie: str) -> Entity | None:
        try:
            return self._open().entity(curie)
        except EntityNotFoundError:
            return None

    def _as_annotation(self, found: Annotation, text: str, *, with_aliases: bool) -> TextAnnotation:
        link = found.link
        chosen = next(one for one in link.candidates if (one.kb, one.entity_id) == (link.kb, link.entity_id))
        aliases: Iterable[str] = self._open().entity(chosen.entity_id).aliases if with_aliases else ()
        return TextAnnotation(
            subject_start=found.start + 1,
            subject_end=found.end,
            subject_label=found.text,
            match_string=chosen.name,
            object_id=chosen.entity_id,
            object_label=chosen.canonical_name,
            object_categories=types_of(chosen),
            object_aliases=list(aliases),
            object_source=chosen.kb,
            confidence=link.probability,
            info=found.assertion,
            matches_whole_text=found.start == 0 and found.end == len(text),
        )
