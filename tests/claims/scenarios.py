"""Models with awkward parameters, and a step of theirs in plain torch: what `test_known_faults` compares against."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from tests.claims.training import OPTIMIZER
from workers.engine.units import UnitRule
from workers.models.recompute import recompute

WIDTH = 6

# A micro-batch tells its model which way to go: the seed of its data, and which branch to take.
Micro = tuple[int, str]


def data(seed: int, width: int = WIDTH) -> Tensor:
    return torch.randn(3, width, generator=torch.Generator().manual_seed(seed))


class Layer(nn.Module):
    """An odd-sized block."""

    def __init__(self, width: int = WIDTH, hidden: int = 5) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up = nn.Linear(width, hidden)
        self.down = nn.Linear(hidden, width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = x + self.down(torch.tanh(self.up(self.norm(x))))
        return y


class Branches(nn.Module):
    """Blocks and a head of which a micro-batch uses only those that it names."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(WIDTH, WIDTH)
        self.blocks = nn.ModuleList(Layer() for _ in range(3))
        self.head = nn.Linear(WIDTH, 3)

    def forward(self, micro: Micro) -> Tensor:
        seed, way = micro
        x = self.first(data(seed))
        for number, block in enumerate(self.blocks):
            if f"skip{number}" not in way:
                x = block(x)
        loss = x.square().mean()
        return loss + self.head(x).square().mean() if "head" in way else loss


class Tied(nn.Module):
    """A vocabulary of 7 whose embedding is the head."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(7, WIDTH)
        self.blocks = nn.ModuleList(Layer() for _ in range(2))
        self.head = nn.Linear(WIDTH, 7, bias=False)
        self.head.weight = self.embedding.weight

    def forward(self, micro: Micro) -> Tensor:
        tokens = torch.randint(7, (4, 5), generator=torch.Generator().manual_seed(micro[0]))
        x = self.embedding(tokens[:, :-1])
        for block in self.blocks:
            x = block(x)
        return F.cross_entropy(self.head(x).flatten(0, 1), tokens[:, 1:].flatten())


class TiedBlocks(nn.Module):
    """Two blocks that share one matrix: it belongs to neither."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(Layer() for _ in range(3))
        self.blocks[2].up.weight = self.blocks[0].up.weight

    def forward(self, micro: Micro) -> Tensor:
        x = data(micro[0])
        for block in self.blocks:
            x = block(x)
        return x.square().mean()


class Adapted(nn.Module):
    """LoRA-like: a frozen matrix and a trainable low-rank path beside it."""

    def __init__(self) -> None:
        super().__init__()
        self.base = nn.Linear(WIDTH, WIDTH).requires_grad_(False)
        self.a = nn.Linear(WIDTH, 2, bias=False)
        self.b = nn.Linear(2, WIDTH, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        # The frozen path last: its backward comes first, and the adapters' gradients arrive before the inputs' does.
        y: Tensor = self.b(self.a(x)) + torch.tanh(self.base(x))
        return y


class Recomputed(nn.Module):
    """Blocks under activation checkpointing; frozen embedding before them, so the first inputs need no gradient."""

    def __init__(self, block: Callable[[], nn.Module], *, reentrant: bool, repeats: int = 1) -> None:
        super().__init__()
        self.embedding = nn.Linear(WIDTH, WIDTH)
        self.blocks = nn.ModuleList(block() for _ in range(3))
        self.reentrant, self.repeats = reentrant, repeats

    def forward(self, micro: Micro) -> Tensor:
        x = self.embedding(data(micro[0]))
        for _ in range(self.repeats):
            for block in self.blocks:
                x = checkpoint(block, x, use_reentrant=self.reentrant)
        return x.square().mean()


class RecomputedInside(Branches):
    """Blocks whose forward is wrapped, so that their hooks stay outside the recomputation."""

    def __init__(self) -> None:
        super().__init__()
        recompute(self.blocks)


class Repeated(nn.Module):
    """One set of blocks applied twice, the second time in reverse."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(Layer() for _ in range(3))

    def forward(self, micro: Micro) -> Tensor:
        x = data(micro[0])
        for block in [*self.blocks, *reversed(self.blocks)]:
            x = block(x)
        return x.square().mean()


class Odd(nn.Module):
    """Scalar, empty and non-contiguous parameters, a frozen one, a dictionary between blocks, a buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.tensor(0.7))
        self.empty = nn.Parameter(torch.empty(0, 3))
        self.turned = nn.Parameter(torch.randn(5, WIDTH).t())
        self.bias = nn.Parameter(torch.randn(5))
        self.fixed = nn.Parameter(torch.randn(7), requires_grad=False)
        self.layers = nn.ModuleList(Mapped() for _ in range(2))
        self.register_buffer("offset", torch.full((5,), 0.25))

    def forward(self, micro: Micro) -> Tensor:
        values = {"x": data(micro[0]) * self.scale}
        for layer in self.layers:
            values = layer(values=values)
        x = values["x"] @ self.turned + self.bias + self.offset
        return x.square().mean() + self.fixed.sum() * self.scale + self.empty.sum()


class Mapped(nn.Module):
    """Takes and gives a dictionary, by keyword."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(WIDTH, WIDTH)

    def forward(self, values: dict[str, Tensor]) -> dict[str, Tensor]:
        return {"x": torch.tanh(self.linear(values["x"]))}


@dataclass(frozen=True, kw_only=True)
class Scenario:
    """`micros(step)`: the global batch, dealt out to the ranks in turn. `before(model, step)`: what a user changes."""

    model: Callable[[], nn.Module]
    micros: Callable[[int], Sequence[Micro]]
    steps: int = 3
    clip_norm: float | None = 0.1
    units: UnitRule = field(default_factory=UnitRule)
    before: Callable[[nn.Module, int], None] = field(default=lambda model, step: None)

    def build(self) -> nn.Module:
        torch.manual_seed(3)
        return self.model()


def plain_run(scenario: Scenario) -> tuple[dict[str, Tensor], list[float]]:
    """(parameters after the last step, the norms) of one process of plain torch on the whole batch."""
    model, norms = scenario.build(), []
    optimizer = torch.optim.AdamW(
        [param for param in model.parameters()],
        lr=OPTIMIZER.lr,
        betas=OPTIMIZER.betas,
        eps=OPTIMIZER.eps,
        weight_decay=OPTIMIZER.weight_decay,
    )
    for step in range(1, scenario.steps + 1):
        scenario.before(model, step)
        micros = scenario.micros(step)
        optimizer.zero_grad()
        for micro in micros:
            torch.manual_seed(micro[0])
            (model(micro) / len(micros)).backward()
        for param in model.parameters():
            if param.grad is not None and param.grad.is_sparse:
                param.grad = param.grad.to_dense()
        max_norm = scenario.clip_norm if scenario.clip_norm is not None else float("inf")
        norms.append(nn.utils.clip_grad_norm_(model.parameters(), max_norm).item())
        optimizer.step()
    return {name: param.detach().clone() for name, param in model.named_parameters()}, norms
