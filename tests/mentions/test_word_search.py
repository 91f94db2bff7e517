"""Texts in any language: words are looked up once, and few strings are linked."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import pytest
from exact_linker import differences
from linker_base import linker_over

from pearl_qdrant import Entity, EntityLinker, Link
from pearl_qdrant.linking.mention_detection.annotate import annotate_blocks
from pearl_qdrant.linking.mention_detection.blocks import read_blocks
from pearl_qdrant.linking.options import AnnotateOptions, LinkOptions

NAMES = [
    "Mir zur Feier",
    "Ein Erfolg",
    "Hermann Bahr",
    "Burgtheater",
    "lung cancer",
    "acetylsalicylic acid",
    "type 2 diabetes",
    "asthma",
    "heart valve disease",
    "Αθήνα",
    "プレイステーション",
    "千と千尋の神隠し",
    "กรุงเทพมหานคร",
]


linker = linker_over(Entity(name, name) for name in NAMES)


class Counted:
    """A linker's state that notes which strings are linked."""

    def __init__(self, linker: EntityLinker) -> None:
        self.state, self.linked = linker.state, list[str]()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.state, name)

    def links(self, mentions: Iterable[str], options: LinkOptions) -> Iterator[Link]:
        strings = list(mentions)
        self.linked += strings
        return self.state.links(strings, options)


GERMAN = """Ich habe gestern lange gewartet und dann doch noch mit Hermann Bahr gesprochen, der sehr müde war und mir
sagte, daß er bald wieder verreisen werde, ohne das Burgtheater gesehen zu haben."""
FRENCH = """Nous avons attendu très longtemps hier soir, et je ne sais pas encore si le malade souffre vraiment d'un
asthma ou bien d'autre chose que personne ne veut dire."""


@pytest.mark.parametrize("text, wanted", [(GERMAN, ["Hermann Bahr", "Burgtheater"]), (FRENCH, ["asthma"])])
def test_few_strings_of_a_text_are_linked(linker: EntityLinker, text: str, wanted: list[str]) -> None:
    """A language without a list of common words costs no search for each run of its words."""
    counted, options = Counted(linker), AnnotateOptions()

    found = [one.text for some in annotate_blocks(counted, read_blocks(text, options), options) for one in some]

    assert found == wanted
    assert len(counted.linked) <= 2 * len(wanted), counted.linked


def test_a_run_of_words_is_a_mention_if_one_name_has_them_all(linker: EntityLinker) -> None:
    """In any order, spelling and number, and but for slips; a part of it that is like a name is none."""
    assert differences("words of one name", lambda text, _: linker.annotate(text)) == {}
