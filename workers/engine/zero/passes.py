"""What happens to units in a forward and a backward: gathered, released, reduced. The stage's row decides."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum, auto

from workers.engine.zero.collectives import Collectives
from workers.engine.zero.flat import Unit
from workers.engine.zero.prefetch import Action, Habits, Launch, Launches, backward_launches, forward_launches
from workers.engine.zero.reduction import Reducer
from workers.engine.zero.stages import Gather, Reduce, Stage
from workers.engine.zero.state import TrainingState


class Phase(Enum):
    IDLE = auto()
    FORWARD = auto()
    BACKWARD = auto()


class Passes:
    """One forward or backward at a time: opened and closed by the engine; hooks report in between."""

    def __init__(
        self, stage: Stage, units: Sequence[Unit], collectives: Collectives, *, reducer: Reducer, state: TrainingState
    ) -> None:
        self._units, self._collectives, self._reducer, self._state = units, collectives, reducer, state
        self.habits = Habits(len(units))
        self._gathers = stage.gather is Gather.AROUND_USE
        self._reduces_each = stage.reduce is Reduce.EACH
        self._reducing = False
        self._launches = self._list(())
        for unit in units:
            unit.whole = not self._gathers
        self.phase = Phase.IDLE
        self.gathered_bytes = self.gathered_peak_bytes = 0

    def begin_forward(self) -> None:
        self.phase = Phase.FORWARD
        for unit in self._units:
            unit.begin_pass()
        self._launches = self._list(forward_launches(self.habits.order) if self._gathers else ())

    def before_forward(self, unit: Unit) -> None:
        """The unit's parameters are about to be read: in the forward, or at a recomputation in the backward."""
        if self._gathers:
            self._request(unit)
        else:
            unit.wait()

    def after_forward(self, unit: Unit) -> None:
        if self._gathers and self.phase is Phase.FORWARD and unit.index not in self.habits.again:
            self._release(unit)

    def end_forward(self) -> None:
        """Gathers of units that this rank did not use, and everything released."""
        self._run_out()
        self.phase = Phase.IDLE

    def begin_backward(self, *, last: bool) -> None:
        self.phase = Phase.BACKWARD
        self._reducing = last or self._reduces_each
        self._reducer.last = last
        self._launches = self._list(
            backward_launches(self.habits.order, gathers=self._gathers, reduces=self._reducing, late=self.habits.again)
        )
        if self._gathers:
            self._request(self._units[0])

    def before_backward(self, unit: Unit) -> None:
        if self.phase is not Phase.BACKWARD:
            raise RuntimeError(f"backward of unit {unit.plan.name} outside micro_step: its parameters are not gathered")
        self._request(unit)

    def gradient_arrived(self, unit: Unit, param: int) -> None:
        if self.phase is Phase.BACKWARD and param not in unit.arrived:
            unit.arrived.add(param)
            if unit.complete:
                self._completed(unit)

    def inputs_done(self, unit: Unit) -> None:
        """The gradient of one of the unit's inputs is final."""
        unit.inputs_awaited -= 1
        self._release_if_done(unit)

    def end_backward(self) -> None:
        """What is left: units that miss a gradient on this rank join with what they have."""
        self._run_out()
        if not self._reducing:
            for unit in self._units:
                if not unit.complete:
                    self._reducer.accumulate(unit)
        self.phase = Phase.IDLE

    def join(self, *, last: bool) -> None:
        """A micro-step without a forward: every collective of the others, with zeros."""
        self.begin_forward()
        self.end_forward()
        self.begin_backward(last=last)
        self.end_backward()

    def abandon(self) -> None:
        """Something failed: forget what is under way, wait for nothing."""
        self.phase = Phase.IDLE
        self._reducer.abandon()
        for unit in self._units:
            unit.pending.clear()
            if self._gathers:
                self._release(unit)

    def _list(self, launches: Sequence[Launch]) -> Launches:
        again = self.habits.again
        return Launches(launches, start=self._start, ready=lambda n: self._units[n].complete and n not in again)

    def _start(self, launch: Launch) -> None:
        unit = self._units[launch.unit]
        if launch.action is Action.GATHER:
            self._gather(unit)
            if (upcoming := self._launches.next_gather()) is not None:
                for flat in self._units[upcoming].flats:
                    self._state.ahead(flat)
        else:
            self._reducer.launch(unit)

    def _request(self, unit: Unit) -> None:
        self.habits.use(unit.index)
        self._launches.reach_gather(unit.index)
        if not unit.whole:
            # Used again after its release. Every rank comes here alike, since all run the same modules; from the next
            # step on the unit stays whole between its uses.
            self.habits.use_again(unit.index)
            self._gather(unit)
        # The next one starts behind this one, and not when this one has arrived.
        self._launches.allow_next_gather(unit.index)
        unit.wait()

    def _gather(self, unit: Unit) -> None:
        if not unit.whole:
            unit.whole = True
            self.gathered_bytes += unit.size_bytes
            self.gathered_peak_bytes = max(self.gathered_peak_bytes, self.gathered_bytes)
        for flat in unit.flats:
            flat.refill()
            unit.pending.append(self._collectives.gather(flat.full, self._state.outgoing(flat), unit=flat.unit))

    def _release(self, unit: Unit) -> None:
        if not unit.whole:
            return
        unit.wait()
        for flat in unit.flats:
            flat.release()
        unit.whole = False
        self.gathered_bytes -= unit.size_bytes

    def _completed(self, unit: Unit) -> None:
        if self._reducing:
            self._launches.advance()
        else:
            self._reducer.accumulate(unit)
        self._release_if_done(unit)

    def _release_if_done(self, unit: Unit) -> None:
        """A trainable parameter's last use is over when its gradient is there; a frozen one's when the inputs' are."""
        if self._gathers and unit.complete and unit.inputs_awaited <= 0 and unit.index not in self.habits.again:
            self._release(unit)

    def _run_out(self) -> None:
        while (launch := self._launches.pop()) is not None:
            if launch.action is Action.GATHER:
                self._release(self._units[launch.unit])
        if self._gathers:
            for unit in self._units:
                self._release(unit)
