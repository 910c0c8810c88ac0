"""ZeRO 0 to 3 against torch's DDP and FSDP2: time, memory and bytes sent per step, interleaved, as ratios to DDP."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from rich.console import Console
from rich.table import Table

from benchmarks import results
from benchmarks.rounds import Figures, measure, median, ratio

ROOT = Path(__file__).resolve().parents[1]
CONTENDERS = ("ddp", "fsdp2", "zero-0", "zero-1", "zero-2", "zero-3")
REFERENCE = "ddp"
TURN_TIMEOUT_S = 300.0
# fp32 sums in another order; more than this would mean that the contenders did not train the same model.
SAME_LOSS = 1e-4


class ContenderFailed(Exception):
    """A turn did not end well; the message holds what its ranks wrote."""


def turn(contender: str, settings: argparse.Namespace) -> Figures:
    """Fresh processes train one contender; the figures of rank 0."""
    with tempfile.TemporaryDirectory() as folder:
        ranks = [
            subprocess.Popen(
                command(contender, rank, settings, store=Path(folder) / "store"),
                cwd=ROOT,
                env={**os.environ, "OMP_NUM_THREADS": "1"},
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
            for rank in range(settings.world)
        ]
        try:
            outputs = [rank.communicate(timeout=TURN_TIMEOUT_S) for rank in ranks]
        finally:
            for rank in ranks:
                rank.kill()
    if any(rank.returncode for rank in ranks):
        raise ContenderFailed(f"{contender}: " + "\n".join(errors[-2000:] for _, errors in outputs))
    figures: Figures = json.loads(outputs[0][0])
    return figures


def command(contender: str, rank: int, settings: argparse.Namespace, *, store: Path) -> list[str]:
    numbers = {
        "rank": rank,
        "world": settings.world,
        "batch": settings.batch,
        "seq-len": settings.seq_len,
        "warmup": settings.warmup,
        "steps": settings.steps,
    }
    options = [word for name, value in numbers.items() for word in (f"--{name}", str(value))]
    return [sys.executable, "-m", "benchmarks.engine_rank", contender, settings.model, *options, "--store", str(store)]


def differing(found: dict[str, list[Figures]]) -> list[str]:
    """Contenders whose last loss is not the reference's."""
    reference = found[REFERENCE][0]["loss"]
    return [name for name, rounds in found.items() if abs(rounds[0]["loss"] - reference) > SAME_LOSS * abs(reference)]


def show(found: dict[str, list[Figures]], console: Console) -> None:
    table = Table(
        "contender", "step (s)", "to DDP", "spread", "CPU to DDP", "peak memory (MB)", "states (MB)", "sent (MB)"
    )
    for name, rounds in found.items():
        step, cpu = (ratio(rounds, found[REFERENCE], figure) for figure in ("step_s", "cpu_s"))
        counted = [
            f"{rounds[0][key] / 1e6:.1f}" if key in rounds[0] else "-"
            for key in ("states_bytes", "sent_bytes_per_step")
        ]
        table.add_row(
            name,
            f"{median(rounds, 'step_s'):.4f}",
            f"{step.median:.2f}",
            f"{step.low:.2f}-{step.high:.2f}",
            f"{cpu.median:.2f}",
            f"{median(rounds, 'peak_rss_bytes') / 1e6:.0f}",
            *counted,
        )
    console.print(table)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make bench", description=__doc__)
    parser.add_argument("--model", default="gpt-small")
    parser.add_argument("--world", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--warmup", type=int, default=2)
    parser.add_argument("--batch", type=int, default=2, help="sequences per rank and step")
    parser.add_argument("--seq-len", type=int, default=64)
    return parser.parse_args()


def main() -> int:
    settings, console = parse(), Console()
    found = measure(CONTENDERS, rounds=settings.rounds, turn=lambda contender: turn(contender, settings))
    show(found, console)
    path = results.write("engines", settings=vars(settings), figures=found)
    console.print(f"written to {path.relative_to(ROOT)}")
    void = differing(found)
    if void:
        console.print(f"void: the losses of {', '.join(void)} are not those of {REFERENCE}", style="red")
    return 1 if void else 0


if __name__ == "__main__":
    sys.exit(main())
