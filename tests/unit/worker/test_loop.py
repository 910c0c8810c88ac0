"""One rank's loop: which micro-batches, with which weights and random numbers, and where it stops."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any

import pytest

from service.domain.spec import JobSpec
from tests.unit.worker.scripted_engine import ScriptedEngine, ScriptedLoader
from workers.user_code import SpecError
from workers.worker.loop import LOST_LAST_STEPS, LOST_STEPS, Ending, Loop, Place
from workers.worker.messages import Points
from workers.worker.outbox import Outbox
from workers.worker.recorder import Clock, Recorder
from workers.worker.wishes import Wishes


@dataclass
class ScriptedHost:
    """Remembers what the loop asked."""

    saved: list[int] = field(default_factory=list)
    behind: list[int] = field(default_factory=list)
    saving_at: frozenset[int] = frozenset()
    mirrored: list[int] = field(default_factory=list)
    done: list[int] = field(default_factory=list)
    mirror_at: frozenset[int] = frozenset()
    is_orphaned: bool = False
    awaited: int = 0
    skipped: int = 0

    def orphaned(self) -> bool:
        return self.is_orphaned

    def advanced(self, step: int, *, skipped: bool, busy_s: float) -> int:
        self.done.append(step)
        self.skipped += skipped
        return self.skipped

    def before_update(self) -> None:
        self.awaited += 1

    def saving(self) -> bool:
        return len(self.done) + 1 in self.saving_at

    def save(self, step: int, *, behind: bool = False) -> None:
        self.saved.append(step)
        self.behind += [step] if behind else []

    def mirror_due(self, step: int) -> bool:
        return step in self.mirror_at

    def mirror(self, step: int) -> None:
        self.mirrored.append(step)


@dataclass
class Stage:
    """A loop and all around it."""

    rank: int = 0
    world_size: int = 1
    steps: int = 6
    every_steps: int = 100
    batch_size: int = 10
    engine: ScriptedEngine = field(default_factory=ScriptedEngine)
    loader: ScriptedLoader = field(default_factory=ScriptedLoader)
    wishes: Wishes = field(default_factory=Wishes)
    outbox: Outbox = field(default_factory=Outbox)
    host: ScriptedHost = field(default_factory=ScriptedHost)

    def run(self, after: int = 0) -> Ending:
        training = {"steps": self.steps, "batch_size": self.batch_size, "micro_batch_size": 2, "seed": 5}
        spec = JobSpec.model_validate(
            {"model": "gpt-tiny", "training": training, "checkpoint": {"every_steps": self.every_steps}}
        )
        engine: Any = self.engine
        loader: Any = self.loader
        loop = Loop(
            spec=spec,
            place=Place(generation=3, rank=self.rank, world_size=self.world_size),
            engine=engine,
            loader=loader,
            wishes=self.wishes,
            recorder=Recorder(self.outbox, generation=3, rank=self.rank, memory=dict),
            measure=nullcontext,
            host=self.host,
        )
        return loop.run(after)

    def points(self) -> list[Points]:
        return [r for _, r in self.outbox.fetch(after=-1, wait_s=0) if isinstance(r, Points) and r.rank is None]


@pytest.mark.parametrize("world_size", [1, 2, 3, 4, 7])
def test_the_ranks_share_every_micro_batch_once_with_weights_that_sum_to_one(world_size: int) -> None:
    stages = [Stage(rank=rank, world_size=world_size, steps=1) for rank in range(world_size)]
    for stage in stages:
        stage.run()
    counted = [call for stage in stages for call in stage.engine.calls if call[1] > 0]
    assert sorted(batch.index for batch, *_ in counted) == [0, 1, 2, 3, 4]
    assert sum(weight for _, weight, *_ in counted) == pytest.approx(1.0)
    assert len({len(stage.engine.calls) for stage in stages}) == 1, "every rank calls equally often"
    for stage in stages:
        assert [last for _, _, last, _ in stage.engine.calls].count(True) == 1
        assert stage.engine.calls[-1][2]


def test_random_numbers_belong_to_the_micro_batch_and_not_to_the_rank() -> None:
    alone, second = Stage(steps=2), Stage(rank=1, world_size=2, steps=2)
    alone.run()
    second.run()
    seeds = {(batch.step, batch.index): seed for batch, _, _, seed in alone.engine.calls}
    assert len(set(seeds.values())) == len(seeds)
    assert all(seeds[batch.step, batch.index] == seed for batch, _, _, seed in second.engine.calls)


def test_it_goes_on_after_the_step_that_it_has() -> None:
    stage = Stage(steps=6)
    assert stage.run(after=4) is Ending.FINISHED
    assert stage.host.done == [5, 6]
    assert stage.engine.calls[0][0].step == 5


def test_a_finished_job_does_nothing() -> None:
    stage = Stage(steps=6)
    assert stage.run(after=6) is Ending.FINISHED
    assert (stage.engine.calls, stage.host.saved) == ([], [])


def test_a_wish_to_stop_of_any_rank_stops_this_one_at_the_same_boundary() -> None:
    stage = Stage(engine=ScriptedEngine(others={3: (0.0, 1.0, 0.0, 0.0, 0.0, 0.0)}))
    assert stage.run() is Ending.STOPPED
    assert stage.host.done == [1, 2, 3]
    assert stage.host.saved == []


def test_a_stop_at_the_last_step_is_the_end() -> None:
    stage = Stage(steps=3, engine=ScriptedEngine(others={3: (0.0, 1.0, 0.0, 0.0, 0.0, 0.0)}))
    assert stage.run() is Ending.FINISHED


def test_a_wish_for_another_generation_is_not_this_loops() -> None:
    stage = Stage(steps=3)
    stage.wishes.stop(2)
    stage.wishes.save(2, "r")
    assert stage.run() is Ending.FINISHED
    assert stage.host.saved == [3]


def test_checkpoints_are_due_at_intervals_on_request_and_at_the_end() -> None:
    stage = Stage(steps=6, every_steps=2, engine=ScriptedEngine(others={3: (0.0, 0.0, 1.0, 0.0, 0.0, 0.0)}))
    stage.run()
    assert stage.host.saved == [2, 3, 4, 6]
    assert stage.host.behind == [2, 3, 4], "the last one must stand before the job ends"


def test_every_update_waits_for_a_snapshot_in_the_making() -> None:
    stage = Stage(steps=3)
    stage.run()
    assert stage.host.awaited == 3


def test_a_save_that_is_due_waits_for_the_one_in_flight_on_any_rank() -> None:
    elsewhere = {4: (0.0, 0.0, 0.0, 0.0, 0.0, 1.0)}
    host = ScriptedHost(saving_at=frozenset({2, 3}))
    stage = Stage(steps=8, every_steps=2, host=host, engine=ScriptedEngine(others=elsewhere))
    stage.run()
    assert stage.host.saved == [5, 6, 8]


def test_orphans_save_and_end_together() -> None:
    stage = Stage(host=ScriptedHost(is_orphaned=True))
    assert stage.run() is Ending.ORPHANED
    assert stage.host.saved == [1]


def test_the_loss_is_the_mean_of_the_global_batch_and_skips_are_counted() -> None:
    stage = Stage(
        world_size=2, steps=2, engine=ScriptedEngine(others={1: (1.2, 0, 0, 0, 0, 0), 2: (1.2, 0, 0, 0, 0, 0)})
    )
    stage.run()
    points = stage.points()
    assert [point.step for point in points] == [1, 2]
    assert points[0].values["loss"] == pytest.approx(2.0 * 0.4 + 1.2)
    assert [point.values["skipped_steps"] for point in points] == [0, 1]
    assert points[0].values["workers"] == 2
    assert points[0].values["comm_s"] == pytest.approx(0.003)
    assert {"step_s", "data_s", "compute_s", "optimizer_s", "tokens_per_s", "lr", "grad_norm"} <= set(points[0].values)


def test_other_ranks_do_not_speak_for_the_group() -> None:
    stage = Stage(rank=1, world_size=2)
    stage.run()
    assert stage.points() == []


def test_the_next_step_is_read_ahead_and_nothing_after_the_last() -> None:
    stage = Stage(steps=2)
    stage.run()
    assert [[group.step for group in ahead] for ahead in stage.loader.ahead] == [[2] * 5]


def test_rank_0_says_when_to_mirror_and_all_do_it_there() -> None:
    first = Stage(host=ScriptedHost(mirror_at=frozenset({2, 4})))
    first.run()
    assert first.host.mirrored == [2, 4]
    second = Stage(
        rank=1,
        world_size=2,
        engine=ScriptedEngine(others={3: (0, 0, 0, 0, 1.0, 0)}),
        host=ScriptedHost(mirror_at=frozenset({2})),
    )
    second.run()
    assert second.host.mirrored == [3]


def test_a_job_whose_steps_are_all_skipped_fails_in_words_and_one_good_step_gives_it_another_chance() -> None:
    lost = Stage(steps=5, engine=ScriptedEngine(skips=frozenset(range(1, 6))))
    with pytest.raises(SpecError, match="not finite in 5 steps in a row, up to step 5"):
        lost.run()
    almost = frozenset(range(1, 2 * LOST_STEPS)) - {LOST_STEPS}
    assert Stage(steps=2 * LOST_STEPS, engine=ScriptedEngine(skips=almost)).run() is Ending.FINISHED


def test_a_job_that_could_not_make_its_last_steps_has_not_succeeded() -> None:
    steps = 40
    lost = Stage(steps=steps, engine=ScriptedEngine(skips=frozenset(range(steps - LOST_LAST_STEPS + 1, steps + 1))))
    with pytest.raises(SpecError, match=f"not finite in {LOST_LAST_STEPS} steps in a row, up to step {steps}"):
        lost.run()
    fewer = frozenset(range(steps - LOST_LAST_STEPS + 2, steps + 1))
    assert Stage(steps=steps, engine=ScriptedEngine(skips=fewer)).run() is Ending.FINISHED


def test_skips_of_a_loss_scale_on_its_way_down_are_no_sign_of_a_lost_job_unless_they_are_all_it_does() -> None:
    steps = 2 * LOST_STEPS
    seeking = frozenset(range(1, LOST_STEPS))
    then_lost = frozenset(range(1, steps))
    found = Stage(steps=steps, engine=ScriptedEngine(skips=then_lost - {steps - 1}, excused=seeking))
    assert found.run() is Ending.FINISHED
    lost = Stage(steps=steps, engine=ScriptedEngine(skips=then_lost, excused=seeking))
    with pytest.raises(SpecError, match=f"not finite in {steps - 1} steps in a row"):
        lost.run()
    never = Stage(steps=5, engine=ScriptedEngine(skips=frozenset(range(1, 6)), excused=frozenset(range(1, 6))))
    with pytest.raises(SpecError, match="not finite in 5 steps in a row"):
        never.run()


def test_what_a_lost_rank_0_said_of_committed_steps_is_said_again_by_the_next_one() -> None:
    outbox = Outbox()
    before = Recorder(outbox, generation=1, rank=1, memory=dict)
    for step in (1, 2, 3):
        before.step(step, Clock(), {"loss": float(step)})
    assert [r for _, r in outbox.fetch(after=-1, wait_s=0) if isinstance(r, Points) and r.rank is None] == []
    Recorder(outbox, generation=2, rank=0, memory=dict, former=before, resumed_at=2)
    told = [r for _, r in outbox.fetch(after=-1, wait_s=0) if isinstance(r, Points) and r.rank is None]
    assert [(r.generation, r.step, r.values["loss"]) for r in told] == [(1, 1, 1.0), (1, 2, 2.0)]
