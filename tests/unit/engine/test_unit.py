from __future__ import annotations

import pytest
import torch
from torch import nn

from workers.engine.units import UnitRule, group_units
from workers.engine.zero.unit import FlatPlan, Slot, plan_of
from workers.layout.interval import Interval
from workers.layout.layout import Piece


def mlp(width: int = 4) -> nn.Sequential:
    return nn.Sequential(nn.Linear(width, width), nn.Linear(width, width))


class Stack(nn.Module):
    def __init__(self, blocks: int = 3) -> None:
        super().__init__()
        self.first = nn.Linear(4, 4)
        self.blocks = nn.ModuleList(mlp() for _ in range(blocks))
        self.mixed = nn.ModuleList([nn.Linear(4, 4), nn.LayerNorm(4)])
        self.last = nn.Linear(4, 2)


def names(model: nn.Module, rule: UnitRule) -> list[str]:
    return [unit.name for unit in group_units(model, rule)]


def test_repeated_blocks_are_units_and_all_else_is_the_root() -> None:
    root, *blocks = group_units(Stack(), UnitRule())
    assert [unit.name for unit in blocks] == ["blocks.0", "blocks.1", "blocks.2"]
    assert set(root.params) == {
        *("first.weight", "first.bias", "last.weight", "last.bias"),
        *("mixed.0.weight", "mixed.0.bias", "mixed.1.weight", "mixed.1.bias"),
    }


def test_a_model_without_repeated_blocks_is_one_unit() -> None:
    assert names(mlp(), UnitRule()) == ["root"]


def test_lists_inside_a_block_belong_to_the_block() -> None:
    model = nn.Module()
    model.experts = nn.ModuleList(Stack() for _ in range(2))
    assert names(model, UnitRule()) == ["root", "experts.0", "experts.1"]


def test_units_by_class_take_the_outermost_instances() -> None:
    assert names(Stack(), UnitRule(layers=["Sequential", "LayerNorm"])) == [
        *("root", "blocks.0", "blocks.1", "blocks.2", "mixed.1")
    ]


def test_a_class_that_the_model_lacks_is_named_with_those_that_it_has() -> None:
    with pytest.raises(ValueError, match=r"Blok.*LayerNorm.*Linear"):
        group_units(Stack(), UnitRule(layers=["Blok"]))


def test_units_by_size_are_the_smallest_modules_that_reach_it() -> None:
    assert names(Stack(), UnitRule(min_params=20)) == [
        *(
            "root",
            "first",
            "blocks.0.0",
            "blocks.0.1",
            "blocks.1.0",
            "blocks.1.1",
            "blocks.2.0",
            "blocks.2.1",
            "mixed.0",
        )
    ]
    assert names(Stack(), UnitRule(min_params=40)) == ["root", "blocks.0", "blocks.1", "blocks.2"]


def test_neighbours_in_a_list_join_until_they_reach_the_size() -> None:
    root, joined = group_units(Stack(), UnitRule(min_params=80))
    assert joined.modules == tuple(list(root.modules[0].children())[1])[:2]
    assert joined.name == "blocks.0"
    assert "blocks.2.0.weight" in root.params


def test_layers_and_size_exclude_each_other() -> None:
    with pytest.raises(ValueError, match="exclude"):
        group_units(Stack(), UnitRule(layers=["Linear"], min_params=3))


def test_a_matrix_tied_across_units_belongs_to_the_root_under_its_first_name() -> None:
    model = Stack()
    model.blocks[2][0].weight = model.blocks[0][1].weight
    model.last.bias = nn.Parameter(torch.zeros(2))
    model.blocks[1][1].bias = model.first.bias
    root, first, second, third = group_units(model, UnitRule())
    assert {"blocks.0.1.weight", "first.bias"} <= set(root.params)
    assert "blocks.2.0.weight" not in third.params
    assert len(first.params) == 3
    assert "blocks.1.1.bias" not in second.params


def test_a_block_listed_twice_is_one_unit() -> None:
    model = nn.Module()
    block = mlp()
    model.blocks = nn.ModuleList([block, mlp(), block])
    assert names(model, UnitRule()) == ["root", "blocks.0", "blocks.1"]


def test_every_parameter_is_in_exactly_one_flat_vector_by_dtype_and_trainability() -> None:
    model = Stack()
    model.first.weight.requires_grad_(False)
    model.last.register_parameter("codes", nn.Parameter(torch.zeros(3, dtype=torch.uint8), requires_grad=False))
    units = [
        plan_of(unit, lambda dtype: torch.bfloat16 if dtype.is_floating_point else dtype)
        for unit in group_units(model, UnitRule())
    ]
    slots = [slot.name for unit in units for flat in unit.flats for slot in flat.slots]
    assert sorted(slots) == sorted(name for name, _ in model.named_parameters())
    kinds = {(flat.dtype, flat.trainable) for flat in units[0].flats}
    assert kinds == {(torch.bfloat16, True), (torch.bfloat16, False), (torch.uint8, False)}


PLAN = FlatPlan(
    dtype=torch.float32,
    trainable=True,
    slots=(
        Slot(name="a", start=0, shape=(3, 2)),
        Slot(name="scalar", start=6, shape=()),
        Slot(name="empty", start=7, shape=(0, 4)),
        Slot(name="b", start=7, shape=(4,)),
    ),
)


def test_shards_are_equal_and_cover_the_vector() -> None:
    for world in range(1, 15):
        shards = [PLAN.shard(rank, world) for rank in range(world)]
        assert len({shard.numel for shard in shards}) == 1
        assert [shard.start for shard in shards[1:]] == [shard.stop for shard in shards[:-1]]
        assert shards[-1].stop - PLAN.numel < world


def test_pieces_speak_of_tensors_and_leave_out_padding_and_empty_ones() -> None:
    assert PLAN.pieces(Interval(4, 9)) == (
        Piece("a", Interval(4, 6)),
        Piece("scalar", Interval(0, 1)),
        Piece("b", Interval(0, 2)),
    )
    assert PLAN.pieces(Interval(10, 20)) == (Piece("b", Interval(3, 4)),)
    assert PLAN.pieces(Interval(11, 20)) == ()
