"""A kill at any moment, a full disk, two attempts at once: what was a checkpoint stays one, and nothing is mixed."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.unit.checkpoint.saves import JOB, assert_same_state, engines, load, published, save, write
from workers.checkpoint.catalogue import collect, inspect, newest_complete, steps
from workers.checkpoint.claims import claim
from workers.checkpoint.errors import CheckpointIncomplete, CheckpointNotWritten, CheckpointSuperseded
from workers.checkpoint.retention import Retention, pin, prune, unpin
from workers.checkpoint.store import LocalStore
from workers.checkpoint.writer import withdraw

# What changes a folder: a kill falls before or after one of these, or in the middle of a write.
CALLS = ("open", "write", "link", "replace", "unlink", "rmdir", "mkdir", "fsync")

KEEP_ONE = Retention(keep_last=1)


@pytest.fixture
def store(tmp_path: Path) -> LocalStore:
    return LocalStore(tmp_path / "live")


@contextmanager
def photographed(root: Path, album: Path) -> Iterator[list[Path]]:
    """Copies of the folder as a kill would leave it, before each system call and after half of each write."""
    pictures: list[Path] = []
    patch = pytest.MonkeyPatch()
    busy = False

    def picture() -> None:
        nonlocal busy
        if busy:
            return
        busy = True
        pictures.append(album / f"{len(pictures):05d}")
        shutil.copytree(root, pictures[-1])
        busy = False

    def watched(name: str):
        plain = getattr(os, name)

        def call(*args, **options):
            picture()
            if name == "write" and not busy and len(args[1]) > 1:
                half = plain(args[0], args[1][: len(args[1]) // 2])
                picture()
                return half
            return plain(*args, **options)

        return call

    for name in CALLS:
        patch.setattr(os, name, watched(name))
    try:
        yield pictures
    finally:
        patch.undo()
    pictures.append(album / "end")
    shutil.copytree(root, pictures[-1])


def test_a_kill_at_any_system_call_leaves_a_whole_checkpoint_at_most_one_save_old(
    tmp_path: Path, store: LocalStore
) -> None:
    save(store, engines(2, seed=10), step=10)
    with photographed(tmp_path / "live", tmp_path / "album") as pictures:
        save(store, engines(2, seed=20), step=20)
        prune(store, job=JOB, attempt=1, published=20, rule=KEEP_ONE)
    seen: list[int] = []
    for picture in pictures:
        left = LocalStore(picture)
        found = newest_complete(left, JOB, verify_bytes=True)
        assert found.manifest is not None, picture
        seen.append(found.manifest.step)
        group = engines(1)
        load(left, group, found.manifest)
        assert_same_state(group, engines(1, seed=found.manifest.step))
    assert len(pictures) > 60
    assert seen == sorted(seen)
    assert set(seen) == {10, 20}


def test_a_kill_while_a_step_is_saved_again_leaves_the_old_one_or_the_new_one(
    tmp_path: Path, store: LocalStore
) -> None:
    save(store, engines(2, seed=10), step=10, attempt=1)
    with photographed(tmp_path / "live", tmp_path / "album") as pictures:
        save(store, engines(3, seed=11), step=10, attempt=2)
    for picture in pictures:
        found = newest_complete(LocalStore(picture), JOB, verify_bytes=True)
        assert found.manifest is not None
        group = engines(1)
        load(LocalStore(picture), group, found.manifest)
        assert_same_state(group, engines(1, seed=9 + found.manifest.attempt))


def test_files_of_two_attempts_never_mix_and_the_dead_ones_part_is_collected(tmp_path: Path, store: LocalStore) -> None:
    save(store, engines(2, seed=5), step=5, attempt=1)
    write(store, engines(2, seed=10), step=10, attempt=1)  # and killed before it published
    assert newest_complete(store, JOB).manifest.step == 5
    manifest = save(store, engines(2, seed=11), step=10, attempt=2)
    group = engines(1)
    load(store, group, manifest)
    assert_same_state(group, engines(1, seed=11))
    removed = collect(store, job=JOB, attempt=2)
    assert len(removed) == 2
    assert all("attempt-00000001" in path and "step-00000010" in path for path in removed)
    for step in (5, 10):
        inspect(store, JOB, step, verify_bytes=True)


def test_collecting_removes_folders_that_it_emptied_and_spares_saves_on_their_way(store: LocalStore) -> None:
    write(store, engines(2, seed=1), step=10, attempt=1)
    write(store, engines(2, seed=1), step=20, attempt=2)
    collect(store, job=JOB, attempt=2)
    assert steps(store, JOB) == (20,)


def test_after_a_kill_at_any_system_call_the_next_attempt_collects_all_that_is_left(
    tmp_path: Path, store: LocalStore
) -> None:
    save(store, engines(1, seed=10), step=10)
    with photographed(tmp_path / "live", tmp_path / "album") as pictures:
        save(store, engines(1, seed=20), step=20)
    for picture in pictures:
        left = LocalStore(picture)
        collect(left, job=JOB, attempt=2)
        for step in steps(left, JOB):
            manifest = inspect(left, JOB, step, verify_bytes=True)
            assert left.names(f"{JOB}/step-{step:08d}") == ("manifest.json", *manifest.files)


@pytest.mark.parametrize("trouble", [errno.ENOSPC, errno.EIO])
def test_a_full_or_broken_disk_leaves_what_was_there_and_nothing_half_written(
    store: LocalStore, monkeypatch: pytest.MonkeyPatch, trouble: int
) -> None:
    save(store, engines(2, seed=10), step=10)
    plain = os.write
    room = 2000

    def write_until_full(descriptor: int, data: memoryview) -> int:
        nonlocal room
        room -= len(data)
        if room < 0:
            raise OSError(trouble, os.strerror(trouble))
        return plain(descriptor, data)

    monkeypatch.setattr(os, "write", write_until_full)
    with pytest.raises(CheckpointNotWritten, match=r"step 20 was not written: .*" + os.strerror(trouble)):
        save(store, engines(2, seed=20), step=20)
    monkeypatch.undo()
    assert [name[:10] for name in store.names(f"{JOB}/step-00000020")] == ["rank-00000"]  # whole, for `discard`
    found = newest_complete(store, JOB, verify_bytes=True)
    assert found.manifest is not None
    assert found.manifest.step == 10


def test_a_save_given_up_by_its_group_leaves_no_file(store: LocalStore) -> None:
    withdraw(store, job=JOB, step=10, reports=write(store, engines(2, seed=1), step=10))
    assert store.names(f"{JOB}/step-00000010") == ()


def test_an_attempt_that_was_overtaken_neither_publishes_nor_deletes(store: LocalStore) -> None:
    claim(store, job=JOB, attempt=1)
    save(store, engines(1, seed=1), step=10, attempt=1)
    reports = write(store, engines(1, seed=2), step=20, attempt=1)
    claim(store, job=JOB, attempt=2)
    for late in (
        lambda: published(store, reports, step=20, attempt=1),
        lambda: prune(store, job=JOB, attempt=1, published=10, rule=KEEP_ONE),
        lambda: collect(store, job=JOB, attempt=1),
        lambda: claim(store, job=JOB, attempt=1),
    ):
        with pytest.raises(CheckpointSuperseded, match=r"attempt 1 of job job-1 .*: attempt 2 took over"):
            late()
    assert newest_complete(store, JOB).manifest.step == 10


class StoppedStore(LocalStore):
    """A publisher that is stopped (SIGSTOP) right before its manifest is put, while `meanwhile` happens."""

    def __init__(self, root: Path, meanwhile: Callable[[], object]) -> None:
        super().__init__(root)
        self.meanwhile = meanwhile

    def put(self, path: str, data: bytes, *, fresh: bool = False) -> None:
        if path.endswith("manifest.json"):
            self.meanwhile()
        super().put(path, data, fresh=fresh)


def test_a_publisher_that_was_stopped_does_not_publish_over_a_newer_attempt(tmp_path: Path, store: LocalStore) -> None:
    def newer_attempt_saves_the_same_step() -> None:
        claim(store, job=JOB, attempt=2)
        save(store, engines(2, seed=22), step=20, attempt=2)

    late = StoppedStore(tmp_path / "live", newer_attempt_saves_the_same_step)
    reports = write(late, engines(2, seed=21), step=20, attempt=1)
    with pytest.raises(CheckpointSuperseded):
        published(late, reports, step=20, attempt=1)
    group = engines(1)
    load(store, group, inspect(store, JOB, 20, verify_bytes=True))
    assert_same_state(group, engines(1, seed=22))


def test_a_publisher_that_was_stopped_takes_back_what_it_put_after_a_newer_claim(
    tmp_path: Path, store: LocalStore
) -> None:
    save(store, engines(1, seed=1), step=10, attempt=1)
    late = StoppedStore(tmp_path / "live", lambda: claim(store, job=JOB, attempt=2))
    reports = write(late, engines(2, seed=21), step=20, attempt=1)
    with pytest.raises(CheckpointSuperseded):
        published(late, reports, step=20, attempt=1)
    assert newest_complete(store, JOB).manifest.step == 10


def test_of_two_that_put_a_fresh_file_at_once_one_is_told(store: LocalStore) -> None:
    store.put("a/b", b"first", fresh=True)
    with pytest.raises(FileExistsError):
        store.put("a/b", b"second", fresh=True)
    assert store.names("a") == ("b",)
    assert store.size("a/b") == 5


def test_a_manifest_that_could_not_be_made_durable_goes_before_its_files(
    store: LocalStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    reports = write(store, engines(1, seed=1), step=10)
    published(store, reports, step=10)
    order: list[str] = []
    plain = LocalStore.delete
    monkeypatch.setattr(LocalStore, "delete", lambda self, path: (order.append(path), plain(self, path))[1])
    withdraw(store, job=JOB, step=10, reports=reports)
    assert order[0].endswith("manifest.json")
    assert store.names(f"{JOB}/step-00000010") == ()


def test_retention_keeps_the_newest_whole_ones(tmp_path: Path, store: LocalStore) -> None:
    for step in (10, 20, 30, 40):
        save(store, engines(1, seed=1), step=step)
    assert prune(store, job=JOB, attempt=1, published=40, rule=Retention(keep_last=2)) == (20, 10)
    assert steps(store, JOB) == (30, 40)
    assert prune(store, job=JOB, attempt=1, published=40, rule=Retention(keep_last=2)) == ()


def test_a_damaged_checkpoint_never_pushes_out_a_whole_one(tmp_path: Path, store: LocalStore) -> None:
    for step in (10, 20, 30):
        save(store, engines(1, seed=1), step=step)
    for path in (tmp_path / "live" / JOB / "step-00000030").glob("rank-*"):
        path.unlink()
    prune(store, job=JOB, attempt=1, published=30, rule=KEEP_ONE)
    assert newest_complete(store, JOB).manifest.step == 20


def test_a_later_step_that_the_job_went_back_behind_does_not_push_out_the_new_one(store: LocalStore) -> None:
    """It may be damaged in a way that only reading shows; so it is neither counted nor deleted."""
    for step in (10, 30, 20):
        save(store, engines(1, seed=1), step=step)
    assert prune(store, job=JOB, attempt=1, published=20, rule=KEEP_ONE) == (10,)
    assert steps(store, JOB) == (20, 30)


def test_pinned_checkpoints_and_every_nth_outlive_retention(store: LocalStore) -> None:
    for step in range(10, 100, 10):
        save(store, engines(1, seed=1), step=step)
    pin(store, job=JOB, step=20)
    rule = Retention(keep_last=1, keep_every=30)
    assert prune(store, job=JOB, attempt=1, published=90, rule=rule) == (80, 70, 50, 40, 10)
    assert steps(store, JOB) == (20, 30, 60, 90)
    unpin(store, job=JOB, step=20)
    assert prune(store, job=JOB, attempt=1, published=90, rule=rule) == (20,)


def test_a_save_that_was_late_is_the_nth_one_all_the_same(store: LocalStore) -> None:
    for step in (10, 20, 33, 41, 50, 61):
        save(store, engines(1, seed=1), step=step)
    assert prune(store, job=JOB, attempt=1, published=61, rule=Retention(keep_last=1, keep_every=30)) == (
        50,
        41,
        20,
        10,
    )
    assert steps(store, JOB) == (33, 61)


def test_only_a_whole_checkpoint_can_be_pinned(store: LocalStore) -> None:
    write(store, engines(1, seed=1), step=10)
    with pytest.raises(CheckpointIncomplete):
        pin(store, job=JOB, step=10)


def test_files_of_a_save_that_was_given_up_go_with_the_next_one(store: LocalStore) -> None:
    write(store, engines(2, seed=1), step=10)
    save(store, engines(2, seed=1), step=20)
    write(store, engines(2, seed=2), step=20)
    prune(store, job=JOB, attempt=1, published=20, rule=KEEP_ONE)
    assert steps(store, JOB) == (20,)
    assert store.names(f"{JOB}/step-00000020") == ("manifest.json", *inspect(store, JOB, 20).files)


def test_an_unpublished_folder_is_neither_counted_nor_pruned(store: LocalStore) -> None:
    save(store, engines(1, seed=1), step=10)
    write(store, engines(1, seed=1), step=20)
    assert prune(store, job=JOB, attempt=1, published=10, rule=KEEP_ONE) == ()
    assert steps(store, JOB) == (10, 20)
    with pytest.raises(CheckpointIncomplete):
        inspect(store, JOB, 20)


@pytest.mark.parametrize("job", ["../up", "a/b", "", ".", ".."])
def test_a_job_id_cannot_lead_out_of_the_store(store: LocalStore, job: str) -> None:
    with pytest.raises(ValueError, match="cannot name a folder"):
        newest_complete(store, job)
