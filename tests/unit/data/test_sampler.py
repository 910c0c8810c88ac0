"""The order of samples is a permutation per epoch, decided by the seed alone."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workers.data.sampler import permutation, sample_at

GOLDEN = [454, 566, 374, 187, 189, 959, 98, 893]


@given(size=st.integers(1, 600), seed=st.integers(0, 2**63 - 1), epoch=st.integers(0, 50))
def test_every_epoch_holds_every_sample_once(size: int, seed: int, epoch: int) -> None:
    order = permutation(size=size, seed=seed, epoch=epoch)
    assert sorted(order[index] for index in range(size)) == list(range(size))


@given(size=st.integers(1, 100), seed=st.integers(0, 2**63 - 1))
def test_three_epochs_of_the_endless_order_hold_every_sample_three_times(size: int, seed: int) -> None:
    drawn = [sample_at(position, size=size, seed=seed) for position in range(3 * size)]
    assert sorted(drawn) == sorted(list(range(size)) * 3)


def test_seeds_and_epochs_give_other_orders_and_equal_ones_the_same() -> None:
    orders = [
        tuple(permutation(size=97, seed=seed, epoch=epoch)[index] for index in range(97))
        for seed, epoch in [(1, 0), (1, 1), (2, 0), (1, 0)]
    ]
    assert len(set(orders)) == 3
    assert orders[0] == orders[3]


def test_the_order_is_the_same_on_every_machine_and_in_every_release() -> None:
    assert [sample_at(position, size=1000, seed=1) for position in range(8)] == GOLDEN


def test_an_order_of_a_trillion_samples_needs_no_table() -> None:
    size = 10**12
    order = permutation(size=size, seed=3, epoch=0)
    drawn = [order[index] for index in range(1000)]
    assert len(set(drawn)) == 1000
    assert all(0 <= sample < size for sample in drawn)


def test_the_order_looks_shuffled() -> None:
    """Neighbours are not neighbours, and each tenth of the order draws from the whole range evenly."""
    size = 10_000
    order = [permutation(size=size, seed=5, epoch=0)[index] for index in range(size)]
    assert sum(abs(a - b) == 1 for a, b in pairwise(order)) < 12  # 2 expected
    for first in range(0, size, 1000):
        counts = [0] * 10
        for sample in order[first : first + 1000]:
            counts[sample * 10 // size] += 1
        assert sum((count - 100) ** 2 / 100 for count in counts) < 40  # chi-squared, 9 degrees: p = 1e-5


def test_a_position_outside_an_epoch_is_refused() -> None:
    with pytest.raises(IndexError, match=r"5 is not in 0\.\.4"):
        permutation(size=5, seed=1, epoch=0)[5]
