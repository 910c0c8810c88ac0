"""The state that a worker holds, and of which steps: in its engine, outlived from a former group, mirrored in memory.

A state that a failed exchange left undefined is offered to nobody.
"""

from __future__ import annotations

from pathlib import Path

import torch
import torch.distributed as dist

from service.domain.arrangement import Arrangement
from service.domain.spec import JobSpec
from workers.engine.protocol import Engine
from workers.engine.states import Collective
from workers.models.blueprint import Blueprint
from workers.worker import assemble
from workers.worker.messages import Holding
from workers.worker.mirrors import Mirrors
from workers.worker.sources import Combined, EngineSource, Extras, Patchwork, Source


class Holdings:
    """`step` is that of the engine's state, or of the outlived one while the engine's is undefined."""

    def __init__(self, spec: JobSpec, device: torch.device, *, folder: Path) -> None:
        """folder: for states on a disk, where the spec names none."""
        self.spec = spec
        self._device = device
        self._folder = folder
        self._blueprint: Blueprint | None = None
        self._engine: Engine | None = None
        self._rank = -1
        self._outlived: Source | None = None
        self._defined = False
        self.mirrors = Mirrors(device)
        self.pristine = False
        self.step = 0
        self.skipped = 0

    @property
    def engine(self) -> Engine:
        if self._engine is None:
            raise RuntimeError("this worker has no engine: join a generation first")
        return self._engine

    @property
    def model(self) -> torch.nn.Module:
        return self._drawn().model

    def warm(self) -> None:
        assemble.know_engine(self.spec)
        self._blueprint = assemble.draw_model(self.spec)

    # ---- what can be given ---------------------------------------------------------------------------------------

    def at(self, step: int) -> Source | None:
        """Everything that is held of a step; the engine's own values before mirrored ones."""
        present, mirrored = self._present(), self.mirrors.at(step)
        if present is None or self.step != step:
            return mirrored
        return present if mirrored is None else Combined(present, mirrored)

    def list(self) -> tuple[Holding, ...]:
        """By step."""
        steps = {*self.mirrors.steps(), *([] if self._present() is None else [self.step])}
        sources = ((step, self.at(step)) for step in sorted(steps))
        return tuple(Holding(step=step, pieces=source.pieces()) for step, source in sources if source is not None)

    def whole(self) -> dict[str, int]:
        """tensor -> numel of the model; empty where nothing of it was ever held."""
        if self._engine is not None:
            return {name: meta.numel for name, meta in self._engine.tensors().items()}
        held = self._outlived is not None
        return {name: param.numel() for name, param in self.model.named_parameters()} if held else {}

    def recent(self) -> tuple[Collective, ...]:
        """The last collectives in the present group; none where it never stood."""
        return self._engine.traffic().recent if self._engine is not None and self._defined else ()

    # ---- generations ---------------------------------------------------------------------------------------------

    def arrange(self, arrangement: Arrangement) -> bool:
        """How the next engine holds its state; whether that is another way. The present one outlives as a source."""
        if Arrangement.of(self.spec) == arrangement:
            return False
        self.spec = arrangement.applied(self.spec)
        if self._engine is not None:
            # On a model of its own: the parameters of the present one are views of what it still holds.
            self._outlived, self._engine = self._present(), None
            self._defined = False
            self.warm()
        return True

    def take_place(self, group: dist.ProcessGroup) -> Engine:
        """The engine in the next group, its state undefined. What it held outlives in memory."""
        if self._engine is None:
            self._engine = assemble.build_engine(self.model, group, self.spec, self._device, folder=self._folder)
            self.pristine = True
        else:
            extras = Extras(scalars=self._engine.scalars(), buffers=self._engine.buffers(), skipped=self.skipped)
            with assemble.blaming_the_disk():
                held = self._engine.rejoin(group)
            self.pristine = False
            if self._defined:
                self._outlived = Patchwork(held.values, extras)
        self._rank, self._defined = group.rank(), False
        return self._engine

    def renew(self, group: dist.ProcessGroup) -> Engine:
        """A new model and engine; their state is that of step 0 after `begin`."""
        self._engine = self._outlived = self._blueprint = None
        self._defined = False
        self.warm()
        return self.take_place(group)

    def begin(self) -> None:
        """The values that a new job starts from, into an engine that is new. Collective."""
        self._drawn().start(self.engine, rank=self._rank)

    def stand(self, step: int, *, skipped: int) -> None:
        """Every rank of the generation has loaded `step`: what outlived the former group is no longer needed."""
        self._outlived, self._defined = None, True
        self.step, self.skipped = step, skipped
        self.pristine = self.pristine and step == 0
        self.mirrors.forget(above=step)

    # ---- steps ---------------------------------------------------------------------------------------------------

    def advanced(self, step: int, *, skipped: bool) -> None:
        """The engine's step either raises and has changed nothing, or it is done: the state is never torn."""
        self.step, self.pristine = step, False
        self.skipped += skipped

    def _drawn(self) -> Blueprint:
        if self._blueprint is None:
            raise RuntimeError("this worker is not warm")
        return self._blueprint

    def _present(self) -> Source | None:
        if self._outlived is not None:
            return self._outlived
        if self._engine is None or not self._defined:
            return None
        return EngineSource(self._engine, rank=self._rank, skipped=self.skipped)
