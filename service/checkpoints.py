"""Checkpoints that there are, and the wish for one now."""

from __future__ import annotations

from dataclasses import dataclass

from service.domain.checkpoint import CheckpointRecord, CheckpointRequest
from service.domain.errors import IllegalTransition
from service.domain.job import DRIVEN, JobState
from service.ledger import RECONCILE
from service.ports import Bus, Clock, Database, Tokens


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoints:
    database: Database
    clock: Clock
    bus: Bus
    tokens: Tokens

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
