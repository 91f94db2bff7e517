"""Limits on what is held in memory at a time, each far above what real bases need.

What exceeds a limit is counted as a skipped row (`line_too_long`, `too_many_names`, `too_many_rows`). So a damaged or
hostile file costs little memory and, after `max_errors`, no more time. Types are the exception: those beyond
`MAX_KB_TYPES` are the most general ones, and are dropped without a count.

Readers look a limit up where they use it (`limits.MAX_NAMES`), so that a test can set a smaller one.
"""

from __future__ import annotations

from pearl_qdrant import settings

MAX_LINE_BYTES = settings.MAX_LINE_BYTES  # bytes of a line
MAX_ITEM_BYTES = 12 << 20
"""Bytes of a line that holds a whole item, as in Wikidata's JSON; Wikidata refuses items of more than a few MB."""

MAX_NAMES = 20_000
"""Names of an entity. A concept of UMLS can have over 1,000 atoms, an item of Wikidata many hundred aliases."""

MAX_ROWS = 100_000  # rows of an entity: rows of one id, lines of a stanza, triples of a subject, atoms of a concept

MAX_KB_TYPES = 128
"""Native types of an entity: its own, then their ancestors, nearest first. In the deepest ontologies some entities have
about 100. The Wikidata reader keeps fewer."""

MAX_ANCESTORS = 1_024
"""Ancestors of a class that are examined, nearest first; Wikidata's deepest classes have a few hundred."""
