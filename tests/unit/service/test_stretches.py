"""A whole series as pieces of work, each short enough for a database that has one writer."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from service.domain.series import Stretch, parts, stretches, together

counts = st.dictionaries(st.integers(0, 200), st.integers(1, 50), max_size=40).map(lambda found: sorted(found.items()))


def cut(found: list[tuple[int, int]], *, rows: int, after: int | None = None) -> list[Stretch]:
    return list(stretches(found, name="loss", rank=-1, first=7, width=10, rows=rows, after=after))


@given(found=counts, rows=st.integers(1, 120))
def test_every_bucket_is_in_one_stretch_and_none_is_longer_than_told(found: list[tuple[int, int]], rows: int) -> None:
    made = cut(found, rows=rows, after=-3)
    largest = max((count for _, count in found), default=0)
    assert all(stretch.rows <= max(rows, largest) for stretch in made)
    for stretch in made:
        own = [count for bucket, count in found if stretch.begin <= 7 + bucket * 10 < stretch.end]
        assert stretch.rows == sum(own)
        assert stretch.rows <= rows or len(own) == 1
    assert sum(stretch.rows for stretch in made) == sum(count for _, count in found)
    assert all(one.end <= other.begin for one, other in itertools.pairwise(made))


def test_a_stretch_says_which_bucket_comes_before_it() -> None:
    made = cut([(0, 5), (1, 5), (4, 5), (9, 5)], rows=10, after=-3)
    assert [(stretch.begin, stretch.end, stretch.after) for stretch in made] == [(7, 27, -3), (47, 107, 17)]


@given(count=st.integers(1, 5000), rows=st.integers(1, 120))
def test_a_bucket_that_is_too_large_becomes_finer_ones_that_cover_it(count: int, rows: int) -> None:
    whole = Stretch(name="loss", rank=0, begin=100, end=1100, width=1000, rows=count, after=None)
    made = list(parts(whole, rows=rows))
    assert made[0].begin == 100
    assert made[-1].end == 1100
    assert all(one.end == other.begin for one, other in itertools.pairwise(made))
    assert all(0 < part.end - part.begin <= part.width for part in made)
    # A part has as much of the samples as of the steps.
    assert all(part.width * count <= rows * 1000 or part.width == 1 for part in made)


@given(found=counts, rows=st.integers(50, 200))
def test_what_goes_into_one_transaction_is_bounded_and_in_order(found: list[tuple[int, int]], rows: int) -> None:
    made = cut(found, rows=50)
    packs = list(together(made, rows=rows))
    assert [stretch for pack in packs for stretch in pack] == made
    assert all(0 < sum(stretch.rows for stretch in pack) <= rows for pack in packs)
