"""Claim: what was saved exactly at the end of an epoch goes on into the next, at another size, on the same curve."""

from __future__ import annotations

import tempfile
from collections import Counter
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from service.domain.spec import JobSpec
from tests.claims.ranks import on_ranks
from tests.claims.test_checkpoints_cross_every_size_and_stage import save
from tests.claims.training import SHAPE, gpt, zero_engine
from tests.unit.worker.test_loop import ScriptedHost
from workers.checkpoint.catalogue import newest_complete
from workers.checkpoint.reader import read_into
from workers.checkpoint.store import LocalStore
from workers.data.loader import Loader
from workers.engine.zero.engine import ZeroEngine
from workers.worker.loop import Ending, Loop, Place
from workers.worker.messages import Points
from workers.worker.outbox import Outbox
from workers.worker.recorder import Recorder
from workers.worker.wishes import Wishes

BATCH, SAMPLES, STEPS = 6, 18, 9
EPOCH = SAMPLES // BATCH
Leg = tuple[list[float], list[int]]  # losses by step, samples that this rank drew


class Sequences:
    """A dataset of 18, which remembers what was drawn."""

    def __init__(self) -> None:
        self.drawn: list[int] = []

    def __len__(self) -> int:
        return SAMPLES

    def __getitem__(self, index: int) -> Tensor:
        self.drawn.append(index)
        return torch.randint(SHAPE.vocab, (SHAPE.context + 1,), generator=torch.Generator().manual_seed(index))


def trained(engine: ZeroEngine, place: Place, *, after: int, until: int) -> Leg:
    training = {
        "steps": until,
        "batch_size": BATCH,
        "micro_batch_size": 1,
        "seed": 3,
        "schedule": {"name": "constant"},
    }
    data, outbox, host = Sequences(), Outbox(), ScriptedHost()
    loader: Any = Loader(data, seed=3)
    loop = Loop(
        spec=JobSpec.model_validate({"model": "gpt-tiny", "training": training}),
        place=place,
        engine=engine,
        loader=loader,
        wishes=Wishes(),
        recorder=Recorder(outbox, generation=1, rank=place.rank, memory=dict),
        measure=nullcontext,
        host=host,
    )
    assert loop.run(after) is Ending.FINISHED
    assert host.saved == [until], "the end of the epoch is saved"
    loader.close()
    points = [report for _, report in outbox.fetch(after=-1, wait_s=0) if isinstance(report, Points)]
    return [point.values["loss"] for point in points if point.rank is None], data.drawn


def _epochs(rank: int, world: int, folder: str) -> dict[str, Leg]:
    """One epoch on two ranks, saved; two more on three; and all three in one process."""
    store, two, one = LocalStore(Path(folder)), dist.new_group([0, 1]), dist.new_group([0])
    legs: dict[str, Leg] = {}
    if rank < 2:
        engine = zero_engine(gpt(), two, stage=2)
        legs["first"] = trained(engine, Place(generation=1, rank=rank, world_size=2), after=0, until=EPOCH)
        save(store, engine, two, rank, step=EPOCH)
    dist.barrier()
    manifest = newest_complete(store, "j").manifest
    assert manifest is not None
    everyone = dist.group.WORLD
    assert everyone is not None
    engine = zero_engine(gpt(seed=2), everyone, stage=3)
    read_into(engine, rank=rank, manifest=manifest, store=store)
    engine.commit_load()
    place = Place(generation=2, rank=rank, world_size=3)
    legs["others"] = trained(engine, place, after=manifest.step, until=STEPS)
    if rank == 0:
        engine = zero_engine(gpt(), one, stage=0)
        legs["alone"] = trained(engine, Place(generation=1, rank=0, world_size=1), after=0, until=STEPS)
    return legs


def test_the_next_epoch_follows_on_the_same_curve_and_every_sample_is_drawn_once_in_each() -> None:
    with tempfile.TemporaryDirectory() as folder:
        found = on_ranks(3, _epochs, folder)
    losses = [*found[0]["first"][0], *found[0]["others"][0]]
    assert len(losses) == STEPS
    torch.testing.assert_close(torch.tensor(losses), torch.tensor(found[0]["alone"][0]), rtol=1e-5, atol=0)
    first = Counter(sample for legs in found[:2] for sample in legs["first"][1])
    others = Counter(sample for legs in found for sample in legs["others"][1])
    assert first == Counter(range(SAMPLES))
    assert others == Counter([*range(SAMPLES)] * 2)
