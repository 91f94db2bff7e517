"""One to one: the matches of the highest sum of probabilities in which no entity of either base occurs twice.

An entity may stay without a partner, which is worth nothing.

Source: Jonker and Volgenant 1987, "A shortest augmenting path algorithm for dense and sparse linear assignment
problems", as scipy has it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

import numpy as np

from pearl_qdrant.errors import OptionError
from pearl_qdrant.installing import install_command

A = TypeVar("A")
B = TypeVar("B")

_NOTHING = 1e-9
"""The worth of no partner; a zero would be no edge."""


def assign(candidates: Mapping[A, Mapping[B, float]]) -> dict[A, B]:
    """Choose partners.

    Args:
        candidates: Probabilities of the possible partners of each subject, > 0.

    Returns:
        The partner of each subject that has one.

    Raises:
        OptionError: If scipy is not installed.
    """
    try:
        from scipy.sparse import csr_array
        from scipy.sparse.csgraph import min_weight_full_bipartite_matching
    except ModuleNotFoundError as error:
        raise OptionError(
            "one_to_one", f"A one-to-one crosswalk needs scipy. Install it with: {install_command('crosswalk')}"
        ) from error
    subjects = list(candidates)
    objects = list(dict.fromkeys(one for of_subject in candidates.values() for one in of_subject))
    place = {one: i for i, one in enumerate(objects)}
    edges = [(row, place[one], p) for row, subject in enumerate(subjects) for one, p in candidates[subject].items()]
    edges += [(row, len(objects) + row, _NOTHING) for row in range(len(subjects))]  # each may stay alone
    if not subjects:
        return {}
    rows, columns, worth = zip(*edges, strict=True)
    shape = (len(subjects), len(objects) + len(subjects))
    matrix = csr_array((np.array(worth), (np.array(rows), np.array(columns))), shape=shape)
    chosen = zip(*min_weight_full_bipartite_matching(matrix, maximize=True), strict=True)
    return {subjects[row]: objects[column] for row, column in chosen if column < len(objects)}
