"""Claim: in deterministic mode the curve and the state are the same bits at any stage and whatever the workers were."""

from __future__ import annotations

import torch.distributed as dist

from tests.claims.ranks import on_ranks, world_group
from tests.claims.test_reshard_is_exact import load_whole, state_of, whole_of
from tests.claims.training import Curve, gpt, train_step, zero_engine
from workers.engine.zero.engine import ZeroEngine

STEPS = 40
SIZES = (2, 4, 3, 1, 3)
# More than any size, and a multiple of none but one.
MICRO_BATCHES = 5
End = tuple[Curve, list[bytes]]


def _engine(group: dist.ProcessGroup, stage: int) -> ZeroEngine:
    return zero_engine(gpt(), group, stage=stage, deterministic=True)


def _train(engine: ZeroEngine, steps: range, *, rank: int, world: int) -> Curve:
    return [train_step(engine, step, rank=rank, world=world, count=MICRO_BATCHES, dealt=True) for step in steps]


def _bits(engine: ZeroEngine | None, rank: int) -> list[bytes]:
    """Of the whole state."""
    whole = whole_of(state_of(engine, rank) if engine is not None else {})
    return [values.numpy().tobytes() for _, values in sorted(whole.items(), key=str)]


def _alone(rank: int, world: int) -> list[End]:
    ends = []
    for stage in range(4):
        engine = _engine(world_group(), stage)
        ends.append((_train(engine, range(1, STEPS + 1), rank=0, world=1), _bits(engine, rank)))
    return ends


def _journeys(rank: int, world: int) -> list[End]:
    groups = [dist.new_group(list(range(size))) for size in SIZES]
    return [_journey(groups, stage, rank) for stage in range(4)]


def _journey(groups: list[dist.ProcessGroup], stage: int, rank: int) -> End:
    """Rank 0 is always there; the others come and go with the size."""
    engine, curve, each = None, [], STEPS // len(SIZES)
    for number, size in enumerate(SIZES):
        whole = whole_of(state_of(engine, rank) if engine is not None else {}) if number else {}
        told = [engine.scalars() if engine is not None else {}]
        dist.broadcast_object_list(told, src=0)
        if rank >= size:
            engine = None
            continue
        if engine is None:
            engine = _engine(groups[number], stage)
        else:
            engine.rejoin(groups[number])
        if number:
            load_whole(engine, rank, whole, told[0])
        curve += _train(engine, range(number * each + 1, (number + 1) * each + 1), rank=rank, world=size)
    return curve, _bits(engine, rank)


def test_no_resize_changes_a_bit_at_any_stage() -> None:
    (alone,) = on_ranks(1, _alone)
    curve, bits = alone[0]
    assert all(end == (curve, bits) for end in alone), "one stage gives other bits than another"
    # Rank 0 saw every step.
    for stage, (resized, ended) in enumerate(on_ranks(max(SIZES), _journeys)[0]):
        assert resized == curve, f"stage {stage}"
        assert ended == bits, f"stage {stage}"
