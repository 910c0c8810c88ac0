"""Our checkpoints against torch's DCP, torch.save and the bare disk: seconds, pause of training, bytes, peak memory.

110M parameters with AdamW; saved on 2 and on 4 ranks, at once and behind training; loaded 2 -> 2, 2 -> 3 and 4 -> 2.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table

from benchmarks import results
from benchmarks.rounds import Figures, measure, median, ratio
from service.domain.presets import PRESETS

ROOT = Path(__file__).resolve().parents[1]
CONTENDERS = ("ours", "dcp", "raw", "torch-save")
# (ranks that save, ranks that load each of them)
SHAPES = ((2, (2, 3)), (4, (2,)))
TURN_TIMEOUT_S = 600.0
STATES = 3  # master and two moments
ELEMENT_BYTES = 4
# What the issue asks of ours: figure, reference, figure of the reference, at most.
AIMS = (
    ("save_2_s", "dcp", "save_2_s", 1.0),
    ("save_4_s", "dcp", "save_4_s", 1.0),
    ("save_2_s", "raw", "save_2_s", 1.15),
    ("save_4_s", "raw", "save_4_s", 1.15),
    ("second_pause_2_s", "dcp", "second_pause_2_s", 0.3),
    ("second_pause_4_s", "dcp", "second_pause_4_s", 0.3),
    ("load_2_2_s", "dcp", "load_2_2_s", 0.6),
    ("load_2_3_s", "dcp", "load_2_3_s", 0.6),
    ("load_4_2_s", "dcp", "load_4_2_s", 0.6),
)


class ContenderFailed(Exception):
    """A turn did not end well; the message holds what its processes wrote."""


def together(commands: Sequence[list[str]]) -> list[str]:
    """Run at the same time; what each printed."""
    processes = [
        subprocess.Popen(
            command,
            cwd=ROOT,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for command in commands
    ]
    try:
        outputs = [process.communicate(timeout=TURN_TIMEOUT_S) for process in processes]
    finally:
        for process in processes:
            process.kill()
    if any(process.returncode for process in processes):
        raise ContenderFailed("\n".join(errors[-2000:] for _, errors in outputs))
    return [output for output, _ in outputs]


def ranks(act: str, contender: str, model: str, *, world: int, folder: Path) -> Figures:
    with tempfile.TemporaryDirectory() as meeting:
        options = ["--world", str(world), "--folder", str(folder), "--meeting", f"{meeting}/store"]
        command = [sys.executable, "-m", "benchmarks.checkpoint_rank", act, contender, model, *options]
        printed = together([[*command, "--rank", str(rank)] for rank in range(world)])
    figures: Figures = json.loads(printed[0].strip().splitlines()[-1])
    return figures


def size_bytes(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def saved_and_loaded(contender: str, model: str, folder: Path) -> dict[str, float]:
    found: dict[str, float] = {}
    for savers, loaders in SHAPES if contender != "torch-save" else ((1, (1,)),):
        place = folder / str(savers)
        place.mkdir()
        figures = ranks("save", contender, model, world=savers, folder=place)
        found |= {_named(name, savers): value for name, value in figures.items()}
        # The ranks saved as often as they have figures of a save's end: once, or once and twice behind training.
        found[f"size_{savers}_bytes"] = size_bytes(place) / (3 if "second_pause_s" in figures else 1)
        for world in loaders:
            figures = ranks("load", contender, model, world=world, folder=place)
            found |= {_named(name, savers, world): value for name, value in figures.items()}
    return found


def _named(name: str, *numbers: int) -> str:
    """`save_peak_bytes` at 2 ranks -> `save_peak_2_bytes`."""
    stem, _, unit = name.rpartition("_")
    return "_".join([stem, *map(str, numbers), unit])


def raw(numel: int, folder: Path) -> dict[str, float]:
    """As many processes as ranks, each with its share."""
    total = numel * STATES * ELEMENT_BYTES
    found: dict[str, float] = {}
    command = [sys.executable, "-m", "benchmarks.raw_disk"]
    for savers, loaders in SHAPES:
        written = together(
            [[*command, "write", f"{folder}/{savers}-{rank}", str(total // savers)] for rank in range(savers)]
        )
        found[f"save_{savers}_s"] = max(map(float, written))
        found[f"size_{savers}_bytes"] = float(total)
        read = together([[*command, "read", f"{folder}/{savers}-{rank}", "0"] for rank in range(savers)])
        found |= {f"load_{savers}_{world}_s": max(map(float, read)) for world in loaders}
    return found


def turn(contender: str, settings: argparse.Namespace, numel: int) -> Figures:
    with tempfile.TemporaryDirectory(dir=settings.disk) as folder:
        if contender == "raw":
            return raw(numel, Path(folder))
        return saved_and_loaded(contender, settings.model, Path(folder))


def show(found: dict[str, list[Figures]], console: Console) -> None:
    names = sorted({name for rounds in found.values() for name in rounds[0]})
    table = Table("figure", *found)
    for name in names:
        cells = [_cell(name, median(rounds, name)) if name in rounds[0] else "-" for rounds in found.values()]
        table.add_row(name, *cells)
    console.print(table)


def _cell(name: str, value: float) -> str:
    return f"{value / 1e6:.0f} MB" if name.endswith("_bytes") else f"{value:.2f}"


def judged(found: dict[str, list[Figures]], numel: int, say: Callable[[str], None]) -> None:
    """Each aim beside what was found. A busy machine decides nothing, so nothing fails here."""
    for ours, reference, theirs, most in AIMS:
        other = [{ours: figures[theirs]} for figures in found[reference]]
        seen = ratio(found["ours"], other, ours)
        verdict = "reached" if seen.median <= most else "NOT reached"
        say(f"{ours}: {seen.median:.2f} ({seen.low:.2f}-{seen.high:.2f}) x {reference}, aim {most}: {verdict}")
    state_bytes = numel * STATES * ELEMENT_BYTES
    for savers, _ in SHAPES:
        peak, size = median(found["ours"], f"save_peak_{savers}_bytes"), median(found["ours"], f"size_{savers}_bytes")
        share = peak / (state_bytes / savers)
        say(
            f"save on {savers}: {size / state_bytes:.4f} x the bytes of the state, peak {share:.3f} above a rank's part"
        )


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.checkpoints", description=__doc__)
    parser.add_argument("--model", default="gpt-medium")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument(
        "--disk", default=None, help="a folder on the disk to measure; default: that of temporary files"
    )
    return parser.parse_args()


def main() -> int:
    settings, console = parse(), Console()
    numel = PRESETS[settings.model].numel
    found = measure(CONTENDERS, rounds=settings.rounds, turn=lambda contender: turn(contender, settings, numel))
    show(found, console)
    judged(found, numel, console.print)
    path = results.write("checkpoints", settings={**vars(settings), "parameters": numel}, figures=found)
    console.print(f"written to {path.relative_to(ROOT)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
