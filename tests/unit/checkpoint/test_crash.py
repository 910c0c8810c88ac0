"""A kill at any moment, a full disk, two attempts at once: what was a checkpoint stays one, and nothing is mixed."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.unit.checkpoint.saves import JOB, assert_same_state, engines, load, published, save, write
from workers.checkpoint.catalogue import collect, inspect, newest_complete, prune, steps
from workers.checkpoint.claims import claim
from workers.checkpoint.errors import CheckpointIncomplete, CheckpointNotWritten, CheckpointSuperseded
from workers.checkpoint.store import LocalStore
from workers.checkpoint.writer import discard

# What changes a folder: a kill falls before or after one of these, or in the middle of a write.
CALLS = ("open", "write", "replace", "unlink", "rmdir", "mkdir", "fsync")


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
        prune(store, job=JOB, attempt=1, keep_last=1)
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
    for report in write(store, engines(2, seed=1), step=10):
        discard(store, job=JOB, step=10, report=report)
    assert store.names(f"{JOB}/step-00000010") == ()


def test_an_attempt_that_was_overtaken_neither_publishes_nor_deletes(store: LocalStore) -> None:
    claim(store, job=JOB, attempt=1)
    save(store, engines(1, seed=1), step=10, attempt=1)
    reports = write(store, engines(1, seed=2), step=20, attempt=1)
    claim(store, job=JOB, attempt=2)
    for late in (
        lambda: published(store, reports, step=20, attempt=1),
        lambda: prune(store, job=JOB, attempt=1, keep_last=1),
        lambda: collect(store, job=JOB, attempt=1),
        lambda: claim(store, job=JOB, attempt=1),
    ):
        with pytest.raises(CheckpointSuperseded, match=r"attempt 1 of job job-1 .*: attempt 2 took over"):
            late()
    assert newest_complete(store, JOB).manifest.step == 10


def test_retention_keeps_the_newest_whole_ones(tmp_path: Path, store: LocalStore) -> None:
    for step in (10, 20, 30, 40):
        save(store, engines(1, seed=1), step=step)
    assert prune(store, job=JOB, attempt=1, keep_last=2) == (20, 10)
    assert steps(store, JOB) == (30, 40)
    assert prune(store, job=JOB, attempt=1, keep_last=2) == ()


def test_a_damaged_checkpoint_never_pushes_out_a_whole_one(tmp_path: Path, store: LocalStore) -> None:
    for step in (10, 20, 30):
        save(store, engines(1, seed=1), step=step)
    for path in (tmp_path / "live" / JOB / "step-00000030").glob("rank-*"):
        path.unlink()
    prune(store, job=JOB, attempt=1, keep_last=1)
    assert newest_complete(store, JOB).manifest.step == 20


def test_an_unpublished_folder_is_neither_counted_nor_pruned(store: LocalStore) -> None:
    save(store, engines(1, seed=1), step=10)
    write(store, engines(1, seed=1), step=20)
    assert prune(store, job=JOB, attempt=1, keep_last=1) == ()
    assert steps(store, JOB) == (10, 20)
    with pytest.raises(CheckpointIncomplete):
        inspect(store, JOB, 20)


@pytest.mark.parametrize("job", ["../up", "a/b", "", ".", ".."])
def test_a_job_id_cannot_lead_out_of_the_store(store: LocalStore, job: str) -> None:
    with pytest.raises(ValueError, match="cannot name a folder"):
        newest_complete(store, job)
