"""Which optimizer, with which numbers for which parameters, and the state that it keeps per element."""

from __future__ import annotations

from dataclasses import dataclass
from fnmatch import fnmatchcase

from workers.optimizers.kinds import StateKind

_ADAM = (StateKind.EXP_AVG, StateKind.EXP_AVG_SQ)
_MOMENTS = {
    "adamw": _ADAM,
    "adam": _ADAM,
    "sgd": (StateKind.MOMENTUM,),
    "adagrad": (StateKind.SUM,),
    "lion": (StateKind.EXP_AVG,),
    "muon": _ADAM,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ParamGroup:
    """Parameters of which a glob of `match` matches the name; what is None is as everywhere else."""

    match: tuple[str, ...]
    lr: float | None = None
    weight_decay: float | None = None

    def has(self, name: str) -> bool:
        return any(fnmatchcase(name, pattern) for pattern in self.match)


@dataclass(frozen=True, slots=True, kw_only=True)
class Hyper:
    """The numbers that parameters differ in. ratio: multiplies the lr in the update and not in the decay."""

    lr: float
    weight_decay: float
    ratio: float = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class OptimizerConfig:
    """As torch's of the same name; Lion as Chen et al. 2023 (arXiv:2302.06675), algorithm 2. Muon takes the hidden
    matrices (`muon.py`), AdamW with the same numbers the rest; adjust_lr as torch's adjust_lr_fn.

    The first group that has a parameter gives its numbers. decay_vectors: without it, only what has two dimensions or
    more decays (weights, and neither biases nor norms), where no group says otherwise. ema_decay: an average of the
    weights is kept as torch's AveragedModel keeps it: the first update copies, each further one moves it by
    1 - ema_decay of the way.
    """

    name: str = "adamw"
    lr: float = 3e-4
    betas: tuple[float, float] = (0.9, 0.95)
    eps: float = 1e-8
    weight_decay: float = 0.1
    momentum: float = 0.0
    nesterov: bool = False
    adjust_lr: str = "match_rms_adamw"
    groups: tuple[ParamGroup, ...] = ()
    decay_vectors: bool = True
    ema_decay: float | None = None

    def __post_init__(self) -> None:
        if self.name not in _MOMENTS:
            raise ValueError(f"optimizer.name is {self.name!r}; this engine knows {', '.join(_MOMENTS)}")
        if self.nesterov and not self.momentum:
            raise ValueError("optimizer.nesterov without a momentum does nothing; give momentum, such as 0.9")

    def beside_master(self, *, matrices: bool = False) -> tuple[StateKind, ...]:
        """What is kept per trainable element beside the master value, in fp32 and sharded alike; matrices: Muon's."""
        moments = _MOMENTS[self.name] if self.name != "sgd" or self.momentum else ()
        moments = (StateKind.MOMENTUM,) if matrices else moments
        return (*moments, StateKind.EMA) if self.ema_decay is not None else moments

    def kinds(self) -> tuple[StateKind, ...]:
        """The training state, in the order in which it is saved and moved."""
        of_matrices = self.beside_master(matrices=True) if self.name == "muon" else ()
        return tuple(dict.fromkeys((StateKind.MASTER, *self.beside_master(), *of_matrices)))

    def hyper(self, name: str, *, ndim: int, ratio: float = 1.0) -> Hyper:
        """The numbers of one parameter."""
        group = next((group for group in self.groups if group.has(name)), ParamGroup(match=()))
        weight_decay = self.weight_decay if ndim >= 2 or self.decay_vectors else 0.0
        return Hyper(
            lr=self.lr if group.lr is None else group.lr,
            weight_decay=weight_decay if group.weight_decay is None else group.weight_decay,
            ratio=ratio,
        )
