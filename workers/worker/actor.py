"""A Ray actor: one worker, one process, one device. Control methods answer at once; one thread of its own trains.

Nothing here waits for training: orders are queued, reports are fetched. Torch is imported by the training thread, so
that the actor answers while it still loads.
"""

from __future__ import annotations

import logging
import os
import queue
import signal
import threading
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import ray

from service.domain.wire import Brief
from workers.worker import failure
from workers.worker.journal import Journal, capture_output
from workers.worker.messages import (
    Adopted,
    Crashed,
    Finished,
    Inventory,
    Join,
    Line,
    Notice,
    NotOwner,
    Ready,
    Report,
    Save,
    Stopped,
)
from workers.worker.orphan import OrphanWatch
from workers.worker.outbox import Outbox
from workers.worker.redaction import Redactor
from workers.worker.whereabouts import Where, look
from workers.worker.wishes import Wishes

if TYPE_CHECKING:
    from workers.worker.member import Member

log = logging.getLogger(__name__)

# Exit status of a worker that could not even report its crash (sysexits: EX_SOFTWARE).
CRASH_UNREPORTED = 70

Order = Join | Save | Inventory


class Worker:
    """A plain class, made an actor by the controller: `fetch` runs in the group "reports", the rest in "control"."""

    def __init__(self, brief_json: str, worker_id: str) -> None:
        self._brief = Brief.model_validate_json(brief_json)
        if self._brief.folder is not None:
            # A path means to a worker what it meant to the admission that looked for it.
            os.chdir(self._brief.folder)
        self._id = worker_id
        self._redactor = Redactor()
        self._outbox = Outbox(redactor=self._redactor)
        self._wishes = Wishes()
        self._orders: queue.Queue[Order] = queue.Queue()
        self._member: Member | None = None
        self._owner = self._brief.attempt_number
        self._ready: Ready | None = None
        self._members: tuple[str, ...] = ()
        self._training = False
        self._journal = Journal(
            Path(self._brief.log_folder) / f"{worker_id}.jsonl",
            worker_id=worker_id,
            tell=self._outbox.put,
            redactor=self._redactor,
        )
        capture_output(self._journal)
        if threading.current_thread() is threading.main_thread():
            # In place of Ray's handler, by which the process would leave at once with all that it holds.
            signal.signal(signal.SIGTERM, self._on_sigterm)
        self._thread = threading.Thread(target=self._live, name="elastane-training", daemon=True)
        self._thread.start()
        self._watch = OrphanWatch(
            silence_s=self._outbox.silence_s,
            was_heard=self._outbox.was_heard,
            limit_s=self._brief.orphan_timeout_s,
            leave=self._leave_alone,
        )
        self._watch.start()

    # ---- control: answers at once; `attempt` says who asks ------------------------------------------------------

    @ray.method(concurrency_group="control")
    def adopt(self, attempt: int) -> Adopted:
        """From now on only this attempt (or a newer one) is obeyed; training goes on. Raises NotOwner."""
        self._check(attempt)
        if attempt > self._owner:
            self._outbox.retell()
        self._owner = attempt
        member = self._member
        if member is not None:
            member.checkpoints.adopt(attempt)
        return Adopted(
            worker_id=self._id,
            ready=self._ready,
            generation=member.place.generation if member else 0,
            members=self._members,
            training=self._training,
            step=member.step if member else 0,
            arrangement=member.arrangement if member else None,
        )

    @ray.method(concurrency_group="reports")
    def fetch(self, attempt: int, after: int, wait_s: float) -> list[tuple[int, Report]]:
        """The reports numbered above `after`, as soon as there are any."""
        self._check(attempt)
        return self._outbox.fetch(after=after, wait_s=wait_s)

    @ray.method(concurrency_group="control")
    def order(self, attempt: int, order: Order) -> None:
        """Queue a join or a save: done when the training thread is free."""
        self._check(attempt)
        self._orders.put(order)

    @ray.method(concurrency_group="control")
    def stop(self, attempt: int, generation: int) -> None:
        """Wish for a stop at the next boundary that the group agrees on."""
        self._check(attempt)
        self._wishes.stop(generation)

    @ray.method(concurrency_group="control")
    def save(self, attempt: int, generation: int, request_id: str) -> None:
        """Wish for a checkpoint at the next boundary."""
        self._check(attempt)
        self._wishes.save(generation, request_id)

    @ray.method(concurrency_group="control")
    def abort(self, attempt: int, generation: int) -> None:
        """End the generation's collectives: a peer is gone. What waits in one fails now."""
        self._check(attempt)
        if self._member is not None:
            self._member.owner.void(generation)

    @ray.method(concurrency_group="control")
    def where(self, attempt: int) -> Where:
        """What the training thread does just now; answered also while it is stuck."""
        self._check(attempt)
        member = self._member
        generation, step = (member.place.generation, member.step) if member is not None else (0, 0)
        doing, place = look(self._thread.ident)
        return Where(generation=generation, step=step, doing=doing, place=place)

    @ray.method(concurrency_group="control")
    def release(self, attempt: int) -> None:
        """End this process, unless a newer attempt has adopted it."""
        self._check(attempt)
        os._exit(0)

    def _check(self, attempt: int) -> None:
        if attempt < self._owner:
            raise NotOwner(f"worker {self._id} belongs to attempt {self._owner}, attempt {attempt} asks too late")

    def _on_sigterm(self, signum: int, frame: object) -> None:
        # Not in the handler: it may have interrupted who holds the outbox's lock.
        notice = Notice(reason="its process got SIGTERM")
        threading.Thread(target=self._outbox.put, args=(notice,), name="elastane-notice", daemon=True).start()

    # ---- the training thread -------------------------------------------------------------------------------------

    def _live(self) -> None:
        began = time.monotonic()
        try:
            self._warm(began)
            while True:
                self._obey(self._next_order())
        except BaseException as error:
            try:
                self._crash(error)
            except BaseException:
                # A training thread that ends unheard would look alive for ever; a dead process is noticed at once.
                os._exit(CRASH_UNREPORTED)

    def _warm(self, began: float) -> None:
        # Heavy, and only this thread needs it.
        from workers.worker import device, environment, member, process_group  # noqa: PLC0415

        node = ray.util.get_node_ip_address()  # type: ignore[no-untyped-call]
        process_group.choose_interface(node)
        chosen = device.choose(cpu=self._brief.spec.resources.cpu)
        # After our own imports: a module of the user's may be called like one of the library's.
        places = environment.Places.of(cache=self._brief.cache_folder, secrets=self._brief.secrets_folder)
        environment.enter(self._brief.spec.environment, places, self._redactor)
        self._member = member.Member(
            worker_id=self._id,
            brief=self._brief,
            device=chosen,
            outbox=self._outbox,
            wishes=self._wishes,
            orphaned=self._is_orphaned,
        )
        self._member.warm()
        self._ready = Ready(
            pid=os.getpid(),
            node=node,
            device=str(chosen),
            warm_s=time.monotonic() - began,
            node_id=ray.get_runtime_context().get_node_id(),
            device_bytes=device.own_memory_bytes(chosen),
        )
        self._outbox.put(self._ready)

    def _next_order(self) -> Order:
        while True:
            try:
                return self._orders.get(timeout=1.0)
            except queue.Empty:
                if self._is_orphaned():
                    self._leave_alone("waiting for a generation")

    def _obey(self, order: Order) -> None:
        """Carry out one order; a failure of the group is reported and the next order awaited."""
        from workers.worker.process_group import is_group_error  # noqa: PLC0415

        member = self._standing_member()
        try:
            if isinstance(order, Join):
                self._join(member, order)
            elif isinstance(order, Inventory):
                self._outbox.put(member.broken(ConnectionAbortedError("a peer is gone"), order.generation))
            elif order.generation == member.place.generation:
                member.save(member.step)
        except Exception as error:
            if not is_group_error(error):
                raise
            log.warning("generation %d broke: %s", order.generation, error)
            # The frames of the traceback refer to the engine's group.
            error.__traceback__ = None
            self._outbox.put(member.broken(error, order.generation))

    def _join(self, member: Member, order: Join) -> None:
        from workers.worker.loop import Ending  # noqa: PLC0415

        self._journal.generation, self._members = order.generation, order.members
        self._journal.rank = order.members.index(self._id) if self._id in order.members else None
        member.join(order)
        if self._id not in order.members:
            return
        self._training = True
        try:
            ending = member.train()
        finally:
            self._training = False
        if ending is Ending.FINISHED:
            self._outbox.put(Finished(generation=order.generation, step=member.step))
        elif ending is Ending.STOPPED:
            self._outbox.put(Stopped(generation=order.generation, step=member.step))
        else:
            self._leave_alone(f"saved step {member.step}")

    def _crash(self, error: BaseException) -> None:
        """The border of the training thread: nothing escapes it unreported."""
        member = self._member
        self._journal.write("error", failure.full(error))
        if member is not None:
            member.owner.destroy()
        self._outbox.put(
            Crashed(
                generation=member.place.generation if member else 0,
                step=member.step if member else 0,
                cause=failure.cause(error),
                reason=failure.sentence(error),
            )
        )
        while not self._is_orphaned():
            time.sleep(1.0)
        self._leave_alone("after a crash")

    def _standing_member(self) -> Member:
        if self._member is None:
            raise RuntimeError(f"worker {self._id} got an order before it was warm")
        return self._member

    def _is_orphaned(self) -> bool:
        return self._outbox.silence_s() > self._brief.orphan_timeout_s

    def _leave_alone(self, where: str) -> None:
        silence_s = self._outbox.silence_s()
        text = f"no controller for {silence_s:.0f} s (limit {self._brief.orphan_timeout_s:.0f} s), leaving {where}"
        self._journal.write("error", text)
        self._outbox.put(Line(at=datetime.now(UTC), level="error", text=text))
        # A detached actor ends only with its process, and nobody is left to end it.
        os._exit(0)
