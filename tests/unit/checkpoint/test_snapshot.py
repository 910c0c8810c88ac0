"""A save behind training's back is of one step, costs one copy, and can be waited for or dropped, whole."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
import torch

from tests.unit.checkpoint.saves import JOB, SCALARS, assert_same_state, engines, load, save
from workers.checkpoint import saving, snapshot
from workers.checkpoint.background import BackgroundSaver
from workers.checkpoint.catalogue import inspect, newest_complete, steps
from workers.checkpoint.claims import claim
from workers.checkpoint.courier import StoreCourier
from workers.checkpoint.errors import CheckpointDropped, CheckpointSuperseded
from workers.checkpoint.parts import Part, parts_of
from workers.checkpoint.reports import from_text, refusal_text, to_text
from workers.checkpoint.retention import Retention
from workers.checkpoint.saving import NotPublished, Published, Ticket
from workers.checkpoint.snapshot import SnapshotMemory
from workers.checkpoint.store import LocalStore
from workers.checkpoint.watch import Watch
from workers.checkpoint.writer import FileReport, write_rank
from workers.layout.interval import Interval

PATIENCE_S = 20.0


class Post:
    """A courier among fake ranks of one process."""

    def __init__(self, world_size: int) -> None:
        self.texts: dict[int, str] = {}
        self.world_size = world_size

    def of(self, rank: int) -> PostedBy:
        return PostedBy(self, rank)


class PostedBy:
    def __init__(self, post: Post, rank: int) -> None:
        self.post, self.rank = post, rank

    def send(self, text: str) -> None:
        self.post.texts[self.rank] = text

    def arrived(self) -> Sequence[str] | None:
        there = len(self.post.texts) == self.post.world_size - 1
        return [self.post.texts[rank] for rank in sorted(self.post.texts)] if there else None


class GatedStore(LocalStore):
    """Writes wait until the test opens the gate."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.gate = threading.Event()
        self.reached = threading.Event()

    def create(self, path: str):
        self.reached.set()
        assert self.gate.wait(PATIENCE_S)
        return super().create(path)


def ticket(rank: int, world_size: int, *, step: int = 5, keep_last: int = 3) -> Ticket:
    return Ticket(
        job=JOB,
        step=step,
        attempt=1,
        rank=rank,
        world_size=world_size,
        samples=32 * step,
        spec_digest="d",
        scalars=SCALARS,
        extra={},
        retention=Retention(keep_last=keep_last),
    )


@pytest.fixture
def store(tmp_path: Path) -> LocalStore:
    return LocalStore(tmp_path)


def saved(store: LocalStore, group, parts_by_rank, *, step: int = 5, keep_last: int = 3) -> Published | NotPublished:
    """Ranks from the last to the first, as slow as they like: rank 0 finds all reports there."""
    post = Post(len(group))
    outcome = None
    for rank in reversed(range(len(group))):
        place = ticket(rank, len(group), step=step, keep_last=keep_last)
        outcome = saving.save(store, place, parts_by_rank[rank], post.of(rank), Watch(step))
    assert outcome is not None
    return outcome


def test_everything_of_a_snapshot_is_of_its_step_though_training_went_on(store: LocalStore) -> None:
    group = engines(2, seed=1)
    memories = [SnapshotMemory() for _ in group]
    frozen = [
        memory.capture(parts_of(e, rank=rank)) for rank, (memory, e) in enumerate(zip(memories, group, strict=True))
    ]
    for engine in group:
        engine.fill(2)
        for buffer in engine.buffers().values():
            buffer.zero_()
    outcome = saved(store, group, frozen)
    assert isinstance(outcome, Published)
    after = engines(2)
    load(store, after, inspect(store, JOB, 5, verify_bytes=True))
    assert_same_state(after, engines(2, seed=1))


def test_a_copy_made_while_gradients_are_computed_is_of_its_step_too(store: LocalStore) -> None:
    """A forward changes buffers, the update waits: so the copy may be as late as the thread likes."""
    (engine,) = engines(1, seed=1)
    snapshot_of_1 = SnapshotMemory().begin(parts_of(engine, rank=0))
    for buffer in engine.buffers().values():
        buffer.zero_()
    order: list[str] = []

    def update() -> None:
        snapshot_of_1.wait()
        order.append("updated")
        engine.fill(2)

    trainer = threading.Thread(target=update)
    trainer.start()
    order.append("taking")
    frozen = snapshot_of_1.take()
    trainer.join(PATIENCE_S)
    assert order == ["taking", "updated"]
    assert isinstance(saved(store, [engine], [frozen]), Published)
    after = engines(1)
    load(store, after, inspect(store, JOB, 5, verify_bytes=True))
    assert_same_state(after, engines(1, seed=1))


def test_a_copy_that_fails_does_not_hold_training_for_ever() -> None:
    part = Part(name="master/a", shape=(3,), dtype="float32", interval=Interval(0, 3), values=lambda: torch.zeros(2))
    broken = SnapshotMemory().begin([part])
    with pytest.raises(ValueError, match="2 elements"):
        broken.take()
    broken.wait()


def test_the_memory_is_kept_from_save_to_save_and_given_back_on_demand() -> None:
    (engine,) = engines(1, seed=1)
    memory = SnapshotMemory()
    memory.reserve(parts_of(engine, rank=0))
    place = memory.capture(parts_of(engine, rank=0))[0].values().untyped_storage().data_ptr()
    again = memory.capture(parts_of(engine, rank=0))[0].values().untyped_storage().data_ptr()
    assert place == again
    needed = sum(part.values().numel() * part.values().itemsize for part in parts_of(engine, rank=0))
    assert needed <= memory.size_bytes <= needed + 64 * len(parts_of(engine, rank=0))
    memory.release()
    assert memory.size_bytes == 0


def test_a_machine_without_room_for_a_copy_says_so_before_it_touches_any(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "meminfo").write_text("MemTotal:  9000 kB\nMemAvailable:  1 kB\n")
    monkeypatch.setattr(snapshot, "MEMINFO", tmp_path / "meminfo")
    memory = SnapshotMemory()
    with pytest.raises(MemoryError, match="the machine has 1024 available"):
        memory.capture(parts_of(engines(1, seed=1)[0], rank=0))
    assert memory.size_bytes == 0


def test_a_save_that_is_given_up_ends_by_itself(tmp_path: Path) -> None:
    store, (engine,) = GatedStore(tmp_path), engines(1, seed=1)
    saver = BackgroundSaver()
    saver.start(5, lambda watch: saving.save(store, ticket(0, 1), parts_of(engine, rank=0), Post(1).of(0), watch))
    assert store.reached.wait(PATIENCE_S)
    saver.give_up()
    assert saver.is_busy
    store.gate.set()
    assert saver.settle(PATIENCE_S)
    assert store.names(f"{JOB}/step-00000005") == ()


def test_a_snapshot_refuses_values_that_are_not_what_was_announced() -> None:
    part = Part(name="master/a", shape=(3,), dtype="float32", interval=Interval(0, 3), values=lambda: torch.zeros(2))
    with pytest.raises(ValueError, match=r"master/a: 2 elements of torch\.float32 were given, 3 of float32"):
        SnapshotMemory().capture([part])


def test_one_save_is_in_flight_and_its_end_can_be_awaited(tmp_path: Path) -> None:
    store, (engine,) = GatedStore(tmp_path), engines(1, seed=1)
    saver, outcomes = BackgroundSaver(), []
    parts = SnapshotMemory().capture(parts_of(engine, rank=0))
    saver.start(5, lambda watch: outcomes.append(saving.save(store, ticket(0, 1), parts, Post(1).of(0), watch)))
    assert store.reached.wait(PATIENCE_S)
    assert saver.is_busy
    assert saver.progress is not None
    assert saver.progress.step == 5
    with pytest.raises(RuntimeError, match=r"a save is in flight .* before that of step 6"):
        saver.start(6, lambda watch: None)
    store.gate.set()
    assert saver.settle(PATIENCE_S)
    assert not saver.is_busy
    assert isinstance(outcomes[0], Published)


def test_a_dropped_save_leaves_nothing_and_the_one_before_stands(tmp_path: Path) -> None:
    store, (engine,) = GatedStore(tmp_path), engines(1, seed=1)
    store.gate.set()
    save(store, [engine], step=4)
    store.gate.clear()
    saver = BackgroundSaver()
    saver.start(5, lambda watch: saving.save(store, ticket(0, 1), parts_of(engine, rank=0), Post(1).of(0), watch))
    release_once_dropped(saver, store.gate.set)
    assert not saver.settle(0.0)
    assert store.names(f"{JOB}/step-00000005") == ()
    assert newest_complete(store, JOB, verify_bytes=True).manifest.step == 4
    saver.check()


def release_once_dropped(saver: BackgroundSaver, release: Callable[[], None]) -> None:
    """The writer goes on only after it was told to stop, so the test cannot win by luck."""
    watch = saver._watch
    assert watch is not None
    plain = watch.drop

    def drop() -> None:
        plain()
        release()

    watch.drop = drop  # type: ignore[method-assign]


def test_rank_0_gives_up_a_report_that_never_comes_and_deletes_its_own_part(store: LocalStore) -> None:
    (engine, _) = engines(2, seed=1)
    watch = Watch(5)
    watch.drop()

    class Silent:
        def send(self, text: str) -> None: ...

        def arrived(self) -> None:
            return None

    report_first = parts_of(engine, rank=0)
    with pytest.raises(CheckpointDropped, match="the save of step 5 was given up"):
        saving.save(store, ticket(0, 2), report_first, Silent(), watch)
    assert store.names(f"{JOB}/step-00000005") == ()


@pytest.mark.parametrize("rank", [0, 1])
def test_a_courier_that_breaks_leaves_no_part_and_says_so(store: LocalStore, rank: int) -> None:
    class Broken:
        def send(self, text: str) -> None:
            raise ConnectionError("the group is gone")

        def arrived(self) -> None:
            raise ConnectionError("the group is gone")

    with pytest.raises(ConnectionError, match="the group is gone"):
        saving.save(store, ticket(rank, 2), parts_of(engines(2, seed=1)[rank], rank=rank), Broken(), Watch(5))
    assert store.names(f"{JOB}/step-00000005") == ()


def couriers(store: LocalStore, world_size: int, clock) -> list[StoreCourier]:
    return [
        StoreCourier(
            store, job=JOB, step=5, generation=3, rank=rank, world_size=world_size, patience_s=60.0, clock=clock
        )
        for rank in range(world_size)
    ]


def test_reports_travel_through_the_store_and_leave_nothing_there(store: LocalStore) -> None:
    times = itertools.count(0.0, 1.0)
    group = engines(3, seed=1)
    posts = couriers(store, 3, lambda: next(times))
    for rank in (2, 1):
        assert posts[0].arrived() is None
        assert saving.save(store, ticket(rank, 3), parts_of(group[rank], rank=rank), posts[rank], Watch(5)) is None
    outcome = saving.save(store, ticket(0, 3), parts_of(group[0], rank=0), posts[0], Watch(5))
    assert isinstance(outcome, Published)
    manifest = inspect(store, JOB, 5, verify_bytes=True)
    assert store.names(f"{JOB}/step-00000005") == ("manifest.json", *manifest.files)


def test_a_report_that_does_not_come_is_given_up_by_name(store: LocalStore) -> None:
    now = 0.0
    first, second, _ = couriers(store, 3, lambda: now)
    second.send(refusal_text("x"))
    assert first.arrived() is None
    now = 61.0
    with pytest.raises(TimeoutError, match="no report of rank 00002 came within 60 s"):
        first.arrived()


def test_one_rank_waits_for_nobody(store: LocalStore) -> None:
    (alone,) = couriers(store, 1, lambda: 0.0)
    assert alone.arrived() == []


def test_one_ranks_full_disk_is_everybodys_reason_and_no_part_stays(store: LocalStore) -> None:
    group = engines(2, seed=1)
    post = Post(2)
    post.of(1).send(refusal_text("[Errno 28] No space left on device"))
    outcome = saving.save(store, ticket(0, 2), parts_of(group[0], rank=0), post.of(0), Watch(5))
    assert isinstance(outcome, NotPublished)
    assert "step 5 was not written: [Errno 28] No space left" in outcome.reason
    assert store.names(f"{JOB}/step-00000005") == ()


def test_an_attempt_that_was_overtaken_is_told_and_leaves_no_part(store: LocalStore) -> None:
    claim(store, job=JOB, attempt=2)
    (engine,) = engines(1, seed=1)
    with pytest.raises(CheckpointSuperseded, match="attempt 2 took over"):
        saving.save(store, ticket(0, 1), parts_of(engine, rank=0), Post(1).of(0), Watch(5))
    assert store.names(f"{JOB}/step-00000005") == ()


def test_a_save_makes_room_and_says_what_went(store: LocalStore) -> None:
    group = engines(2, seed=1)
    parts = [parts_of(engine, rank=rank) for rank, engine in enumerate(group)]
    for step in (1, 2, 3):
        outcome = saved(store, group, parts, step=step, keep_last=2)
    assert isinstance(outcome, Published)
    assert outcome.removed_steps == (1,)
    assert steps(store, JOB) == (2, 3)
    assert outcome.files == 3
    assert outcome.size_bytes == inspect(store, JOB, 3).size_bytes


def test_a_defect_in_the_savers_thread_is_raised_in_the_training_thread() -> None:
    saver = BackgroundSaver()

    def broken(watch: Watch) -> None:
        raise ZeroDivisionError("a defect")

    saver.start(1, broken)
    with pytest.raises(ZeroDivisionError, match="a defect"):
        saver.settle(PATIENCE_S)
    saver.start(2, lambda watch: None)
    assert saver.settle(PATIENCE_S)


def test_progress_counts_up_to_the_files_size(store: LocalStore) -> None:
    watch = Watch(5)
    (engine,) = engines(1, seed=1)
    report = write_rank(
        store, job=JOB, step=5, attempt=1, rank=0, world_size=1, parts=parts_of(engine, rank=0), watch=watch
    )
    assert watch.progress.written_bytes == watch.progress.total_bytes == report.checksum.size_bytes


def test_a_report_survives_as_text(store: LocalStore) -> None:
    (engine,) = engines(1, seed=1)
    report = write_rank(store, job=JOB, step=5, attempt=1, rank=0, world_size=1, parts=parts_of(engine, rank=0))
    assert from_text(to_text(report)) == report
    assert isinstance(from_text(to_text(report)), FileReport)
    assert from_text(refusal_text("no room")) == "no room"
