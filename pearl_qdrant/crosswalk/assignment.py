"""One to one: the matches of the highest sum of probabilities in which no entity of either base occurs twice.

The graph of candidates falls apart into small components, each of which is an assignment problem of its own. An entity
may stay without a partner, which is worth nothing.

Source: Crouse 2016, "On implementing 2D rectangular assignment algorithms", as scipy has it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TypeVar

import numpy as np

from pearl_qdrant.errors import OptionError
from pearl_qdrant.installing import install_command

A = TypeVar("A")
B = TypeVar("B")


def assign(candidates: Mapping[A, Mapping[B, float]]) -> dict[A, B]:
    """Choose partners.

    Args:
        candidates: Probabilities of the possible partners of each subject, > 0.

    Returns:
        The partner of each subject that has one.

    Raises:
        OptionError: If scipy is not installed.
    """
    chosen: dict[A, B] = {}
    for subjects, objects in components(candidates):
        if len(subjects) == 1:
            of_subject = candidates[subjects[0]]
            chosen[subjects[0]] = max(of_subject, key=lambda one: of_subject[one])
            continue
        chosen.update(_assign(candidates, subjects, objects))
    return chosen


def _assign(candidates: Mapping[A, Mapping[B, float]], subjects: list[A], objects: list[B]) -> dict[A, B]:
    try:
        from scipy.optimize import linear_sum_assignment
    except ModuleNotFoundError as error:
        raise OptionError(
            "one_to_one", f"A one-to-one crosswalk needs scipy. Install it with: {install_command('crosswalk')}"
        ) from error
    place = {one: i for i, one in enumerate(objects)}
    values = np.zeros((len(subjects), len(objects)))
    for row, subject in enumerate(subjects):
        for one, probability in candidates[subject].items():
            values[row, place[one]] = probability
    rows, columns = linear_sum_assignment(values, maximize=True)
    return {
        subjects[row]: objects[column] for row, column in zip(rows, columns, strict=True) if values[row, column] > 0
    }


def components(candidates: Mapping[A, Mapping[B, float]]) -> Iterator[tuple[list[A], list[B]]]:
    """Subjects and objects that are connected by candidates, component by component."""
    subjects_of: dict[B, list[A]] = {}
    for subject, objects in candidates.items():
        for one in objects:
            subjects_of.setdefault(one, []).append(subject)
    seen: set[A] = set()
    for start in candidates:
        if start in seen or not candidates[start]:
            continue
        seen.add(start)
        waiting, subjects, found = [start], [start], dict[B, None]()
        while waiting:
            for one in candidates[waiting.pop()]:
                if one not in found:
                    found[one] = None
                    new = [subject for subject in subjects_of[one] if subject not in seen]
                    seen.update(new)
                    waiting += new
                    subjects += new
        yield subjects, list(found)
