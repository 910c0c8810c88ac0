"""The promises of elasticity, looked for in what a job left behind. Pure."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from tests.elastic.diary import Line

# Where a step stands on a worker that dies before it can answer, the survivors go on from the one before.
UNSEEN = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """A generation that came after another one. planned: nobody was lost for it. redone: steps, as told."""

    generation: int
    planned: bool
    redone: int


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """`generations` and `sizes`: of the heartbeats, in order. `curve` and `reference`: step -> loss."""

    steps: int
    batch_size: int
    most: int
    lines: Sequence[Line]
    changes: Sequence[Change]
    generations: Sequence[int]
    sizes: Sequence[int]
    curve: Mapping[int, float]
    reference: Mapping[int, float]
    left_behind: Sequence[str] = field(default_factory=tuple)


def broken_promises(history: History) -> list[str]:
    """One sentence for each that was not kept."""
    return [
        *_samples(history),
        *_steps(history),
        *_curve(history),
        *_generations(history),
        *(f"left behind: {each}" for each in history.left_behind),
    ]


def _samples(history: History) -> Iterator[str]:
    """Of each step, in the newest generation in which it stood: each position of its batch once."""
    newest: dict[int, int] = {}
    computed: dict[tuple[int, int], Counter[int]] = defaultdict(Counter)
    for line in history.lines:
        if line.did == "stood":
            newest[line.step] = max(newest.get(line.step, 0), line.generation)
        for first, size in line.groups:
            computed[line.generation, line.step].update(range(first, first + size))
    for step in range(1, history.steps + 1):
        if step not in newest:
            yield f"step {step} never stood"
            continue
        wanted = Counter(range((step - 1) * history.batch_size, step * history.batch_size))
        found = computed[newest[step], step]
        if found != wanted:
            wrong = f"{found - wanted} too many, {wanted - found} missing"
            yield f"step {step} stood in generation {newest[step]} with {wrong}"


def _steps(history: History) -> Iterator[str]:
    """Inside a generation one after the other; from one to the next never back but for a loss, as far as was told."""
    stood: dict[int, set[int]] = defaultdict(set)
    for line in history.lines:
        if line.did == "stood":
            stood[line.generation].add(line.step)
    changes = {change.generation: change for change in history.changes}
    furthest = 0
    for generation, steps in sorted(stood.items()):
        first, last = min(steps), max(steps)
        if steps != set(range(first, last + 1)):
            yield f"generation {generation} left out steps between {first} and {last}"
        if first > furthest + 1:
            yield f"generation {generation} began with step {first} after step {furthest}"
        back, change = furthest + 1 - first, changes.get(generation)
        if change is not None and back > (0 if change.planned else change.redone + UNSEEN):
            yield f"generation {generation} went {back} steps back, {change.redone} were told"
        # What a lost generation did beyond it did not happen after all.
        furthest = last


def _curve(history: History) -> Iterator[str]:
    missing = sorted(set(range(1, history.steps + 1)) - set(history.curve))
    if missing:
        yield f"no loss was told of {len(missing)} steps, the first of them {missing[0]}"
    for step, value in history.reference.items():
        limit = 1e-5 if step <= 50 else 1e-3
        if step in history.curve and abs(history.curve[step] - value) > limit * abs(value):
            yield f"the loss of step {step} is {history.curve[step]!r} and not {value!r}"
            return


def _generations(history: History) -> Iterator[str]:
    if list(history.generations) != sorted(history.generations):
        yield "a heartbeat told of an older generation than the one before"
    if history.sizes and max(history.sizes) > history.most:
        yield f"{max(history.sizes)} workers trained where {history.most} are allowed"
