"""The step loop of one rank in one generation.

A step is a fixed list of micro-batches, a pure function of (seed, step). The ranks share them out; every rank calls the
engine equally often, the surplus calls with weight 0. Random numbers are keyed by (seed, step, micro-batch), never by
rank: neither the loss nor a mask depends on who computed it.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from enum import Enum, auto
from typing import Protocol

import torch

from service.domain.batching import MicroBatch, micro_batches, rounds, share
from service.domain.spec import JobSpec
from workers.checkpoint.turns import Turn, Turns
from workers.data.loader import Loader
from workers.engine.protocol import Engine, StepOutcome
from workers.user_code import SpecError
from workers.worker.recorder import Clock, Recorder
from workers.worker.schedule import lr_scale
from workers.worker.wishes import Wishes

# More skipped steps in a row than a loss scale needs to find its place: training is lost, and each costs money.
LOST_STEPS = 50
# A job does not succeed that could not make the last so many.
LOST_LAST_STEPS = 10


class Ending(Enum):
    """Why a loop came to its end; the same on every rank, at the same boundary."""

    FINISHED = auto()
    STOPPED = auto()
    ORPHANED = auto()


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    generation: int
    rank: int
    world_size: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What the group agreed in the reduction of one step."""

    stop: bool
    save: bool
    leave: bool
    mirror: bool
    saving: bool


class Host(Protocol):
    """What the loop asks of the worker that it runs in. All ranks call `save` and `mirror` at the same boundaries."""

    def orphaned(self) -> bool: ...

    def advanced(self, step: int, *, skipped: bool, busy_s: float) -> int:
        """The state is that of `step`, which took `busy_s`. Answers how many steps were skipped so far."""
        ...

    def before_update(self) -> None:
        """Returns when the state may change: a snapshot of the step before may still be in the making."""
        ...

    def saving(self) -> bool:
        """A save behind training is in flight on this rank."""
        ...

    def save(self, step: int, *, behind: bool = False) -> None: ...

    def mirror_due(self, step: int) -> bool: ...

    def mirror(self, step: int) -> None: ...


class Loop:
    """Steps until the end, or until the group agrees to stop. `measure` wraps one micro-step and may slow it down."""

    def __init__(
        self,
        *,
        spec: JobSpec,
        place: Place,
        engine: Engine,
        loader: Loader,
        wishes: Wishes,
        recorder: Recorder,
        measure: Callable[[], AbstractContextManager[None]],
        host: Host,
    ) -> None:
        self._spec = spec
        self._place = place
        self._engine = engine
        self._loader = loader
        self._wishes = wishes
        self._recorder = recorder
        self._measure = measure
        self._host = host
        self._lost = 0
        self._skipped_in_a_row = 0
        self._ended_at = time.perf_counter()

    def run(self, after: int) -> Ending:
        """Train from step `after` + 1 to the end or to an agreed stop."""
        steps, turns = self._spec.training.steps, Turns(every_steps=self._spec.checkpoint.every_steps)
        for step in range(after + 1, steps + 1):
            verdict = self._step(step)
            final = step == steps or verdict.leave
            turn = turns.at(step, busy=verdict.saving, wished=verdict.save, final=final)
            if turn is not Turn.NONE:
                self._host.save(step, behind=turn is Turn.BEHIND)
            if step == steps:
                break
            if verdict.leave:
                return Ending.ORPHANED
            if verdict.stop:
                return Ending.STOPPED
            if verdict.mirror:
                self._host.mirror(step)
        return Ending.FINISHED

    def _step(self, step: int) -> Verdict:
        clock = Clock()
        waited = self._engine.traffic().waited_s
        losses = self._gradients(step, clock)
        clock.comm_s = self._engine.traffic().waited_s - waited
        clock.compute_s -= clock.comm_s
        tally = self._tally(step, losses)
        scale = lr_scale(step, schedule=self._spec.training.schedule, steps=self._spec.training.steps)
        began = time.perf_counter()
        self._host.before_update()
        outcome = self._engine.step(lr_scale=scale, tally=tally)
        now = time.perf_counter()
        agreeing_s = self._engine.traffic().waited_s - waited - clock.comm_s
        clock.comm_s += agreeing_s
        clock.optimizer_s = now - began - agreeing_s
        clock.step_s, self._ended_at = now - self._ended_at, now
        self._refuse_a_lost_job(step, outcome)
        skipped = self._host.advanced(step, skipped=outcome.skipped, busy_s=clock.busy_s)
        *parts, stop, save, leave, mirror, saving = outcome.tally
        values = self._values(sum(parts), outcome.grad_norm, scale, clock.step_s)
        if outcome.loss_scale != 1.0:
            values["loss_scale"] = outcome.loss_scale
        self._recorder.step(step, clock, {**values, "skipped_steps": float(skipped)})
        return Verdict(stop=stop > 0, save=save > 0, leave=leave > 0, mirror=mirror > 0, saving=saving > 0)

    def _refuse_a_lost_job(self, step: int, outcome: StepOutcome) -> None:
        """The same verdict on every rank, for the outcome is the group's. A loss scale may take its time on the way
        down, but not all of the job's."""
        self._skipped_in_a_row = self._skipped_in_a_row + 1 if outcome.skipped else 0
        self._lost = self._lost + (not outcome.excused) if outcome.skipped else 0
        steps = self._spec.training.steps
        patience = LOST_LAST_STEPS if step == steps else LOST_STEPS
        if self._lost >= patience or self._skipped_in_a_row >= steps:
            row = self._skipped_in_a_row
            problem = f"the loss or a gradient was not finite in {row} steps in a row, up to step {step}"
            fix = "lower training.optimizer.lr, warm up longer, or look at the data and the model's loss"
            raise SpecError(field="training", value=f"lr {self._spec.training.optimizer.lr}", problem=problem, fix=fix)

    def _tally(self, step: int, losses: Sequence[float]) -> tuple[float, ...]:
        """What rides in the reduction; one rank's wish is the group's. When to mirror is rank 0's to say."""
        votes = self._wishes.votes(self._place.generation, orphaned=self._host.orphaned())
        mirror = self._place.rank == 0 and self._host.mirror_due(step)
        wishes = (votes.stop, votes.save, votes.leave, mirror, self._host.saving())
        return (*losses, *map(float, wishes))

    def _gradients(self, step: int, clock: Clock) -> list[float]:
        """Every micro-step of this rank; returns its part of the mean loss of the global batch. Where the order of sums
        counts, each micro-batch's is told by itself: the others add nothing to it."""
        training = self._spec.training
        groups = self._groups(step)
        mine = groups[self._share(len(groups))]
        total = torch.zeros(len(groups) if self._spec.deterministic else 1, dtype=torch.float32)
        count = rounds(len(groups), world_size=self._place.world_size)
        for turn in range(count):
            # A surplus call repeats a batch: it counts for nothing, but its shapes are those of the others.
            group = mine[turn] if turn < len(mine) else (mine or groups)[0]
            weight = group.size / training.batch_size if turn < len(mine) else 0.0
            began = time.perf_counter()
            batch = self._loader.batch(group)
            read = time.perf_counter()
            self._key_random_numbers(group)
            with self._first_time_measured():
                loss = self._engine.micro_step(batch, weight=weight, last=turn == count - 1)
            if weight:
                total = total.to(loss.device)
                total[group.index if self._spec.deterministic else 0] += loss.float() * weight
            clock.data_s += read - began
            clock.compute_s += time.perf_counter() - read
        self._read_ahead(step + 1)
        parts: list[float] = total.tolist()
        return parts

    def _first_time_measured(self) -> AbstractContextManager[None]:
        """What a forward keeps is measured once per generation: hooks on every saved tensor cost time."""
        measure, self._measure = self._measure, nullcontext
        return measure()

    def _groups(self, step: int) -> tuple[MicroBatch, ...]:
        training = self._spec.training
        return micro_batches(step=step, batch_size=training.batch_size, micro_batch_size=training.micro_batch_size)

    def _share(self, count: int) -> slice:
        taken = share(count, world_size=self._place.world_size, dealt=self._spec.deterministic)[self._place.rank]
        return slice(taken.start, taken.stop, taken.step)

    def _read_ahead(self, step: int) -> None:
        if step <= self._spec.training.steps:
            groups = self._groups(step)
            self._loader.read_ahead(groups[self._share(len(groups))] or groups[:1])

    def _key_random_numbers(self, group: MicroBatch) -> None:
        key = f"{self._spec.training.seed} {group.step} {group.index}".encode()
        torch.manual_seed(int.from_bytes(hashlib.blake2b(key, digest_size=8).digest(), "little") >> 1)

    def _values(self, loss: float, grad_norm: float, scale: float, step_s: float) -> dict[str, float]:
        training = self._spec.training
        return {
            "loss": loss,
            "grad_norm": grad_norm,
            "lr": training.optimizer.lr * scale,
            "tokens_per_s": training.batch_size * training.seq_len / max(step_s, 1e-9),
            "workers": float(self._place.world_size),
        }
