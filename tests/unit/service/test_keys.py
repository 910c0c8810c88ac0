"""API keys."""

from __future__ import annotations

import pytest

from service.adapters.tokens import RandomTokens
from service.domain.errors import Forbidden, KeyNotFound, RequestRefused, SpecRefused, Unauthenticated
from service.domain.key import Scope
from tests.fakes.control_plane import TINY, ControlPlane


async def test_a_key_opens_what_its_scope_includes(plane: ControlPlane) -> None:
    made = await plane.keys.create("ci", ["submit"])
    assert (await plane.keys.verify(made.secret, scope=Scope.READ)).id == made.key.id
    await plane.keys.verify(made.secret, scope=Scope.SUBMIT)
    with pytest.raises(Forbidden, match="needs scope admin; the key has submit"):
        await plane.keys.verify(made.secret, scope=Scope.ADMIN)


@pytest.mark.parametrize("secret", [None, "", "ek_", "ek_wrong", "wrong", "ek_\ud800", "ek_" + "x" * 500])
async def test_what_is_not_a_key_opens_nothing(plane: ControlPlane, secret: str | None) -> None:
    await plane.keys.create("ci", ["admin"])
    with pytest.raises(Unauthenticated):
        await plane.keys.verify(secret)


async def test_revoking_the_last_key_does_not_open_the_door_again(plane: ControlPlane) -> None:
    assert not await plane.keys.exist()
    made = await plane.keys.create("ci", ["admin"])
    await plane.keys.revoke(made.key.id)
    assert await plane.keys.exist()


async def test_a_revoked_key_opens_nothing_and_may_be_revoked_again(plane: ControlPlane) -> None:
    made = await plane.keys.create("ci", ["read"])
    await plane.keys.revoke(made.key.id)
    await plane.keys.revoke(made.key.id)
    with pytest.raises(Unauthenticated):
        await plane.keys.verify(made.secret)
    with pytest.raises(KeyNotFound):
        await plane.keys.revoke("nobody")


@pytest.mark.parametrize(
    ("name", "scopes"), [("", ["read"]), ("x" * 101, ["read"]), ("a\n", ["read"]), ("a", []), ("a", ["root"])]
)
async def test_a_key_needs_a_name_and_known_scopes(plane: ControlPlane, name: str, scopes: list[str]) -> None:
    with pytest.raises(RequestRefused):
        await plane.keys.create(name, scopes)


async def test_the_secret_is_stored_nowhere(plane: ControlPlane) -> None:
    made = await plane.keys.create("ci", ["read"])
    assert made.secret not in repr(vars(plane.database))


async def test_last_use_is_noted_once_a_minute(plane: ControlPlane) -> None:
    made = await plane.keys.create("ci", ["read"])
    plane.clock.pass_s(100)
    await plane.keys.verify(made.secret)
    (first,) = await plane.keys.list()
    plane.clock.pass_s(30)
    await plane.keys.verify(made.secret)
    assert (await plane.keys.list()) == (first,)
    plane.clock.pass_s(31)
    await plane.keys.verify(made.secret)
    (later,) = await plane.keys.list()
    assert later.last_used_at == plane.clock.now() != first.last_used_at


def test_ids_sort_by_time_and_secrets_are_long() -> None:
    tokens = RandomTokens()
    ids = [tokens.new_id() for _ in range(500)]
    assert ids == sorted(set(ids))
    assert len(tokens.secret()) >= 43


async def test_the_jobs_of_a_key_never_hold_more_than_its_quota(plane: ControlPlane) -> None:
    key = (await plane.keys.create("ci", ["submit"], quota_slots=2)).key
    first = await plane.jobs.submit({**TINY, "workers": {"min": 1, "max": 4}}, caller=key)
    assert first.report["workers"] == "at most 2 of 4 at once: the key 'ci' has a quota of 2 slots"
    second = await plane.jobs.submit({**TINY, "workers": 2}, caller=key)
    assert first.job is not None
    assert second.job is not None
    await plane.tick()
    await plane.tick()
    assert [(await plane.jobs.get(job.id)).granted for job in (first.job, second.job)] == [2, 0]
    assert "within the quota of its key" in (await plane.jobs.get(second.job.id)).reason
    (use,) = (await plane.cluster.view()).quotas
    assert (use.name, use.slots, use.quota_slots) == ("ci", 2, 2)
    assert "hold 2 of the 2 slots" in (await plane.cluster.explain(second.job.id)).sentences[-1]
    await plane.keys.limit(key.id, None)
    await plane.tick()
    assert (await plane.jobs.get(second.job.id)).granted == 2


async def test_a_job_that_its_key_could_never_start_is_refused_with_the_numbers(plane: ControlPlane) -> None:
    key = (await plane.keys.create("ci", ["submit"], quota_slots=2)).key
    with pytest.raises(SpecRefused) as caught:
        await plane.jobs.submit({**TINY, "workers": 3}, caller=key)
    (problem,) = caught.value.problems
    assert (problem.field, problem.value) == ("workers.min", 3)
    assert "a quota of 2 cpu slots: room for 2 workers" in problem.problem
    with pytest.raises(RequestRefused):
        await plane.keys.limit(key.id, -1)
    with pytest.raises(KeyNotFound):
        await plane.keys.limit("nobody", 1)
