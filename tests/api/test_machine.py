"""The API as a machine: users, controllers and a reconciler act in any order, and nothing that is promised breaks.

The application, the use cases and the reconciler are the real ones, over the fakes of the ports, so that thousands of
runs take minutes: ELASTANE_MACHINE_RUNS=2000 python -m pytest tests/api/test_machine.py
"""

from __future__ import annotations

import asyncio
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from api.main import create_app
from service.domain.job import TERMINAL
from service.settings import Settings
from tests.api.in_process import services_of
from tests.fakes.control_plane import TINY, ControlPlane

RUNS = int(os.environ.get("ELASTANE_MACHINE_RUNS", "25"))
SLOTS = 4
# Making one takes longer than a run.
APPLICATION = create_app(Settings(home=Path("/nowhere")))
ENDS = {str(state) for state in TERMINAL}

Json = dict[str, Any]


@dataclass
class Seen:
    """A job as its user knows it."""

    id: str
    body: Json
    key: str | None
    ended: str | None = None
    deleted: bool = False


@dataclass
class Puppet:
    """A controller: what its process has said."""

    attempt_id: str
    job_id: str
    token: str
    step: int = 0
    workers: int = 0
    orders: Json = field(default_factory=dict)
    over: bool = False


class Machine(RuleBasedStateMachine):
    @initialize()
    def begin(self) -> None:
        self.runner = asyncio.Runner()
        self.plane = ControlPlane(slots=SLOTS)
        self.http = self.client(self.plane)
        self.jobs: list[Seen] = []
        self.puppets: dict[str, Puppet] = {}

    def client(self, plane: ControlPlane) -> httpx.AsyncClient:
        APPLICATION.state.services = services_of(plane)
        transport = httpx.ASGITransport(APPLICATION, client=("127.0.0.1", 1))
        return httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:8000")

    def ask(self, method: str, path: str, **sent: Any) -> httpx.Response:
        answer = self.runner.run(self.http.request(method, path, **sent))
        assert answer.status_code < 500, answer.text
        return answer

    def teardown(self) -> None:
        """Whatever happened, a cancel ends every job that has not ended, once."""
        if hasattr(self, "runner"):
            for job in self.jobs:
                if not job.deleted and job.ended is None:
                    self.ask("POST", f"/v1/jobs/{job.id}/cancel")
            for _ in range(6):
                for puppet in list(self.puppets.values()):
                    self.say(puppet, "ended", outcome={"result": "cancelled"})
                    self.plane.launcher.alive.discard(puppet.attempt_id)
                self.tick(1)
            self.look()
            assert all(job.ended or job.deleted for job in self.jobs)
            assert self.plane.launcher.alive == set()
            self.runner.run(self.http.aclose())
            self.runner.close()

    # ---- users -----------------------------------------------------------------------------------------------------

    @rule(
        low=st.integers(1, 3), more=st.integers(0, 3), priority=st.integers(0, 9), key=st.sampled_from([None, "a", "b"])
    )
    def submit(self, low: int, more: int, priority: int, key: str | None) -> None:
        body = {**TINY, "workers": {"min": low, "max": low + more}, "priority": priority}
        answer = self.ask("POST", "/v1/jobs", json=body, headers={"idempotency-key": key} if key else {})
        owner = next((job for job in self.jobs if key and job.key == key and not job.deleted), None)
        if owner is None:
            assert answer.status_code == 201
            self.jobs.append(Seen(id=answer.json()["id"], body=body, key=key))
        elif owner.body == body:
            assert (answer.status_code, answer.json()["id"]) == (200, owner.id)
        else:
            assert answer.status_code == 409

    @precondition(lambda self: self.jobs)
    @rule(data=st.data(), verb=st.sampled_from(["pause", "resume", "cancel"]))
    def act(self, data: st.DataObject, verb: str) -> None:
        job = data.draw(st.sampled_from(self.jobs))
        first, second = (self.ask("POST", f"/v1/jobs/{job.id}/{verb}") for _ in range(2))
        self.check_refusal(job, first)
        assert second.status_code == first.status_code
        if first.status_code == 202:
            assert first.json()["state"] == second.json()["state"]

    @precondition(lambda self: self.jobs)
    @rule(data=st.data(), workers=st.integers(1, 6), priority=st.integers(0, 100))
    def change(self, data: st.DataObject, workers: int, priority: int) -> None:
        job = data.draw(st.sampled_from(self.jobs))
        self.check_refusal(job, self.ask("POST", f"/v1/jobs/{job.id}/scale", json={"workers": workers}))
        self.check_refusal(job, self.ask("POST", f"/v1/jobs/{job.id}/priority", json={"priority": priority}))

    @precondition(lambda self: self.jobs)
    @rule(data=st.data())
    def delete(self, data: st.DataObject) -> None:
        job = data.draw(st.sampled_from(self.jobs))
        answer = self.ask("DELETE", f"/v1/jobs/{job.id}")
        assert answer.status_code == (404 if job.deleted else 204 if job.ended else 409)
        job.deleted = job.deleted or answer.status_code == 204

    def check_refusal(self, job: Seen, answer: httpx.Response) -> None:
        assert answer.status_code in ((404,) if job.deleted else (202, 409)), answer.text
        if answer.status_code == 409:
            shown = self.ask("GET", f"/v1/jobs/{job.id}").json()["state"]
            assert answer.json()["state"] == shown

    # ---- the service -----------------------------------------------------------------------------------------------

    @rule(seconds=st.sampled_from([1, 5, 40, 700]))
    def tick(self, seconds: float) -> None:
        self.runner.run(self.plane.tick(seconds))
        for order in self.plane.launcher.orders:
            known = Puppet(attempt_id=order.attempt_id, job_id=order.job_id, token=order.token)
            self.puppets.setdefault(order.attempt_id, known)

    @rule()
    def restart(self) -> None:
        """Another service on the same database; the former one is gone without a word."""
        before = self.plane
        before.database.now += 60  # type: ignore[attr-defined]
        self.plane = ControlPlane(
            slots=SLOTS,
            database=before.database,
            clock=before.clock,
            launcher=before.launcher,
            tokens=before.tokens,
            holder=before.tokens.new_id(),
        )
        self.runner.run(self.http.aclose())
        self.http = self.client(self.plane)

    # ---- controllers -----------------------------------------------------------------------------------------------

    def living(self) -> list[Puppet]:
        return [self.puppets[each] for each in sorted(self.plane.launcher.alive)]

    @precondition(lambda self: self.plane.launcher.alive)
    @rule(data=st.data(), phase=st.sampled_from(["starting", "running", "resizing", "recovering"]))
    def beat(self, data: st.DataObject, phase: str) -> None:
        """It has as many workers as it was last told, never more."""
        puppet = data.draw(st.sampled_from(self.living()))
        puppet.step += phase == "running"
        puppet.workers = puppet.orders.get("workers", 1)
        self.say(puppet, phase)

    @precondition(lambda self: self.plane.launcher.alive)
    @rule(data=st.data(), result=st.sampled_from(["obey", "succeeded", "failed-user", "failed-system"]))
    def end(self, data: st.DataObject, result: str) -> None:
        """Says how it ended; its process may stay for a while."""
        puppet = data.draw(st.sampled_from(self.living()))
        obeyed = {"pause": "paused", "cancel": "cancelled", "leave": "superseded"}
        word = obeyed.get(puppet.orders.get("action", ""), "superseded") if result == "obey" else result
        outcome = {"result": word.partition("-")[0], "cause": word.partition("-")[2] or None}
        self.say(puppet, "ended", outcome=outcome)

    @precondition(lambda self: self.plane.launcher.alive)
    @rule(data=st.data())
    def die(self, data: st.DataObject) -> None:
        self.plane.launcher.alive.discard(data.draw(st.sampled_from(self.living())).attempt_id)

    def say(self, puppet: Puppet, phase: str, **more: Any) -> None:
        workers = [] if phase == "ended" else [worker(rank) for rank in range(puppet.workers)]
        body = {
            "job_id": puppet.job_id,
            "attempt_id": puppet.attempt_id,
            "phase": phase,
            "step": puppet.step,
            "generation": 1,
            "world_size": len(workers),
            "workers": workers,
            "facts_from": 0,
            "at": self.plane.clock.now().isoformat(),
            **more,
        }
        headers = {"authorization": f"Bearer {puppet.token}"}
        path = f"/internal/v1/attempts/{puppet.attempt_id}/heartbeat"
        answer = self.ask("POST", path, json=body, headers=headers)
        assert answer.status_code in (200, 401, 404, 409), answer.text
        assert not (puppet.over and answer.status_code == 200), "an attempt that is over was heard"
        puppet.over = puppet.over or answer.status_code != 200 or phase == "ended"
        puppet.orders = answer.json() if answer.status_code == 200 else puppet.orders

    # ---- what always holds -----------------------------------------------------------------------------------------

    @invariant()
    def look(self) -> None:
        if not hasattr(self, "http"):
            return
        listed = {job["id"]: job for job in self.ask("GET", "/v1/jobs", params={"limit": 200}).json()["items"]}
        assert set(listed) == {job.id for job in self.jobs if not job.deleted}
        for job in self.jobs:
            if not job.deleted:
                self.check_history(job, listed[job.id]["state"])
        cluster = self.ask("GET", "/v1/cluster").json()
        assert sum(use["slots"] for use in cluster["used"]) <= SLOTS
        unended = [puppet.job_id for puppet in self.living() if not puppet.over]
        assert len(unended) == len(set(unended)), "two attempts drive one job"

    def check_history(self, job: Seen, state: str) -> None:
        """Terminal is final, and is told once."""
        assert job.ended in (None, state)
        if state not in ENDS or job.ended:
            return
        job.ended = state
        kinds = [event["kind"] for event in self.ask("GET", f"/v1/jobs/{job.id}/events").json()["items"]]
        assert kinds.count("submitted") == 1
        assert [kind for kind in kinds if kind in ENDS] == [state]


def worker(rank: int) -> Json:
    return {"worker_id": f"w{rank}", "rank": rank, "pid": 1, "node": "n", "device": "cpu", "state": "running"}


Machine.TestCase.settings = settings(
    max_examples=RUNS, stateful_step_count=25, deadline=None, suppress_health_check=list(HealthCheck)
)
TestNothingThatIsPromisedBreaks = Machine.TestCase
