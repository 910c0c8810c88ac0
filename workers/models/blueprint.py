"""A model on the meta device, and the values that its parameters start from, to be had piece by piece.

So an engine that keeps a part of every parameter never holds the whole model. The values are those of the ordinary
build, bit for bit. A model that cannot be drawn up so is built whole, and a log line says why.
"""

from __future__ import annotations

import gc
import logging
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from workers.engine.protocol import Engine
from workers.engine.states import StateKind
from workers.engine.zero.flat import leave_meta
from workers.layout.interval import Interval
from workers.models.recording import Recording

log = logging.getLogger(__name__)

# name of a parameter, interval of its row-major flat index -> its values, 1-D.
Read = Callable[[str, Interval], Tensor]


@dataclass(frozen=True, slots=True, kw_only=True)
class Blueprint:
    """`hollow`: the names of the model's parameters that are on the meta device, for which `read` has the values.

    Everything else, buffers too, has memory and values.
    """

    model: nn.Module
    hollow: frozenset[str]
    read: Read

    @torch.no_grad()
    def materialise(self) -> nn.Module:
        """The whole model, in place, on the CPU."""
        for name, param in self.model.named_parameters():
            if param.is_meta:
                values = self.read(name, Interval(0, param.numel())).reshape(param.shape)
                leave_meta(param, values.device)
                param.data = values
        return self.model

    def start(self, engine: Engine, *, rank: int) -> None:
        """The initial values into an engine of this model: each rank reads what it keeps. Collective."""
        for piece in engine.layout().of(rank):
            if piece.tensor in self.hollow:
                engine.load(StateKind.MASTER, piece, self.read(piece.tensor, piece.interval))
        if self.hollow:
            engine.commit_load()


def draw_up(construct: Callable[[], nn.Module]) -> Blueprint:
    """What `construct` builds, without the memory of its parameters where that can be."""
    generator = torch.default_generator
    before = generator.get_state()
    try:
        return _record(construct)
    except Exception as error:
        log.warning("the model is built whole, since it cannot start on the meta device: %s", error)
        generator.set_state(before)
        return Blueprint(model=construct(), hollow=frozenset(), read=_nothing)


def _record(construct: Callable[[], nn.Module]) -> Blueprint:
    recording = Recording()
    with recording:
        model = construct()
    places = {name: recording.place_of(param) for name, param in model.named_parameters() if param.is_meta}
    _fill_others(model, recording)
    gc.collect()
    recording.close({place.storage for place in places.values()})

    def read(name: str, interval: Interval) -> Tensor:
        return recording.values(places[name]).reshape(-1)[interval.start : interval.stop]

    return Blueprint(model=model, hollow=frozenset(places), read=read)


def _fill_others(model: nn.Module, recording: Recording) -> None:
    """Buffers, and tensors that modules keep as plain attributes: small, and whole on every rank."""
    for module in model.modules():
        for owned in (module._buffers, module.__dict__):
            for name, value in owned.items():
                if isinstance(value, Tensor) and value.is_meta:
                    owned[name] = recording.values(recording.place_of(value))


def _nothing(name: str, interval: Interval) -> Tensor:
    raise KeyError(f"{name} has its values already")
