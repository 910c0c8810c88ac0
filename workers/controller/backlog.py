"""Facts that wait for the service: delivered in order and at least once; thinned before anything is lost.

A fact gets its number when it first leaves; from then on it is frozen, so that the service can tell a repetition.
What has not left yet is merged and thinned freely while the service is away.
"""

from __future__ import annotations

from collections import deque
from itertools import islice

from service.domain.wire import Fact, LogLine, Sample

# What one fact and one message carry at most.
FACT_POINTS = 1_000
FACT_LINES = 20
MESSAGE_BYTES = 600_000
MESSAGE_FACTS = 200


class Backlog:
    """Facts `first, first + 1, ...`. Not thread-safe: its owner locks."""

    def __init__(self, *, max_points: int = 100_000, max_log_lines: int = 5_000) -> None:
        self.first = 0
        self._left: deque[Fact] = deque()
        self._waiting: deque[Fact] = deque()
        self._points = 0
        self._log_lines = 0
        self._max_points = max_points
        self._max_log_lines = max_log_lines

    def __len__(self) -> int:
        return len(self._left) + len(self._waiting)

    def add(self, fact: Fact) -> None:
        """An event or a checkpoint: never dropped."""
        self._waiting.append(fact)

    def add_samples(self, samples: tuple[Sample, ...]) -> None:
        last = self._waiting[-1].samples if self._waiting else None
        if last is not None and len(last) + len(samples) <= FACT_POINTS:
            self._waiting[-1] = Fact(samples=last + samples)
        else:
            self._waiting.append(Fact(samples=samples))
        self._points += len(samples)
        if self._points > self._max_points:
            self._thin()

    def add_logs(self, lines: tuple[LogLine, ...]) -> None:
        """Dropped when there are too many: the files of the workers keep every line."""
        if self._log_lines + len(lines) <= self._max_log_lines:
            self._waiting.extend(Fact(logs=lines[i : i + FACT_LINES]) for i in range(0, len(lines), FACT_LINES))
            self._log_lines += len(lines)

    def message(self, most: int = MESSAGE_FACTS) -> tuple[Fact, ...]:
        """At most so many of what leaves next, numbered from `first`; what left before is repeated unchanged."""
        if not self._left:
            self._take()
        return tuple(islice(self._left, most))

    def replace_first(self, fact: Fact) -> None:
        """The number of the first that left is this one's from now on."""
        self._left[0] = fact

    def acknowledge(self, next_wanted: int) -> None:
        """Everything numbered below `next_wanted` has been applied."""
        while self._left and self.first < next_wanted:
            self._left.popleft()
            self.first += 1

    def _take(self) -> None:
        size_bytes = 0
        while self._waiting and len(self._left) < MESSAGE_FACTS:
            fact = self._waiting[0]
            size_bytes += len(fact.model_dump_json(exclude_none=True).encode())
            if self._left and size_bytes > MESSAGE_BYTES:
                return
            self._left.append(self._waiting.popleft())
            self._points -= len(fact.samples or ())
            self._log_lines -= len(fact.logs or ())

    def _thin(self) -> None:
        """As sparse as it takes to halve what waits, evenly over all steps; the newest step stays."""
        steps = [sample.step for fact in self._waiting for sample in fact.samples or ()]
        stride = 2
        while sum(step % stride == 0 for step in steps) > self._max_points // 2:
            stride *= 2
        thinned = (_only(fact, stride=stride, newest=max(steps)) for fact in self._waiting)
        self._waiting = deque(fact for fact in thinned if fact.samples != ())
        self._points = sum(len(fact.samples or ()) for fact in self._waiting)


def _only(fact: Fact, *, stride: int, newest: int) -> Fact:
    if fact.samples is None:
        return fact
    return Fact(samples=tuple(each for each in fact.samples if each.step % stride == 0 or each.step == newest))
