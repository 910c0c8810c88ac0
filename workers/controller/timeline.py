"""What the controller tells of generations: the events and the standing of every heartbeat."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from service.domain.wire import CheckpointReport, WorkerReport
from workers.checkpoint.places import step_name
from workers.controller.generation import Cost, Generation
from workers.controller.group import Death, WorkerGroup
from workers.controller.uplink import Uplink
from workers.worker.messages import CheckpointNews, Crashed, PassedOver, Saved, SaveFailed, Saving, Started


class Timeline:
    def __init__(self, uplink: Uplink, *, now: Callable[[], Any]) -> None:
        self._uplink = uplink
        self._now = now
        self._told: int | None = None

    def formed(self, generation: Generation, cost: Cost) -> None:
        """Resized or recovered; the beginning of an attempt is the service's to tell."""
        parts = {
            "pause_s": _rounded(cost.pause_s),
            "form_s": _rounded(cost.form_s),
            "move_s": _rounded(cost.move_s),
            "first_step_s": _rounded(cost.first_step_s),
            "moved_bytes": cost.moved_bytes,
            "redone_steps": max(0, generation.step_before - cost.from_step),
        }
        workers = len(generation.members)
        if generation.cause == "resize" and generation.before == workers:
            # The wish was taken back while the group stopped for it.
            return
        if generation.cause == "resize":
            ends = {"from": generation.before, "to": workers}
            self._uplink.event("resized", step=cost.from_step, generation=generation.number, **ends, **parts)
        elif generation.cause == "recover":
            origin = {"workers": workers, "from_step": cost.from_step, "from": cost.source}
            self._uplink.event("recovered", step=cost.from_step, generation=generation.number, **origin, **parts)

    def lost(self, death: Death, *, rank: int, step: int, generation: int) -> None:
        ready = death.hand.ready
        self._uplink.event(
            "worker_lost",
            step=step,
            generation=generation,
            rank=rank,
            worker=death.hand.id,
            pid=ready.pid if ready else None,
            node=ready.node if ready else None,
            reason=death.reason,
        )

    def crashed(self, worker: str, crash: Crashed) -> None:
        self._uplink.event(
            "worker_crashed",
            step=crash.step,
            generation=crash.generation,
            worker=worker,
            reason=crash.reason,
        )

    def adopted(self, generation: Generation, step: int) -> None:
        workers = len(generation.members)
        self._uplink.event("adopted", step=step, generation=generation.number, workers=workers, redone_steps=0)

    def of_checkpoint(self, news: CheckpointNews) -> None:
        if isinstance(news, Saved):
            self._saved(news)
        elif isinstance(news, SaveFailed):
            kind = "checkpoint_dropped" if news.dropped else "checkpoint_failed"
            self._tell_of(kind, news, reason=news.reason, request_id=news.request_id)
        elif isinstance(news, PassedOver):
            self._tell_of("checkpoint_passed_over", news, file=news.file, reason=news.reason)
        elif isinstance(news, Started):
            origin = {"uri": news.uri, "from_step": news.step, "missing": list(news.missing)}
            self._uplink.event("started_from", step=0, generation=news.generation, **origin)
        else:
            self._saving(news)

    def _saving(self, news: Saving) -> None:
        if not news.total_bytes:
            self._tell_of("checkpoint_started", news)
            return
        numbers = {"written_bytes": news.written_bytes, "total_bytes": news.total_bytes}
        self._tell_of("checkpoint_progress", news, **numbers, elapsed_s=_rounded(news.elapsed_s))

    def _tell_of(self, kind: str, news: Saving | SaveFailed | PassedOver, **payload: Any) -> None:
        self._uplink.event(kind, step=news.step, generation=news.generation, **payload)

    def _saved(self, saved: Saved) -> None:
        if saved.step == self._told and saved.request_id is None:
            # Waited for by a pause, and told when it was published.
            return
        self._told = saved.step
        at = self._now()
        self._uplink.checkpoint(
            CheckpointReport(
                step=saved.step,
                uri=saved.uri,
                size_bytes=saved.size_bytes,
                files=saved.files,
                duration_s=saved.duration_s,
                pause_s=_rounded(saved.pause_s),
                request_id=saved.request_id,
                at=at,
            )
        )
        for step in saved.removed_steps:
            uri = f"{saved.uri.rsplit('/', 1)[0]}/{step_name(step)}"
            self._uplink.checkpoint(
                CheckpointReport(step=step, uri=uri, size_bytes=0, files=0, duration_s=0.0, removed=True, at=at)
            )


def worker_reports(generation: Generation | None, group: WorkerGroup) -> tuple[WorkerReport, ...]:
    """The living members by rank."""
    if generation is None:
        return ()
    hands = [(rank, group[worker]) for rank, worker in enumerate(generation.members) if worker in group]
    return tuple(
        WorkerReport(
            worker_id=hand.id,
            rank=rank,
            pid=hand.ready.pid,
            node=hand.ready.node,
            device=hand.ready.device,
            state="running" if generation.stands else "starting",
        )
        for rank, hand in hands
        if hand.ready is not None
    )


def _rounded(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds, 4)
