"""How often somebody may call."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from service.domain.call_rate import CallRate


@given(
    per_minute=st.integers(1, 600),
    burst=st.integers(1, 20),
    gaps=st.lists(st.floats(0, 30, allow_nan=False), min_size=1, max_size=60),
)
def test_no_minute_has_more_than_the_rate_and_the_burst_and_who_waits_as_told_comes_in(
    per_minute: int, burst: int, gaps: list[float]
) -> None:
    rate, now_s, full_s, taken = CallRate(per_minute=per_minute, burst=burst), 1000.0, 0.0, list[float]()
    for gap_s in gaps:
        now_s += gap_s
        full_s, wait_s = rate.taken(full_s, now_s=now_s)
        if wait_s:
            refused, _ = rate.taken(full_s, now_s=now_s)
            assert refused == full_s
            now_s += wait_s
            full_s, wait_s = rate.taken(full_s, now_s=now_s)
            assert wait_s == 0.0
        taken.append(now_s)
    for begin in taken:
        assert sum(begin <= each < begin + 60.0 for each in taken) <= per_minute + burst


def test_a_burst_is_taken_at_once_and_not_one_more() -> None:
    rate, full_s, waits = CallRate(per_minute=60, burst=3), 0.0, list[float]()
    for _ in range(5):
        full_s, wait_s = rate.taken(full_s, now_s=100.0)
        waits.append(round(wait_s, 6))
    assert waits == [0.0, 0.0, 0.0, 1.0, 1.0]
