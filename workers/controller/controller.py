"""The driver of one attempt: it decides when a generation ends, what the next one is, and what the service is told.

One thread, one turn after another: hear the workers, hear the service, decide. Nothing here waits for training.
The states are in `state.py`.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime

from service.domain.arrangement import Arrangement
from service.domain.wire import Brief, Outcome
from workers.controller import ending
from workers.controller.formation import Formation
from workers.controller.generation import Generation, stopped_at
from workers.controller.group import Death, WorkerGroup
from workers.controller.inbox import News, sort
from workers.controller.notices import Departure, Notices
from workers.controller.progress import Progress
from workers.controller.recruits import Recruits
from workers.controller.rendezvous import MeetingPoint
from workers.controller.sizing import Resize
from workers.controller.staffing import Staffing
from workers.controller.state import Course, Move, Purpose, State, phase
from workers.controller.timeline import Timeline
from workers.controller.uplink import Standing, Uplink
from workers.controller.vigil import Vigil
from workers.controller.wishes import Wishes
from workers.worker.messages import (
    Adopted,
    Broken,
    CheckpointNews,
    Crashed,
    Finished,
    FromMembers,
    Joined,
    Left,
    Notice,
    Resumed,
    Save,
    Saved,
    SaveFailed,
    Stopped,
)

log = logging.getLogger(__name__)

TURN_S = 0.1
FORM_S = 600.0
SAVE_S = 1800.0


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
        self._course = Course(clock=clock)
        self._progress = Progress(brief.spec.hang, clock=clock)
        self._formation = Formation(group=group, meeting_point=meeting_point, progress=self._progress)
        self._vigil = Vigil(group, self._progress, silence_s=brief.spec.hang.silence_s)
        self._recruits = Recruits(group, clock=clock)
        self._notices = Notices(group, clock=clock)
        self._staffing = Staffing(
            recruits=self._recruits,
            notices=self._notices,
            progress=self._progress,
            orders=lambda: uplink.orders,
            brief=brief,
        )
        self._timeline = Timeline(uplink, now=lambda: datetime.now(UTC))
        self._purpose: Purpose = "resize"
        self._wishes = Wishes(uplink, clock=clock)
        self._outcome: Outcome | None = None

    def leave(self) -> None:
        """Asked from outside (SIGTERM): save what is held, soon, and end; no worker is left behind."""
        self._wishes.leave()

    def adopt(self, found: Sequence[Adopted]) -> None:
        """Go on with what an earlier controller left: as it is where it makes steps, else from what it holds.

        Where nothing is left and the earlier attempt was lost, what begins now is a recovery.
        """
        generation, lost = self._formation.adopt(found, Arrangement.of(self._brief.spec)), self._brief.lost
        if generation is None and lost is not None:
            self._formation.cause = "recover"
            self._progress.inherit(lost.step, stood_s=lost.stood_s)
        if generation is None:
            return
        self._progress.advance(max(each.step for each in found))
        if generation.stands:
            self._timeline.adopted(generation, self._progress.step)
            self._course.move(Move.ADOPT)
            self._progress.begin(self._progress.step)
        else:
            self._collect()

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
        found = sort(haul.reports, generation=self._formation.number)
        if found.samples:
            self._uplink.samples(found.samples)
        if found.lines:
            self._uplink.logs(found.lines)
        if found.step >= 0:
            self._progress.advance(found.step, step_s=found.step_s)
        for worker, news in found.news:
            self._hear(worker, news)
        for death in haul.deaths:
            self._lose(death)
        for departure in self._notices.look():
            self._announce(departure)
        for worker, reason in self._vigil.silent():
            self._lose_alive(worker, reason)
        if haul.disowned:
            self._wishes.disown()
        self._meeting_point.keep_alive()
        self._obey()
        self._decide()
        self._uplink.show(self._standing())

    def _hear(self, worker: str, news: News) -> None:
        generation = self._formation.generation
        if isinstance(news, Crashed):
            self._crashed(worker, news)
        elif isinstance(news, CheckpointNews):
            self._of_checkpoint(news)
        elif isinstance(news, Notice):
            if departure := self._notices.add(worker, news.reason, news.left_s):
                self._announce(departure)
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
            self._progress.advance(answer.step)
        elif self._course.state is not State.COLLECTING:
            log.warning("generation %d broke at worker %s: %s", generation.number, worker, answer.error)
            self._collect()

    def _crashed(self, worker: str, crash: Crashed) -> None:
        """In a generation the job fails, unless a machine failed; a recruit's counts only where nobody got further."""
        self._timeline.crashed(worker, crash)
        if worker not in self._group:
            return
        if crash.cause == "machine":
            self._lose_alive(worker, crash.reason)
        elif self._formation.generation is None or self._formation.takes_part(worker):
            self._end(ending.crashed(crash.cause, crash.reason))
        else:
            self._group.end(worker)
            self._recruits.failed(worker, crash.reason)

    def _of_checkpoint(self, news: CheckpointNews) -> None:
        self._timeline.of_checkpoint(news)
        # A save that was taken before the stop may end after it.
        now = (self._formation.number, self._progress.step)
        awaited = self._course.state is State.SAVING and (news.generation, news.step) == now
        if isinstance(news, Saved) and awaited:
            self._end(ending.saved(step=news.step, given_up=self._wishes.given_up))
        elif isinstance(news, SaveFailed) and (awaited or news.step == self._brief.spec.training.steps):
            self._end(ending.not_saved(news.reason))

    def _announce(self, departure: Departure) -> None:
        """A member hands over before it goes; a recruit is replaced at once."""
        if not self._formation.takes_part(departure.worker):
            self._group.end(departure.worker)
            return
        left_s = None if departure.by is None else departure.by - self._clock()
        step, generation = self._progress.step, self._formation.present
        self._timeline.notice(departure, left_s=left_s, step=step, generation=generation)

    def _lose_alive(self, worker: str, reason: str) -> None:
        """It is there, but of no use any more."""
        hand = self._group[worker]
        self._group.end(worker)
        self._lose(Death(hand=hand, reason=reason))

    def _lose(self, death: Death) -> None:
        """The death of one that takes part ends the generation; a recruit's only delays the next."""
        if not self._formation.takes_part(death.hand.id):
            self._recruits.failed(death.hand.id, death.reason)
            return
        generation = self._formation.present
        if isinstance(generation.answers.get(generation.speaker), Finished):
            return
        log.warning("worker %s was lost: %s", death.hand.id, death.reason)
        self._timeline.lost(death, step=self._progress.step, generation=generation)
        self._collect()

    def _obey(self) -> None:
        if outcome := self._wishes.end:
            self._end(outcome)
        elif self._course.state is not State.RUNNING:
            return
        elif purpose := self._wishes.exit:
            self._stop(purpose)
        elif request := self._wishes.save():
            self._tell_speaker("save", request)

    def _end(self, outcome: Outcome) -> None:
        if self._outcome is None:
            log.info("the attempt ends: %s %s", outcome.result, outcome.reason)
            self._outcome = outcome

    # ---- decide --------------------------------------------------------------------------------------------------

    def _decide(self) -> None:
        """Until nothing changes: what follows from what is known already should not wait for the next turn."""
        acts: dict[State, Callable[[], None]] = {
            State.GATHERING: self._gather,
            State.FORMING: self._watch_forming,
            State.RUNNING: self._watch_running,
            State.STOPPING: self._watch_stopping,
            State.COLLECTING: self._watch_collecting,
            State.SAVING: self._watch_saving,
        }
        before = None
        while self._outcome is None and self._course.state is not before:
            before = self._course.state
            acts[before]()

    def _gather(self) -> None:
        """No generation runs: begin, or go on with those that are left, as soon as they are enough.

        Where the attempt is to end, those who hold the state form once more, however few, so that it can be saved.
        """
        exits, (survivors, givers) = self._wishes.exit is not None, self._formation.left()
        if exits and not self._formation.somebody_holds_state:
            self._end(ending.nothing_to_save(given_up=self._wishes.given_up, furthest=self._progress.furthest))
            return
        resize = self._staffing.regroup(survivors, givers, exits=exits)
        if resize is not None:
            self._form(resize)
        elif self._wishes.given_up is None:
            missing_s, note = self._recruits.missing_s, self._recruits.note()
            self._wishes.given_up = ending.hopeless(missing_s=missing_s, note=note, failures=self._recruits.hopeless)

    def _form(self, resize: Resize) -> None:
        self._wishes.formed()
        self._formation.form(resize, self._staffing.arranged(len(resize.members)))
        self._course.move(Move.FORM)

    def _watch_forming(self) -> None:
        generation = self._formation.present
        if generation.stands and not any(leaver in self._group for leaver in generation.leavers):
            self._progress.begin(max(joined.step for joined in generation.joined.values()))
            for resumed in generation.resumed.values():
                self._progress.advance(resumed.step)
            self._recruits.joined()
            self._course.move(Move.STAND)
        elif self._course.for_s > FORM_S:
            log.error("generation %d did not form in %.0f s", generation.number, FORM_S)
            self._collect()

    def _watch_running(self) -> None:
        generation = self._formation.present
        self._timeline.tell_cost(generation, now=self._clock())
        if isinstance(generation.answers.get(generation.speaker), Finished):
            self._end(ending.SUCCEEDED)
            return
        self._staffing.ask(generation.members)
        if self._end_hung(generation):
            return
        if few := self._staffing.too_few(generation.members):
            self._wishes.given_up = few
        elif self._staffing.due(generation):
            self._stop("resize")

    def _stop(self, purpose: Purpose) -> None:
        self._purpose = purpose
        self._tell_speaker("stop")
        self._course.move(Move.STOP)

    def _watch_stopping(self) -> None:
        generation = self._formation.present
        self._timeline.tell_cost(generation, now=self._clock())
        if isinstance(generation.answers.get(generation.speaker), Finished):
            self._end(ending.SUCCEEDED)
        elif generation.everybody(Stopped):
            self._progress.go_to(stopped_at(generation.answers))
            if self._purpose == "resize":
                self._resize(generation)
            else:
                for worker in generation.members:
                    self._group.tell(worker, "order", Save(generation=generation.number))
                self._course.move(Move.SAVE)
        else:
            self._end_hung(generation)

    def _watch_saving(self) -> None:
        if self._course.for_s > SAVE_S:
            reason = f"the checkpoint of step {self._progress.step} was not published within {SAVE_S:.0f} s"
            self._end(ending.not_saved(reason))

    def _end_hung(self, generation: Generation) -> bool:
        """No step within the limit: whoever is the cause of it is taken for dead."""
        found = self._vigil.hung(generation)
        if found is None:
            return False
        self._timeline.hung(found, step=self._progress.step, generation=generation)
        for worker in found.culprits:
            if worker in self._group:
                self._lose_alive(worker, f"hung: {found.report}")
        if not found.culprits:
            self._collect()
        return True

    def _resize(self, generation: Generation) -> None:
        """Everybody stands at one boundary: the next generation, by what is desired now."""
        self._formation.cause = "resize"
        self._formation.origin = FromMembers(step=self._progress.step, holders=generation.members)
        self._form(self._staffing.next(generation.members) or Resize(members=generation.members))

    def _collect(self) -> None:
        if self._course.state is not State.COLLECTING:
            self._formation.call_the_roll()
            self._course.move(Move.LOSE)

    def _watch_collecting(self) -> None:
        silent = self._formation.silent()
        if silent and self._course.for_s < self._progress.answer_s:
            return
        self._timeline.diverged(self._formation.present, self._group)
        for worker in silent:
            log.error("worker %s says nothing %.0f s after its generation ended", worker, self._course.for_s)
            self._group.end(worker)
        self._formation.count()
        self._progress.losses += 1
        outcome = ending.too_many_losses(self._progress.losses, step=self._progress.step)
        if outcome is not None:
            self._end(outcome)
        else:
            self._course.move(Move.COUNT)

    # ---- tell ----------------------------------------------------------------------------------------------------

    def _tell_speaker(self, method: str, *args: object) -> None:
        generation = self._formation.present
        self._group.tell(generation.speaker, method, generation.number, *args)

    def _standing(self) -> Standing:
        formation, state = self._formation, self._course.state
        return self._timeline.standing(
            formation.generation,
            self._group,
            phase=phase(state, cause=formation.cause, purpose=self._purpose),
            step=self._progress.step,
            number=formation.number,
            note=self._recruits.note() if state in (State.GATHERING, State.RUNNING) else None,
            spec=self._brief.spec,
        )
