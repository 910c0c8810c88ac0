"""The driver of one attempt: it decides when a generation ends, what the next one is, and what the service is told.

One thread, one turn after another: hear the workers, hear the service, decide. Nothing here waits for training.
The states are in `state.py`.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime

from service.domain.wire import Brief, Outcome
from workers.controller.adoption import present_generation
from workers.controller.generation import Cause, Generation, origin_after_loss, stopped_at
from workers.controller.group import Death, WorkerGroup
from workers.controller.inbox import News, sort
from workers.controller.recruits import Recruits
from workers.controller.rendezvous import MeetingPoint
from workers.controller.sizing import Resize, next_members, regrouped
from workers.controller.state import Purpose, State, phase
from workers.controller.timeline import Timeline, worker_reports
from workers.controller.uplink import Standing, Uplink
from workers.worker.messages import (
    Adopted,
    Broken,
    CheckpointNews,
    Crashed,
    Finished,
    FromDisk,
    FromMembers,
    Inventory,
    Join,
    Joined,
    Left,
    Origin,
    Resumed,
    Save,
    Saved,
    SaveFailed,
    Stopped,
)

log = logging.getLogger(__name__)

TURN_S = 0.1
# A survivor that does not say in this time what it holds is taken for dead.
ANSWER_S = 30.0
FORM_S = 600.0
# Generations lost one after another without a new step, before the attempt gives up.
LOSSES = 10


class Controller:
    """`run` returns how the attempt ended; by then no worker is left."""

    def __init__(
        self,
        brief: Brief,
        *,
        uplink: Uplink,
        group: WorkerGroup,
        meeting_point: MeetingPoint,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._brief = brief
        self._uplink = uplink
        self._group = group
        self._meeting_point = meeting_point
        self._clock = clock
        self._recruits = Recruits(group, clock=clock)
        self._timeline = Timeline(uplink, now=lambda: datetime.now(UTC))
        self._state = State.GATHERING
        self._since = clock()
        self._cause: Cause = "start"
        self._purpose: Purpose = "resize"
        self._generation: Generation | None = None
        self._number = 0
        self._origin: Origin = FromDisk()
        self._step = 0
        self._furthest = -1
        self._losses = 0
        self._requested: str | None = None
        self._disowned = False
        self._leave_wanted = False
        self._outcome: Outcome | None = None

    def leave(self) -> None:
        """Asked from outside (SIGTERM): end at once and leave no worker behind."""
        self._leave_wanted = True

    def adopt(self, found: Sequence[Adopted]) -> None:
        """Go on with what an earlier controller left: as it is where it makes steps, else from what it holds."""
        generation = self._generation = present_generation(found)
        if generation is None:
            return
        self._number = generation.number
        self._advance(max(each.step for each in found))
        if generation.stands:
            self._timeline.adopted(generation, self._step)
            self._enter(State.RUNNING)
        else:
            self._collect(generation)

    def run(self) -> Outcome:
        try:
            while self._outcome is None:
                self._turn()
        finally:
            if self._outcome is not None and self._outcome.result == "superseded":
                self._group.release_all()
            self._group.end_all()
        return self._outcome

    # ---- hear ----------------------------------------------------------------------------------------------------

    def _turn(self) -> None:
        haul = self._group.poll(TURN_S)
        found = sort(haul.reports, generation=self._number)
        if found.samples:
            self._uplink.samples(found.samples)
        if found.lines:
            self._uplink.logs(found.lines)
        self._advance(found.step)
        for worker, news in found.news:
            self._hear(worker, news)
        for death in haul.deaths:
            self._lose(death)
        self._disowned |= haul.disowned
        self._meeting_point.keep_alive()
        self._obey()
        self._decide()
        self._uplink.show(self._standing())

    def _advance(self, step: int) -> None:
        self._step = step if step >= 0 else self._step
        if step > self._furthest:
            self._furthest, self._losses = step, 0

    def _hear(self, worker: str, news: News) -> None:
        generation = self._generation
        if isinstance(news, Crashed):
            self._crashed(worker, news)
        elif isinstance(news, CheckpointNews):
            self._of_checkpoint(news)
        elif generation is None:
            return
        elif isinstance(news, Joined):
            generation.joined[worker] = news
        elif isinstance(news, Resumed):
            generation.resumed[worker] = news
        elif isinstance(news, Left):
            self._group.end(worker)
        elif isinstance(news, Stopped | Broken | Finished):
            self._answered(generation, worker, news)

    def _answered(self, generation: Generation, worker: str, answer: Stopped | Broken | Finished) -> None:
        generation.answers[worker] = answer
        if not isinstance(answer, Broken):
            self._advance(answer.step)
        elif self._state is not State.COLLECTING:
            log.warning("generation %d broke at worker %s: %s", generation.number, worker, answer.error)
            self._collect(generation)

    def _crashed(self, worker: str, crash: Crashed) -> None:
        """In a generation it is the job's failure; a recruit's alone is not, unless nobody got further."""
        self._timeline.crashed(worker, crash)
        if self._generation is None or worker in self._generation.participants:
            cause = "user" if crash.cause == "user" else "system"
            self._end(Outcome(result="failed", cause=cause, reason=crash.reason))
            return
        self._group.end(worker)
        self._recruits.failed(worker, crash.reason)

    def _of_checkpoint(self, news: CheckpointNews) -> None:
        self._timeline.of_checkpoint(news)
        # A save that was taken before the stop may end after it.
        awaited = self._state is State.SAVING and (news.generation, news.step) == (self._number, self._step)
        if isinstance(news, Saved) and awaited:
            self._end(Outcome(result="paused", reason=f"checkpoint of step {news.step} saved"))
        elif isinstance(news, SaveFailed) and (awaited or news.step == self._brief.spec.training.steps):
            self._end(Outcome(result="failed", cause="machine", reason=news.reason))

    def _lose(self, death: Death) -> None:
        """A member's death ends its generation; a recruit's only delays the next."""
        generation = self._generation
        if generation is None or death.hand.id not in generation.participants:
            self._recruits.failed(death.hand.id, death.reason)
            return
        if isinstance(generation.answers.get(generation.speaker), Finished) or death.hand.id not in generation.members:
            return
        log.warning("worker %s was lost: %s", death.hand.id, death.reason)
        rank = generation.rank(death.hand.id)
        self._timeline.lost(death, rank=rank, step=self._step, generation=generation.number)
        self._collect(generation)

    def _obey(self) -> None:
        orders = self._uplink.orders
        if self._uplink.superseded or self._disowned:
            self._end(Outcome(result="superseded", reason="another attempt has taken over"))
        elif orders.action == "cancel":
            self._end(Outcome(result="cancelled"))
        elif self._leave_wanted:
            self._end(Outcome(result="paused", reason="the controller was told to end"))
        elif orders.action in ("pause", "leave") and self._state is State.GATHERING:
            self._end(Outcome(result="paused", reason="nothing ran yet"))
        elif self._state is State.RUNNING and orders.action in ("pause", "leave"):
            self._stop("pause" if orders.action == "pause" else "leave")
        elif self._state is State.RUNNING and orders.checkpoint_request not in (None, self._requested):
            self._requested = orders.checkpoint_request
            self._tell_speaker("save", self._number, self._requested)

    def _end(self, outcome: Outcome) -> None:
        if self._outcome is None:
            log.info("the attempt ends: %s %s", outcome.result, outcome.reason)
            self._outcome = outcome

    # ---- decide --------------------------------------------------------------------------------------------------

    def _decide(self) -> None:
        """Until nothing changes: what follows from what is known already should not wait for the next turn."""
        before = None
        while self._outcome is None and self._state is not before:
            before = self._state
            self._act()

    def _act(self) -> None:
        act: dict[State, Callable[[], None]] = {
            State.GATHERING: self._gather,
            State.FORMING: self._watch_forming,
            State.RUNNING: self._watch_running,
            State.STOPPING: self._watch_stopping,
            State.COLLECTING: self._watch_collecting,
            State.SAVING: lambda: None,
        }
        act[self._state]()

    @property
    def _desired(self) -> int:
        return max(1, self._uplink.orders.workers)

    def _living(self, workers: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(worker for worker in workers if worker in self._group)

    def _gather(self) -> None:
        """No generation runs: begin, or go on with those that are left, as soon as they are enough."""
        survivors = self._living(self._generation.members) if self._generation else ()
        givers = self._living(self._generation.leavers) if self._generation else ()
        self._recruits.fill(self._desired + len(givers), (*survivors, *givers))
        resize = regrouped(
            survivors,
            givers,
            self._recruits.crew((*survivors, *givers)),
            desired=self._desired,
            minimum=min(self._brief.spec.workers.min, self._desired),
            waited_s=self._recruits.waited_s(),
        )
        if resize is not None:
            self._form(resize, self._cause, self._origin)

    def _form(self, resize: Resize, cause: Cause, origin: Origin) -> None:
        before = len(self._generation.members) if self._generation is not None else 0
        self._number += 1
        self._requested = None
        self._generation = Generation(
            number=self._number,
            members=resize.members,
            leavers=resize.leavers,
            cause=cause,
            before=before,
            step_before=self._step,
        )
        join = Join(
            generation=self._number,
            members=resize.members,
            nodes=tuple(self._group[worker].node for worker in resize.members),
            leavers=resize.leavers,
            store=self._meeting_point.address(),
            origin=origin,
        )
        for worker in self._generation.participants:
            self._group.tell(worker, "order", join)
        self._enter(State.FORMING)

    def _watch_forming(self) -> None:
        generation = self._present()
        if generation.stands and not any(leaver in self._group for leaver in generation.leavers):
            steps = [joined.step for joined in generation.joined.values()]
            self._step = max([*steps, *(resumed.step for resumed in generation.resumed.values())])
            self._recruits.joined()
            self._enter(State.RUNNING)
        elif self._clock() - self._since > FORM_S:
            log.error("generation %d did not form in %.0f s", generation.number, FORM_S)
            self._collect(generation)

    def _watch_running(self) -> None:
        generation = self._present()
        self._tell_cost(generation)
        if isinstance(generation.answers.get(generation.speaker), Finished):
            self._end(Outcome(result="succeeded"))
            return
        self._recruits.fill(self._desired, generation.members)
        crew = self._recruits.crew(generation.members)
        if next_members(crew, desired=self._desired, waited_s=self._recruits.waited_s()) is not None:
            self._stop("resize")

    def _stop(self, purpose: Purpose) -> None:
        self._purpose = purpose
        self._tell_speaker("stop", self._number)
        self._enter(State.STOPPING)

    def _watch_stopping(self) -> None:
        generation = self._present()
        self._tell_cost(generation)
        if isinstance(generation.answers.get(generation.speaker), Finished):
            self._end(Outcome(result="succeeded"))
        elif generation.everybody(Stopped):
            self._step = stopped_at(generation.answers)
            if self._purpose == "resize":
                self._resize(generation)
            else:
                for worker in generation.members:
                    self._group.tell(worker, "order", Save(generation=self._number))
                self._enter(State.SAVING)

    def _resize(self, generation: Generation) -> None:
        """Everybody stands at one boundary: the next generation, by what is desired now."""
        crew = self._recruits.crew(generation.members)
        resize = next_members(crew, desired=self._desired, waited_s=self._recruits.waited_s())
        origin = FromMembers(step=self._step, holders=generation.members)
        self._form(resize or Resize(members=generation.members), "resize", origin)

    def _collect(self, generation: Generation) -> None:
        """End the generation's collectives, and ask everybody what is left."""
        if self._state is State.COLLECTING:
            return
        for worker in generation.participants:
            self._group.tell(worker, "abort", generation.number)
            if not isinstance(generation.answers.get(worker), Broken):
                self._group.tell(worker, "order", Inventory(generation=generation.number))
        self._enter(State.COLLECTING)

    def _watch_collecting(self) -> None:
        generation = self._present()
        left = [worker for worker in generation.participants if worker in self._group]
        silent = [worker for worker in left if not isinstance(generation.answers.get(worker), Broken)]
        if silent and self._clock() - self._since < ANSWER_S:
            return
        for worker in silent:
            log.error("worker %s says nothing %.0f s after generation %d ended", worker, ANSWER_S, generation.number)
            self._group.end(worker)
        self._recover(generation)

    def _recover(self, generation: Generation) -> None:
        answers = {worker: answer for worker, answer in generation.answers.items() if worker in self._group}
        self._origin = origin_after_loss(answers)
        self._advance(max((answer.step for answer in answers.values()), default=-1))
        for leaver in generation.leavers:
            if not (isinstance(self._origin, FromMembers) and leaver in self._origin.holders):
                self._group.end(leaver)
        self._losses += 1
        if self._losses > LOSSES:
            reason = f"{self._losses} generations in a row were lost at step {self._step} without a new step"
            self._end(Outcome(result="failed", cause="machine", reason=reason))
            return
        self._cause = "recover"
        self._enter(State.GATHERING)

    # ---- tell ----------------------------------------------------------------------------------------------------

    def _present(self) -> Generation:
        if self._generation is None:
            raise RuntimeError(f"no generation in state {self._state.name}")
        return self._generation

    def _enter(self, state: State) -> None:
        log.info("generation %d: %s -> %s at step %d", self._number, self._state.name, state.name, self._step)
        self._state, self._since = state, self._clock()

    def _tell_speaker(self, method: str, *args: object) -> None:
        self._group.tell(self._present().speaker, method, *args)

    def _tell_cost(self, generation: Generation) -> None:
        if not generation.told and (cost := generation.cost()) is not None:
            generation.told = True
            self._timeline.formed(generation, cost)

    def _standing(self) -> Standing:
        generation = self._generation
        cause = generation.cause if generation is not None and self._state is State.FORMING else self._cause
        return Standing(
            phase=phase(self._state, cause=cause, purpose=self._purpose),
            step=self._step,
            generation=self._number,
            world_size=len(generation.members) if generation is not None else 0,
            workers=worker_reports(generation, self._group),
        )
