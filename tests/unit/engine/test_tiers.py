"""What every tier answers, and what a file on a disk adds: few buffers, no name, sentences where it cannot."""

from __future__ import annotations

import gc
import os
import random
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor

from workers.engine.states import StateKind
from workers.tiers import nvme
from workers.tiers.memory import MemoryTier
from workers.tiers.nvme import NvmeTier, OffloadFailed
from workers.tiers.protocol import StateKey, Tier

KINDS = (StateKind.MASTER, StateKind.EXP_AVG, StateKind.EXP_AVG_SQ)
MAKERS: dict[str, Callable[[Path], Tier]] = {
    "device": lambda folder: MemoryTier(torch.device("cpu")),
    "cpu": lambda folder: MemoryTier(torch.device("cpu"), name="cpu"),
    "nvme": lambda folder: NvmeTier(folder, pinned=False),
}


@pytest.fixture(params=MAKERS)
def tier(request: pytest.FixtureRequest, tmp_path: Path) -> Tier:
    made = MAKERS[request.param](tmp_path)
    assert made.name == request.param
    return made


def filled(tier: Tier, sizes: list[int]) -> dict[StateKey, Tensor]:
    """Keys of three kinds per flat, each with values of its own."""
    values = {}
    for flat, numel in enumerate(sizes):
        for kind in KINDS:
            key = StateKey(flat, kind)
            tier.allocate(key, numel=numel, dtype=torch.float32)
            values[key] = torch.randn(numel)
            tier.commit(key, values[key])
    return values


def test_new_values_are_zeros(tier: Tier) -> None:
    for flat, numel in enumerate((0, 1, 5000)):
        tier.allocate(StateKey(flat, StateKind.MASTER), numel=numel, dtype=torch.float32)
    for flat, numel in enumerate((0, 1, 5000)):
        key = StateKey(flat, StateKind.MASTER)
        assert torch.equal(tier.fetch(key), torch.zeros(numel))
        tier.release(key)


def test_what_is_changed_in_place_and_committed_is_there_at_the_next_fetch(tier: Tier) -> None:
    """In any order of many more vectors than there are buffers, with hints that come true and hints that do not."""
    values = filled(tier, [3000, 1, 0, 1025, 2048, 7])
    dice = random.Random(1)
    for turn in range(300):
        key = dice.choice(list(values))
        if dice.random() < 0.5:
            tier.ahead(dice.choice(list(values)))
        near = tier.fetch(key)
        assert torch.equal(near, values[key])
        if dice.random() < 0.5:
            near += turn
            values[key] = values[key] + turn
            tier.commit(key, near)
        else:
            tier.release(key)
    for key, expected in values.items():
        assert torch.equal(tier.fetch(key), expected)
        tier.release(key)


def test_a_renewed_tier_is_empty_and_the_former_keeps_its_values(tier: Tier) -> None:
    values = filled(tier, [300, 20])
    fresh = tier.renewed()
    for key in values:
        fresh.allocate(key, numel=9, dtype=torch.float32)
        assert torch.equal(fresh.fetch(key), torch.zeros(9))
        fresh.release(key)
        assert torch.equal(tier.fetch(key), values[key])
        tier.release(key)


def test_a_disk_keeps_two_flat_vectors_worth_of_memory_whatever_their_number(tmp_path: Path) -> None:
    tier = NvmeTier(tmp_path, pinned=False)
    filled(tier, [1024] * 20)
    assert tier.staging_bytes == 2 * len(KINDS) * 4096


def test_a_hint_alone_brings_the_values_near_and_no_vector_is_read_twice_in_a_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tier = NvmeTier(tmp_path, pinned=False)
    keys = list(filled(tier, [1024] * 6))
    rows = [keys[first : first + 3] for first in range(0, len(keys), 3)]
    readers: list[str] = []
    all_near = threading.Event()
    original = os.preadv

    def preadv(file: int, memory: list[memoryview], offset: int) -> int:
        readers.append(threading.current_thread().name)
        if len(readers) == 3:
            all_near.set()
        return original(file, memory, offset)

    monkeypatch.setattr(nvme.os, "preadv", preadv)
    for key in rows[0]:
        tier.ahead(key)
    assert all_near.wait(10)
    for row, upcoming in zip(rows, [*rows[1:], []], strict=True):
        for key in upcoming:
            tier.ahead(key)
        for key in row:
            tier.commit(key, tier.fetch(key) + 1)
    assert len(readers) == len(keys)
    assert all(name.startswith("offload") for name in readers)


def test_the_file_has_no_name_and_its_space_comes_back_with_the_tier(tmp_path: Path) -> None:
    tier = NvmeTier(tmp_path, pinned=False)
    filled(tier, [1 << 20])
    assert list(tmp_path.iterdir()) == []
    held = [os.readlink(f"/proc/self/fd/{fd}") for fd in os.listdir("/proc/self/fd") if _is_open(fd)]
    assert any(name.startswith(str(tmp_path)) for name in held)
    del tier
    gc.collect()
    held = [os.readlink(f"/proc/self/fd/{fd}") for fd in os.listdir("/proc/self/fd") if _is_open(fd)]
    assert not any(name.startswith(str(tmp_path)) for name in held)


def _is_open(fd: str) -> bool:
    return os.path.lexists(f"/proc/self/fd/{fd}")


def test_a_disk_without_space_is_named_with_what_was_wanted(tmp_path: Path) -> None:
    tier = NvmeTier(tmp_path, pinned=False)
    with pytest.raises(OffloadFailed, match=rf"{tmp_path}, {1 << 50} bytes: No space left on device; free space there"):
        tier.allocate(StateKey(0, StateKind.MASTER), numel=1 << 48, dtype=torch.float32)


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(OffloadFailed, match=r"file/sub, 0 bytes: .*; free space there, or name a folder"):
        NvmeTier(tmp_path / "file" / "sub", pinned=False)


def test_a_file_system_without_direct_io_is_used_with_its_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = nvme.fcntl.fcntl

    def fcntl(handle: int, command: int, argument: int = 0) -> int:
        if command == nvme.fcntl.F_SETFL and argument & os.O_DIRECT:
            raise OSError(22, "Invalid argument")
        return int(original(handle, command, argument))

    monkeypatch.setattr(nvme.fcntl, "fcntl", fcntl)
    tier = NvmeTier(tmp_path, pinned=False)
    values = filled(tier, [5000] * 4)
    for key, expected in values.items():
        assert torch.equal(tier.fetch(key), expected)
        tier.release(key)


def test_a_failed_write_is_told_before_the_values_are_needed_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tier = NvmeTier(tmp_path, pinned=False)
    values = filled(tier, [1024] * 3)

    def pwritev(file: int, memory: list[memoryview], offset: int) -> int:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(nvme.os, "pwritev", pwritev)
    first, *_, last = values
    tier.fetch(first)
    with pytest.raises(OffloadFailed, match="Input/output error"):
        tier.fetch(last)


def test_lending_more_than_there_is_room_for_is_refused(tmp_path: Path) -> None:
    tier = NvmeTier(tmp_path, pinned=False)
    keys = list(filled(tier, [8] * 4))
    for key in keys[:6]:
        tier.fetch(key)
    with pytest.raises(RuntimeError, match="all 6 buffers are lent"):
        tier.fetch(keys[6])
