"""What can go wrong with a checkpoint.

CheckpointError
├── CheckpointDamaged        a file is missing, cut or changed
├── CheckpointIncomplete     published pieces do not cover the state, or nothing was published
├── CheckpointMismatch       whole, but of another model or optimizer
├── CheckpointFormatUnknown  written by a newer program
├── CheckpointSuperseded     a newer attempt owns the job
├── CheckpointDropped        a save that was given up on demand
└── CheckpointNotWritten     the disk refused; what was there before is still there
"""

from __future__ import annotations

from collections.abc import Sequence

SHOWN = 8


class CheckpointError(Exception):
    """All survive pickling: an instance is its keyword arguments, kept as attributes and as `facts`."""

    code = "checkpoint"

    def __init__(self, message: str, **facts: object) -> None:
        self.facts = facts
        self.__dict__.update(facts)
        super().__init__(message)

    def __reduce__(self) -> tuple[object, ...]:
        return _rebuilt, (type(self), self.facts)


def _rebuilt(kind: type[CheckpointError], facts: dict[str, object]) -> CheckpointError:
    return kind(**facts)  # type: ignore[arg-type]


class CheckpointDamaged(CheckpointError):
    """`file` of the checkpoint of `step` is not what was written; `reason` says how that is known."""

    code = "checkpoint_damaged"
    step: int
    file: str
    reason: str

    def __init__(self, *, step: int, file: str, reason: str) -> None:
        message = f"checkpoint of step {step}: {file} {reason}; restore that file or resume from an older checkpoint"
        super().__init__(message, step=step, file=file, reason=reason)


class CheckpointIncomplete(CheckpointError):
    """Elements in no file (`missing`: "tensor [start, stop)"), or in two."""

    code = "checkpoint_incomplete"
    step: int
    missing: tuple[str, ...]

    def __init__(self, *, step: int, missing: Sequence[str], hint: str) -> None:
        message = f"checkpoint of step {step} is not whole: {_listed(missing)}; {hint}"
        super().__init__(message, step=step, missing=tuple(missing), hint=hint)


class CheckpointMismatch(CheckpointError):
    """The checkpoint is whole, but this engine is another: `differences` lists every one."""

    code = "checkpoint_mismatch"
    step: int
    differences: tuple[str, ...]

    def __init__(self, *, step: int, differences: Sequence[str]) -> None:
        message = (
            f"checkpoint of step {step} does not fit this model and optimizer: {_listed(differences)}; "
            "resume with the spec that wrote it, or start a new job"
        )
        super().__init__(message, step=step, differences=tuple(differences))


class CheckpointFormatUnknown(CheckpointError):
    """Falling back to an older checkpoint would silently lose steps, so this one is raised at once."""

    code = "checkpoint_format_unknown"

    def __init__(self, *, step: int, found: object, known: int) -> None:
        message = f"checkpoint of step {step} has format {found}, this program reads up to {known}; use a newer release"
        super().__init__(message, step=step, found=found, known=known)


class CheckpointSuperseded(CheckpointError):
    """An attempt that was paused must not publish over, or clean up after, a newer one."""

    code = "checkpoint_superseded"

    def __init__(self, *, job: str, attempt: int, newer: int) -> None:
        message = f"attempt {attempt} of job {job} may not write checkpoints: attempt {newer} took over; end this one"
        super().__init__(message, job=job, attempt=attempt, newer=newer)


class CheckpointDropped(CheckpointError):
    """Nothing of the save is left; earlier checkpoints are untouched."""

    code = "checkpoint_dropped"
    step: int

    def __init__(self, *, step: int) -> None:
        message = f"the save of step {step} was given up before it was published; the next one makes up for it"
        super().__init__(message, step=step)


class CheckpointNotWritten(CheckpointError):
    """`reason` is the system's own word (ENOSPC, EIO); earlier checkpoints are untouched and training may go on."""

    code = "checkpoint_not_written"
    step: int
    reason: str

    def __init__(self, *, step: int, reason: str) -> None:
        message = f"checkpoint of step {step} was not written: {reason}; free or mend the disk, earlier ones are intact"
        super().__init__(message, step=step, reason=reason)


def _listed(lines: Sequence[str]) -> str:
    rest = f" and {len(lines) - SHOWN} more" if len(lines) > SHOWN else ""
    return ", ".join(lines[:SHOWN]) + rest
