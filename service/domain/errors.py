"""The error tree. A message says what, where, the value and what to do; `code` is stable and part of the contract.

    ElastaneError
    ├── Refused            what was asked cannot be        SpecRefused, RequestRefused
    ├── NotFound           no such thing                   JobNotFound, CheckpointNotFound, AttemptNotFound,
    │                                                      KeyNotFound, WebhookNotFound
    ├── Conflict           legal, but not now              IllegalTransition, IdempotencyKeyReused, JobStillLive,
    │                                                      CheckpointNeeded, CheckpointUnfit, AttemptOver, StaleWrite
    ├── Denied             who are you                     Unauthenticated, Forbidden, AttemptTokenWrong
    ├── TooManyRequests    less often
    ├── Unavailable        try again later                 DatabaseUnavailable, LeaseLost, ClusterUnavailable,
    │                                                      ErasureFailed, ToolUnavailable
    └── SetupError         this process cannot start       HomeInUse, DatabaseOutdated, RayNotStarted

Every error survives pickling: an exception that crosses a process arrives as what it was.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """One thing wrong with a document: where, what was there, why it cannot be, and what to write instead."""

    field: str
    value: Any
    problem: str
    fix: str


class ElastaneError(Exception):
    """Root of the tree. `fields` are the facts of the message by name, JSON-able."""

    code: ClassVar[str] = "internal"
    title: ClassVar[str] = "Something failed that should not fail"

    def __init__(self, detail: str, **fields: Any) -> None:
        super().__init__(detail)
        self.detail = detail
        self.fields = fields

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (type(self), self.detail, self.fields)


def _rebuild(kind: type[ElastaneError], detail: str, fields: dict[str, Any]) -> ElastaneError:
    error = kind.__new__(kind, detail)
    ElastaneError.__init__(error, detail, **fields)
    return error


# ---- refused -------------------------------------------------------------------------------------------------------


class Refused(ElastaneError):
    """What was asked cannot be, now or later; `problems` name each field."""

    code = "refused"
    title = "The request cannot be accepted"

    def __init__(self, problems: Sequence[Problem]) -> None:
        first = problems[0]
        more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
        super().__init__(f"{first.field}: {first.problem}; {first.fix}{more}", problems=tuple(problems))

    @property
    def problems(self) -> tuple[Problem, ...]:
        found: tuple[Problem, ...] = self.fields["problems"]
        return found


class SpecRefused(Refused):
    code = "spec_refused"
    title = "The job spec is not valid"


class RequestRefused(Refused):
    code = "request_refused"
    title = "The request is not valid"


# ---- not found -----------------------------------------------------------------------------------------------------


class NotFound(ElastaneError):
    code = "not_found"
    title = "Not found"


class JobNotFound(NotFound):
    code = "job_not_found"
    title = "No such job"

    def __init__(self, job_id: str) -> None:
        super().__init__(
            f"there is no job {job_id[:100]!r}; `elastane jobs` lists those there are", job_id=job_id[:100]
        )


class CheckpointNotFound(NotFound):
    code = "checkpoint_not_found"
    title = "No such checkpoint"

    def __init__(self, *, job_id: str, step: int) -> None:
        super().__init__(
            f"job {job_id} has no checkpoint of step {step}; `elastane checkpoints {job_id}` lists those there are",
            job_id=job_id,
            step=step,
        )


class AttemptNotFound(NotFound):
    code = "attempt_not_found"
    title = "No such attempt"

    def __init__(self, attempt_id: str) -> None:
        super().__init__(
            f"there is no attempt {attempt_id[:100]!r}: its job was deleted or is another service's; stop its workers",
            attempt_id=attempt_id[:100],
        )


class KeyNotFound(NotFound):
    code = "key_not_found"
    title = "No such key"

    def __init__(self, key_id: str) -> None:
        super().__init__(
            f"there is no key {key_id[:100]!r}; `elastane keys list` lists those there are", key_id=key_id[:100]
        )


class WebhookNotFound(NotFound):
    code = "webhook_not_found"
    title = "No such webhook"

    def __init__(self, webhook_id: str) -> None:
        super().__init__(
            f"there is no webhook {webhook_id[:100]!r}; `elastane webhooks list` lists those there are",
            webhook_id=webhook_id[:100],
        )


# ---- conflict ------------------------------------------------------------------------------------------------------


class Conflict(ElastaneError):
    code = "conflict"
    title = "Not possible in the present state"


class IllegalTransition(Conflict):
    code = "illegal_transition"

    def __init__(self, *, job_id: str, state: str, trigger: str) -> None:
        super().__init__(
            f"job {job_id} is {state}; {trigger} is not possible in that state: {_way_out(state)}",
            job_id=job_id,
            state=state,
            trigger=trigger,
        )


def _way_out(state: str) -> str:
    if state in ("succeeded", "failed", "cancelled", "cancelling"):
        return "it does not run again, submit a new job"
    return "try again when its state has changed"


class JobStillLive(Conflict):
    code = "job_still_live"

    def __init__(self, *, job_id: str, state: str) -> None:
        super().__init__(f"job {job_id} is {state}; cancel it before deleting it", job_id=job_id, state=state)


class CheckpointNeeded(Conflict):
    code = "checkpoint_needed"

    def __init__(self, *, job_id: str, step: int, state: str) -> None:
        super().__init__(
            f"the checkpoint of step {step} is the newest of job {job_id}, which is {state} and would go on from it; "
            "cancel the job first, or delete an older one",
            job_id=job_id,
            step=step,
            state=state,
        )


class CheckpointUnfit(Conflict):
    """The files are not what this needs; `detail` is what the program that read them said."""

    code = "checkpoint_unfit"
    title = "The checkpoint cannot be used for this"


class IdempotencyKeyReused(Conflict):
    code = "idempotency_key_reused"
    title = "The idempotency key was used for another body"

    def __init__(self, *, key: str, job_id: str) -> None:
        super().__init__(
            f"Idempotency-Key {key!r} belongs to job {job_id}, submitted with another body; use a new key",
            key=key,
            job_id=job_id,
        )


class AttemptOver(Conflict):
    """Another attempt drives the job, or none does any more: what this one says changes nothing."""

    code = "attempt_over"
    title = "The attempt is over"

    def __init__(self, attempt_id: str) -> None:
        super().__init__(f"attempt {attempt_id} is over; stop its workers and leave", attempt_id=attempt_id)


class StaleWrite(Conflict):
    """Somebody else changed the row first; the writer reads again or drops its change."""

    code = "stale_write"

    def __init__(self, *, job_id: str, version: int) -> None:
        super().__init__(
            f"job {job_id} is no longer at version {version}; read it again", job_id=job_id, version=version
        )


# ---- denied --------------------------------------------------------------------------------------------------------


class Denied(ElastaneError):
    code = "denied"
    title = "Not allowed"


class Unauthenticated(Denied):
    code = "unauthenticated"
    title = "A valid key is needed"

    def __init__(self) -> None:
        super().__init__(
            "send Authorization: Bearer ek_... with a key from `elastane keys create`; without any, use --local "
            "on the machine of the service"
        )


class Forbidden(Denied):
    code = "forbidden"
    title = "The key may not do this"

    def __init__(self, *, needs: str, has: Sequence[str]) -> None:
        super().__init__(
            f"this needs scope {needs}; the key has {', '.join(has) or 'none'}", needs=needs, has=list(has)
        )


class AttemptTokenWrong(Denied):
    code = "attempt_token_wrong"
    title = "The token is not of this attempt"

    def __init__(self, attempt_id: str) -> None:
        super().__init__(f"the token sent is not that of attempt {attempt_id[:100]}", attempt_id=attempt_id[:100])


# ---- too often -----------------------------------------------------------------------------------------------------


class TooManyRequests(ElastaneError):
    code = "too_many_requests"
    title = "Too many requests"

    def __init__(self, *, per_minute: int, retry_after_s: float) -> None:
        seconds = max(1, math.ceil(retry_after_s))
        super().__init__(
            f"more than {per_minute} calls a minute; nothing was done, send it again in {seconds} s",
            per_minute=per_minute,
            retry_after_s=seconds,
        )


# ---- unavailable ---------------------------------------------------------------------------------------------------


class Unavailable(ElastaneError):
    code = "unavailable"
    title = "Not available at the moment"


class DatabaseUnavailable(Unavailable):
    code = "database_unavailable"

    def __init__(self, cause: str) -> None:
        super().__init__(
            f"the database does not answer ({cause}); try again in a second, a submission under the same "
            "Idempotency-Key: whether a commit whose answer was lost took place, nobody can tell",
            cause=cause,
        )


class LeaseLost(Unavailable):
    """Another service leads now; what this one was about to write is dropped."""

    code = "lease_lost"

    def __init__(self, *, name: str, token: int) -> None:
        super().__init__(f"lease {name} is no longer held under token {token}", name=name, token=token)


class ClusterUnavailable(Unavailable):
    code = "cluster_unavailable"

    def __init__(self, cause: str) -> None:
        super().__init__(
            f"the Ray cluster does not answer ({cause}); check that it is up and that ELASTANE_RAY_ADDRESS names it, "
            "then try again",
            cause=cause,
        )


class ErasureFailed(Unavailable):
    code = "erasure_failed"

    def __init__(self, *, uri: str, cause: str) -> None:
        super().__init__(
            f"the checkpoints in {uri} could not be removed ({cause}); check that the workers can write there; it is "
            "tried again",
            uri=uri,
            cause=cause,
        )


class ToolUnavailable(Unavailable):
    code = "checkpoint_tool_unavailable"

    def __init__(self, cause: str) -> None:
        super().__init__(
            f"a command of the data plane gave no answer: {cause}; see that the workers' packages are installed "
            "where the service starts processes, then try again",
            cause=cause,
        )


# ---- setup ---------------------------------------------------------------------------------------------------------


class SetupError(ElastaneError):
    code = "setup"
    title = "The service cannot start"


class HomeInUse(SetupError):
    code = "home_in_use"

    def __init__(self, *, path: str, holder: str) -> None:
        super().__init__(
            f"{path} is in use by another service (pid {holder}); stop that one, or give this one a home of its own "
            "with --home or ELASTANE_HOME",
            path=path,
            holder=holder,
        )


class DatabaseOutdated(SetupError):
    code = "database_outdated"

    def __init__(self, *, found: str, wanted: str) -> None:
        super().__init__(
            f"the database is at revision {found}, this service needs {wanted}; run `elastane db upgrade`",
            found=found,
            wanted=wanted,
        )


class RayNotStarted(SetupError):
    code = "ray_not_started"
    title = "Ray is not there yet"

    def __init__(self, *, cause: str, log: str) -> None:
        super().__init__(f"the embedded Ray did not start: {cause}; its log is {log}", cause=cause, log=log)
