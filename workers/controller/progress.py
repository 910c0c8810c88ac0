"""How far the attempt is, how fast it has been, and from when on silence means something. Pure but for the clock."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from service.domain.spec import HangSpec

# Without a limit of the spec's own: so many of the slowest recent steps, and never less than the floor.
TIMES_A_STEP = 10.0
FLOOR_S = 60.0
# A generation's first step compiles, allocates and reads for the first time.
FIRST_STEP_S = 600.0
RECENT_STEPS = 32
# A survivor that does not say what it holds: it may be in the middle of one step, which nothing can interrupt.
ANSWER_S = 30.0
TIMES_TO_ANSWER = 3.0


class Progress:
    """`step` is the present one, `furthest` the newest ever, `losses` the generations lost since it was reached."""

    def __init__(self, hang: HangSpec, *, clock: Callable[[], float]) -> None:
        self._hang = hang
        self._clock = clock
        self._recent: deque[float] = deque(maxlen=RECENT_STEPS)
        self._first = True
        self._heard_at = clock()
        self.stepped_at: float | None = None
        self.step = 0
        self.furthest = -1
        self.losses = 0

    def begin(self, step: int) -> None:
        """A generation stands on this step; its first one is to come."""
        self.go_to(step)
        self._first, self._heard_at = True, self._clock()

    def advance(self, step: int, *, step_s: float | None = None) -> None:
        """A step is done, now; it took so long. What a slower rank says of an older step changes nothing."""
        if step > self.step:
            self._heard_at = self.stepped_at = self._clock()
            self._first = False
            self.go_to(step)
        if step_s is not None:
            self._recent.append(step_s)

    def go_to(self, step: int) -> None:
        """The state is that of this step."""
        self.step = step
        if step > self.furthest:
            self.furthest, self.losses = step, 0

    def inherit(self, step: int, *, stood_s: float) -> None:
        """An earlier attempt was here, and has done no step since so long ago."""
        self.go_to(step)
        self.stepped_at = self._clock() - stood_s

    @property
    def waited_s(self) -> float:
        """Since the last step, or since the generation stood."""
        return self._clock() - self._heard_at

    @property
    def step_s(self) -> float:
        """The slowest of the recent ones."""
        return max(self._recent, default=0.0)

    @property
    def limit_s(self) -> float:
        """For the next step: what takes longer hangs."""
        slowest = self.step_s * TIMES_A_STEP
        usual = max(FLOOR_S, slowest) if self._hang.step_s == "auto" else self._hang.step_s
        return max(usual, FIRST_STEP_S) if self._first else usual

    @property
    def answer_s(self) -> float:
        """For a survivor's answer."""
        if not self._recent:
            return FIRST_STEP_S
        return max(ANSWER_S, max(self._recent) * TIMES_TO_ANSWER)
