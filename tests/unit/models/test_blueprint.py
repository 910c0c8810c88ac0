"""A model on the meta device starts from the bits of its ordinary build, whatever its constructor does."""

from __future__ import annotations

import copy
import logging
import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils.parametrizations import weight_norm

from service.domain.presets import GptShape
from workers.layout.interval import Interval
from workers.models.blueprint import draw_up
from workers.models.gpt import Gpt


class Own(nn.Module):
    """Initialised by hand: in place, in parts, from constants, by loops that look at values."""

    def __init__(self) -> None:
        super().__init__()
        self.parts = nn.Parameter(torch.empty(6, 4))
        self.rejected = nn.Parameter(torch.empty(40, 3))
        self.orthogonal = nn.Parameter(torch.empty(5, 9))
        self.listed = nn.Parameter(torch.tensor([1.0, 2.0, 3.0]))
        self.turned = nn.Parameter(torch.randn(5, 3).t())
        self.scalar = nn.Parameter(torch.rand(()))
        self.empty = nn.Parameter(torch.empty(0, 3))
        self.whole_numbers = nn.Parameter(torch.randint(9, (4,)), requires_grad=False)
        self.register_buffer("table", torch.outer(torch.arange(3.0), 1.0 / 10 ** torch.arange(4.0)), persistent=False)
        self.register_buffer("mask", torch.ones(3, 3, dtype=torch.bool).tril())
        self.plain = torch.linspace(0, 1, 5)
        with torch.no_grad():
            self.parts[:2].normal_()
            self.parts[2:4] = torch.tensor([1.0, 2.0, 3.0, 4.0])
            self.parts[4] = self.parts[0] * 2 + self.listed.sum()
            self.parts[5:].uniform_(-1, 1).clamp_(min=0)
            nn.init.trunc_normal_(self.rejected, std=0.5, a=-0.6, b=0.6)
            nn.init.orthogonal_(self.orthogonal)
            if self.rejected.max() > 0.1:
                self.turned.mul_(self.rejected.abs().mean().item())


class Cloned(nn.Module):
    """Copies of one block, as torch's own transformer makes them, under one parametrisation."""

    def __init__(self) -> None:
        super().__init__()
        first = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
        self.layers = nn.ModuleList(copy.deepcopy(first) for _ in range(3))
        self.normed = weight_norm(nn.Linear(4, 3))
        self.table = nn.Embedding(9, 4, padding_idx=2)
        self.convolution = nn.Conv1d(3, 4, 2)
        self.recurrent = nn.LSTM(3, 4)
        self.apply(_xavier)


def _xavier(module: nn.Module) -> None:
    if isinstance(module, nn.Conv1d):
        nn.init.dirac_(module.weight)
    elif isinstance(module, nn.LSTM):
        for weight in module.parameters():
            if weight.ndim == 2:
                nn.init.xavier_uniform_(weight, generator=torch.Generator().manual_seed(3))


class Assigned(nn.Module):
    """Parameters cut from one vector, replaced by `.data`, and tied."""

    def __init__(self) -> None:
        super().__init__()
        flat = torch.randn(12)
        self.a = nn.Parameter(flat[:6].view(2, 3))
        self.b = nn.Parameter(flat[6:])
        self.c = nn.Linear(3, 3, bias=False)
        self.c.weight.data = torch.randn(3, 3) / math.sqrt(3)
        self.d = nn.Linear(3, 3, bias=False)
        self.d.weight = self.c.weight
        self.e = nn.Linear(3, 3).to(torch.bfloat16)
        self.f = nn.Linear(2, 2)
        self.f.load_state_dict({"weight": torch.eye(2), "bias": torch.ones(2)})


def small_gpt() -> nn.Module:
    return Gpt(GptShape(layers=2, width=16, heads=2, vocab=11, context=8))


def seeded(build: Callable[[], nn.Module]) -> tuple[nn.Module, Tensor]:
    torch.manual_seed(5)
    return build(), torch.rand(3)


@pytest.mark.parametrize("build", [small_gpt, Own, Cloned, Assigned])
def test_every_value_is_that_of_the_ordinary_build(
    build: Callable[[], nn.Module], caplog: pytest.LogCaptureFixture
) -> None:
    expected, then = seeded(build)
    torch.manual_seed(5)
    blueprint = draw_up(build)
    assert torch.equal(torch.rand(3), then), "the constructor drew other random numbers"
    assert not caplog.records
    assert any(param.is_meta for param in blueprint.model.parameters())
    wanted = dict(expected.named_parameters())
    for name, param in reversed(list(blueprint.model.named_parameters())):
        if param.is_meta:
            values = blueprint.read(name, Interval(0, param.numel()))
            assert torch.equal(values, wanted[name].detach().reshape(-1)), name
            assert torch.equal(blueprint.read(name, Interval(1, 2)), values[1:2])
    drawn = blueprint.materialise()
    assert drawn.state_dict().keys() == expected.state_dict().keys()
    for name, value in expected.state_dict().items():
        assert torch.equal(drawn.state_dict()[name], value), name
        assert drawn.state_dict()[name].dtype == value.dtype
    for name, param in expected.named_parameters():
        assert drawn.get_parameter(name).requires_grad == param.requires_grad
    for name, buffer in expected.named_buffers():
        assert torch.equal(drawn.get_buffer(name), buffer)


def test_plain_attributes_have_values_and_ties_stay() -> None:
    own, tied = draw_up(Own).materialise(), draw_up(Assigned).materialise()
    assert torch.equal(own.plain, torch.linspace(0, 1, 5))
    assert tied.c.weight is tied.d.weight


class Hoarding(nn.Module):
    """Keeps a tensor where no one finds it."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 3)
        hidden = torch.ones(3)
        self.weigh = lambda x: x * hidden


class Numpy(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 3)
        self.bound = self.layer.weight.detach().numpy().max()


@pytest.mark.parametrize("build", [Hoarding, Numpy])
def test_what_cannot_be_recorded_is_built_whole_and_says_so(
    build: Callable[[], nn.Module], caplog: pytest.LogCaptureFixture
) -> None:
    expected, then = seeded(build)
    torch.manual_seed(5)
    with caplog.at_level(logging.WARNING):
        blueprint = draw_up(build)
    assert torch.equal(torch.rand(3), then)
    assert torch.equal(blueprint.model.layer.weight, expected.layer.weight)
    assert "built whole" in caplog.text


def test_a_constructor_s_own_error_is_the_one_that_is_raised() -> None:
    def build() -> nn.Module:
        raise LookupError("no such layer")

    with pytest.raises(LookupError, match="no such layer"):
        draw_up(build)
