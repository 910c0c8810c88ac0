"""How many slots may be given away: those there are and those that the cluster's autoscaler can bring. Pure.

An autoscaler's promise is believed for a while. Where workers that were granted have had no slot for too long (no such
machines, a quota of the provider), the service goes on with what is there, so that what exists is shared and nothing is
asked for in vain; later it asks again, each time after a longer pause.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from service.domain.cluster import ClusterFacts

RETRY_S = 300.0
RETRY_LIMIT_S = 3600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Reach:
    """slots: seen last. short_since: more is granted than there is, and none came since. disbelieved_until: the
    autoscaler is not counted on before that time. failures: how often in a row."""

    slots: int = 0
    short_since: datetime | None = None
    disbelieved_until: datetime | None = None
    failures: int = 0

    def usable(self, facts: ClusterFacts, *, now: datetime) -> int:
        """Slots that allocation may give away."""
        if self.disbelieved_until is not None and now < self.disbelieved_until:
            return facts.slots
        return max(facts.slots, facts.max_slots)

    def note(self, facts: ClusterFacts, *, now: datetime) -> str:
        """Why fewer slots than the autoscaler may reach are given away; empty where that is not so."""
        if self.disbelieved_until is None or now >= self.disbelieved_until or facts.max_slots <= facts.slots:
            return ""
        wait_s = (self.disbelieved_until - now).total_seconds()
        return (
            f"the autoscaler may reach {facts.max_slots} slots but has brought none of those it was asked for; "
            f"it is asked again in {_minutes(wait_s)}"
        )


def looked_at(before: Reach, facts: ClusterFacts, *, granted: int, patience_s: float, now: datetime) -> Reach:
    """After one more look. granted: slots that jobs have been given."""
    if facts.slots > before.slots:
        before = Reach()
    seen = replace(before, slots=facts.slots)
    if seen.disbelieved_until is not None and now < seen.disbelieved_until:
        return seen
    if granted <= facts.slots:
        return replace(seen, short_since=None, disbelieved_until=None)
    since = seen.short_since if seen.disbelieved_until is None and seen.short_since is not None else now
    if (now - since).total_seconds() < patience_s:
        return replace(seen, short_since=since, disbelieved_until=None)
    pause_s = min(RETRY_LIMIT_S, RETRY_S * 2**seen.failures)
    return replace(
        seen, short_since=since, disbelieved_until=now + timedelta(seconds=pause_s), failures=seen.failures + 1
    )


def _minutes(seconds: float) -> str:
    minutes = max(1, round(seconds / 60))
    return f"{minutes} minute{'' if minutes == 1 else 's'}"
