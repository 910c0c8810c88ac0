"""What the use cases need of the world. Each has a fake in tests/fakes that passes the same suite as the real one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from types import TracebackType
from typing import Any, Protocol, Self

from service.domain.attempt import Attempt, Liveness
from service.domain.checkpoint import CheckpointRecord, CheckpointRequest
from service.domain.cluster import ClusterFacts
from service.domain.event import Event
from service.domain.job import Job, JobState
from service.domain.key import ApiKey
from service.domain.log import LogRecord
from service.domain.notice import Notice, NoticeKind
from service.domain.page import Page
from service.domain.series import Series, Stretch
from service.domain.webhook import Delivery, Webhook
from service.domain.wire import LogLine, Sample

# ---- rows ----------------------------------------------------------------------------------------------------------


class JobRows(Protocol):
    async def add(self, job: Job) -> None: ...

    async def get(self, job_id: str, *, even_deleted: bool = False) -> Job:
        """Raises JobNotFound, also for a job that is being deleted unless `even_deleted`.
        Inside a write unit the row is locked."""
        ...

    async def save(self, job: Job) -> Job:
        """Writes a job that was read at `job.version`; returns it at the next version. Raises StaleWrite."""
        ...

    async def page(self, *, state: JobState | None, name: str | None, limit: int, cursor: str | None) -> Page[Job]: ...

    async def open(self) -> tuple[Job, ...]:
        """Those the reconciler cares for, oldest first: not ended, not released, or to be deleted."""
        ...

    async def counts(self) -> Mapping[JobState, int]: ...

    async def remove(self, job_id: str) -> None:
        """The row and everything that hangs on it."""
        ...


class SubmissionRows(Protocol):
    async def claim(self, *, key: str, fingerprint: str, job_id: str, at: datetime) -> tuple[str, str]:
        """(job id, fingerprint) under that key: the given ones where the key was free, else the earlier ones."""
        ...

    async def release(self, job_id: str) -> None:
        """The key of a job that is deleted is free again."""
        ...


class AttemptRows(Protocol):
    async def add(self, attempt: Attempt) -> None: ...

    async def get(self, attempt_id: str) -> Attempt:
        """Raises AttemptNotFound. The lock of an attempt is its job's row."""
        ...

    async def save(self, attempt: Attempt) -> None: ...

    async def open(self) -> tuple[Attempt, ...]:
        """All that have not ended, or whose process may still live."""
        ...

    async def add_token(self, attempt_id: str, token_hash: str) -> None: ...

    async def forget_tokens(self, job_id: str) -> int:
        """Drops the tokens of attempts whose process is gone."""
        ...

    async def knows_token(self, attempt_id: str, token_hash: str) -> bool: ...


class EventRows(Protocol):
    async def add(self, event: Event) -> Event:
        """Returns it with its number, and with the time of the event before it where it tells an earlier one: two
        clocks write one history, and it does not go back."""
        ...

    async def after(self, job_id: str, after: int, limit: int) -> tuple[Event, ...]: ...

    async def prune(self, job_id: str, *, keep: int, limit: int) -> int:
        """Drops the oldest of a job beyond the newest `keep`, at most `limit`; returns how many went."""
        ...


class SampleRows(Protocol):
    async def add(self, job_id: str, samples: Sequence[Sample]) -> None:
        """Idempotent by (job, name, rank, generation, step)."""
        ...

    async def series(
        self, job_id: str, *, names: Sequence[str], points: int, from_step: int, to_step: int | None = None
    ) -> tuple[Series, ...]:
        """At each step the newest generation's value; at most `points` per series, extremes kept. None: to the end."""
        ...

    async def unrolled(self, job_id: str, *, rows: int) -> tuple[Stretch, ...]:
        """The complete thousands of steps that are to be rolled up, in turn, in stretches of about `rows` samples."""
        ...

    async def roll(self, job_id: str, stretch: Stretch) -> int:
        """A row with extremes, last and count of each thousand steps; returns how many, none where out of turn."""
        ...

    async def crowded(self, job_id: str, *, keep: int, rows: int) -> tuple[Stretch, ...]:
        """Each series of more than `keep` samples, in stretches of at most `rows`; empty when all are thinned."""
        ...

    async def thin(self, job_id: str, stretch: Stretch) -> int:
        """Drops what is neither smallest, largest, last nor not finite in its bucket; returns how many went."""
        ...

    async def drop(self, job_id: str, *, limit: int) -> int: ...  # whatever they show; returns how many went


class CheckpointRows(Protocol):
    async def add(self, record: CheckpointRecord) -> None:
        """Idempotent by (job, step); the newest attempt's record stays, and a pin."""
        ...

    async def pin(self, job_id: str, step: int, *, pinned: bool) -> None: ...

    async def drop(self, job_id: str, step: int) -> None: ...

    async def of(self, job_id: str) -> tuple[CheckpointRecord, ...]:
        """Newest first."""
        ...

    async def request(self, request: CheckpointRequest) -> None: ...

    async def pending_request(self, job_id: str) -> CheckpointRequest | None:
        """The oldest that is not met."""
        ...

    async def meet(self, request_id: str, step: int) -> None: ...


class LogRows(Protocol):
    async def add(self, job_id: str, attempt: int, lines: Sequence[LogLine]) -> None: ...

    async def after(self, job_id: str, *, rank: int | None, after: int, limit: int) -> tuple[LogRecord, ...]: ...

    async def prune(self, job_id: str, *, keep: int, limit: int) -> int: ...  # as of events


class KeyRows(Protocol):
    async def add(self, key: ApiKey, secret_hash: str) -> None: ...

    async def all(self) -> tuple[ApiKey, ...]: ...

    async def by_hash(self, secret_hash: str) -> ApiKey | None: ...

    async def revoke(self, key_id: str, at: datetime) -> ApiKey:
        """Idempotent; raises KeyNotFound."""
        ...

    async def limit(self, key_id: str, slots: int | None) -> ApiKey:
        """Sets its quota; raises KeyNotFound."""
        ...

    async def touch(self, key_id: str, at: datetime) -> None: ...


class LeaseRows(Protocol):
    """Leases run on the database's clock: the clocks of its clients do not matter."""

    async def take(self, name: str, *, holder: str, ttl_s: float) -> int | None:
        """A fencing token, larger than any before; the same one while `holder` renews; None while another holds it."""
        ...

    async def check(self, name: str, token: int) -> None:
        """Raises LeaseLost where `token` is not the present one. Holds until the unit commits."""
        ...

    async def release(self, name: str, token: int) -> None: ...


class NoticeRows(Protocol):
    """The outbox of the streams, written in the transaction of what it tells. Ids become visible in order."""

    async def put(self, kind: NoticeKind, job_id: str, data: Mapping[str, Any]) -> None: ...

    async def after(self, after: int, *, job_id: str | None, limit: int) -> tuple[Notice, ...]: ...

    async def span(self) -> tuple[int, int]:
        """(id before the oldest kept, newest id); equal when there is none."""
        ...

    async def prune(self, *, keep: int, limit: int) -> int:
        """Drops the oldest beyond the newest `keep`, at most `limit`; returns how many went. The last one stays."""
        ...


class WebhookRows(Protocol):
    """Webhooks and what they are still to be told."""

    async def add(self, webhook: Webhook) -> None: ...

    async def all(self) -> tuple[Webhook, ...]: ...

    async def remove(self, webhook_id: str) -> None:
        """With what it was still to be told. Raises WebhookNotFound."""
        ...

    async def put(self, body: Mapping[str, Any], at: datetime) -> None:
        """A message to every webhook there is, due at once."""
        ...

    async def is_due(self, now: datetime) -> bool: ...

    async def begin(self, now: datetime, *, until: datetime, limit: int) -> tuple[Delivery, ...]:
        """Those that are due, the oldest first, each a try older; nobody else is given them before `until`."""
        ...

    async def settle(self, delivery: Delivery, *, error: str | None, again: datetime | None, at: datetime) -> None:
        """How a try ended, noted with its webhook. The delivery is over unless it is due `again`."""
        ...


class UnitOfWork(Protocol):
    """One transaction. Leaving it without `commit` rolls back. No I/O other than the database's inside."""

    jobs: JobRows
    submissions: SubmissionRows
    attempts: AttemptRows
    events: EventRows
    samples: SampleRows
    checkpoints: CheckpointRows
    logs: LogRows
    keys: KeyRows
    leases: LeaseRows
    notices: NoticeRows
    webhooks: WebhookRows

    async def __aenter__(self) -> Self: ...

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    async def commit(self) -> None: ...


class Database(Protocol):
    def write(self) -> UnitOfWork: ...

    def read(self) -> UnitOfWork: ...

    async def ping(self) -> None:
        """Raises DatabaseUnavailable."""
        ...


# ---- the world -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchOrder:
    """One controller to start. Its name is the attempt's id: launching it twice gives one process."""

    job_id: str
    attempt_id: str
    number: int
    token: str
    service_url: str


class Tool(StrEnum):
    """Commands of the data plane that answer one document."""

    CHECKPOINT = "workers.checkpoint"
    DESCRIBE = "workers.worker.describe"


class Launcher(Protocol):
    async def launch(self, order: LaunchOrder) -> None:
        """Create or adopt. Raises ClusterUnavailable where it cannot be known whether it started."""
        ...

    async def liveness(self, attempt_id: str) -> Liveness: ...

    async def end(self, attempt_id: str, *, force: bool) -> None:
        """Asks the process to leave; `force` kills it and what it started. No error where it is gone."""
        ...

    async def erased(self, *, uri: str, job_id: str) -> bool:
        """Whether everything of the job in the store `uri` is gone; where it is not, a process that sees the store
        removes it: created or adopted, so ask again. Raises ErasureFailed once where that process failed."""
        ...

    async def run(
        self, tool: Tool, arguments: Sequence[str], *, timeout_s: float, users_code: bool = False
    ) -> Mapping[str, Any]:
        """`python -m TOOL ARGUMENTS` where workers run and their stores are seen, to its end: the document that it
        answers, `error` and `detail` in it where it refused. users_code: it runs what a user wrote, which only a node
        of the workers may. Raises ToolUnavailable where it gave none in time."""
        ...


class Capacity(Protocol):
    async def facts(self) -> ClusterFacts:
        """Raises ClusterUnavailable."""
        ...


class RayHost(Protocol):
    """Where the controllers find Ray. The embedded one starts and ends it, a cluster's is only an address."""

    embedded: bool

    def begin(self) -> None:
        """Starts the embedded Ray in the background, so that the first job need not wait for it."""
        ...

    async def ensure(self) -> str:
        """The address of a living Ray; starts or adopts the embedded one. Raises RayNotStarted."""
        ...

    def trouble(self) -> str | None:
        """Why Ray cannot be used now, without asking it anything; None where nothing is known against it."""
        ...

    async def end(self) -> None:
        """Ends what `ensure` started; a cluster is left alone."""
        ...


class Files(Protocol):
    async def size_bytes(self, pattern: str) -> int | None:
        """Of all readable files of this machine that the glob matches; None: there are none, 2**63: not told soon."""
        ...

    async def exists(self, pattern: str) -> bool:
        """Whether the glob matches a readable file of this machine. What cannot be told soon is taken to be there."""
        ...

    async def document(self, path: str) -> dict[str, Any] | None:
        """The JSON object in a file of this machine; None where there is none, or too large a one."""
        ...

    async def token_range(self, pattern: str, dtype: str) -> tuple[int, int] | None:
        """The smallest and the largest number that a look at many places of the file finds; None where it has none."""
        ...

    async def lacks(self, function: str) -> str | None:
        """What of `module:function` this machine's workers surely have not, in words; None where they may have it.
        Nothing of it is run."""
        ...

    async def remove_folder(self, uri: str) -> None:
        """Idempotent. A URI with a scheme is none of this machine's files: `Launcher.erased` is for those."""
        ...


class Post(Protocol):
    """HTTP to addresses that strangers gave."""

    async def post(self, url: str, *, headers: Mapping[str, str], body: bytes) -> str | None:
        """None where it was taken (2xx), else why not in a few words; the answer's body is not looked at."""
        ...

    async def close(self) -> None: ...


class Clock(Protocol):
    def now(self) -> datetime:
        """Aware UTC."""
        ...

    def monotonic(self) -> float: ...


class Bus(Protocol):
    """Wake-up calls inside this process. Hints only: whoever waits also looks by itself from time to time."""

    def wake(self, topic: str) -> None: ...

    async def wait(self, topic: str, *, timeout_s: float) -> None:
        """Returns at a call since the last `wait` of this topic, or after the time. One waiter per topic."""
        ...


class Tokens(Protocol):
    """Randomness: ids that sort by time, and secrets of 256 bits."""

    def new_id(self) -> str: ...

    def secret(self) -> str: ...
