"""The present generation, and how the next one is formed from it: by whom, and where its state comes from."""

from __future__ import annotations

from collections.abc import Sequence

from service.domain.arrangement import Arranged, Arrangement
from workers.controller.adoption import present_generation
from workers.controller.generation import Cause, Generation, origin_after_loss
from workers.controller.group import WorkerGroup
from workers.controller.progress import Progress
from workers.controller.rendezvous import MeetingPoint
from workers.controller.sizing import Resize
from workers.worker.messages import Adopted, Broken, FromDisk, FromMembers, Inventory, Origin


class Formation:
    """`origin` and `cause` are the next generation's where none runs."""

    def __init__(self, *, group: WorkerGroup, meeting_point: MeetingPoint, progress: Progress) -> None:
        self._group = group
        self._meeting_point = meeting_point
        self._progress = progress
        self.generation: Generation | None = None
        self.number = 0
        self.cause: Cause = "start"
        self.origin: Origin = FromDisk()

    @property
    def present(self) -> Generation:
        if self.generation is None:
            raise RuntimeError("no generation was formed yet")
        return self.generation

    @property
    def somebody_holds_state(self) -> bool:
        return isinstance(self.origin, FromMembers)

    def adopt(self, found: Sequence[Adopted], arrangement: Arrangement) -> Generation | None:
        """arrangement: where the workers do not say how they hold their state."""
        self.generation = present_generation(found, arrangement)
        self.number = self.generation.number if self.generation is not None else 0
        return self.generation

    def takes_part(self, worker: str) -> bool:
        return self.generation is not None and worker in self.generation.participants

    def left(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Members and leavers of the present generation that live."""
        if self.generation is None:
            return (), ()
        members, leavers = self.generation.members, self.generation.leavers
        return tuple(w for w in members if w in self._group), tuple(w for w in leavers if w in self._group)

    def form(self, resize: Resize, arranged: Arranged) -> None:
        """Order everybody into the next generation."""
        self.number += 1
        arrangement = arranged.arrangement
        before = self.generation.arrangement if self.generation is not None else arrangement
        generation = Generation(
            number=self.number,
            members=resize.members,
            leavers=resize.leavers,
            cause=self.cause,
            arrangement=arrangement,
            arranged_before=before if before != arrangement else None,
            why=arranged.why,
            before=len(self.generation.members) if self.generation is not None else 0,
            step_before=self._step_before(),
            stepped_at=self._progress.stepped_at,
        )
        nodes = tuple(self._group[worker].node for worker in resize.members)
        join = generation.join(nodes=nodes, store=self._meeting_point.address(), origin=self.origin)
        for worker in generation.participants:
            self._group.tell(worker, "order", join)
        self.generation = generation

    def _step_before(self) -> int:
        """What a generation lost that broke before it could tell of it is the next one's to tell."""
        untold = self.generation is not None and not self.generation.told
        return max(self._progress.step, self.present.step_before) if untold else self._progress.step

    # ---- after a loss --------------------------------------------------------------------------------------------

    def call_the_roll(self) -> None:
        """End the generation's collectives, so that who waits in one is free to answer; ask what everybody holds."""
        generation = self.present
        for worker in generation.participants:
            self._group.tell(worker, "abort", generation.number)
            if not isinstance(generation.answers.get(worker), Broken):
                self._group.tell(worker, "order", Inventory(generation=generation.number))

    def silent(self) -> tuple[str, ...]:
        """Who lives and has not answered yet."""
        members, leavers = self.left()
        answers = self.present.answers
        return tuple(worker for worker in (*members, *leavers) if not isinstance(answers.get(worker), Broken))

    def count(self) -> None:
        """From what was answered: where to go on from. Leavers that hold nothing of it end."""
        answers = {worker: answer for worker, answer in self.present.answers.items() if worker in self._group}
        self.origin, self.cause = origin_after_loss(answers), "recover"
        for leaver in self.present.leavers:
            if not (isinstance(self.origin, FromMembers) and leaver in self.origin.holders):
                self._group.end(leaver)
        if answers:
            self._progress.go_to(max(answer.step for answer in answers.values()))
