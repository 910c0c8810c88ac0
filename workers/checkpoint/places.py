"""Names inside a store: `JOB/step-00000120/` with the ranks' files and the manifest.

A rank's file is named after its attempt and a nonce, so that files of two attempts, or of two tries of one, never share
a name: a checkpoint is mixed only if a manifest says so, and a manifest is written from the reports of one save.
"""

from __future__ import annotations

import re
import secrets

MANIFEST = "manifest.json"
CLAIM = re.compile(r"attempt-(\d{8,})")
PIN = re.compile(r"pin-(\d{8,})")
_STEP = re.compile(r"step-(\d{8,})")
_FILE = re.compile(r"rank-\d{5,}-of-\d{5,}\.attempt-(\d{8,})\.[0-9a-f]{8}\.safetensors")
_JOB = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,199}")


def job_folder(job: str) -> str:
    """The job's own folder. Refuses ids that would lead out of it."""
    if not _JOB.fullmatch(job):
        raise ValueError(f"job id {job!r} cannot name a folder; use letters, digits, '.', '_' and '-'")
    return job


def step_name(step: int) -> str:
    """What the folder of a step is called, in every store."""
    return f"step-{step:08d}"


def step_folder(job: str, step: int) -> str:
    return f"{job_folder(job)}/{step_name(step)}"


def manifest_path(job: str, step: int) -> str:
    return f"{step_folder(job, step)}/{MANIFEST}"


def step_of(folder: str) -> int | None:
    """The step of a folder's name; None for a name that is no checkpoint's."""
    match = _STEP.fullmatch(folder)
    return int(match[1]) if match else None


def new_rank_file(*, rank: int, world_size: int, attempt: int) -> str:
    return f"rank-{rank:05d}-of-{world_size:05d}.attempt-{attempt:08d}.{secrets.token_hex(4)}.safetensors"


def attempt_of(file: str) -> int | None:
    """The attempt that wrote a rank's file; None for a name that is no rank file's."""
    match = _FILE.fullmatch(file)
    return int(match[1]) if match else None


def claim_file(job: str, attempt: int) -> str:
    return f"{job_folder(job)}/attempt-{attempt:08d}"


def pin_file(job: str, step: int) -> str:
    """Beside the folder of the step: it says that retention must not remove it."""
    return f"{job_folder(job)}/pin-{step:08d}"
