"""Checkpoints that there are, the wish for one now, and what is done with their files.

The bytes are read and written by a process of the data plane: this one knows neither torch nor the stores.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from service.domain.checkpoint import CheckpointRecord, CheckpointRequest
from service.domain.errors import CheckpointNeeded, CheckpointNotFound, CheckpointUnfit, IllegalTransition
from service.domain.event import Event
from service.domain.job import DRIVEN, Job, JobState
from service.ledger import NOTICES, RECONCILE, write_event
from service.ports import Bus, Clock, Database, Launcher, Tokens, Tool

# Reading a large checkpoint over a network takes its time; whoever asked waits for the answer.
TOOL_S = 3600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoints:
    database: Database
    clock: Clock
    bus: Bus
    tokens: Tokens
    launcher: Launcher
    # Of jobs that name no store of their own.
    base_uri: str

    async def list(self, job_id: str) -> tuple[CheckpointRecord, ...]:
        """Newest first. Raises JobNotFound."""
        async with self.database.read() as work:
            await work.jobs.get(job_id)
            return await work.checkpoints.of(job_id)

    async def request(self, job_id: str) -> CheckpointRequest:
        """One as soon as the step allows; asking twice before it is made gives the same request.

        Raises IllegalTransition where nothing trains that could write one.
        """
        async with self.database.write() as work:
            job = await work.jobs.get(job_id)
            if job.state not in DRIVEN or job.state is JobState.CANCELLING:
                raise IllegalTransition(job_id=job.id, state=job.state, trigger="checkpoint")
            pending = await work.checkpoints.pending_request(job_id)
            if pending is not None:
                return pending
            request = CheckpointRequest(id=self.tokens.new_id(), job_id=job_id, at=self.clock.now())
            await work.checkpoints.request(request)
            await work.commit()
        self.bus.wake(RECONCILE)
        return request

    # ---- files -----------------------------------------------------------------------------------------------------

    async def verify(self, job_id: str, step: int) -> Mapping[str, Any]:
        """Reads every byte: `whole`, and `problems` that name each damaged file. Raises CheckpointNotFound."""
        job, _ = await self._find(job_id, step)
        answer = await self._run("verify", job, "--step", str(step))
        whole = bool(answer["whole"])
        said = "is what was written" if whole else "is damaged: " + "; ".join(map(str, answer["problems"]))
        await self._tell(job, step, "checkpoint_verified", f"Checkpoint of step {step} {said}", whole=whole)
        return answer

    async def pin(self, job_id: str, step: int, *, pinned: bool) -> CheckpointRecord:
        """A pinned one outlives retention. Raises CheckpointNotFound, CheckpointUnfit where it is not whole."""
        job, record = await self._find(job_id, step)
        await self._run("pin" if pinned else "unpin", job, str(step))
        async with self.database.write() as work:
            await work.jobs.get(job_id)
            await work.checkpoints.pin(job_id, step, pinned=pinned)
            await work.commit()
        return replace(record, pinned=pinned)

    async def delete(self, job_id: str, step: int) -> None:
        """Raises CheckpointNotFound, CheckpointNeeded for the one that a job which has not ended would go on from."""
        job, record = await self._find(job_id, step)
        newest = (await self.list(job_id))[0]
        if not job.terminal and record.step == newest.step:
            raise CheckpointNeeded(job_id=job.id, step=step, state=job.state)
        await self._run("delete", job, str(step))
        async with self.database.write() as work:
            await work.jobs.get(job_id)
            await work.checkpoints.drop(job_id, step)
            await work.commit()
        await self._tell(job, step, "checkpoint_deleted", f"Checkpoint of step {step} deleted on request")

    async def export(
        self, job_id: str, step: int, *, to: str, form: str, dtype: str, average: bool
    ) -> Mapping[str, Any]:
        """Writes the folder `to` where the workers' stores are seen; `average`: the average of the weights, in place of
        the weights. Raises CheckpointNotFound, CheckpointUnfit."""
        job, _ = await self._find(job_id, step)
        words = ("--step", str(step), "--to", to, "--format", form, "--dtype", dtype, *(["--average"] * average))
        answer = await self._run("export", job, *words)
        await self._tell(job, step, "checkpoint_exported", f"Checkpoint of step {step} exported to {to}", to=to)
        return answer

    async def _find(self, job_id: str, step: int) -> tuple[Job, CheckpointRecord]:
        async with self.database.read() as work:
            job = await work.jobs.get(job_id)
            found = [record for record in await work.checkpoints.of(job_id) if record.step == step]
        if not found:
            raise CheckpointNotFound(job_id=job_id, step=step)
        return job, found[0]

    async def _run(self, command: str, job: Job, *words: str) -> Mapping[str, Any]:
        store = job.spec.checkpoint.uri or self.base_uri
        answer = await self.launcher.run(Tool.CHECKPOINT, [command, store, job.id, *words], timeout_s=TOOL_S)
        if "error" in answer:
            raise CheckpointUnfit(str(answer.get("detail", answer["error"])), job_id=job.id)
        return answer

    async def _tell(self, job: Job, step: int, kind: str, message: str, **payload: object) -> None:
        event = Event(job_id=job.id, kind=kind, at=self.clock.now(), message=message, step=step, payload=payload)
        async with self.database.write() as work:
            await work.jobs.get(job.id)
            await write_event(work, event)
            await work.commit()
        self.bus.wake(NOTICES)
