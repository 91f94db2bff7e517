"""Common words are no names: sentences with words that a base of proper names has, too."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from exact_linker import differences
from linker_base import linker_over

from ingest.load_base import load_base
from pearl_qdrant import Entity, EntityLinker

BASE = """id	name	type	aliases
office	Microsoft Office	PRODUCT|software	Office|MS Office
windows	Microsoft Windows	PRODUCT|software	Windows
shell	Shell plc	ORG|company	Shell|Royal Dutch Shell
amazon	Amazon	ORG|company	Amazon.com
ford	Ford	ORG|company	Ford Motor Company
google	Google	ORG|company	Google LLC
time	Time	WORK_OF_ART|magazine	Time Magazine
nature	Nature	WORK_OF_ART|magazine	Nature (journal)
circus	Monty Python's Flying Circus	WORK_OF_ART|series	Flying Circus
rice	Condoleezza Rice	PERSON|politician	Rice
reading	Reading	GPE|city	Reading, Berkshire
turkey	Turkey	GPE|country	Republic of Turkey
caps	Washington Capitals	ORG|team	Caps
nyc	New York City	GPE|city	NYC|New York
order	New Order	ORG|band	New Order (band)
coffee	coffee	OTHER|drink	cup of coffee
aspirin	acetylsalicylic acid	OTHER|drug	aspirin|Aspirin
mi	myocardial infarction	OTHER|disease	heart attack|Heart Attack
diabetes	diabetes mellitus	OTHER|disease	diabetes
bird	turkey (bird)	OTHER|animal	turkey
"""


@pytest.fixture(scope="module")
def linker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EntityLinker]:
    """A linker of that base, with the shipped model."""
    folder = tmp_path_factory.mktemp("common")
    path = folder / "base.tsv"
    path.write_text(BASE, encoding="utf-8")
    load_base(path, "base", store=str(folder / "store"))
    with EntityLinker.open("base", store=str(folder / "store")) as opened:
        yield opened


def test_only_names_are_mentions(linker: EntityLinker) -> None:
    """A word in lower case, its plural, or a part of a name is no mention of a proper name; real mentions are found."""
    assert differences("common words", lambda text, _: linker.annotate(text)) == {}


UNTYPED = ["Split", "Garbage", "Kiss", "Sandwich", "Filter", "Bath", "Leipzig", "Lisbon", "Genoa", "Bremen", "Oslo"]


untyped = linker_over(Entity(name, name) for name in UNTYPED)


def test_words_are_no_names_in_a_base_without_types(untyped: EntityLinker) -> None:
    """Its other names show that it has proper names."""
    assert differences("common words without types", lambda text, _: untyped.annotate(text)) == {}


def test_a_text_that_is_a_name_and_nothing_else_mentions_it(linker: EntityLinker) -> None:
    """A cell of a table is a name as `link` takes it, also where it is a common word; as the base writes it."""
    cells = ["Reading", "Time", "Office", "Caps", " turkey\n", "time", "reading", ""]

    found = [[one.text for one in some] for some in linker.annotate_batch(cells)]

    assert found == [["Reading"], ["Time"], ["Office"], ["Caps"], ["turkey"], [], [], []]
    assert linker.annotate("Time", common_words="skip") == []
