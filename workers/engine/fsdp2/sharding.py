"""A model under `fully_shard` on one group, and out of it again: torch has no way back, so `undo` is ours.

`undo` takes off what torch 2.13 puts on a module: two hooks, a class, a state in three places. It relies on names that
torch does not promise; `test_fsdp_moves_to_twenty_groups_and_leaves_nothing` fails where one of them changes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed._composable.contract import REGISTRY_KEY, STATE_KEY
from torch.distributed._composable_state import _module_state_mapping
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import CPUOffloadPolicy, FSDPModule, MixedPrecisionPolicy, OffloadPolicy, fully_shard
from torch.distributed.tensor import DTensor
from torch.distributed.tensor.debug import _clear_sharding_prop_cache

from workers.engine.core import move_buffers
from workers.engine.fsdp2.traffic import CountedGather, CountedScatter, TrailMeter
from workers.engine.precision import MASTER_DTYPE, Precision
from workers.engine.units import ROOT, Modules, UnitRule, group_units
from workers.layout.rows import stays_whole


class SparseGradients(ValueError):
    """Tables whose gradients FSDP2 cannot reduce."""

    def __init__(self, names: Sequence[str]) -> None:
        super().__init__(
            f"the gradients of {list(names[:3])} ({len(names)} modules) are sparse, and FSDP2 reduces dense ones: "
            "build them with sparse=False, or use engine zero"
        )


class Sharding:
    """The model's parameters are DTensors while this value stands, but for those that stay whole."""

    def __init__(
        self,
        model: nn.Module,
        units: UnitRule,
        *,
        precision: Precision,
        reshard: bool,
        offload: bool,
        device: torch.device,
    ) -> None:
        """reshard: whether units give their parameters back between forward and backward."""
        tame(model, precision, device)
        self._model, self._units, self._reshard, self._device = model, choose_units(model, units), reshard, device
        self._places = _places(model)
        # Sharded parameters are fp32, and are cast while they are gathered.
        low = precision.params if precision.params != MASTER_DTYPE else None
        self._policies: dict[str, Any] = {
            "mp_policy": MixedPrecisionPolicy(low, precision.reduce_dtype, cast_forward_inputs=False),
            "offload_policy": CPUOffloadPolicy(pin_memory=device.type == "cuda") if offload else OffloadPolicy(),
        }
        self._own_groups: list[dist.ProcessGroup] = []

    def apply(self, group: dist.ProcessGroup, *, shard_size: int, meter: TrailMeter) -> None:
        """Shard on the group; parameters without memory get some, one unit at a time, undefined."""
        mesh = self._mesh(group, shard_size)
        for modules in self._units:
            self._fully_shard(modules, mesh, reshard=self._reshard)
        # The root's parameters are needed first in backward: there is nothing to gain in between.
        self._fully_shard((self._model,), mesh, reshard=False)
        names = {module: name or ROOT for name, module in self._model.named_modules()}
        for module in self._sharded():
            _adjust(module, names[module], meter, replicas=group.size() // shard_size)

    def undo(self) -> None:
        """Plain modules again; parameters that were sharded are without memory."""
        for module in self._sharded():
            _unwrap(module)
        for name, param in list(self._model.named_parameters()):
            if not stays_whole(param.shape):
                blank = torch.empty(param.shape, dtype=param.dtype, device="meta")
                self._put(name, nn.Parameter(blank, requires_grad=param.requires_grad))
        for group in self._own_groups:
            # Whoever owns the world may have ended it, and these with it.
            with suppress(ValueError, RuntimeError, AssertionError):
                dist.destroy_process_group(group)
        self._own_groups.clear()
        # DTensor remembers how an operation was sharded, by mesh: with the mesh it would keep the group that we leave.
        _clear_sharding_prop_cache()  # type: ignore[no-untyped-call]

    def release(self) -> None:
        """A unit that ran forward and had nothing to do in backward is given back too."""
        for module in self._sharded():
            module.reshard()

    def show(self, learn: Callable[[str, nn.Parameter], None]) -> None:
        """Every parameter once as autograd sees it: FSDP2 makes them at a unit's first gather. Collective."""
        shown: set[str] = set()
        for module in self._sharded():
            module.unshard()
            for name, param in list(self._model.named_parameters()):
                if not isinstance(param, DTensor) and name not in shown:
                    shown.add(name)
                    learn(name, param)
            module.reshard()

    def _sharded(self) -> list[FSDPModule]:
        return [module for module in self._model.modules() if isinstance(module, FSDPModule)]

    def _fully_shard(self, modules: Modules, mesh: DeviceMesh, *, reshard: bool) -> None:
        whole = set()
        for name, param in list(self._model.named_parameters()):
            filled = param
            if param.is_meta and any(module in modules_of(modules) for module, _ in self._places[name]):
                # Undefined until `load`: so the protocol has it of a model that starts without values, and of `rejoin`.
                blank = torch.empty(param.shape, dtype=param.dtype, device=self._device)
                filled = nn.Parameter(blank, requires_grad=param.requires_grad)
                self._put(name, filled)
            if stays_whole(param.shape):
                whole.add(filled)
        together = modules[0] if len(modules) == 1 else list(modules)
        fully_shard(together, mesh=mesh, reshard_after_forward=reshard, ignored_params=whole, **self._policies)

    def _mesh(self, group: dist.ProcessGroup, shard_size: int) -> DeviceMesh:
        device, world = self._device.type, group.size()
        if shard_size == world:
            return DeviceMesh.from_group(group, device)
        ranks = torch.tensor(dist.get_process_group_ranks(group)).view(-1, shard_size)
        across, along = divmod(group.rank(), shard_size)
        replicas = group if shard_size == 1 else self._new_group(ranks[:, along].tolist())
        shards = self._new_group(ranks[across].tolist())
        return DeviceMesh.from_group([replicas, shards], device, mesh=ranks, mesh_dim_names=("replicate", "shard"))

    def _new_group(self, ranks: list[int]) -> dist.ProcessGroup:
        group: dist.ProcessGroup = dist.new_group(ranks, use_local_synchronization=True)
        self._own_groups.append(group)
        return group

    def _put(self, name: str, param: nn.Parameter) -> None:
        for module, key in self._places[name]:
            module._parameters[key] = param


def choose_units(model: nn.Module, rule: UnitRule) -> list[Modules]:
    """As ZeRO's, but for units that share a parameter with others: FSDP2 refuses those, so they join the root."""
    root, *units = group_units(model, rule)
    shared = set(root.params.values())
    return [unit.modules for unit in units if shared.isdisjoint(p for m in unit.modules for p in m.parameters())]


@torch.no_grad()
def tame(model: nn.Module, precision: Precision, device: torch.device) -> None:
    """What FSDP2 asks of parameters: contiguous, and of one dtype where trainable, which is the master's. In place.

    Raises SparseGradients."""
    tables = [(name, m) for name, m in model.named_modules() if isinstance(m, nn.Embedding | nn.EmbeddingBag)]
    if sparse := [name for name, table in tables if table.sparse]:
        raise SparseGradients(sparse)
    for param in model.parameters():
        floating = precision.params if param.is_floating_point() else param.dtype
        dtype = MASTER_DTYPE if param.requires_grad else floating
        param.data = param.data.to(device=param.device if param.is_meta else device, dtype=dtype).contiguous()
    move_buffers(model, device, precision.buffers)


def modules_of(modules: Modules) -> set[nn.Module]:
    return {each for module in modules for each in module.modules()}


def _places(model: nn.Module) -> Mapping[str, list[tuple[nn.Module, str]]]:
    """name -> every (module, key) that registers the parameter: ties have several."""
    names = {param: name for name, param in model.named_parameters()}
    places: dict[str, list[tuple[nn.Module, str]]] = {name: [] for name in names.values()}
    for module in model.modules():
        for key, param in module._parameters.items():
            if param is not None:
                places[names[param]].append((module, key))
    return places


def _adjust(module: FSDPModule, unit: str, meter: TrailMeter, *, replicas: int) -> None:
    # Sums: the weights of the micro-batches divide.
    module.set_gradient_divide_factor(1.0)
    module.set_force_sum_reduction_for_comms(True)
    # A parameter without a gradient on this rank contributes zeros, or ranks would send different sizes.
    module.set_reduce_scatter_unused_params(True, recurse=False)
    gather: Any = CountedGather(meter, unit)
    scatter: Any = CountedScatter(meter, unit)
    module.set_custom_all_gather(gather)
    module.set_custom_reduce_scatter(scatter)
    if replicas > 1:
        module.set_all_reduce_hook(lambda reduced: meter.note("all_reduce", unit, reduced, replicas, times=2))


def _unwrap(module: Any) -> None:
    reference = _module_state_mapping.pop(module)
    state: Any = reference()
    handles = [state._pre_forward_hook_handle, state._post_forward_hook_handle]
    for group in state._fsdp_param_groups:
        handles += [param._post_load_hook_handle for param in group.fsdp_params]
        handles += group._module_to_pre_save_state_dict_hook_handle.values()
        handles += group._module_to_pre_load_state_dict_hook_handle.values()
    for handle in handles:
        handle.remove()
    module.__class__ = type(module).__mro__[FSDPModule._orig_cls_mro_index]
    states = module.__dict__[STATE_KEY]
    for api in [api for api, each in states.items() if each is state]:
        del states[api]
    del module.__dict__[REGISTRY_KEY][fully_shard.__name__]
