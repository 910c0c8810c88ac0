"""Which tier each kind of state rests on, how much of it, and what that costs in host memory."""

from __future__ import annotations

import math
from collections.abc import Mapping

from service.domain.memory import DEPTH, Recipe
from service.domain.spec import Offload

# Where the model computes; host memory; a file on a disk.
DEVICE, CPU, NVME = "device", "cpu", "nvme"
_TIERS = {"none": DEVICE, "cpu": CPU, "nvme": NVME}

NONE = Offload()
# What every plan compares.
WHOLE = (NONE, Offload(optimizer="cpu"), Offload(optimizer="nvme"))


def resting(offload: Offload, *, stage: int) -> dict[str, str]:
    """Kind of state -> tier. Gradients that rest as shards go to host memory with the optimizer's state; parameters
    move at stage 3 alone, with the optimizer's state where nothing else is said of them."""
    params = offload.optimizer if offload.params is None else offload.params
    return {
        "params": _TIERS[params] if stage == 3 else DEVICE,
        "grads": CPU if offload.optimizer != "none" and stage >= 2 else DEVICE,
        "optimizer": _TIERS[offload.optimizer],
    }


def by_tier(states: Mapping[str, int], *, tiers: Mapping[str, str], ratio: float) -> dict[str, dict[str, int]]:
    """kind -> tier -> bytes: of a kind that is offloaded, `ratio` rests on its tier and the remainder on the device."""
    placed: dict[str, dict[str, int]] = {}
    for kind, size in states.items():
        far = round(ratio * size) if tiers[kind] != DEVICE else 0
        parts = {DEVICE: size - far, tiers[kind]: far} if far else {DEVICE: size}
        placed[kind] = {tier: part for tier, part in parts.items() if part or not size}
    return placed


def fitting_ratio(
    offload: Offload,
    states: Mapping[str, int],
    *,
    tiers: Mapping[str, str],
    passing_bytes: int,
    budget_bytes: int | None,
) -> float:
    """The spec's number; of `auto` the least part that has to leave the device so that what stays, and what a step
    needs on top, fits the budget. All of it where no budget is known."""
    if offload.ratio != "auto":
        return offload.ratio
    movable = sum(size for kind, size in states.items() if tiers[kind] != DEVICE)
    if budget_bytes is None or movable == 0:
        return 1.0
    excess = sum(states.values()) + passing_bytes - budget_bytes
    return min(1.0, max(0.0, excess / movable))


def staging_bytes(*, largest_unit: int, workers: int, stage: int, recipe: Recipe, tiers: Mapping[str, str]) -> int:
    """Host memory that states on a disk pass through: one unit is updated while the next is read."""
    optimizer = recipe.master + recipe.moments if tiers["optimizer"] == NVME else 0
    params = recipe.param if tiers["params"] == NVME else 0
    return round(DEPTH * (optimizer + params) * (math.ceil(largest_unit / workers) if stage >= 1 else largest_unit))


def in_memory(kinds: Mapping[str, Mapping[str, int]]) -> int:
    """Where slots are CPUs, the device is host memory: all but what rests on a disk."""
    return sum(size for tiers in kinds.values() for tier, size in tiers.items() if tier != NVME)


def label(offload: Offload) -> str:
    """none, cpu and nvme; else what differs from them."""
    parts: list[str] = [offload.optimizer]
    if offload.params is not None and offload.params != offload.optimizer:
        parts.append(f"params {offload.params}")
    if offload.ratio != 1.0 and not offload.is_none:
        parts.append(f"ratio {offload.ratio}")
    return ", ".join(parts)
