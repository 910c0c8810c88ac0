"""A batch is a pure function of (data, seed, micro-batch), read ahead or not."""

from __future__ import annotations

import threading

import numpy as np
import pytest
import torch

from service.domain.batching import MicroBatch, micro_batches, share
from workers.data.loader import Loader
from workers.data.windows import TokenWindows


class Counted:
    """A dataset that remembers what was asked for, and may hold its reader at a gate."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.asked: list[int] = []
        self.gate = threading.Event()
        self.gate.set()

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, index: int) -> int:
        assert self.gate.wait(10)
        self.asked.append(index)
        return index


def groups(step: int) -> tuple[MicroBatch, ...]:
    return micro_batches(step=step, batch_size=6, micro_batch_size=2)


def test_a_batch_of_tokens_is_int64_rows_of_one_token_more() -> None:
    loader = Loader(TokenWindows(np.arange(101, dtype=np.uint16), seq_len=10, source="here"), seed=1)
    batch = loader.batch(groups(1)[0])
    assert (batch.shape, batch.dtype) == ((2, 11), torch.int64)


@pytest.mark.parametrize("world_size", [1, 2, 3])
def test_any_number_of_workers_draws_the_same_samples_in_each_step(world_size: int) -> None:
    for step in range(1, 9):
        loaders = [Loader(Counted(7), seed=4) for _ in range(world_size)]
        drawn = [
            sample
            for rank, indices in enumerate(share(3, world_size=world_size))
            for index in indices
            for sample in loaders[rank].batch(groups(step)[index]).tolist()
        ]
        alone = Loader(Counted(7), seed=4)
        assert drawn == [sample for group in groups(step) for sample in alone.sample_ids(group)]


def test_steps_run_on_across_the_end_of_an_epoch_with_every_sample_once_per_epoch() -> None:
    loader = Loader(Counted(7), seed=4)
    drawn = [sample for step in range(1, 8) for group in groups(step) for sample in loader.batch(group).tolist()]
    assert len(drawn) == 42
    assert all(sorted(drawn[first : first + 7]) == list(range(7)) for first in range(0, 42, 7))


def test_what_was_read_ahead_and_what_was_not_are_the_same() -> None:
    plain, ahead = Loader(Counted(50), seed=2), Loader(Counted(50), seed=2)
    ahead.read_ahead(groups(1))
    assert [ahead.batch(group).tolist() for group in groups(1)] == [plain.batch(group).tolist() for group in groups(1)]
    ahead.close()


def test_reading_ahead_consumes_nothing() -> None:
    loader = Loader(Counted(50), seed=2)
    loader.read_ahead(groups(1) + groups(2))
    first = loader.batch(groups(1)[0]).tolist()
    loader.close()
    assert loader.batch(groups(1)[0]).tolist() == first


def test_reading_ahead_reads_in_the_background_and_once() -> None:
    dataset = Counted(50)
    loader = Loader(dataset, seed=2)
    dataset.gate.clear()
    loader.read_ahead(groups(1))
    loader.read_ahead(groups(1))
    assert dataset.asked == []
    dataset.gate.set()
    for group in groups(1):
        loader.batch(group)
    assert len(dataset.asked) == 6
    loader.close()


def test_forgotten_read_ahead_is_not_read() -> None:
    dataset = Counted(50)
    loader = Loader(dataset, seed=2)
    dataset.gate.clear()
    loader.read_ahead(groups(1))
    loader.read_ahead(groups(2))
    dataset.gate.set()
    for group in groups(2):
        loader.batch(group)
    loader.close()
    assert len(dataset.asked) <= 6 + 2  # at most the one group that the thread had begun


def test_an_error_of_the_dataset_reaches_who_asks_for_the_batch() -> None:
    class Broken(Counted):
        def __getitem__(self, index: int) -> int:
            raise ValueError("unreadable")

    loader = Loader(Broken(9), seed=1)
    loader.read_ahead(groups(1))
    with pytest.raises(ValueError, match="unreadable"):
        loader.batch(groups(1)[0])
    loader.close()


def test_closing_ends_the_thread() -> None:
    before = threading.active_count()
    loader = Loader(Counted(50), seed=2)
    loader.read_ahead(groups(1))
    loader.close()
    assert threading.active_count() == before
