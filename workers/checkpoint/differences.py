"""Is a checkpoint of this model and optimizer? Every way in which it is not, in words."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from workers.checkpoint.manifest import Manifest
from workers.checkpoint.parts import BUFFER, buffer_name, kinds_of, state_name
from workers.engine.protocol import Engine
from workers.engine.states import StateKind

Shapes = Mapping[str, tuple[int, ...]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Differences:
    """`shapes`: both have it, and not in one shape; `missing`: only one of the two has it, which fine-tuning allows."""

    shapes: tuple[str, ...]
    missing: tuple[str, ...]


def compare(here: Shapes, manifest: Manifest, *, weights_only: bool = False) -> Differences:
    """`weights_only`: whatever an optimizer keeps, on either side, is nobody's concern."""
    here = {name: shape for name, shape in here.items() if not weights_only or is_weight(name)}
    stored = {name: tensor for name, tensor in manifest.tensors.items() if not weights_only or is_weight(name)}
    shapes = tuple(
        f"{name} is {list(stored[name].shape)} in the checkpoint and {list(shape)} here"
        for name, shape in here.items()
        if name in stored and stored[name].shape != shape
    )
    lacking = [f"{name} {list(shape)} is not in the checkpoint" for name, shape in here.items() if name not in stored]
    surplus = [f"{name} is in the checkpoint alone" for name in stored if name not in here]
    return Differences(shapes=shapes, missing=(*lacking, *surplus))


def is_weight(name: str) -> bool:
    """A saved name of a parameter's value or of a buffer."""
    return name.startswith((f"{StateKind.MASTER}/", f"{BUFFER}/"))


def shapes_of(engine: Engine) -> dict[str, tuple[int, ...]]:
    """Saved name -> shape of all that this engine would save."""
    shapes = {
        state_name(kind, name): meta.shape for name, meta in engine.tensors().items() for kind in kinds_of(engine, meta)
    }
    return shapes | {buffer_name(name): tuple(buffer.shape) for name, buffer in engine.buffers().items()}
