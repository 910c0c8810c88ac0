"""A worker's reports on their way to the controller: numbered, kept until acknowledged, thinned when nobody fetches."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable

from workers.worker.messages import Points, Report
from workers.worker.redaction import Redactor

MAX_REPORTS = 20_000
# A controller that is killed takes along what it had fetched and not yet delivered: a second or two of points.
REMEMBERED_POINTS = 1_000


class Outbox:
    """Thread-safe. The controller fetches; a long poll returns as soon as there is something."""

    def __init__(
        self,
        *,
        clock: Callable[[], float] = time.monotonic,
        max_reports: int = MAX_REPORTS,
        redactor: Redactor | None = None,
    ) -> None:
        self._clock = clock
        self._redactor = redactor or Redactor()
        self._max_reports = max_reports
        self._filled = threading.Condition()
        self._reports: deque[tuple[int, Report]] = deque()
        self._told: deque[tuple[int, Report]] = deque(maxlen=REMEMBERED_POINTS)
        self._next = 0
        self._heard = clock()
        self._was_heard = False

    def put(self, report: Report) -> None:
        report = self._redactor.cleaned(report)
        with self._filled:
            self._reports.append((self._next, report))
            self._next += 1
            if len(self._reports) > self._max_reports:
                self._thin()
            # Points travel with the next poll: waking the controller for every step would cost steps.
            if not isinstance(report, Points):
                self._filled.notify_all()

    def fetch(self, *, after: int, wait_s: float) -> list[tuple[int, Report]]:
        """The reports numbered above `after`; those up to it are forgotten."""
        with self._filled:
            self._heard, self._was_heard = self._clock(), True
            while self._reports and self._reports[0][0] <= after:
                number, report = self._reports.popleft()
                if isinstance(report, Points):
                    self._told.append((number, report))
            if all(isinstance(report, Points) for _, report in self._reports):
                self._filled.wait(wait_s)
            self._heard = self._clock()
            return list(self._reports)

    def retell(self) -> None:
        """To a new controller, the points that the former one may have taken along. A point that arrives twice counts
        once, so more than was lost does no harm."""
        with self._filled:
            self._reports.extendleft(reversed(self._told))
            self._told.clear()

    def silence_s(self) -> float:
        """How long no controller has called."""
        with self._filled:
            return self._clock() - self._heard

    def was_heard(self) -> bool:
        """Whether a controller has ever called."""
        return self._was_heard

    def _thin(self) -> None:
        """Keep as sparse points as it takes to halve them, evenly over all steps; everything else is kept."""
        steps = [report.step for _, report in self._reports if isinstance(report, Points)]
        stride = 2
        while sum(step % stride == 0 for step in steps) > self._max_reports // 2:
            stride *= 2
        self._reports = deque(
            (number, report)
            for number, report in self._reports
            if not isinstance(report, Points) or report.step % stride == 0
        )
