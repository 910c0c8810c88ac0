"""Who is in the next generation: by what is desired, who is warm, and who has to leave."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import replace

from service.domain.arrangement import Arranged, Arrangement, arranged
from service.domain.choice import Room
from service.domain.profile import profile_of
from service.domain.wire import Brief, Orders
from service.domain.worker_memory import WorkerMemory
from workers.controller import ending
from workers.controller.generation import Generation
from workers.controller.notices import Notices
from workers.controller.progress import Progress
from workers.controller.recruits import Recruits
from workers.controller.sizing import Crew, Resize, next_members, regrouped


class Staffing:
    def __init__(
        self,
        *,
        recruits: Recruits,
        notices: Notices,
        progress: Progress,
        orders: Callable[[], Orders],
        brief: Brief,
    ) -> None:
        """orders: the service's, now. With fewer workers than the spec's minimum the job does not go on."""
        self._recruits = recruits
        self._notices = notices
        self._progress = progress
        self._orders = orders
        self._spec = brief.spec
        self._room = Room(
            profile_of=lambda spec: brief.profile or profile_of(spec),
            memory=brief.memory,
            has_disk=brief.has_disk,
        )
        self._least = brief.spec.workers.min

    @property
    def desired(self) -> int:
        return max(1, self._orders().workers)

    def arranged(self, workers: int) -> Arranged:
        """How so many hold the state: as is wanted, where that fits them; what is left to us, as is best for them."""
        orders = self._orders()
        wanted = orders.arrangement or Arrangement.of(self._spec)
        spec = self._spec if orders.auto is None else self._spec.model_copy(update={"auto": orders.auto})
        return arranged(spec, wanted, workers=workers, room=replace(self._room, memory=self._memory()))

    def _memory(self) -> WorkerMemory | None:
        """What workers found under them is surer than what was known before they were there."""
        known, found = self._room.memory, self._recruits.device_bytes()
        if found is None or (self._spec.resources.gpu or 1.0) < 1:
            return known
        return WorkerMemory(device_bytes=found, apart=True, host_bytes=None if known is None else known.host_bytes)

    def due(self, generation: Generation) -> bool:
        """Whether a running generation should make room for another one."""
        arrangement = self.arranged(len(generation.members)).arrangement
        return arrangement != generation.arrangement or self.next(generation.members) is not None

    def ask(self, members: Collection[str]) -> None:
        """For whoever a running generation lacks, and for somebody in place of each who departs."""
        self._recruits.fill(self.desired + len(self._notices.departing(members)), members)

    def next(self, members: Collection[str]) -> Resize | None:
        """After a running generation; None where it is right, or it is too early."""
        waited_s, hurry = self._recruits.waited_s(), self._hurry(members)
        return next_members(self._crew(members), desired=self.desired, waited_s=waited_s, hurry=hurry)

    def too_few(self, members: Collection[str]) -> str | None:
        """Why a running generation has to end without a next one."""
        if not self._hurry(members):
            return None
        return ending.too_few_stay(self._crew(members), minimum=min(self._least, self.desired))

    def regroup(self, survivors: tuple[str, ...], givers: tuple[str, ...], *, exits: bool) -> Resize | None:
        """Where no generation runs; None as long as they are not enough. exits: only to save what is held."""
        there = (*survivors, *givers)
        if not exits:
            self._recruits.fill(self.desired + len(givers), there)
        return regrouped(
            survivors,
            givers,
            self._recruits.crew(there),
            desired=self.desired,
            minimum=1 if exits else min(self._least, self.desired),
            waited_s=self._recruits.waited_s(),
        )

    def _hurry(self, members: Collection[str]) -> bool:
        return self._notices.hurry(members, step_s=self._progress.step_s)

    def _crew(self, members: Collection[str]) -> Crew:
        return replace(self._recruits.crew(members), departing=self._notices.departing(members))
