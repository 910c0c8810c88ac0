from __future__ import annotations

import torch

from workers.engine.zero.buckets import KEPT, Buckets

CPU = torch.device("cpu")


def test_a_bucket_that_came_back_is_lent_again() -> None:
    buckets = Buckets(CPU)
    first = buckets.take(10, torch.float32)
    buckets.give(first)
    assert buckets.take(8, torch.float32) is first
    assert first.vector.numel() == 8
    assert buckets.size_bytes == 40


def test_the_smallest_that_fits_is_lent_and_a_dtype_keeps_to_its_own() -> None:
    buckets = Buckets(CPU)
    large, small = buckets.take(100, torch.float32), buckets.take(10, torch.float32)
    buckets.give(large)
    buckets.give(small)
    assert buckets.take(9, torch.float32) is small
    assert buckets.take(9, torch.bfloat16) is not large
    assert buckets.take(11, torch.float32) is large


def test_many_sizes_do_not_add_up() -> None:
    buckets = Buckets(CPU)
    for numel in range(1, 100):
        buckets.give(buckets.take(numel, torch.float32))
    assert buckets.size_bytes <= KEPT * 99 * 4
    lent = [buckets.take(100 + number, torch.float32) for number in range(KEPT + 3)]
    for bucket in lent:
        buckets.give(bucket)
    assert buckets.size_bytes == 4 * sum(100 + number for number in range(3, KEPT + 3))
