"""What the controller tells of generations: the events and the standing of every heartbeat."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from service.domain.spec import JobSpec
from service.domain.text import counted
from service.domain.wire import CheckpointReport, Phase, WorkerReport
from workers.checkpoint.places import step_name
from workers.controller.divergence import first_difference
from workers.controller.generation import Cost, Generation
from workers.controller.group import Death, WorkerGroup
from workers.controller.hang import Hang
from workers.controller.notices import Departure
from workers.controller.uplink import Standing, Uplink
from workers.layout import buddies
from workers.worker.messages import Broken, CheckpointNews, Crashed, PassedOver, Saved, SaveFailed, Saving, Started


class Timeline:
    def __init__(self, uplink: Uplink, *, now: Callable[[], Any]) -> None:
        self._uplink = uplink
        self._now = now
        self._told: int | None = None
        self._note: str | None = None

    def tell_cost(self, generation: Generation, *, now: float) -> None:
        """Once, as soon as it is known."""
        if not generation.told and (cost := generation.cost(now=now)) is not None:
            generation.told = True
            self.formed(generation, cost)

    def formed(self, generation: Generation, cost: Cost) -> None:
        """Resized or recovered; the beginning of an attempt is the service's to tell."""
        redone = max(0, generation.step_before - cost.from_step)
        parts = {
            "pause_s": _rounded(cost.pause_s),
            "form_s": _rounded(cost.form_s),
            "move_s": _rounded(cost.move_s),
            "first_step_s": _rounded(cost.first_step_s),
            "moved_bytes": cost.moved_bytes,
            "redone_steps": redone,
        }
        workers, named = len(generation.members), counted(len(generation.members), "worker")
        spent = f"{counted(redone, 'step')} redone, {cost.moved_bytes / 1e6:.1f} MB moved"
        if cost.pause_s is not None:
            spent = f"{spent}, {cost.pause_s:.2f} s of pause"
        self._arranged(generation, cost, parts)
        if generation.cause == "resize" and generation.before == workers and not generation.leavers:
            # The wish was taken back while the group stopped for it.
            return
        if generation.cause == "resize":
            size = f"From {generation.before} to {named}"
            if generation.before == workers:
                size = f"{len(generation.leavers)} of {named} replaced"
            message = f"{size} at step {cost.from_step}: {spent}"
            ends = {"from": generation.before, "to": workers}
            self._tell("resized", generation, message, step=cost.from_step, **ends, **parts)
        elif generation.cause == "recover":
            whence = {"survivors": "the survivors' memory", "checkpoint": "a checkpoint", "start": "the start"}
            message = f"{named} went on from step {cost.from_step}, out of {whence[cost.source]}: {spent}"
            origin = {"workers": workers, "from_step": cost.from_step, "from": cost.source}
            self._tell("recovered", generation, message, step=cost.from_step, **origin, **parts)

    def _arranged(self, generation: Generation, cost: Cost, parts: dict[str, Any]) -> None:
        before, now = generation.arranged_before, generation.arrangement
        if before is None:
            return
        pause = f", {cost.pause_s:.2f} s of pause" if cost.pause_s is not None else ""
        message = (
            f"From {before} to {now} at step {cost.from_step}, on {counted(len(generation.members), 'worker')}{pause}"
        )
        message = f"{message}: {generation.why}" if generation.why else message
        ends = {"from": before.model_dump(mode="json"), "to": now.model_dump(mode="json")}
        self._tell("rearranged", generation, message, step=cost.from_step, **ends, **parts)

    def lost(self, death: Death, *, step: int, generation: Generation) -> None:
        """`rank` is None for who only handed over."""
        ready = death.hand.ready
        rank = generation.rank(death.hand.id)
        who = f"Rank {rank}" if rank >= 0 else "A worker that was leaving"
        where = f" (pid {ready.pid} on {ready.node})" if ready else ""
        self._tell(
            "worker_lost",
            generation,
            f"{who}{where} was lost at step {step}: {death.reason}",
            step=step,
            rank=rank if rank >= 0 else None,
            worker=death.hand.id,
            pid=ready.pid if ready else None,
            node=ready.node if ready else None,
            reason=death.reason,
        )

    def notice(self, departure: Departure, *, left_s: float | None, step: int, generation: Generation) -> None:
        rank = generation.rank(departure.worker)
        who = f"Rank {rank}" if rank >= 0 else "A worker that was leaving"
        time = "at once" if left_s is None else f"within {left_s:.0f} s"
        message = f"{who} has to leave {time}: {departure.reason}; another worker was asked for in its place"
        about = {"rank": rank if rank >= 0 else None, "worker": departure.worker, "reason": departure.reason}
        self._tell("notice", generation, message, step=step, **about, left_s=_rounded(left_s))

    def hung(self, hang: Hang, *, step: int, generation: Generation) -> None:
        """Who waits where; the workers that are ended for it follow as lost."""
        self._tell("worker_hung", generation, f"At step {step}: {hang.report}", step=step, where=list(hang.where))

    def diverged(self, generation: Generation, living: WorkerGroup) -> None:
        """A collective failed and everybody lives: who did otherwise than the others. A death is told by itself."""
        if not all(member in living for member in generation.members):
            return
        answers = [generation.answers.get(member) for member in generation.members]
        broken = {rank: answer for rank, answer in enumerate(answers) if isinstance(answer, Broken)}
        recent = {rank: broken[rank].recent if rank in broken else () for rank in range(len(answers))}
        if (found := first_difference(recent)) is not None:
            step = max(answer.step for answer in broken.values())
            where = {"rank": found.rank, "unit": found.unit, "collective": found.sequence}
            self._tell("collective_failed", generation, f"At step {step}: {found.sentence}", step=step, **where)

    def crashed(self, worker: str, crash: Crashed) -> None:
        self._uplink.event(
            "worker_crashed",
            step=crash.step,
            generation=crash.generation,
            message=f"Worker {worker} raised an exception after step {crash.step}: {crash.reason}",
            worker=worker,
            reason=crash.reason,
        )

    def adopted(self, generation: Generation, step: int) -> None:
        workers = len(generation.members)
        message = f"A new controller took over {counted(workers, 'worker')} at step {step}; no step redone"
        self._tell("adopted", generation, message, step=step, workers=workers, redone_steps=0)

    def standing(
        self,
        generation: Generation | None,
        group: WorkerGroup,
        *,
        phase: Phase,
        step: int,
        number: int,
        note: str | None,
        spec: JobSpec,
    ) -> Standing:
        """What every heartbeat says; the first of the notes in a row is an event too."""
        if note is not None and self._note is None:
            message = f"{note[0].upper()}{note[1:]}"
            self._uplink.event(
                "workers_missing", step=step if number else None, generation=number or None, message=message
            )
        self._note = note
        return Standing(
            phase=phase,
            step=step,
            generation=number,
            world_size=len(generation.members) if generation is not None else 0,
            workers=worker_reports(generation, group, spec),
            note=note or "",
        )

    def of_checkpoint(self, news: CheckpointNews) -> None:
        if isinstance(news, Saved):
            self._saved(news)
        elif isinstance(news, SaveFailed):
            kind = "checkpoint_dropped" if news.dropped else "checkpoint_failed"
            message = f"No checkpoint of step {news.step}, those before are whole: {news.reason}"
            self._tell_of(kind, news, message=message, reason=news.reason, request_id=news.request_id)
        elif isinstance(news, PassedOver):
            message = f"The checkpoint of step {news.step} was passed over: {news.reason}"
            self._tell_of("checkpoint_passed_over", news, message=message, file=news.file, reason=news.reason)
        elif isinstance(news, Started):
            lacks = f", without {len(news.missing)} names" if news.missing else ""
            message = f"Begins with step {news.step} of {news.uri}{lacks}"
            origin = {"uri": news.uri, "from_step": news.step, "missing": list(news.missing)}
            self._uplink.event("started_from", step=0, generation=news.generation, message=message, **origin)
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

    def _tell(self, kind: str, generation: Generation, message: str, *, step: int, **payload: object) -> None:
        self._uplink.event(kind, step=step, generation=generation.number, message=message, **payload)


def worker_reports(generation: Generation | None, group: WorkerGroup, spec: JobSpec) -> tuple[WorkerReport, ...]:
    """The living members by rank."""
    if generation is None:
        return ()
    hands = [(rank, group[worker]) for rank, worker in enumerate(generation.members) if worker in group]
    # After a loss the copies are what the next generation begins with; until it is formed nobody keeps new ones.
    whole = len(hands) == len(generation.members) and generation.arrangement.applied(spec).mirrored
    keepers = buddies.choose({rank: hand.node for rank, hand in hands}) if whole else {}
    return tuple(
        WorkerReport(
            worker_id=hand.id,
            rank=rank,
            pid=hand.ready.pid,
            node=hand.ready.node,
            device=hand.ready.device,
            state="running" if generation.stands else "starting",
            buddy=keepers.get(rank),
        )
        for rank, hand in hands
        if hand.ready is not None
    )


def _rounded(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds, 4)
