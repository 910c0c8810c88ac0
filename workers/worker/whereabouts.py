"""What a training thread is doing just now, read off its stack by another thread: no torch, and it costs nothing."""

from __future__ import annotations

import re
import sys
import traceback
from dataclasses import dataclass
from typing import Literal

# Frames of these files wait for, or speak with, the group.
GROUP_FILES = re.compile(r"torch/distributed/|zero/collectives|engine/fsdp2/|worker/(process_group|exchange)\.py")
SAVING_FILES = re.compile(r"workers/(checkpoint/|worker/checkpoints\.py)")
LIBRARY_FILES = re.compile(r"site-packages|/lib/python|^<")

Doing = Literal["computing", "waiting", "saving", "idle"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Where:
    """`step` is the last one done; `place` names the innermost line that is no library's."""

    generation: int
    step: int
    doing: Doing
    place: str


def look(thread_id: int | None) -> tuple[Doing, str]:
    """What that thread does and where; "waiting" is for the group, of which it may be the victim."""
    frame = sys._current_frames().get(thread_id or -1)
    if frame is None:
        return "idle", "no thread"
    stack = traceback.StackSummary.extract(traceback.walk_stack(frame), lookup_lines=False)
    files = [each.filename for each in stack]
    inner = next((each for each in stack if not LIBRARY_FILES.search(each.filename)), stack[0])
    place = f"{inner.name} ({inner.filename}:{inner.lineno})"
    if any(map(SAVING_FILES.search, files)):
        return "saving", place
    return ("waiting" if any(map(GROUP_FILES.search, files)) else "computing"), place
