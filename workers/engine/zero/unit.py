"""Units: the parameters that communicate together, and where each lies in its flat vector. No storage, no group."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import nn

from workers.layout.interval import Interval
from workers.layout.layout import Layout, Piece

ROOT = "root"
Chosen = tuple[str, tuple[nn.Module, ...]]
_CONTAINERS = (nn.ModuleList, nn.ModuleDict, nn.ParameterList, nn.ParameterDict)


class UnitRuleError(ValueError):
    """The rule does not fit the model."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UnitRule:
    """How modules become units. Neither given: the model's repeated blocks (children of a ModuleList of one class).

    layers: names of classes, each outermost instance one unit. min_params: the smallest modules that reach the size.
    What no unit owns, or what several use, belongs to the root unit.
    """

    layers: Sequence[str] = ()
    min_params: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Slot:
    """A parameter's place in its flat vector."""

    name: str
    start: int
    shape: tuple[int, ...]

    @property
    def numel(self) -> int:
        n = 1
        for size in self.shape:
            n *= size
        return n

    @property
    def interval(self) -> Interval:
        return Interval(self.start, self.start + self.numel)


@dataclass(frozen=True, slots=True, kw_only=True)
class FlatPlan:
    """One flat vector: parameters of one unit, dtype and trainability, one after the other."""

    dtype: torch.dtype
    trainable: bool
    slots: tuple[Slot, ...]

    @property
    def numel(self) -> int:
        return self.slots[-1].interval.stop if self.slots else 0

    def shard_numel(self, world: int) -> int:
        """Equal on every rank: collectives have static sizes. The tail is padding."""
        return -(-self.numel // world)

    def shard(self, rank: int, world: int) -> Interval:
        """The rank's part of the padded vector."""
        size = self.shard_numel(world)
        return Interval(rank * size, (rank + 1) * size)

    def pieces(self, interval: Interval) -> tuple[Piece, ...]:
        """What an interval of the vector is in coordinates of the model's tensors; empty tensors appear nowhere."""
        return tuple(Piece(slot.name, common.shift(-slot.start)) for slot, common in self.cut(interval))

    def cut(self, interval: Interval) -> Iterator[tuple[Slot, Interval]]:
        for slot in self.slots:
            common = slot.interval.intersect(interval)
            if common is not None:
                yield slot, common


@dataclass(frozen=True, slots=True, kw_only=True)
class UnitPlan:
    """A unit's name (the path of its first module) and its flat vectors."""

    name: str
    flats: tuple[FlatPlan, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Grouping:
    """A unit before it is flattened: the modules whose forward needs it, and its parameters by name."""

    name: str
    modules: tuple[nn.Module, ...]
    params: dict[str, nn.Parameter]

    def plan(self, param_dtype: Callable[[torch.dtype], torch.dtype]) -> UnitPlan:
        kinds: dict[tuple[torch.dtype, bool], list[str]] = {}
        for name, param in self.params.items():
            kinds.setdefault((param_dtype(param.dtype), param.requires_grad), []).append(name)
        flats = tuple(
            FlatPlan(dtype=dtype, trainable=trainable, slots=_slots((n, self.params[n].shape) for n in names))
            for (dtype, trainable), names in kinds.items()
        )
        return UnitPlan(name=self.name, flats=flats)


def layout(units: Iterable[UnitPlan], *, stage: int, world: int) -> Layout[int]:
    """rank -> pieces of the training state, without a group: the whole vector at stage 0, the rank's shard above."""
    flats = [flat for unit in units for flat in unit.flats]
    pieces = {}
    for rank in range(world):
        parts = ((flat, Interval(0, flat.numel) if stage == 0 else flat.shard(rank, world)) for flat in flats)
        pieces[rank] = tuple(piece for flat, part in parts for piece in flat.pieces(part))
    return Layout(pieces)


def group_units(model: nn.Module, rule: UnitRule) -> list[Grouping]:
    """The root unit (maybe empty) and then the model's units in order of registration; every parameter in one."""
    chosen = _choose(model, rule)
    users = _users(model, chosen)
    owned: list[dict[str, nn.Parameter]] = [{} for _ in range(len(chosen) + 1)]
    for name, param in model.named_parameters():
        units = users[param]
        owned[units.pop() if len(units) == 1 else 0][name] = param
    root = Grouping(name=ROOT, modules=(model,), params=owned[0])
    rest = (Grouping(name=n, modules=m, params=p) for (n, m), p in zip(chosen, owned[1:], strict=True) if p)
    return [root, *rest]


def _slots(named_shapes: Iterable[tuple[str, Sequence[int]]]) -> tuple[Slot, ...]:
    slots: list[Slot] = []
    start = 0
    for name, shape in named_shapes:
        slots.append(Slot(name=name, start=start, shape=tuple(shape)))
        start = slots[-1].interval.stop
    return tuple(slots)


def _users(model: nn.Module, chosen: list[Chosen]) -> dict[nn.Parameter, set[int]]:
    """parameter -> the units (1-based; 0 is the root) whose modules register it."""
    users: dict[nn.Parameter, set[int]] = {param: set() for param in model.parameters()}
    inside: set[nn.Module] = set()
    for index, (_, modules) in enumerate(chosen, start=1):
        for module in modules:
            inside.update(module.modules())
            for param in module.parameters():
                users[param].add(index)
    for module in model.modules():
        if module not in inside:
            for param in module.parameters(recurse=False):
                users[param].add(0)
    return users


def _choose(model: nn.Module, rule: UnitRule) -> list[Chosen]:
    if rule.layers and rule.min_params is not None:
        raise ValueError(f"units: layers={list(rule.layers)} and min_params={rule.min_params} exclude each other")
    if rule.layers:
        chosen = list(_by_class("", model, frozenset(rule.layers)))
        if not chosen:
            classes = sorted({type(m).__name__ for m in model.modules()})
            raise UnitRuleError(f"units.layers={list(rule.layers)}: the model has no such class; it has {classes}")
    elif rule.min_params is not None:
        chosen = list(_by_size("", model, rule.min_params))
    else:
        chosen = list(_repeated("", model))
    # The same module object may be listed twice; it is one unit.
    return list({modules: (name, modules) for name, modules in chosen}.values())


def _join(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def _by_class(path: str, module: nn.Module, names: frozenset[str]) -> Iterator[Chosen]:
    for name, child in module.named_children():
        if type(child).__name__ in names:
            yield _join(path, name), (child,)
        else:
            yield from _by_class(_join(path, name), child, names)


def _repeated(path: str, module: nn.Module) -> Iterator[Chosen]:
    for name, child in module.named_children():
        here = _join(path, name)
        blocks = dict(child.named_children()) if isinstance(child, nn.ModuleList) else {}
        classes = {type(block) for block in blocks.values()}
        if len(classes) == 1 and not issubclass(next(iter(classes)), _CONTAINERS):
            yield from ((_join(here, key), (block,)) for key, block in blocks.items())
        else:
            yield from _repeated(here, child)


def _numel(module: nn.Module) -> int:
    return sum(param.numel() for param in module.parameters())


def _by_size(path: str, module: nn.Module, min_params: int) -> Iterator[Chosen]:
    """The smallest modules of at least min_params; neighbours in a container join until they reach it."""
    joined: list[tuple[str, nn.Module]] = []
    for name, child in module.named_children():
        here = _join(path, name)
        inner = list(_by_size(here, child, min_params))
        if inner:
            yield from inner
        elif isinstance(child, _CONTAINERS):
            continue
        elif _numel(child) >= min_params:
            yield here, (child,)
        elif isinstance(module, _CONTAINERS):
            joined.append((here, child))
            if sum(_numel(each) for _, each in joined) >= min_params:
                yield joined[0][0], tuple(each for _, each in joined)
                joined = []
