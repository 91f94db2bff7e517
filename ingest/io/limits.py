"""How much of a base is held at a time, whatever its files say: one bound each, far above what honest bases have.

What is beyond a bound is counted as a skipped row (`line_too_long`, `too_many_names`, `too_many_rows`), so that a
damaged or hostile file costs neither the memory nor, past `--max-errors`, the time of reading it. Types are the
exception: what is beyond `MAX_KB_TYPES` are the most general ones, which are left away without a word.

Readers look a bound up where they use it (`limits.MAX_NAMES`), so that a test can set a small one.
"""

from __future__ import annotations

from pearl_qdrant import settings

MAX_LINE_BYTES = settings.MAX_LINE_BYTES
"""Of a line."""

MAX_ITEM_BYTES = 12 << 20
"""Of a line that holds a whole item, as in Wikidata's JSON; Wikidata refuses items of over some MB."""

MAX_NAMES = 20_000
"""Of an entity. A concept of UMLS can have over 1,000 atoms, an item of Wikidata many hundred aliases."""

MAX_ROWS = 100_000
"""Of an entity: rows of one id, lines of a stanza, triples of a subject, atoms of a concept."""

MAX_ENTITY_BYTES = 1 << 23
"""Of the rows of an entity together; rows past it count as too many, too. The largest honest ones have some 100 KB."""

MAX_KB_TYPES = 128
"""Native types of an entity, its own first and then those above them, nearest first. In the deepest ontologies some
have about 100; Wikidata's reader keeps fewer."""

MAX_ANCESTORS = 1_024
"""Classes that are looked at for what a class means, nearest first; Wikidata's deepest have some hundreds above."""
