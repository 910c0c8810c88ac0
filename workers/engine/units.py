"""Which parameters communicate together: the modules and parameters of each unit. No storage, no group."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from torch import nn

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
class Grouping:
    """A unit: the modules whose forward needs it, and its parameters by name."""

    name: str
    modules: tuple[nn.Module, ...]
    params: dict[str, nn.Parameter]


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
            sought = ", ".join(sorted(rule.layers))
            raise UnitRuleError(f"no module of the model is of class {sought}; it has {', '.join(classes)}")
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
