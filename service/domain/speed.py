"""How long a step takes, by what a rank gets done in a second."""

from __future__ import annotations

from dataclasses import dataclass

from service.domain.batching import rounds
from service.domain.hardware import Rates
from service.domain.memory import ITEM_BYTES
from service.domain.plan import PlanChoice
from service.domain.profile import Profile
from service.domain.spec import JobSpec

# Bytes that an update of Adam moves where the state rests, per parameter; what is read and written of it on a disk.
UPDATE_BYTES, DISK_BYTES = 28, 24
# Values that a micro-batch's gradient reads and writes, per parameter, to be added to those before it.
ADD_VALUES = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class StepTime:
    """Seconds of one step on the busiest rank. overlaps: whether traffic goes on beside the computation."""

    compute_s: float
    travel_s: float
    update_s: float
    overlaps: bool

    @property
    def hides(self) -> bool:
        return self.travel_s <= self.compute_s

    @property
    def total_s(self) -> float:
        both = max(self.compute_s, self.travel_s) if self.overlaps else self.compute_s + self.travel_s
        return both + self.update_s


def step_time(spec: JobSpec, profile: Profile, choice: PlanChoice, rates: Rates) -> StepTime | None:
    """None where nobody knows what a micro-batch has to compute. rates: of matrices in the type of the parameters."""
    if profile.operations is None:
        return None
    training = spec.training
    turns = rounds(training.batch_size // training.micro_batch_size, world_size=choice.workers)
    added_s = ADD_VALUES * ITEM_BYTES[spec.precision.params] * (profile.numel - profile.frozen) / rates.memory
    return StepTime(
        compute_s=turns * (profile.operations / rates.operations + added_s),
        travel_s=choice.bytes_per_step / rates.link,
        update_s=_update_s(spec, profile, choice, rates),
        overlaps=rates.overlaps,
    )


def _update_s(spec: JobSpec, profile: Profile, choice: PlanChoice, rates: Rates) -> float:
    """Where the optimizer's state rests; what rests elsewhere has gradients sent there and parameters fetched back."""
    mine = (profile.numel - profile.frozen) / (choice.workers if choice.stage else 1)
    if choice.offload == "none":
        return mine * UPDATE_BYTES / rates.memory
    disk_s = mine * DISK_BYTES / rates.disk if "nvme" in choice.offload else 0.0
    travel_s = mine * 2 * ITEM_BYTES[spec.precision.params] / rates.host
    return travel_s + mine * UPDATE_BYTES / rates.host_memory + disk_s
