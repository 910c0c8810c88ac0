"""What an exception of a training thread means, in a sentence a user can act on."""

from __future__ import annotations

import errno
import re
import traceback
from typing import Literal

from workers.checkpoint.errors import CheckpointFormatUnknown, CheckpointMismatch
from workers.user_code import SourceUnreachable, SpecError

Cause = Literal["user", "machine", "system"]

# What no retry heals: what was asked for is wrong.
USERS = (SpecError, CheckpointMismatch, CheckpointFormatUnknown)
# Words of drivers and libraries for a device or a link that failed; the process that said them is of no more use.
MACHINES = re.compile(
    r"ECC error|NCCL|NVLink|cuDNN error: CUDNN_STATUS_(EXECUTION|INTERNAL)|CUBLAS_STATUS_(EXECUTION|INTERNAL)"
    r"|CUDA error: (?!device-side assert|invalid|out of memory)|CUDA driver|unspecified launch failure|Xid"
)
MACHINES_ERRNO = {errno.EIO, errno.ENODEV, errno.ENXIO, errno.ESTALE, errno.EREMOTEIO, errno.EROFS}


def sentence(error: BaseException) -> str:
    """The last line of the traceback and where: "ValueError: bad label (model.py:41 in forward)"."""
    last = traceback.format_exception_only(error)[-1].strip()
    if isinstance(error, (*USERS, SourceUnreachable)):
        return str(error)
    frames = traceback.extract_tb(error.__traceback__)
    frame = next((each for each in reversed(frames) if not _is_library(each.filename)), frames[-1] if frames else None)
    return last if frame is None else f"{last} ({frame.filename}:{frame.lineno} in {frame.name})"


def cause(error: BaseException) -> Cause:
    """The user's where the spec is wrong or their model or data raised; the machine's where it failed; else ours."""
    if isinstance(error, USERS):
        return "user"
    if isinstance(error, SourceUnreachable):
        return "machine"
    if isinstance(error, RuntimeError) and MACHINES.search(str(error)):
        return "machine"
    if isinstance(error, OSError) and error.errno in MACHINES_ERRNO:
        return "machine"
    frames = traceback.extract_tb(error.__traceback__)
    return "user" if any(_is_users(frame) for frame in frames) else "system"


def full(error: BaseException) -> str:
    return "".join(traceback.format_exception(error))


def _is_users(frame: traceback.FrameSummary) -> bool:
    ours = "/workers/models/" in frame.filename or "/workers/data/" in frame.filename
    return ours or frame.name == "micro_step" or not _is_library(frame.filename)


def _is_library(path: str) -> bool:
    return any(part in path for part in ("site-packages", "/workers/", "/lib/python")) or path.startswith("<")
