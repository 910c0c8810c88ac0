"""docs/memory.md: what the field knows about sharding, computed by the functions that plan and admit.

To renew it: python -m service.domain.memory_page > docs/memory.md
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from service.domain.memory import Recipe, elements_per_step, recipe, state_bytes
from service.domain.spec import PrecisionSpec

# ZeRO paper, figure 1: mixed-precision Adam with two-byte parameters and gradients.
PAPER = Recipe(param=2, grad=2, master=4, moments=8)
PAPER_NUMEL, PAPER_RANKS = 7_500_000_000, 64
RANKS = (1, 4, 16, 64, 256, 1024)
STAGES = (0, 1, 2, 3)
NAMES = ("DDP (stage 0)", "ZeRO stage 1", "ZeRO stage 2, FSDP SHARD_GRAD_OP", "ZeRO stage 3, FSDP FULL_SHARD")
SHARDED = ("nothing", "optimizer state", "and gradients", "and parameters")
FORMULAS = ("16P", "4P + 12P/N", "2P + 14P/N", "16P/N")
TRAFFIC = ("2P", "2P", "(k + 1)P", "3kP")
WHEN = (
    "everything fits; nothing is simpler",
    "memory is slightly short: it moves no more than DDP",
    "the usual choice",
    "the parameters themselves do not fit; 1.5 times the traffic, fetched ahead of its use",
)
FOOT = """
P: parameters; N: ranks; k: micro-batches of a rank in a step. An all-reduce is a reduce-scatter and an all-gather, so
sharding sits between its halves for no extra traffic. Traffic is in elements that a rank moves per step.

What comes on top of the states, and is in every plan: the units that are whole at a time (stage 3), gradients on their
way, activations, logits. Offload moves kinds of state to host memory or a disk when stage 3 is still not enough.

Source: Rajbhandari et al., ZeRO: Memory Optimizations Toward Training Trillion Parameter Models, 2020
(arXiv:1910.02054), figure 1 and table 1.
"""


def page() -> str:
    """The whole document."""
    parts = [
        "# Memory and traffic of data parallelism",
        "Written by `python -m service.domain.memory_page`; a test keeps it equal to the code.",
        f"## {PAPER_NUMEL / 1e9:g} billion parameters on {PAPER_RANKS} devices",
        _table(
            ("", "sharded", "bytes of states", "GB per device", "saving", "traffic", "k = 1", "k = 4", "take it when"),
            map(_line, STAGES),
        ),
        f"## The same model, GB per device by N (N = {', '.join(map(str, RANKS))})",
        _table(("", *(f"N = {ranks}" for ranks in RANKS)), map(_by_ranks, STAGES)),
        "## What `engine: zero` keeps, bytes per parameter",
        "`bf16` with AdamW. At stage 3 the fp32 shard is the master and is cast while it is gathered: there is no\n"
        "two-byte copy at rest, and gradients are summed in fp32.",
        _table(("", "parameter", "gradient", "master", "moments", "in all"), map(_ours, STAGES)),
    ]
    return "\n\n".join(parts) + "\n" + FOOT


def gigabytes(stage: int, *, ranks: int) -> float:
    """Of one device, states alone, in the paper's example."""
    return sum(state_bytes(numel=PAPER_NUMEL, workers=ranks, stage=stage, recipe=PAPER).values()) / 1e9


def _line(stage: int) -> tuple[str, ...]:
    size, whole = gigabytes(stage, ranks=PAPER_RANKS), gigabytes(0, ranks=PAPER_RANKS)
    moved = (
        f"{elements_per_step(numel=1, workers=PAPER_RANKS, stage=stage, micro_batches=turns)}P" for turns in (1, 4)
    )
    saving = f"{whole / size:.1f}x" if stage else "-"
    return (NAMES[stage], SHARDED[stage], FORMULAS[stage], f"{size:.1f}", saving, TRAFFIC[stage], *moved, WHEN[stage])


def _by_ranks(stage: int) -> tuple[str, ...]:
    return (NAMES[stage], *(f"{gigabytes(stage, ranks=ranks):.3g}" for ranks in RANKS))


def _ours(stage: int) -> tuple[str, ...]:
    rule = recipe(PrecisionSpec(), stage=stage)
    kept = (rule.param, rule.grad, rule.master, rule.moments)
    return (f"stage {stage}", *(f"{size:g}" for size in kept), f"{sum(kept):g}")


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


if __name__ == "__main__":
    print(page(), end="")
