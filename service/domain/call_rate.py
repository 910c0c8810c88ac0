"""How often somebody may call. Pure: the generic cell rate algorithm, a bucket that is one number per caller."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class CallRate:
    """`burst` calls at once, `per_minute` in the long run."""

    per_minute: int
    burst: int

    def taken(self, full_s: float, *, now_s: float) -> tuple[float, float]:
        """(when the bucket will be full again, seconds to wait), after one more call; 0 seconds where it may go on,
        else nothing was taken. full_s: what the former call returned, any past time for the first."""
        each_s = 60.0 / self.per_minute
        after_s = max(full_s, now_s) + each_s
        wait_s = after_s - now_s - each_s * self.burst
        return (after_s, 0.0) if wait_s <= 1e-9 else (full_s, wait_s)
