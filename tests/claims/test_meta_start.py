"""An engine that starts from a blueprint has the bits of the ordinary build, and never holds the whole model."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from service.domain.presets import GptShape
from tests.claims.ranks import on_ranks, world_group
from tests.claims.training import batch, gpt, zero_engine
from workers.engine.precision import Precision
from workers.engine.states import StateKind
from workers.engine.zero.engine import ZeroEngine
from workers.models.blueprint import draw_up
from workers.models.gpt import Gpt

PRECISIONS = {
    "fp32": Precision(),
    "bf16": Precision(params=torch.bfloat16, reduce=torch.float32, buffers=torch.float32),
}


class Mixed(nn.Module):
    """Frozen, tied, scalar, empty, of several types; some with memory from the start, and a buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(7, 6)
        self.frozen = nn.Linear(6, 5).requires_grad_(False)
        self.half = nn.Linear(5, 6, dtype=torch.bfloat16)
        self.blocks = nn.ModuleList(nn.Linear(6, 6) for _ in range(3))
        self.blocks[2].weight = self.blocks[0].weight
        self.scale = nn.Parameter(torch.tensor(0.5))
        self.drawn = nn.Parameter(torch.rand(()))
        self.empty = nn.Parameter(torch.empty(0, 4))
        self.index = nn.Parameter(torch.randint(9, (5,)), requires_grad=False)
        self.register_buffer("noise", torch.randn(6))


def mixed() -> nn.Module:
    torch.manual_seed(4)
    return Mixed()


def _starts(rank: int, world: int) -> list[str]:
    """What differs; nothing should."""
    wrong: list[str] = []
    for build in (gpt, mixed):
        for stage in range(4):
            for label, precision in PRECISIONS.items():
                blueprint = draw_up(build)
                assert len(blueprint.hollow) > 3
                drawn = zero_engine(blueprint.model, world_group(), stage=stage, precision=precision)
                blueprint.start(drawn, rank=rank)
                ordinary = zero_engine(build(), world_group(), stage=stage, precision=precision)
                assert drawn.layout().of(rank) == ordinary.layout().of(rank)
                for piece in ordinary.layout().of(rank):
                    values = [engine.export(StateKind.MASTER, piece) for engine in (drawn, ordinary)]
                    if not torch.equal(*values):
                        wrong.append(f"{build.__name__}, stage {stage}, {label}: {piece}")
                if build is gpt and (label == "fp32" or stage == 3):
                    losses = [_two_steps(engine) for engine in (drawn, ordinary)]
                    if not torch.equal(*losses):
                        wrong.append(f"stage {stage}, {label}: losses {losses}")
    return wrong


def _two_steps(engine: ZeroEngine) -> Tensor:
    losses = []
    for step in (1, 2):
        losses.append(engine.micro_step(batch(step, 0), weight=0.5, last=True))
        engine.step(lr_scale=1.0)
    return torch.stack(losses)


@pytest.mark.parametrize("world", [1, 3])
def test_every_stage_starts_and_goes_on_as_from_the_whole_model(world: int) -> None:
    assert on_ranks(world, _starts) == [[]] * world


LARGE = GptShape(layers=8, width=512, heads=8, vocab=256, context=64)
SLACK_BYTES = 24 * 2**20


def _peak_bytes(rank: int, world: int, whole: bool) -> int:
    """Of this process's memory while an engine of stage 3 starts, above what it was and what rests in the end."""
    before = _resident_bytes("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")
    blueprint = draw_up(lambda: Gpt(LARGE))
    if whole:
        blueprint.materialise()
        return _resident_bytes("VmHWM") - before
    engine = zero_engine(blueprint.model, world_group(), stage=3)
    blueprint.start(engine, rank=rank)
    resting = sum(size for tiers in engine.footprint().by_kind.values() for size in tiers.values())
    return _resident_bytes("VmHWM") - before - resting


def _resident_bytes(name: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(name))


def test_at_stage_3_no_rank_holds_more_than_its_state_and_a_few_units() -> None:
    limit = 3 * 4 * LARGE.block_numel + SLACK_BYTES
    assert max(on_ranks(2, _peak_bytes, False)) < limit
    assert min(on_ranks(2, _peak_bytes, True)) > limit, "the measure does not see a whole model"
