"""What every database must do: the fake, SQLite and Postgres answer the same."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from service.domain.attempt import AttemptState
from service.domain.checkpoint import CheckpointRecord, CheckpointRequest
from service.domain.errors import AttemptNotFound, JobNotFound, KeyNotFound, StaleWrite
from service.domain.event import Event
from service.domain.job import JobState, Progress
from service.domain.key import ApiKey, Scope
from service.domain.wire import LogLine
from service.ports import Database
from tests.contract.values import NOW, attempt, job, number


async def store(database: Database, *jobs: Any) -> None:
    async with database.write() as work:
        for each in jobs:
            await work.jobs.add(each)
        await work.commit()


async def test_a_job_comes_back_as_it_was_stored(database: Database) -> None:
    await store(database, job())
    async with database.read() as work:
        assert await work.jobs.get(number(1)) == job()


async def test_what_is_not_committed_never_was(database: Database) -> None:
    async with database.write() as work:
        await work.jobs.add(job())
        await work.notices.put("state", number(1), {})
    async with database.read() as work:
        assert await work.notices.after(0, job_id=None, limit=10) == ()
        with pytest.raises(JobNotFound):
            await work.jobs.get(number(1))


@pytest.mark.parametrize("job_id", ["", "no", "a\x00b", "\ud800", "x" * 5000, "'; DROP TABLE jobs; --"])
async def test_an_id_that_cannot_be_is_not_found(database: Database, job_id: str) -> None:
    async with database.read() as work:
        with pytest.raises(JobNotFound):
            await work.jobs.get(job_id)
        with pytest.raises(AttemptNotFound):
            await work.attempts.get(job_id)
        assert not await work.attempts.knows_token(job_id, "0" * 64)


async def test_a_job_that_is_being_deleted_is_shown_to_who_asks_for_it_alone(database: Database) -> None:
    await store(database, job(1, deleted_at=NOW))
    async with database.read() as work:
        with pytest.raises(JobNotFound):
            await work.jobs.get(number(1))
        assert (await work.jobs.get(number(1), even_deleted=True)).deleted_at == NOW


async def test_a_write_against_an_older_version_is_refused(database: Database) -> None:
    await store(database, job())
    async with database.write() as work:
        first = await work.jobs.get(number(1))
        saved = await work.jobs.save(replace(first, reason="first"))
        assert saved.version == first.version + 1
        with pytest.raises(StaleWrite):
            await work.jobs.save(replace(first, reason="second"))
        await work.commit()
    async with database.read() as work:
        assert (await work.jobs.get(number(1))).reason == "first"


async def test_pages_go_from_the_newest_to_the_oldest_without_gap_or_repetition(database: Database) -> None:
    await store(database, *(job(index) for index in range(1, 8)))
    seen: list[str] = []
    cursor: str | None = None
    async with database.read() as work:
        while True:
            page = await work.jobs.page(state=None, name=None, limit=3, cursor=cursor)
            seen += [each.id for each in page.items]
            cursor = page.next_cursor
            if cursor is None:
                break
    assert seen == [number(index) for index in range(7, 0, -1)]


async def test_a_full_last_page_has_no_next_one(database: Database) -> None:
    await store(database, job(1), job(2))
    async with database.read() as work:
        page = await work.jobs.page(state=None, name=None, limit=2, cursor=None)
    assert page.next_cursor is None


async def test_pages_are_filtered_by_state_and_name(database: Database) -> None:
    await store(database, job(1), job(2, state=JobState.PAUSED), job(3, deleted_at=NOW))
    async with database.read() as work:
        paused = await work.jobs.page(state=JobState.PAUSED, name=None, limit=10, cursor=None)
        named = await work.jobs.page(state=None, name="stories", limit=10, cursor=None)
        other = await work.jobs.page(state=None, name="other", limit=10, cursor=None)
        assert await work.jobs.counts() == {JobState.RUNNING: 1, JobState.PAUSED: 1}
    assert [each.id for each in paused.items] == [number(2)]
    assert [each.id for each in named.items] == [number(2), number(1)]
    assert other.items == ()


async def test_open_jobs_are_those_that_are_not_at_rest(database: Database) -> None:
    done: dict[str, Any] = {"state": JobState.SUCCEEDED, "ended_at": NOW, "progress": Progress()}
    busy = {**done, "progress": Progress(workers=1)}
    await store(database, job(1), job(2, **done), job(3, **busy), job(4, **done, deleted_at=NOW), job(5, **done))
    async with database.write() as work:
        await work.attempts.add(attempt(5, state=AttemptState.ENDED, released=False))
        await work.commit()
    async with database.read() as work:
        assert [each.id for each in await work.jobs.open()] == [number(1), number(3), number(4), number(5)]


async def test_fifty_claims_of_one_key_have_one_winner(database: Database) -> None:
    async def claim(index: int) -> str:
        async with database.write() as work:
            owner, _ = await work.submissions.claim(key="k", fingerprint="f", job_id=number(index), at=NOW)
            if owner == number(index):
                await work.jobs.add(job(index))
            await work.commit()
        return owner

    owners = await asyncio.gather(*(claim(index) for index in range(50)))
    assert len(set(owners)) == 1
    async with database.read() as work:
        page = await work.jobs.page(state=None, name=None, limit=100, cursor=None)
    assert [each.id for each in page.items] == [owners[0]]


async def test_an_attempt_comes_back_as_it_was_stored_and_is_open_until_released(database: Database) -> None:
    await store(database, job())
    async with database.write() as work:
        await work.attempts.add(attempt())
        await work.commit()
    async with database.write() as work:
        assert await work.attempts.get(number(901)) == attempt()
        assert await work.attempts.open() == (attempt(),)
        ended = attempt(state=AttemptState.ENDED, ended_at=NOW, result="failed", reason="a\x00b\ud800")
        await work.attempts.save(ended)
        assert len(await work.attempts.open()) == 1
        await work.attempts.save(replace(ended, released=True, reason=""))
        assert await work.attempts.open() == ()
        await work.commit()


async def test_every_token_of_an_attempt_is_good_for_it_alone(database: Database) -> None:
    await store(database, job(1), job(2))
    async with database.write() as work:
        await work.attempts.add(attempt(1))
        await work.attempts.add(attempt(2))
        await work.attempts.add_token(number(901), "a" * 64)
        await work.attempts.add_token(number(901), "b" * 64)
        await work.commit()
    async with database.read() as work:
        assert await work.attempts.knows_token(number(901), "a" * 64)
        assert await work.attempts.knows_token(number(901), "b" * 64)
        assert not await work.attempts.knows_token(number(902), "a" * 64)


async def test_events_are_numbered_in_order_and_read_from_a_number_on(database: Database) -> None:
    await store(database, job(1), job(2))
    async with database.write() as work:
        for kind, owner in (("a", 1), ("b", 2), ("c", 1)):
            payload = {"from": 1, "text": "a\x00b"}
            await work.events.add(Event(job_id=number(owner), kind=kind, at=NOW, step=4, payload=payload))
        await work.commit()
    async with database.read() as work:
        found = await work.events.after(number(1), 0, 10)
        rest = await work.events.after(number(1), found[0].id, 10)
    assert [event.kind for event in found] == ["a", "c"]
    assert found[0].payload == {"from": 1, "text": "a\x00b"}
    assert found[0].at == NOW
    assert [event.kind for event in rest] == ["c"]


async def test_the_history_of_a_job_never_goes_back_in_time(database: Database) -> None:
    """What a controller tells by its own clock is numbered after what the service told meanwhile by another one."""
    await store(database, job(1), job(2))
    async with database.write() as work:
        for owner, after_s in ((1, 0), (2, 9), (1, 5), (1, 3), (1, 6)):
            told = await work.events.add(
                Event(job_id=number(owner), kind="x", at=NOW + timedelta(seconds=after_s), step=after_s)
            )
        await work.commit()
    async with database.read() as work:
        found = await work.events.after(number(1), 0, 10)
    assert [(event.step, (event.at - NOW).seconds) for event in found] == [(0, 0), (5, 5), (3, 5), (6, 6)]
    assert told == found[-1]


async def test_log_lines_are_read_by_rank_and_from_a_number_on(database: Database) -> None:
    await store(database, job())
    lines = [LogLine(rank=rank, at=NOW, text=f"line {rank}") for rank in (None, 0, 1, 0)]
    async with database.write() as work:
        await work.logs.add(number(1), 1, lines)
        await work.logs.add(number(1), 1, [])
        await work.commit()
    async with database.read() as work:
        everything = await work.logs.after(number(1), rank=None, after=0, limit=10)
        of_zero = await work.logs.after(number(1), rank=0, after=0, limit=1)
        rest = await work.logs.after(number(1), rank=0, after=of_zero[0].id, limit=10)
    assert [line.rank for line in everything] == [None, 0, 1, 0]
    assert len(of_zero) == len(rest) == 1


async def test_pruning_log_lines_keeps_the_newest_of_each_job(database: Database) -> None:
    await store(database, job(1), job(2))
    lines = [LogLine(at=NOW, text=str(index)) for index in range(10)]
    async with database.write() as work:
        await work.logs.add(number(1), 1, lines)
        await work.logs.add(number(2), 1, lines)
        assert [await work.logs.prune(number(1), keep=3, limit=limit) for limit in (4, 100)] == [4, 3]
        assert await work.logs.prune(number(2), keep=10, limit=100) == 0
        await work.commit()
    async with database.read() as work:
        kept = await work.logs.after(number(1), rank=None, after=0, limit=100)
        assert [line.text for line in kept] == ["7", "8", "9"]
        assert len(await work.logs.after(number(2), rank=None, after=0, limit=100)) == 10


async def test_pruning_events_keeps_the_newest_of_each_job(database: Database) -> None:
    await store(database, job(1), job(2))
    async with database.write() as work:
        for index in (1, 2):
            for kind in "abcde":
                await work.events.add(Event(job_id=number(index), kind=kind, at=NOW))
        assert [await work.events.prune(number(1), keep=2, limit=limit) for limit in (1, 100, 100)] == [1, 2, 0]
        await work.commit()
    async with database.read() as work:
        assert [event.kind for event in await work.events.after(number(1), 0, 100)] == ["d", "e"]
        assert len(await work.events.after(number(2), 0, 100)) == 5


async def test_tokens_of_attempts_that_are_gone_are_forgotten(database: Database) -> None:
    await store(database, job(1), job(2))
    async with database.write() as work:
        for index, released in ((1, True), (2, False)):
            await work.attempts.add(attempt(index, released=released))
            await work.attempts.add_token(number(900 + index), "hash")
        assert [await work.attempts.forget_tokens(number(index)) for index in (1, 2)] == [1, 0]
        assert not await work.attempts.knows_token(number(901), "hash")
        assert await work.attempts.knows_token(number(902), "hash")


async def test_a_key_that_is_released_may_be_claimed_again(database: Database) -> None:
    async with database.write() as work:
        await work.submissions.claim(key="k", fingerprint="f", job_id=number(1), at=NOW)
        await work.submissions.release(number(1))
        assert await work.submissions.claim(key="k", fingerprint="g", job_id=number(2), at=NOW) == (number(2), "g")


async def test_checkpoints_are_listed_newest_first_and_an_older_attempt_overwrites_nothing(database: Database) -> None:
    await store(database, job())

    def record(step: int, number_of_attempt: int) -> CheckpointRecord:
        facts: dict[str, Any] = {"size_bytes": 2**40, "files": 2, "duration_s": 0.5, "at": NOW}
        return CheckpointRecord(job_id=number(1), step=step, uri=f"/c/{step}", attempt=number_of_attempt, **facts)

    async with database.write() as work:
        for step, by in ((10, 2), (20, 2), (30, 2), (20, 1), (10, 2)):
            await work.checkpoints.add(record(step, by))
        await work.checkpoints.drop(number(1), 30)
        await work.commit()
    async with database.read() as work:
        assert await work.checkpoints.of(number(1)) == (record(20, 2), record(10, 2))


async def test_a_checkpoint_request_is_pending_until_it_is_met(database: Database) -> None:
    await store(database, job())
    async with database.write() as work:
        for index in (1, 2):
            await work.checkpoints.request(CheckpointRequest(id=number(index), job_id=number(1), at=NOW))
        first = await work.checkpoints.pending_request(number(1))
        assert first is not None
        assert first.id == number(1)
        await work.checkpoints.meet(number(1), 7)
        second = await work.checkpoints.pending_request(number(1))
        assert second is not None
        assert second.id == number(2)
        await work.checkpoints.meet(number(2), 8)
        assert await work.checkpoints.pending_request(number(1)) is None
        await work.commit()


async def test_a_key_is_found_by_its_hash_and_revoked_once(database: Database) -> None:
    key = ApiKey(id=number(1), name="ci", hint="ek_abc", scopes=(Scope.READ, Scope.SUBMIT), created_at=NOW)
    async with database.write() as work:
        await work.keys.add(key, "h" * 64)
        assert await work.keys.by_hash("h" * 64) == key
        assert await work.keys.by_hash("g" * 64) is None
        await work.keys.touch(key.id, NOW)
        revoked = await work.keys.revoke(key.id, NOW)
        assert revoked.revoked_at == revoked.last_used_at == NOW
        assert await work.keys.revoke(key.id, NOW.replace(year=2027)) == revoked
        assert await work.keys.all() == (revoked,)
        with pytest.raises(KeyNotFound):
            await work.keys.revoke("nobody", NOW)


async def test_removing_a_job_removes_all_that_hangs_on_it(database: Database) -> None:
    await store(database, job(1), job(2))
    async with database.write() as work:
        await work.attempts.add(attempt(1))
        await work.attempts.add_token(number(901), "a" * 64)
        await work.events.add(Event(job_id=number(1), kind="x", at=NOW))
        await work.logs.add(number(1), 1, [LogLine(at=NOW, text="x")])
        await work.checkpoints.request(CheckpointRequest(id=number(1), job_id=number(1), at=NOW))
        await work.jobs.remove(number(1))
        await work.commit()
    async with database.write() as work:
        assert [each.id for each in await work.jobs.open()] == [number(2)]
        assert await work.attempts.open() == ()
        assert await work.events.after(number(1), 0, 10) == ()
        assert await work.logs.after(number(1), rank=None, after=0, limit=10) == ()
        assert await work.checkpoints.pending_request(number(1)) is None


async def test_open_jobs_are_as_they_were_written_last_also_after_a_unit_that_gave_up(database: Any) -> None:
    async with database.write() as work:
        await work.jobs.add(job(1))
        await work.jobs.add(job(2))
        await work.commit()
    async with database.read() as work:
        first, second = await work.jobs.open()
    async with database.write() as work:
        await work.jobs.save(replace(first, reason="never committed"))
        assert (await work.jobs.open())[0].reason == "never committed"
    async with database.write() as work:
        await work.jobs.save(replace(first, reason="committed"))
        await work.commit()
    for _ in range(2):
        async with database.read() as work:
            assert [each.reason for each in await work.jobs.open()] == ["committed", second.reason]
    async with database.write() as work:
        await work.jobs.remove(second.id)
        await work.commit()
    async with database.read() as work:
        assert [each.id for each in await work.jobs.open()] == [first.id]
