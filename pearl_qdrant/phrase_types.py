"""The 95 phrase types: 5 lexical classes x (18 OntoNotes entity types + OTHER), in a fixed order.

The order is part of the checkpoint format: row i of a type head belongs to ``PHRASE_TYPES[i]``. New labels may only be
appended.

Source: PEARL (Chen et al. 2024), section 3.3; OntoNotes (Hovy et al. 2006).
"""

from __future__ import annotations

LEXICAL_CLASSES: tuple[str, ...] = ("NP", "VP", "PP", "ADVP", "ADJP")

ENTITY_TYPES: tuple[str, ...] = tuple(
    "CARDINAL DATE EVENT FAC GPE LANGUAGE LAW LOC MONEY NORP ORDINAL ORG PERCENT PERSON PRODUCT QUANTITY TIME "
    "WORK_OF_ART OTHER".split()
)

PHRASE_TYPES: tuple[str, ...] = tuple(
    f"{lexical_class}-{entity_type}" for lexical_class in LEXICAL_CLASSES for entity_type in ENTITY_TYPES
)


def phrase_type(lexical_class: str, entity_type: str) -> str:
    """Name of a phrase type: ``phrase_type("NP", "ORG") == "NP-ORG"``. Raises ValueError if either part is unknown."""
    name = f"{lexical_class}-{entity_type}"
    if lexical_class not in LEXICAL_CLASSES or entity_type not in ENTITY_TYPES:
        raise ValueError(f"{name} is not a phrase type: classes are {LEXICAL_CLASSES}, entity types {ENTITY_TYPES}")
    return name
