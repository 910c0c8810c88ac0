"""What a job that starts `from` another's checkpoint may start from: found here, and refused with every difference."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass

from service.domain.checkpoint import CheckpointRecord
from service.domain.errors import Problem, SpecRefused
from service.domain.profile import shape_of
from service.domain.spec import JobSpec, StartFrom

# Optimizers that keep the same state may be changed for each other.
SAME_STATE = ({"adam", "adamw"},)


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """A job of this service and its checkpoints, newest first."""

    spec: JobSpec
    checkpoints: tuple[CheckpointRecord, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Settled:
    """The spec with its origin's step and folder, and what was decided for the user."""

    spec: JobSpec
    report: Mapping[str, str]


def settle(spec: JobSpec, source: Source | None) -> Settled:
    """`source`: the job that `from.job` names; None where there is none of that id. Raises SpecRefused."""
    origin = spec.start_from
    if origin is None:
        return Settled(spec=spec, report={})
    if origin.job is None:
        if problem := _relative(origin):
            raise SpecRefused([problem])
        return Settled(spec=spec, report={})
    record = _record(origin, source)
    if source is None or isinstance(record, Problem):
        raise SpecRefused([record if isinstance(record, Problem) else _unknown(origin)])
    if found := tuple(differences(source.spec, spec, origin)):
        value = f"{origin.job}@{record.step}"
        fix = "use the model and optimizer of that job; from: {job: ..., optimizer: false} takes the weights alone"
        if not origin.allow_missing:
            fix += ", allow_missing: true what both have"
        raise SpecRefused([Problem(field="from", value=value, problem="; ".join(found), fix=fix)])
    placed = origin.model_copy(update={"step": record.step, "uri": record.uri.rsplit("/", 1)[0]})
    report = {} if origin.step is not None else {"from": f"step {record.step} is the newest checkpoint of {origin.job}"}
    return Settled(spec=spec.model_copy(update={"start_from": placed}), report=report)


def differences(there: JobSpec, here: JobSpec, origin: StartFrom) -> Iterator[str]:
    """What the two specs tell already; a model whose shape only the data plane knows is compared there."""
    theirs, ours = shape_of(there), shape_of(here)
    if theirs is not None and ours is not None:
        for field, value in asdict(theirs).items():
            wanted = asdict(ours)[field]
            # More or fewer blocks are whole tensors on one side; any other number is in the shape of one.
            if value != wanted and not (origin.allow_missing and field == "layers"):
                yield f"model.{field} is {value} there and {wanted} here"
    before, after = there.training.optimizer.name, here.training.optimizer.name
    if origin.optimizer and not origin.allow_missing and not _same_state(before, after):
        yield f"training.optimizer.name is {before} there and {after} here"


def _same_state(before: str, after: str) -> bool:
    return before == after or any({before, after} <= names for names in SAME_STATE)


def _record(origin: StartFrom, source: Source | None) -> CheckpointRecord | Problem:
    if source is None:
        return _unknown(origin)
    if not source.checkpoints:
        fix = "wait for its first one, or leave from out"
        return Problem(field="from", value=origin.job, problem="that job has no checkpoint", fix=fix)
    found = [record for record in source.checkpoints if origin.step in (None, record.step)]
    if not found:
        there = ", ".join(str(record.step) for record in source.checkpoints[:10])
        problem = f"that job has no checkpoint of step {origin.step}"
        return Problem(field="from", value=f"{origin.job}@{origin.step}", problem=problem, fix=f"there are {there}")
    return found[0]


def _unknown(origin: StartFrom) -> Problem:
    fix = "`elastane jobs` lists those there are; {uri: FOLDER} names checkpoints of elsewhere"
    return Problem(field="from.job", value=origin.job, problem="there is no such job", fix=fix)


def _relative(origin: StartFrom) -> Problem | None:
    uri = origin.uri or ""
    if "://" in uri or uri.startswith("/"):
        return None
    return Problem(field="from.uri", value=uri, problem="relative to nothing in particular", fix="use an absolute path")
