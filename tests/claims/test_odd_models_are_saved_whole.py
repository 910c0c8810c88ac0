"""Claim: ties, frozen and odd-sized parameters and buffers outlive save, load at another size, and export."""

from __future__ import annotations

import itertools
from pathlib import Path

import torch
import torch.distributed as dist
import torch.nn.functional as F
from safetensors.torch import load_file
from torch import Tensor, nn

from tests.claims.ranks import on_ranks, world_group
from tests.claims.scenarios import Layer
from tests.claims.test_checkpoints_cross_every_size_and_stage import save
from tests.claims.training import zero_engine
from workers.checkpoint.catalogue import inspect
from workers.checkpoint.export import to_hugging_face
from workers.checkpoint.reader import read_into
from workers.checkpoint.store import LocalStore
from workers.engine.states import StateKind
from workers.engine.zero.engine import ZeroEngine

VOCAB, WIDTH = 7, 5
State = dict[str, Tensor]


class Odd(nn.Module):
    """A tied embedding of 7 rows, a frozen vector, buffers of each kind."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        torch.manual_seed(seed)
        self.table = nn.Embedding(VOCAB, WIDTH)
        self.blocks = nn.ModuleList(Layer(WIDTH, 3) for _ in range(2))
        self.head = nn.Linear(WIDTH, VOCAB, bias=False)
        self.head.weight = self.table.weight
        self.frozen = nn.Parameter(torch.randn(WIDTH), requires_grad=False)
        self.register_buffer("seen", torch.tensor(2**40 + seed))
        self.register_buffer("mean", torch.randn(3))
        self.register_buffer("scratch", torch.randn(2), persistent=False)

    def forward(self, seed: int) -> Tensor:
        tokens = torch.randint(VOCAB, (4, 9), generator=torch.Generator().manual_seed(seed))
        x = self.table(tokens[:, :-1]) + self.frozen
        for block in self.blocks:
            x = block(x)
        return F.cross_entropy(self.head(x).flatten(0, 1), tokens[:, 1:].flatten())


def _train(engine: ZeroEngine, steps: range, rank: int, world: int) -> list[float]:
    """Six micro-batches a step, whatever the number of ranks."""
    norms = []
    for step in steps:
        mine = range(6)[rank::world]
        for micro in mine:
            engine.micro_step(10 * step + micro, weight=1 / 6, last=micro == mine[-1])
        norms.append(engine.step(lr_scale=1.0).grad_norm)
    return norms


def _state(engine: ZeroEngine, rank: int) -> dict[str, Tensor]:
    """This rank's own, and the buffers."""
    kept = {
        f"{kind} {piece}": engine.export(kind, piece).clone()
        for kind, piece in itertools.product(engine.kinds(), engine.layout().of(rank))
    }
    return kept | {name: buffer.clone() for name, buffer in engine.buffers().items()}


def _load(store: LocalStore, engine: ZeroEngine, rank: int, step: int) -> None:
    manifest = inspect(store, "j", step)
    read_into(engine, rank=rank, manifest=manifest, store=store)
    engine.load_scalars(manifest.scalars)
    engine.commit_load()


def _journey(rank: int, world: int, folder: str) -> tuple[list[float], list[float], list[bool]]:
    """Three ranks train and save; two of them load, save at once, load that, and both groups go on."""
    store, two = LocalStore(Path(folder)), dist.new_group([0, 1])
    first = zero_engine(Odd(1), world_group(), stage=3)
    _train(first, range(2), rank, world)
    save(store, first, world_group(), rank, step=1)
    dist.barrier()
    whole = _train(first, range(2, 4), rank, world)
    if rank == 2:
        return whole, whole, []
    model = Odd(2)
    second = zero_engine(model, two, stage=1)
    _load(store, second, rank, 1)
    save(store, second, two, rank, step=2)
    dist.barrier(two)
    third = zero_engine(Odd(3), two, stage=1)
    _load(store, third, rank, 2)
    ours, theirs = _state(second, rank), _state(third, rank)
    same = [ours.keys() == theirs.keys(), *(torch.equal(ours[key], theirs[key]) for key in ours)]
    same += [model.head.weight is model.table.weight, int(model.seen) == 2**40 + 1]
    rows = next(piece for piece in second.layout().of(rank) if piece.tensor == "table.weight")
    before = second.export(StateKind.MASTER, rows).clone()
    resumed = _train(second, range(2, 4), rank, 2)
    same += [bool((second.export(StateKind.MASTER, rows) != before).all())]
    return whole, resumed, same


def test_a_tied_embedding_that_no_number_of_ranks_divides_is_saved_loaded_and_saved_again(tmp_path: Path) -> None:
    for whole, resumed, same in on_ranks(3, _journey, str(tmp_path)):
        assert all(same), same
        torch.testing.assert_close(torch.tensor(resumed), torch.tensor(whole), rtol=1e-5, atol=0)


def test_shared_frozen_and_odd_sized_parameters_are_exported_as_plain_torch_loads_them(tmp_path: Path) -> None:
    losses, *_ = on_ranks(3, _saved, str(tmp_path / "store"))
    store = LocalStore(tmp_path / "store")
    to_hugging_face(store, inspect(store, "j", 1), tmp_path / "out")
    untrained, other = Odd(1), Odd(2)
    other.load_state_dict(load_file(tmp_path / "out" / "model.safetensors"), strict=True)
    assert other.head.weight is other.table.weight
    assert not torch.equal(other.table.weight, untrained.table.weight)
    for name, kept in (("frozen", untrained.frozen), ("seen", untrained.seen), ("mean", untrained.mean)):
        assert torch.equal(getattr(other, name), kept), name
    assert {other(seed).item() for seed in range(3)} == {*losses}


def _saved(rank: int, world: int, folder: str) -> list[float]:
    """Three losses of the model that was saved."""
    model = Odd(1)
    engine = zero_engine(model, world_group(), stage=2)
    _train(engine, range(2), rank, world)
    save(LocalStore(Path(folder)), engine, world_group(), rank, step=1, extra={"ties": {"head.weight": "table.weight"}})
    return [model(seed).item() for seed in range(3)]
