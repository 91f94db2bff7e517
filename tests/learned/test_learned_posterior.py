"""Counts and the model's probabilities as one probability."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pearl_qdrant.linking.learned.counts import PRIOR_WEIGHT, Observation, Outcome, Seen, observations, posterior

A, B = ("kb", "a"), ("kb", "b")


def test_the_formula() -> None:
    """The model is worth K observations: (n(e) + K p(e)) / (n + K)."""
    after = posterior({A: 0.6, B: 0.3, None: 0.1}, [Observation(2, B), Observation(1)])

    assert after[A] == pytest.approx(PRIOR_WEIGHT * 0.6 / (3 + PRIOR_WEIGHT))
    assert after[B] == pytest.approx((2 + PRIOR_WEIGHT * 0.3) / (3 + PRIOR_WEIGHT))
    assert after[None] == pytest.approx((1 + PRIOR_WEIGHT * 0.1) / (3 + PRIOR_WEIGHT))


def test_one_observation_outweighs_the_model() -> None:
    """A link that was accepted once is the answer from then on, whatever the model says."""
    assert posterior({A: 1.0, B: 0.0, None: 0.0}, [Observation(1, B)])[B] > 0.5


def test_a_rejection_goes_to_the_others_in_proportion() -> None:
    """What a rejected entity loses, the others share as they stood."""
    after = posterior({A: 0.6, B: 0.3, None: 0.1}, [Observation(1, excludes=frozenset((A,)).__contains__)])

    assert after[A] == pytest.approx(PRIOR_WEIGHT * 0.6 / (1 + PRIOR_WEIGHT))
    assert after[B] / after[None] == pytest.approx(3)


def test_if_all_are_rejected_it_is_nil() -> None:
    """If nothing else is left, a rejection speaks for NIL."""
    after = posterior({A: 1.0, None: 0.0}, [Observation(1, excludes=frozenset((A,)).__contains__)])

    assert after[None] == pytest.approx(1 / (1 + PRIOR_WEIGHT))


outcomes = st.sampled_from([A, B, ("other", "c"), None])


@given(
    st.lists(st.floats(0, 1), min_size=4, max_size=4).filter(lambda values: sum(values) > 0.01),
    st.lists(st.tuples(st.integers(1, 1000), outcomes, st.booleans()), max_size=8),
)
def test_probabilities_stay_probabilities(weights: list[float], seen: list[tuple[int, Outcome, bool]]) -> None:
    """Whatever was seen, they are not negative and sum to 1."""
    prior = {key: w / sum(weights) for key, w in zip([A, B, ("other", "c"), None], weights, strict=True)}
    after = posterior(
        prior,
        [
            Observation(n, excludes=frozenset((outcome,)).__contains__)
            if rejects and outcome
            else Observation(n, outcome)
            for n, outcome, rejects in seen
        ],
    )

    assert all(p >= 0 for p in after.values())
    assert math.fsum(after.values()) == pytest.approx(1)


def test_entities_that_do_not_count_are_no_observations() -> None:
    """An entity without the wanted type, or that was deleted, says nothing; NIL does."""
    found = observations(
        Seen({"a": 2, "b": 1, None: 1}, {"b": 1}), "kb", is_only_base=True, counts=lambda key: key == "a"
    )

    assert [(one.count, one.outcome, one.excludes) for one in found] == [(2, A, None), (1, None, None)]


def test_no_entity_in_one_of_several_bases_excludes_that_base() -> None:
    """A mention without an entity in one collection may have one in another."""
    found = observations(Seen({None: 1}), "kb", is_only_base=False, counts=lambda key: True)
    after = posterior({A: 0.8, ("other", "c"): 0.1, None: 0.1}, found)

    assert after["other", "c"] == pytest.approx(after[None])
    assert after[A] == pytest.approx(PRIOR_WEIGHT * 0.8 / (1 + PRIOR_WEIGHT))
