"""Batches by (step, micro-batch): there is no position to save, so nothing read ahead ever counts as consumed."""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from torch.utils.data import default_collate

from service.domain.batching import MicroBatch
from workers.data.corpus import Dataset
from workers.data.sampler import sample_at


class Loader:
    """`batch(micro_batch)` is a pure function of (dataset, seed, micro-batch): any rank may ask for any, in any order.

    A token corpus gives int64 [micro_batch_size, seq_len + 1]; a user's dataset what `default_collate` makes of it.
    """

    def __init__(self, dataset: Dataset, *, seed: int) -> None:
        self._dataset = dataset
        self._seed = seed
        self._reader: ThreadPoolExecutor | None = None
        self._ahead: dict[MicroBatch, Future[Any]] = {}

    def sample_ids(self, micro_batch: MicroBatch) -> tuple[int, ...]:
        """Which samples of the dataset these are, in order. An epoch may end inside."""
        positions = range(micro_batch.first, micro_batch.first + micro_batch.size)
        return tuple(sample_at(position, size=len(self._dataset), seed=self._seed) for position in positions)

    def batch(self, micro_batch: MicroBatch) -> Any:
        """The collated samples, from what was read ahead where it is there."""
        future = self._ahead.pop(micro_batch, None)
        return self._read(micro_batch) if future is None else future.result()

    def read_ahead(self, micro_batches: Iterable[MicroBatch]) -> None:
        """Read exactly these in the background from now on; whatever else was read ahead is forgotten."""
        wanted = dict.fromkeys(micro_batches)
        for stale in self._ahead.keys() - wanted.keys():
            self._ahead.pop(stale).cancel()
        if wanted and self._reader is None:
            self._reader = ThreadPoolExecutor(max_workers=1, thread_name_prefix="elastane-data")
        for micro_batch in wanted:
            if micro_batch not in self._ahead and self._reader is not None:
                self._ahead[micro_batch] = self._reader.submit(self._read, micro_batch)

    def close(self) -> None:
        """Forget what was read ahead and end its thread."""
        self.read_ahead(())
        if self._reader is not None:
            self._reader.shutdown(cancel_futures=True)
            self._reader = None

    def _read(self, micro_batch: MicroBatch) -> Any:
        return default_collate([self._dataset[index] for index in self.sample_ids(micro_batch)])
