"""What the workers of a job did, written down by themselves: who computed which micro-batch of which step, and which
steps stood. A line is on the disk before what it tells has any effect on the others."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from service.domain.batching import MicroBatch
from tests.elastic.user_code import paced
from workers.data.loader import Loader
from workers.engine.fsdp2.engine import Fsdp2Engine
from workers.engine.zero.engine import ZeroEngine
from workers.worker.loop import Loop
from workers.worker.member import Member


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """`groups`: (first position, size) of the micro-batches that counted, of this worker."""

    did: Literal["computed", "stood"]
    pid: int
    generation: int
    step: int
    at: float
    groups: tuple[tuple[int, int], ...] = ()


def read(folder: Path) -> list[Line]:
    """Of all workers, by time. The last line of one that was killed may be cut off: it had no effect yet."""
    found: list[Line] = []
    for file in sorted(folder.glob("*.jsonl")):
        whole = [text for text in file.read_text().split("\n")[:-1] if text]
        for text in whole:
            fields: dict[str, Any] = json.loads(text)
            groups = tuple((first, size) for first, size in fields.pop("groups", ()))
            found.append(Line(pid=int(file.stem), groups=groups, **fields))
    return sorted(found, key=lambda line: line.at)


def with_a_diary(pace_file: str, folder: str) -> Any:
    """The paced model, in a process that keeps a diary."""
    if not _Diary.kept:
        _Diary.kept = True
        _Diary(Path(folder) / f"{os.getpid()}.jsonl").begin()
    return paced(pace_file)


class _Diary:
    kept = False

    def __init__(self, file: Path) -> None:
        file.parent.mkdir(parents=True, exist_ok=True)
        self._file = os.open(file, os.O_CREAT | os.O_APPEND | os.O_WRONLY)
        self._asked_for: MicroBatch | None = None
        self._counted: list[tuple[int, int]] = []

    def begin(self) -> None:
        self._around(Loader, "batch", before=self._note_batch)
        for engine in (ZeroEngine, Fsdp2Engine):
            self._around(engine, "micro_step", before=self._note_micro_step)
        self._around(Loop, "_gradients", before=self._note_start, after=self._note_gradients)
        self._around(Member, "advanced", before=self._note_advanced)

    def _around(
        self,
        owner: type,
        name: str,
        *,
        before: Callable[..., None] | None = None,
        after: Callable[..., None] | None = None,
    ) -> None:
        original = getattr(owner, name)

        def watched(this: Any, *args: Any, **fields: Any) -> Any:
            if before is not None:
                before(this, *args, **fields)
            result = original(this, *args, **fields)
            if after is not None:
                after(this, *args, **fields)
            return result

        setattr(owner, name, watched)

    def _note_batch(self, loader: Any, group: MicroBatch) -> None:
        self._asked_for = group

    def _note_micro_step(self, engine: Any, batch: Any, *, weight: float, last: bool) -> None:
        if weight and self._asked_for is not None:
            self._counted.append((self._asked_for.first, self._asked_for.size))

    def _note_start(self, loop: Any, step: int, clock: Any) -> None:
        """What a loss cut off is thrown away by the worker, too."""
        self._counted = []

    def _note_gradients(self, loop: Any, step: int, clock: Any) -> None:
        self._write("computed", loop._place.generation, step, groups=self._counted)

    def _note_advanced(self, member: Any, step: int, **fields: Any) -> None:
        self._write("stood", member.place.generation, step)

    def _write(self, did: str, generation: int, step: int, **more: Any) -> None:
        line = {"did": did, "generation": generation, "step": step, "at": time.monotonic(), **more}
        os.write(self._file, f"{json.dumps(line)}\n".encode())
