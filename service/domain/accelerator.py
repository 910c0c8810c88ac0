"""What fits on each known accelerator, how fast, and how large a model of the same blocks could be.

Rates are the vendors' own (dense 16-bit matrices; one direction of the link between accelerators of a machine), of
which `ACHIEVED` is counted on. A step takes 6 operations per parameter and token, 8 with checkpointing, and the traffic
of the stage beside them: a unit's gather hides behind its computation from F/B tokens per rank on, for operations F and
two-byte elements B per second (ZeRO-Infinity, Rajbhandari et al. 2021, arXiv:2104.07857, section 4, has the same rule).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from service.domain.memory import ITEM_BYTES
from service.domain.offload import DEVICE, NONE, WHOLE, label
from service.domain.plan import Outlook, PlanChoice
from service.domain.planning import MARGIN, STAGES, rank_bytes, recommend
from service.domain.profile import Profile
from service.domain.spec import JobSpec, Offload, PythonData

ACHIEVED = 0.4
# Bytes per second of a host's memory and of its disk; bytes that an update of Adam moves there per parameter.
HOST_BYTES_PER_S, DISK_BYTES_PER_S = 60e9, 3e9
UPDATE_BYTES, DISK_BYTES = 28, 24
MOST_BLOCKS = 2**20


@dataclass(frozen=True, slots=True, kw_only=True)
class Accelerator:
    """Memory, operations per second, and bytes per second to the others of its machine and to the host."""

    name: str
    memory_bytes: int
    flops: float
    link: float
    host: float


KNOWN = tuple(
    Accelerator(name=name, memory_bytes=memory * 10**9, flops=flops * 1e12, link=link * 1e9, host=host * 1e9)
    for name, memory, flops, link, host in (
        ("B200", 180, 2250, 900, 64),
        ("MI300X", 192, 1307, 448, 64),
        ("H200", 141, 989, 450, 64),
        ("H100", 80, 989, 450, 64),
        ("A100-80GB", 80, 312, 300, 32),
        ("A100-40GB", 40, 312, 300, 32),
        ("L40S", 48, 362, 32, 32),
        ("L4", 24, 121, 32, 32),
        ("RTX 4090", 24, 165, 32, 32),
        ("V100-32GB", 32, 125, 150, 16),
    )
)


def outlooks(spec: JobSpec, profile: Profile, choices: Sequence[PlanChoice]) -> tuple[Outlook, ...]:
    """On each, at the spec's most workers: the fastest choice that fits, or the one that needs least."""
    most = [choice for choice in choices if choice.workers == spec.workers.max]
    return tuple(_outlook(spec, profile, most, each) for each in KNOWN)


def _outlook(spec: JobSpec, profile: Profile, choices: Sequence[PlanChoice], on: Accelerator) -> Outlook:
    budget = int(MARGIN * on.memory_bytes)
    judged = [replace(choice, fits=_on_device(choice) <= budget) for choice in choices]
    asked = [spec.offload] if not spec.offload.is_none else list(WHOLE if spec.engine == "zero" else WHOLE[:2])
    found = recommend(spec, judged, on.memory_bytes, offloads=asked)
    choice = next(each for each in judged if (each.stage, each.offload) == (found.stage, found.offload))
    timed = not isinstance(spec.data, PythonData)
    step_s, hides = _step_s(spec, profile, choice, on)
    tokens = spec.training.batch_size * spec.training.seq_len
    return Outlook(
        accelerator=on.name,
        memory_bytes=on.memory_bytes,
        fits=bool(choice.fits),
        stage=choice.stage,
        offload=choice.offload,
        device_bytes=_on_device(choice),
        step_s=step_s if timed else None,
        tokens_per_s=tokens / step_s if timed else None,
        traffic_hides=hides if timed else None,
        hides_from_tokens=round(ACHIEVED * on.flops * ITEM_BYTES[spec.precision.params] / (2 * on.link)),
        largest_numel=_largest(spec, profile, budget),
    )


def _on_device(choice: PlanChoice) -> int:
    return sum(tiers.get(DEVICE, 0) for tiers in choice.bytes_by_kind.values())


def _step_s(spec: JobSpec, profile: Profile, choice: PlanChoice, on: Accelerator) -> tuple[float, bool]:
    """Seconds, and whether the traffic hides behind the computation."""
    training, ranks, item = spec.training, choice.workers, ITEM_BYTES[spec.precision.params]
    rate = ACHIEVED * on.flops * (2 / item)
    each = 8 if training.activation_checkpointing else 6
    compute_s = each * profile.numel * training.batch_size * training.seq_len / (ranks * rate)
    travel_s = choice.elements_per_step * item * (ranks - 1) / ranks / on.link
    return max(compute_s, travel_s) + _away_s(profile, choice, item, on), travel_s <= compute_s


def _away_s(profile: Profile, choice: PlanChoice, item: int, on: Accelerator) -> float:
    """What an optimizer that rests elsewhere adds: gradients there, parameters back, and the update where it rests."""
    mine = (profile.numel - profile.frozen) / (choice.workers if choice.stage else 1)
    if choice.offload == label(NONE):
        return 0.0
    disk_s = mine * DISK_BYTES / DISK_BYTES_PER_S if "nvme" in choice.offload else 0.0
    return mine * 2 * item / on.host + mine * UPDATE_BYTES / HOST_BYTES_PER_S + disk_s


# ---- the largest model -----------------------------------------------------------------------------------------------


def _largest(spec: JobSpec, profile: Profile, budget_bytes: int) -> int:
    """Parameters of the deepest model of the same blocks that these workers hold without offload; 0: not even one."""
    if not profile.units.block:
        return 0
    low, high = 0, MOST_BLOCKS
    while low < high:
        middle = (low + high + 1) // 2
        if any(need <= budget_bytes for need in _needs(spec, _deepened(profile, middle))):
            low = middle
        else:
            high = middle - 1
    return _deepened(profile, low).numel if low else 0


def _needs(spec: JobSpec, profile: Profile) -> Iterator[int]:
    workers = spec.workers.max
    for stage in STAGES[spec.engine][-1:] if workers > 1 else STAGES[spec.engine]:
        kinds = rank_bytes(spec, profile, stage=stage, workers=workers, offload=Offload())
        yield sum(sum(tiers.values()) for tiers in kinds.values())


def _deepened(profile: Profile, blocks: int) -> Profile:
    share = blocks / max(profile.units.blocks, 1)
    root = profile.units.root
    units = replace(profile.units, blocks=blocks)
    deep = {kind: round(size * share) if kind == "activations_peak" else size for kind, size in profile.passing.items()}
    return replace(
        profile,
        numel=root + blocks * profile.units.block,
        units=units,
        frozen=round(profile.frozen * share),
        matrices=round(profile.matrices * share),
        passing=deep,
    )
