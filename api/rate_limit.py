"""How often a key may call, and how often an address may show keys that are none. Each process counts for itself."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from service.domain.call_rate import CallRate
from service.domain.errors import TooManyRequests

# Somebody who tries keys: more than a person mistypes, far less than 2^256.
FAILED = CallRate(per_minute=60, burst=30)
CALLERS = 10_000


@dataclass(slots=True, kw_only=True)
class RateLimits:
    """A bucket for each caller; full ones are forgotten when there are many."""

    rate: CallRate
    clock: Callable[[], float] = time.monotonic
    _full_s: dict[str, float] = field(default_factory=dict)

    def take(self, caller: str) -> None:
        """Raises TooManyRequests."""
        self._take(caller, self.rate)

    def failed(self, address: str) -> None:
        """A key that was none came from there. Raises TooManyRequests in place of the refusal."""
        self._take(f"failed:{address}", FAILED)

    def _take(self, caller: str, rate: CallRate) -> None:
        now_s = self.clock()
        if len(self._full_s) > CALLERS:
            self._full_s = {name: full_s for name, full_s in self._full_s.items() if full_s > now_s}
        self._full_s[caller], wait_s = rate.taken(self._full_s.get(caller, now_s), now_s=now_s)
        if wait_s:
            raise TooManyRequests(per_minute=rate.per_minute, retry_after_s=wait_s)
