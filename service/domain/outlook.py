"""What fits on each known accelerator, how fast, and how large a model of the same blocks could be.

A step takes what its micro-batches have to compute, the traffic of the stage beside it, and the update after both
(`speed.py`). A unit's gather hides behind its computation from F/B tokens per rank on, for operations F and two-byte
elements B per second (ZeRO-Infinity, Rajbhandari et al. 2021, arXiv:2104.07857, section 4, has the same rule).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from service.domain.hardware import KNOWN, Accelerator
from service.domain.memory import ITEM_BYTES
from service.domain.offload import WHOLE
from service.domain.plan import Outlook, PlanChoice
from service.domain.planning import STAGES, rank_bytes, recommend
from service.domain.profile import Profile
from service.domain.spec import JobSpec, Offload, PythonData
from service.domain.speed import step_time
from service.domain.worker_memory import WorkerMemory

MOST_BLOCKS = 2**20


def outlooks(spec: JobSpec, profile: Profile, choices: Sequence[PlanChoice]) -> tuple[Outlook, ...]:
    """On each, at the spec's most workers: the fastest choice that fits, or the one that needs least."""
    most = [choice for choice in choices if choice.workers == spec.workers.max]
    return tuple(_outlook(spec, profile, most, each) for each in KNOWN)


def _outlook(spec: JobSpec, profile: Profile, choices: Sequence[PlanChoice], on: Accelerator) -> Outlook:
    memory = WorkerMemory(device_bytes=on.memory_bytes, apart=True)
    judged = [replace(choice, fits=memory.holds(choice.bytes_by_kind)) for choice in choices]
    asked = [spec.offload] if not spec.offload.is_none else list(WHOLE if spec.engine == "zero" else WHOLE[:2])
    found = recommend(spec, judged, memory, offloads=asked)
    choice = next(each for each in judged if (each.stage, each.offload) == (found.stage, found.offload))
    item_bytes = ITEM_BYTES[spec.precision.params]
    rates = on.rates(item_bytes=item_bytes)
    time = step_time(spec, profile, choice, rates)
    tokens = spec.training.batch_size * spec.training.seq_len
    return Outlook(
        accelerator=on.name,
        memory_bytes=on.memory_bytes,
        fits=bool(choice.fits),
        stage=choice.stage,
        offload=choice.offload,
        device_bytes=memory.needed(choice.bytes_by_kind),
        step_s=None if time is None else time.total_s,
        tokens_per_s=None if time is None or isinstance(spec.data, PythonData) else tokens / time.total_s,
        traffic_hides=None if time is None else time.hides,
        hides_from_tokens=round(item_bytes * rates.operations / (2 * rates.link)),
        largest_numel=_largest(spec, profile, memory.budget_bytes),
    )


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
