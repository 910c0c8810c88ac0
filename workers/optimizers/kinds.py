"""The kinds of state that training keeps per parameter element."""

from __future__ import annotations

from enum import StrEnum


class StateKind(StrEnum):
    """What a byte is for. MASTER and what an optimizer keeps beside it (named as torch's optimizers name it; EMA, the
    average of the weights) are the training state; PARAM is derived from MASTER by a cast, or is itself the fp32
    master: then no MASTER rests."""

    PARAM = "param"
    GRAD = "grad"
    MASTER = "master"
    EXP_AVG = "exp_avg"
    EXP_AVG_SQ = "exp_avg_sq"
    MOMENTUM = "momentum_buffer"
    SUM = "sum"
    EMA = "ema"
