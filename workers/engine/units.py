"""Which parameters communicate together: the modules and parameters of each unit. No storage, no group."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from torch import nn

ROOT = "root"
Modules = tuple[nn.Module, ...]
Chosen = tuple[str, Modules]
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
    modules: Modules
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


def hidden_matrices(model: nn.Module) -> frozenset[str]:
    """What Muon orthogonalizes: matrices of the repeated blocks (of the whole model where none repeats), never an
    embedding's. It follows the model alone, so that units change no update."""
    root, *blocks = group_units(model, UnitRule())
    tables = {module.weight for module in model.modules() if isinstance(module, nn.Embedding | nn.EmbeddingBag)}
    params = {name: param for group in blocks or [root] for name, param in group.params.items()}
    return frozenset(n for n, p in params.items() if p.ndim == 2 and p.numel() and p.requires_grad and p not in tables)


def _users(model: nn.Module, chosen: list[Chosen]) -> dict[nn.Parameter, set[int]]:
    """parameter -> the units (1-based; 0 is the root) whose modules register it."""
    users: dict[nn.Parameter, set[int]] = {param: set() for param in model.parameters()}
    inside: set[nn.Module] = set()
    for index, (_, modules) in enumerate(chosen, start=1):
        for module in modules:
            inside.update(module.modules())
            for param in module.parameters():
                users[param].add(index)
    for outside in [module for module in model.modules() if module not in inside]:
        for param in outside.parameters(recurse=False):
            users[param].add(0)
    return users


def _choose(model: nn.Module, rule: UnitRule) -> list[Chosen]:
    if rule.layers and rule.min_params is not None:
        raise ValueError(f"units: layers={list(rule.layers)} and min_params={rule.min_params} exclude each other")
    if rule.layers:
        chosen = list(_by_class(model, frozenset(rule.layers)))
        if not chosen:
            classes = sorted({type(m).__name__ for m in model.modules()})
            sought = ", ".join(sorted(rule.layers))
            raise UnitRuleError(f"no module of the model is of class {sought}; it has {', '.join(classes)}")
    else:
        chosen = list(_repeated(model) if rule.min_params is None else _by_size(model, rule.min_params))
    names = {module: name for name, module in model.named_modules()}
    # The same module object may be listed twice; it is one unit.
    return [(names[modules[0]], modules) for modules in dict.fromkeys(chosen)]


def _by_class(module: nn.Module, names: frozenset[str]) -> Iterator[Modules]:
    for child in module.children():
        if type(child).__name__ in names:
            yield (child,)
        else:
            yield from _by_class(child, names)


def _repeated(module: nn.Module) -> Iterator[Modules]:
    for child in module.children():
        blocks = tuple(child.children()) if isinstance(child, nn.ModuleList) else ()
        classes = {type(block) for block in blocks}
        if len(classes) == 1 and not issubclass(classes.pop(), _CONTAINERS):
            yield from ((block,) for block in blocks)
        else:
            yield from _repeated(child)


def _by_size(module: nn.Module, min_params: int) -> Iterator[Modules]:
    """The smallest modules of at least min_params; neighbours in a container join until they reach it."""
    joined: list[nn.Module] = []
    for child in module.children():
        inner = list(_by_size(child, min_params))
        if inner or isinstance(child, _CONTAINERS):
            yield from inner
        elif _numel(child) >= min_params:
            yield (child,)
        elif isinstance(module, _CONTAINERS):
            joined.append(child)
            if sum(map(_numel, joined)) >= min_params:
                yield tuple(joined)
                joined = []


def _numel(module: nn.Module) -> int:
    return sum(param.numel() for param in module.parameters())
