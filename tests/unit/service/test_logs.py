"""Lines that workers wrote: bounded, whatever they are."""

from __future__ import annotations

import pytest

from service.domain.errors import JobNotFound, RequestRefused
from service.domain.log import LINE_LIMIT_BYTES, bounded
from service.domain.wire import Fact, LogLine
from service.logs import Logs
from tests.fakes.control_plane import ControlPlane


def test_a_line_of_50_megabytes_is_cut_and_says_so() -> None:
    text = bounded("é" * 25_000_000)
    assert len(text.encode()) < LINE_LIMIT_BYTES + 100
    assert text.endswith(f" ... [{50_000_000 - LINE_LIMIT_BYTES} more bytes cut]")


def test_a_short_line_stays_and_shows_its_nul_bytes() -> None:
    assert bounded("a\x00b") == "a\\0b"
    assert bounded("\ud800x") == "?x"


async def test_lines_are_followed_by_number_and_rank(plane: ControlPlane) -> None:
    job, controller = await plane.running()
    at = plane.clock.now()
    lines = tuple(LogLine(rank=index % 2, at=at, text=f"{index}" * 20_000) for index in range(6))
    await controller.beat("running", step=2, workers=1, facts=(Fact(logs=lines),))
    logs = Logs(database=plane.database)
    first = await logs.lines(job.id, limit=4)
    rest = await logs.lines(job.id, after=first[-1].id)
    assert [line.text[0] for line in (*first, *rest)] == ["0", "1", "2", "3", "4", "5"]
    assert [line.text[0] for line in await logs.lines(job.id, rank=1)] == ["1", "3", "5"]
    assert max(len(line.text) for line in first) < LINE_LIMIT_BYTES + 100


@pytest.mark.parametrize("query", [{"limit": 0}, {"limit": 10**6}, {"after": -1}, {"after": 2**63}, {"rank": -1}])
async def test_a_query_out_of_range_is_refused(plane: ControlPlane, query: dict[str, int]) -> None:
    job = await plane.submit()
    logs = Logs(database=plane.database)
    with pytest.raises(RequestRefused):
        await logs.lines(job.id, **query)
    with pytest.raises(JobNotFound):
        await logs.lines("nobody")
