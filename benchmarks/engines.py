"""Our engine at every stage beside DDP, ZeroRedundancyOptimizer, FSDP2 and DeepSpeed: interleaved, as ratios.

One table per call, and which aims are met. Step time, CPU time, peak memory above the start, tensors alive between
backward and update, bytes on the wire, and how far the loss is from one process that has all batches. DeepSpeed runs
where `benchmarks/.venv` has it (`make peers`).
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from rich.console import Console
from rich.table import Table

from benchmarks import results
from benchmarks.rounds import Figures, measure, median, ratio

ROOT = Path(__file__).resolve().parents[1]
PEERS_PYTHON = ROOT / "benchmarks/.venv/bin/python"
TORCHS = ("ddp", "zero-redundancy", "fsdp2-kept", "fsdp2-resharded", "fsdp2-cpu")
DEEPSPEEDS = ("deepspeed-1", "deepspeed-2", "deepspeed-3", "deepspeed-3-cpu")
OURS = ("zero-0", "zero-1", "zero-2", "zero-3", "zero-2-cpu", "zero-3-cpu", "zero-3-nvme")
REFERENCE = "reference"
TURN_TIMEOUT_S = 600.0
# fp32 sums in another order; more than this would mean that the contenders did not train the same model.
SAME_LOSS = 1e-5
# (ours, peer, figure, at most): what this project holds itself to on a CPU.
AIMS = (
    ("zero-0", "ddp", "step_s", 1.02),
    ("zero-1", "ddp", "step_s", 1.06),
    ("zero-2", "ddp", "step_s", 1.06),
    ("zero-1", "fsdp2-kept", "step_s", 0.75),
    ("zero-2", "fsdp2-kept", "step_s", 0.75),
    ("zero-1", "deepspeed-1", "step_s", 0.63),
    ("zero-2", "deepspeed-2", "step_s", 0.63),
    ("zero-3", "ddp", "step_s", 1.20),
    ("zero-3", "fsdp2-resharded", "step_s", 0.70),
    ("zero-3", "deepspeed-3", "step_s", 0.60),
    ("zero-3-cpu", "fsdp2-cpu", "step_s", 0.72),
    ("zero-3", "fsdp2-resharded", "peak_rss_bytes", 0.70),
)


class ContenderFailed(Exception):
    """A turn did not end well; the message holds what its ranks wrote."""


def turn(contender: str, settings: argparse.Namespace) -> Figures:
    """Fresh processes train one contender; the figures of rank 0."""
    with tempfile.TemporaryDirectory() as folder:
        ranks = [
            subprocess.Popen(
                command(contender, rank, settings, store=Path(folder) / "store"),
                cwd=ROOT,
                env={**os.environ, "OMP_NUM_THREADS": "1", "DS_ACCELERATOR": "cpu"},
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
            for rank in range(1 if contender == REFERENCE else settings.world)
        ]
        try:
            outputs = [rank.communicate(timeout=TURN_TIMEOUT_S) for rank in ranks]
        finally:
            for rank in ranks:
                rank.kill()
    if any(rank.returncode for rank in ranks):
        raise ContenderFailed(f"{contender}: " + "\n".join(errors[-2000:] for _, errors in outputs))
    # DeepSpeed writes to standard output as well.
    figures: Figures = json.loads(outputs[0][0].strip().splitlines()[-1])
    return figures


def command(contender: str, rank: int, settings: argparse.Namespace, *, store: Path) -> list[str]:
    numbers = {
        "rank": rank,
        "world": 1 if contender == REFERENCE else settings.world,
        "shares": settings.world,
        "batch": settings.batch,
        "seq-len": settings.seq_len,
        "warmup": settings.warmup,
        "steps": settings.steps,
    }
    options = [word for name, value in numbers.items() for word in (f"--{name}", str(value))]
    python = settings.peers if contender in DEEPSPEEDS else sys.executable
    return [str(python), "-m", "benchmarks.engine_rank", contender, settings.model, *options, "--store", str(store)]


def differing(found: dict[str, list[Figures]], loss: float) -> list[str]:
    """Contenders whose last loss is not that of one process with all batches."""
    return [name for name, rounds in found.items() if abs(rounds[0]["loss"] - loss) > SAME_LOSS * abs(loss)]


def show(found: dict[str, list[Figures]], loss: float, console: Console) -> None:
    columns = (
        "step (s)",
        "to DDP",
        "spread",
        "CPU to DDP",
        "peak RSS (MB)",
        "tensors (MB)",
        "wire (MB)",
        "loss off by",
    )
    table = Table("contender", *columns)
    for name, rounds in found.items():
        step, cpu = (ratio(rounds, found["ddp"], figure) for figure in ("step_s", "cpu_s"))
        megabytes = [
            f"{median(rounds, f'{figure}') / 1e6:.0f}"
            for figure in ("peak_rss_bytes", "tensors_bytes", "wire_bytes_per_step")
        ]
        off = abs(rounds[0]["loss"] - loss) / abs(loss)
        spread = f"{step.low:.2f}-{step.high:.2f}"
        table.add_row(
            name,
            f"{median(rounds, 'step_s'):.4f}",
            f"{step.median:.2f}",
            spread,
            f"{cpu.median:.2f}",
            *megabytes,
            f"{off:.0e}",
        )
    console.print(table)


def show_aims(found: dict[str, list[Figures]], console: Console) -> None:
    table = Table("ours", "to", "figure", "ratio", "spread", "at most", "")
    for name, peer, figure, limit in AIMS:
        if name in found and peer in found:
            seen = ratio(found[name], found[peer], figure)
            verdict = "holds" if seen.median <= limit else "misses"
            spread = f"{seen.low:.2f}-{seen.high:.2f}"
            table.add_row(name, peer, figure, f"{seen.median:.2f}", spread, f"{limit:.2f}", verdict)
    console.print(table)
    rounds = len(next(iter(found.values())))
    console.print(f"{rounds} rounds; a ratio is the median of those within a round")


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make bench", description=__doc__)
    parser.add_argument("--model", default="gpt-small")
    parser.add_argument("--world", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=9, help="at most")
    parser.add_argument("--minutes", type=float, help="no round begins that would end later; 7 for gpt-small, else 11")
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--warmup", type=int, default=2)
    parser.add_argument("--batch", type=int, default=2, help="sequences per rank and step")
    parser.add_argument("--seq-len", type=int, default=64)
    parser.add_argument("--contenders", nargs="*", help="these alone; ddp must be among them")
    parser.add_argument("--peers", type=Path, default=PEERS_PYTHON, help="the interpreter that has DeepSpeed")
    settings = parser.parse_args()
    settings.minutes = settings.minutes or (7.0 if settings.model == "gpt-small" else 11.0)
    return settings


def main() -> int:
    settings, console = parse(), Console(width=150)
    contenders = [name for name in settings.contenders or (*TORCHS, *DEEPSPEEDS, *OURS)]
    if not settings.peers.exists():
        console.print("DeepSpeed is not there: `make peers` installs it in an environment of its own", style="yellow")
        contenders = [name for name in contenders if name not in DEEPSPEEDS]
    began = time.monotonic()
    loss = turn(REFERENCE, settings)["loss"]

    def fits(done: int) -> bool:
        expected_s = (time.monotonic() - began) * (done + 1) / done
        return bool(expected_s <= 60 * settings.minutes)

    found = measure(
        contenders, rounds=settings.rounds, turn=lambda contender: said(contender, settings, console), go_on=fits
    )
    show(found, loss, console)
    show_aims(found, console)
    described = {name: str(value) if isinstance(value, Path) else value for name, value in vars(settings).items()}
    name = f"engines-{settings.model}-{settings.world}"
    path = results.write(name, settings=described, figures={**found, REFERENCE: loss})
    console.print(f"written to {path.relative_to(ROOT)}")
    void = differing(found, loss)
    if void:
        console.print(f"void: the losses of {', '.join(void)} are not those of one process", style="red")
    return 1 if void else 0


def said(contender: str, settings: argparse.Namespace, console: Console) -> Figures:
    figures = turn(contender, settings)
    console.print(f"{contender}: {figures['step_s']:.3f} s", style="dim")
    return figures


if __name__ == "__main__":
    sys.exit(main())
