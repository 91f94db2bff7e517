"""Chooses the mentions of a list whose answers would tell a calibration most: those that are nearly decided either way.

A calibration is a curve over the linker's scores. Mentions that are chosen by their scores do not bend it, and it is
flat where all answers are right or all are wrong: so those near the threshold are asked, spread over both sides.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice

from pearl_qdrant.linking.linker import EntityLinker
from pearl_qdrant.linking.mentions import clean_mention
from pearl_qdrant.linking.options import LinkOptions
from pearl_qdrant.records import Link

READ = 20_000
"""Distinct mentions that are linked; of more, the first."""

SPREAD = 3
"""The mentions that are asked are every third of so many times as many that are nearest to the threshold."""


def choose_to_label(
    linker: EntityLinker, mentions: Iterable[str], n: int, options: LinkOptions | None = None
) -> list[Link]:
    """The links whose right answers would tell a calibration most, the least certain first.

    Args:
        linker: An open linker.
        mentions: The strings of one source; each distinct one counts once.
        n: How many, at least 1; fewer come if there are fewer that no rule decides.
        options: As for `link`.

    Raises:
        ValueError: If `n` is less than 1.
    """
    if n < 1:
        raise ValueError(f"at least one mention can be asked, not {n}")
    distinct = dict.fromkeys(filter(None, map(clean_mention, mentions)))
    chosen = options or LinkOptions()
    threshold = linker.calibration.threshold if chosen.threshold is None else chosen.threshold
    open_links = [
        link for link in linker.link_batch(list(islice(distinct, READ)), chosen) if link.candidates and not link.rule
    ]
    # Equally far ones in an order that does not depend on that of the list.
    nearest = sorted(open_links, key=lambda one: (abs((one.candidates[0].probability or 0) - threshold), one.mention))
    return nearest[: SPREAD * n][:: max(1, min(SPREAD, len(nearest) // n))][:n]
