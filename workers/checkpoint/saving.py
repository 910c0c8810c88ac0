"""One save, as one rank lives it: write, report, and on rank 0 publish and make room.

The same for a save at once and for one behind training's back; only the thread and the parts differ (the engine's own,
or a snapshot's). No collective: a report travels by a courier, so a rank that is late, gone or dropped blocks nobody.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from workers.checkpoint import retention
from workers.checkpoint.errors import CheckpointError, CheckpointNotWritten, CheckpointSuperseded
from workers.checkpoint.manifest import Manifest
from workers.checkpoint.parts import Part
from workers.checkpoint.reports import from_text, refusal_text, to_text
from workers.checkpoint.retention import Retention
from workers.checkpoint.store import Store
from workers.checkpoint.watch import Watch
from workers.checkpoint.writer import FileReport, publish, withdraw, write_rank

POLL_S = 0.02


class Courier(Protocol):
    """Carries the reports of one save to the rank that publishes. Used by the saver's thread alone."""

    def send(self, text: str) -> None:
        """From a rank that does not publish."""
        ...

    def arrived(self) -> Sequence[str] | None:
        """On rank 0: the other ranks' reports once all are there; None while one is awaited. Never blocks for long.

        Raises where no report can come any more.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Ticket:
    """What is saved. Equal on all ranks but for `rank`."""

    job: str
    step: int
    attempt: int
    rank: int
    world_size: int
    samples: int
    spec_digest: str
    scalars: Mapping[str, Any]
    extra: Mapping[str, Any]
    retention: Retention = field(default_factory=Retention)


@dataclass(frozen=True, slots=True, kw_only=True)
class Published:
    """The checkpoint of `step` exists; `removed_steps` made room for it. `written_s` was this rank's own file."""

    step: int
    size_bytes: int
    files: int
    duration_s: float
    written_s: float
    removed_steps: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class NotPublished:
    """Earlier checkpoints are untouched and training may go on."""

    step: int
    reason: str


def save(
    store: Store, ticket: Ticket, parts: Sequence[Part], courier: Courier, watch: Watch
) -> Published | NotPublished | None:
    """Rank 0 answers once the others' reports are there; any other rank (None) as soon as its own is sent.

    Raises CheckpointDropped where the watch was told so, CheckpointSuperseded where this attempt may train no longer,
    and what the courier raises: this rank's file is gone then.
    """
    began = time.perf_counter()
    report = _write(store, ticket, parts, watch)
    written_s = time.perf_counter() - began
    if ticket.rank > 0:
        _send(store, ticket, report, courier)
        return None
    try:
        others = _collect(courier, watch)
    except BaseException:
        _take_back(store, ticket, report)
        raise
    answers = [report.reason if isinstance(report, CheckpointNotWritten) else report, *others]
    reports = [answer for answer in answers if isinstance(answer, FileReport)]
    reasons = [answer for answer in answers if isinstance(answer, str)]
    if reasons:
        withdraw(store, job=ticket.job, step=ticket.step, reports=reports)
        return NotPublished(step=ticket.step, reason=str(CheckpointNotWritten(step=ticket.step, reason=reasons[0])))
    return _finish(store, ticket, reports, began, written_s)


def _write(store: Store, ticket: Ticket, parts: Sequence[Part], watch: Watch) -> FileReport | CheckpointNotWritten:
    try:
        return write_rank(
            store,
            job=ticket.job,
            step=ticket.step,
            attempt=ticket.attempt,
            rank=ticket.rank,
            world_size=ticket.world_size,
            parts=parts,
            watch=watch,
        )
    except CheckpointNotWritten as error:
        return error


def _send(store: Store, ticket: Ticket, report: FileReport | CheckpointNotWritten, courier: Courier) -> None:
    try:
        courier.send(to_text(report) if isinstance(report, FileReport) else refusal_text(report.reason))
    except BaseException:
        _take_back(store, ticket, report)
        raise


def _collect(courier: Courier, watch: Watch) -> list[FileReport | str]:
    while (texts := courier.arrived()) is None:
        watch.pause(POLL_S)
    return [from_text(text) for text in texts]


def _take_back(store: Store, ticket: Ticket, report: FileReport | CheckpointNotWritten) -> None:
    if isinstance(report, FileReport):
        withdraw(store, job=ticket.job, step=ticket.step, reports=[report])


def _finish(
    store: Store, ticket: Ticket, reports: Sequence[FileReport], began: float, written_s: float
) -> Published | NotPublished:
    try:
        manifest = _publish(store, ticket, reports)
    except CheckpointError as error:
        withdraw(store, job=ticket.job, step=ticket.step, reports=reports)
        if isinstance(error, CheckpointSuperseded):
            raise
        return NotPublished(step=ticket.step, reason=str(error))
    return Published(
        step=ticket.step,
        size_bytes=manifest.size_bytes,
        files=len(manifest.files) + 1,
        removed_steps=_make_room(store, ticket),
        written_s=written_s,
        duration_s=time.perf_counter() - began,
    )


def _publish(store: Store, ticket: Ticket, reports: Sequence[FileReport]) -> Manifest:
    return publish(
        store,
        job=ticket.job,
        step=ticket.step,
        attempt=ticket.attempt,
        samples=ticket.samples,
        spec_digest=ticket.spec_digest,
        reports=reports,
        scalars=ticket.scalars,
        extra=ticket.extra,
    )


def _make_room(store: Store, ticket: Ticket) -> tuple[int, ...]:
    """What is not deleted now is deleted after the next save: it makes no save a failure."""
    try:
        return retention.prune(
            store, job=ticket.job, attempt=ticket.attempt, published=ticket.step, rule=ticket.retention
        )
    except (OSError, CheckpointError):
        return ()
