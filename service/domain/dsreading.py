"""A foreign configuration as it is read, key by key: what was said, what became of it, and where the spec says it."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from service.domain.dskeys import ABSENT, IGNORED
from service.domain.errors import Problem
from service.domain.spec import FSDP_STAGES

Fate = Literal["mapped", "ignored", "refused"]
ROOT = "ds_config"
AUTO = "auto"


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What became of one key, and why; `fix` where it is refused."""

    key: str
    fate: Fate
    why: str
    value: Any = None
    fix: str = ""


@dataclass(slots=True, kw_only=True)
class Reading:
    """`leaves`: key -> value of what is not read yet. `fields`: field of the spec -> (value, the key that said it).
    `defaults`: what is taken where neither says anything. `autos`: the keys whose value is "auto". `root`: the
    spec's field that holds the configuration."""

    leaves: dict[str, Any]
    spec: dict[str, Any]
    fields: dict[str, tuple[Any, str]] = field(default_factory=dict)
    defaults: dict[str, Any] = field(default_factory=dict)
    verdicts: list[Verdict] = field(default_factory=list)
    autos: set[str] = field(default_factory=set)
    root: str = ROOT

    def take(self, key: str, name: str = "") -> Any:
        """The value, read; None where the key is absent, null or "auto"."""
        if key not in self.leaves:
            return None
        value = self.leaves.pop(key)
        if value is None:
            self.ignore(key, "null is as if it were absent")
        elif value == AUTO:
            self.autos.add(key)
            self.mapped(key, f"auto: follows {name or 'the spec'}")
        return None if value == AUTO else value

    def said(self, name: str) -> Any:
        """What the configuration says of a field, or else the spec, explicitly."""
        return self.fields[name][0] if name in self.fields else _at(self.spec, name)

    def number(self, key: str, name: str, *, least: float = 0, whole: bool = False) -> Any:
        value = self.take(key, name)
        if value is None:
            return None
        good = isinstance(value, int | float) and not isinstance(value, bool) and value >= least
        if good and not (whole and value != int(value)):
            return int(value) if whole else value
        kind = "a whole number" if whole else "a number"
        return self.refuse(key, value, f"not {kind} of at least {least}", "correct it")

    def put(self, key: str, name: str, value: Any, why: str = "") -> None:
        self.fields[name] = (value, key)
        self.mapped(key, f"{name}: {said_as(value)}{f' ({why})' if why else ''}")

    def mapped(self, key: str, why: str) -> None:
        self.verdicts.append(Verdict(key=key, fate="mapped", why=why))

    def ignore(self, key: str, why: str) -> None:
        self.verdicts.append(Verdict(key=key, fate="ignored", why=why))

    def refuse(self, key: str, value: Any, why: str, fix: str) -> None:
        self.verdicts.append(Verdict(key=key, fate="refused", why=why, value=brief(value), fix=fix))

    def drop(self, section: str, why: str) -> None:
        """What is left of a section means nothing."""
        for key in [key for key in self.leaves if key.startswith(f"{section}.")]:
            self.leaves.pop(key)
            self.ignore(key, why)


@dataclass(frozen=True, slots=True, kw_only=True)
class Import:
    """`document`: the spec with the configuration's fields in it; `problems`: refused keys, and fields that say
    otherwise than the configuration."""

    document: dict[str, Any]
    verdicts: tuple[Verdict, ...]
    problems: tuple[Problem, ...]
    root: str = ROOT

    @property
    def report(self) -> dict[str, str]:
        return {f"{self.root}.{verdict.key}": f"{verdict.fate}: {verdict.why}" for verdict in self.verdicts}


def imported(reading: Reading) -> Import:
    """What was read, in the spec that it was read beside."""
    document, conflicts = merged(reading.spec, reading)
    refused = [
        Problem(field=f"{reading.root}.{each.key}", value=each.value, problem=each.why, fix=each.fix)
        for each in reading.verdicts
        if each.fate == "refused"
    ]
    problems = (*refused, *conflicts)
    return Import(document=document, verdicts=tuple(reading.verdicts), problems=problems, root=reading.root)


def leaves_of(
    config: Mapping[str, Any], path: str = "", *, sections: Collection[str] = IGNORED.keys() | ABSENT.keys()
) -> Iterator[tuple[str, Any]]:
    """Dotted key -> value; one of `sections` is one leaf."""
    for name, value in config.items():
        key = f"{path}{str(name)[:80]}"
        inner = isinstance(value, dict) and key not in sections
        if inner and value:
            yield from leaves_of(value, f"{key}.", sections=sections)
        elif not inner:
            yield key, value


def merged(spec: dict[str, Any], reading: Reading) -> tuple[dict[str, Any], list[Problem]]:
    """The fields of the configuration in the spec, in its long form, and where the two say different things."""
    conflicts = []
    for name, (value, key) in reading.fields.items():
        said = _at(spec, name)
        if said not in (None, AUTO) and not _same(said, value):
            problem = f"{reading.root}.{key} says {said_as(value)}"
            conflicts.append(Problem(field=name, value=brief(said), problem=problem, fix="keep one of the two"))
    chosen = {**reading.defaults, **{name: value for name, (value, _) in reading.fields.items()}}
    for name, value in chosen.items():
        *path, last = name.split(".")
        inner = spec
        for part in path:
            inner = inner.setdefault(part, {})
            if not isinstance(inner, dict):
                break
        else:
            if name in reading.fields or last not in inner:
                inner[last] = list(value) if isinstance(value, tuple) else value
    return spec, conflicts


def long_form(document: Mapping[str, Any]) -> dict[str, Any]:
    """The short forms that a field of the configuration may meet; copied as deep as it is changed."""
    spec: dict[str, Any] = {name: dict(value) if isinstance(value, dict) else value for name, value in document.items()}
    for name, first in (("offload", "optimizer"), ("precision", "params")):
        if isinstance(spec.get(name), str):
            spec[name] = {first: spec[name]}
    for outer, inner in (("training", "optimizer"), ("training", "schedule"), ("precision", "loss_scale")):
        section = spec.get(outer)
        if isinstance(section, dict) and isinstance(section.get(inner), dict):
            section[inner] = dict(section[inner])
    if spec.get("units") == AUTO:
        del spec["units"]
    stage = document.get("stage")
    return {**spec, "stage": FSDP_STAGES.get(stage, stage)} if isinstance(stage, str) else spec


def most_workers(spec: Mapping[str, Any]) -> int:
    """The most workers: the size that a configuration with a fixed number of processes was written for."""
    workers = spec.get("workers", 1)
    most = workers.get("max", workers.get("min", 1)) if isinstance(workers, dict) else workers
    return most if isinstance(most, int) and most >= 1 else 1


def _at(document: Mapping[str, Any], name: str) -> Any:
    value: Any = document
    for part in name.split("."):
        if not isinstance(value, dict):
            return None
        value = value.get(part)
    return value


def _same(one: Any, other: Any) -> bool:
    if isinstance(one, Sequence) and isinstance(other, Sequence) and not isinstance(one, str):
        return list(one) == list(other)
    return bool(one == other)


def said_as(value: Any) -> str:
    if value is None:
        return "null"
    return f"{value:g}" if isinstance(value, float) else f"{list(value)}" if isinstance(value, tuple) else str(value)


def brief(value: Any) -> Any:
    return value if isinstance(value, bool | int | float) or value is None else str(value)[:100]
