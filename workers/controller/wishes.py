"""What is asked of the attempt from outside: by the service's orders, by a signal, by who adopted its workers."""

from __future__ import annotations

from collections.abc import Callable

from service.domain.wire import Outcome
from workers.controller import ending
from workers.controller.state import Purpose
from workers.controller.uplink import Uplink


class Wishes:
    """Belongs to the controller's one thread, but for `leave`. `given_up`: why it wants to end by itself."""

    def __init__(self, uplink: Uplink, *, clock: Callable[[], float]) -> None:
        self._uplink = uplink
        self._clock = clock
        self._told_at: float | None = None
        self._disowned = False
        self._met: str | None = None
        self.given_up: str | None = None

    def leave(self) -> None:
        """SIGTERM: save what is held, soon, and end."""
        if self._told_at is None:
            self._told_at = self._clock()

    def disown(self) -> None:
        """The workers are a newer attempt's."""
        self._disowned = True

    @property
    def end(self) -> Outcome | None:
        """How to end at once, with nothing saved, where that is wished."""
        if self._uplink.superseded or self._disowned:
            return ending.SUPERSEDED
        if self._uplink.orders.action == "cancel":
            return ending.CANCELLED
        if self._told_at is not None and self._clock() - self._told_at > ending.TOLD_S:
            return ending.TOLD_TO_END
        return None

    @property
    def exit(self) -> Purpose | None:
        """What the group is to be saved and let go for."""
        return ending.exit_wanted(self._uplink.orders, given_up=self.given_up, told=self._told_at is not None)

    def save(self) -> str | None:
        """The save that is asked for, once in a generation: the service repeats it until it is met, or has failed and
        may be made anew."""
        request = self._uplink.orders.checkpoint_request
        if request is None or request == self._met:
            return None
        self._met = request
        return request

    def formed(self) -> None:
        """A generation forms: nothing was asked of it yet."""
        self._met = None
