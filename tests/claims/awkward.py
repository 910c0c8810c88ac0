"""More models of users' own kinds: parametrised, listed, looked at on the way, changed in place, recurrent, sparse."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.parametrizations import weight_norm

from tests.claims.scenarios import WIDTH, Branches, Layer, Micro, data
from workers.models.recompute import recompute


class Normed(nn.Module):
    """Blocks whose weights are computed from two parameters each."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(weight_norm(nn.Linear(WIDTH, WIDTH)) for _ in range(3))

    def forward(self, micro: Micro) -> Tensor:
        x = data(micro[0])
        for block in self.blocks:
            x = torch.tanh(block(x))
        return x.square().mean()


class Listed(nn.Module):
    """Parameters in lists and dictionaries, very many and tiny; a block without any."""

    def __init__(self) -> None:
        super().__init__()
        self.scales = nn.ParameterList(torch.ones(1) * (1 + number / 50) for number in range(40))
        self.shifts = nn.ParameterDict({name: torch.zeros(WIDTH) for name in "ab"})
        self.blocks = nn.ModuleList([nn.Sequential(Layer()), nn.Sequential(nn.Tanh()), nn.Sequential(Layer())])

    def forward(self, micro: Micro) -> Tensor:
        x = data(micro[0]) + self.shifts["a"]
        for block in self.blocks:
            x = block(x)
        for scale in self.scales:
            x = x * scale
        return (x + self.shifts["b"]).square().mean()


class Looking(nn.Module):
    """Runs its blocks without gradients first, as a target of the second run; the loss in fp64."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(Layer() for _ in range(3))

    def forward(self, micro: Micro) -> Tensor:
        with torch.no_grad():
            target = self._run(data(micro[0] + 100))
        return (self._run(data(micro[0])) - target).square().mean().double()

    def _run(self, x: Tensor) -> Tensor:
        for block in self.blocks:
            x = block(x)
        return x


class InPlace(nn.Module):
    """Outputs of blocks changed in place, sliced and seen transposed."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(3))
        self.tail = nn.Linear(WIDTH, 2)

    def forward(self, micro: Micro) -> Tensor:
        x = data(micro[0])
        for block in self.blocks:
            x = block(x)
            x[:, 0].mul_(0.5)
            x = F.relu(x, inplace=True).t().contiguous().t()
        return self.tail(x)[:, 1].square().mean()


class Pair(nn.Module):
    """A block that gives a tuple, of which the next takes a part; the first block of a pair is one itself."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.ModuleList(Layer() for _ in range(2))
        self.out = nn.Linear(WIDTH, WIDTH)

    def forward(self, both: tuple[Tensor, dict[str, Tensor]]) -> tuple[Tensor, dict[str, Tensor]]:
        x, kept = both
        for layer in self.inner:
            x = layer(x)
        return self.out(x), {"sum": kept["sum"] + x}


class Nested(nn.Module):
    """Blocks of blocks, handing on tuples with dictionaries in them."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(Pair() for _ in range(2))

    def forward(self, micro: Micro) -> Tensor:
        both = (data(micro[0]), {"sum": torch.zeros(())})
        for block in self.blocks:
            both = block(both)
        return both[0].square().mean() + both[1]["sum"].mean()


class Halves(nn.Module):
    """Blocks with trainable and frozen parameters under one roof, the first of which is frozen whole."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(Layer() for _ in range(3))
        self.blocks[0].requires_grad_(False)
        self.blocks[2].up.requires_grad_(False)

    def forward(self, micro: Micro) -> Tensor:
        x = data(micro[0])
        for block in self.blocks:
            x = block(x)
        return x.square().mean()


class AroundFrozen(nn.Module):
    """Recomputed blocks with dropout, the middle one frozen whole."""

    def __init__(self, *, reentrant: bool) -> None:
        super().__init__()
        self.first = nn.Linear(WIDTH, WIDTH)
        self.blocks = nn.ModuleList(nn.Sequential(Layer(), nn.Dropout(0.3)) for _ in range(3))
        self.blocks[1].requires_grad_(False)
        recompute(self.blocks, reentrant=reentrant)

    def forward(self, micro: Micro) -> Tensor:
        x = self.first(data(micro[0]))
        for block in self.blocks:
            x = block(x)
        return x.square().mean()


class Recurrent(nn.Module):
    """LSTMs, which keep lists of their parameters beside the registered ones."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(nn.LSTM(WIDTH, WIDTH, batch_first=True) for _ in range(2))

    def forward(self, micro: Micro) -> Tensor:
        x = data(micro[0]).unsqueeze(1).expand(-1, 4, -1)
        for block in self.blocks:
            x, _ = block(x)
        return x.square().mean()


class Sparse(nn.Module):
    """Tables whose gradients are sparse: a block's own and one that a dense head shares."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(7, WIDTH, sparse=True)
        self.blocks = nn.ModuleList(nn.Embedding(5, WIDTH, sparse=True) for _ in range(2))

    def forward(self, micro: Micro) -> Tensor:
        rows = torch.randint(5, (4,), generator=torch.Generator().manual_seed(micro[0]))
        x = self.table(rows) + sum(block(rows) for block in self.blocks)
        return (x @ self.table.weight.T).square().mean()


class Faint(Branches):
    """Gradients of about 1e-5: what is added to a norm against a division by zero weighs as much as they do."""

    def forward(self, micro: Micro) -> Tensor:
        loss: Tensor = super().forward(micro) * 1e-5
        return loss
