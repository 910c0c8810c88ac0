"""What theory says of this rank's memory, in the words in which `probes.memory` measures it."""

from __future__ import annotations

import torch

from service.domain.memory import Units
from service.domain.planning import passing_bytes, rank_bytes
from service.domain.profile import Profile, profile_of
from service.domain.spec import JobSpec
from workers.engine.protocol import Engine
from workers.engine.states import StateKind
from workers.engine.units import group_units
from workers.worker.assemble import unit_rule

PREFIX = "mem_predicted_"
# The kinds that our engine counts one by one; activations beside them.
ALONE = ("params", "grads", "optimizer", "gathered_peak")
TOTAL = "mem_predicted_bytes"


def predicted(
    spec: JobSpec, engine: Engine, model: torch.nn.Module, device: torch.device, *, world_size: int
) -> dict[str, float]:
    """The planner's word for one rank, `mem_predicted_bytes`, and of each kind that is measured alone.

    A model of the user's has no activations in it: they are known only where they were traced.
    """
    if spec.stage == "auto":
        return {TOTAL: 0.0}
    profile = profile_of(spec) or _profile(spec, engine, model)
    kinds = rank_bytes(spec, profile, stage=spec.stage, workers=world_size)
    sizes = {kind: float(sum(tiers.values())) for kind, tiers in kinds.items()}
    by_kind = _of_fsdp(spec, sizes, profile) if spec.engine == "fsdp" else {kind: sizes[kind] for kind in ALONE}
    if profile.kept is not None:
        passing = passing_bytes(spec, profile, stage=spec.stage, workers=world_size)
        peak = sum(size for kind, size in passing.items() if kind != "gathered_peak")
        # A GPU's allocator sees what a step needs on top; on a CPU what the forward keeps is counted.
        by_kind["activations_peak"] = float(peak if device.type == "cuda" else profile.kept)
    return {
        TOTAL: sum(sizes.values()),
        **{f"{PREFIX}{kind}_bytes": size for kind, size in by_kind.items()},
    }


def _of_fsdp(spec: JobSpec, sizes: dict[str, float], profile: Profile) -> dict[str, float]:
    """Parameters that are cast where they are gathered are the master. Gradients do not stay from step to step."""
    if spec.precision.params == "fp32":
        return {kind: sizes[kind] for kind in ("params", "optimizer")}
    still = sizes["params"] * profile.frozen / profile.numel
    return {"params": still, "optimizer": sizes["optimizer"] + sizes["params"] - still}


def _profile(spec: JobSpec, engine: Engine, model: torch.nn.Module) -> Profile:
    metas = engine.tensors()
    units = [
        [metas[name] for name in unit.params if name in metas] for unit in group_units(model, unit_rule(spec.units))
    ]
    root, *others = (sum(meta.numel for meta in unit) for unit in units)
    trained = max(sum(meta.numel for meta in unit if meta.trainable) for unit in units)
    return Profile(
        name="model",
        numel=sum(meta.numel for meta in metas.values()),
        units=Units(root=root, block=max(others, default=0), blocks=len(others), trained=trained),
        frozen=sum(meta.numel for meta in metas.values() if not meta.trainable),
        matrices=sum(meta.numel for meta in metas.values() if StateKind.MOMENTUM in (meta.kept or ())),
        passing={},
        kept=None,
    )
