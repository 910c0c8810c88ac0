"""Which rank is the first to differ from the others, told from the collectives that each has begun. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from workers.engine.states import Collective

Known = Mapping[int, Collective]

# Clocks of machines differ by less, and time-outs are longer.
LATE_S = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Divergence:
    """`sequence` counts the collectives of the group; `unit` is whose values it moves, empty for an agreement."""

    rank: int
    sequence: int
    unit: str
    sentence: str


def first_difference(recent: Mapping[int, Sequence[Collective]]) -> Divergence | None:
    """recent: rank -> its last collectives, empty for one that says nothing. None where nobody differs, or nobody can
    be compared."""
    told = {rank: {each.sequence: each for each in last} for rank, last in recent.items() if last}
    if not told:
        return None
    # What a rank has forgotten cannot be compared.
    oldest = max(map(min, told.values()))
    told = {rank: {n: each for n, each in known.items() if n >= oldest} for rank, known in told.items()}
    for sequence in sorted({sequence for known in told.values() for sequence in known}):
        found = _at(sequence, {rank: known[sequence] for rank, known in told.items() if sequence in known})
        if found is not None:
            return found
    return _behind(told, silent=sorted(recent.keys() - told.keys()))


def _at(sequence: int, begun: Known) -> Divergence | None:
    """Who is in another collective than most of the ranks that came so far."""
    common, _ = Counter(map(_words, begun.values())).most_common(1)[0]
    for rank, each in sorted(begun.items()):
        if _words(each) != common:
            sentence = f"rank {rank} was in {_words(each)} where others were in {common} (collective {sequence})"
            return Divergence(rank=rank, sequence=sequence, unit=each.unit, sentence=sentence)
    return None


def _behind(told: Mapping[int, Known], *, silent: Sequence[int]) -> Divergence | None:
    """Who was not where others wait: one that says nothing, one that never came, or one that came late."""
    waiting = [each for known in told.values() for each in known.values() if not each.finished]
    for awaited in sorted(waiting, key=lambda each: each.sequence):
        times = {rank: known[awaited.sequence].begun_at for rank, known in told.items() if awaited.sequence in known}
        latest = max(times, key=lambda rank: times[rank])
        late_s = times[latest] - min(times.values())
        if silent:
            rank, how = silent[0], "did not come, and says nothing"
        elif absent := sorted(told.keys() - times.keys()):
            rank, how = absent[0], f"did not come; its last was {_words(told[absent[0]][max(told[absent[0]])])}"
        elif late_s >= LATE_S:
            rank, how = latest, f"came {late_s:.1f} s after the first"
        else:
            continue
        sentence = f"to {_words(awaited)} (collective {awaited.sequence}) rank {rank} {how}"
        return Divergence(rank=rank, sequence=awaited.sequence, unit=awaited.unit, sentence=sentence)
    return None


def _words(collective: Collective) -> str:
    words = f"{collective.kind} of {collective.unit}" if collective.unit else collective.kind
    return f"{words}, {collective.numel} elements" if collective.numel else words
