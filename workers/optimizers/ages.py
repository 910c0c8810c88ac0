"""How many updates each parameter has had, as torch counts them: without a gradient in a step it does not age."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any


class Ages:
    """Of the trainable parameters in a fixed order; `updates`: the steps of the model as a whole."""

    def __init__(self, names: Sequence[str]) -> None:
        self.names = tuple(names)
        self.steps = [0] * len(names)
        self.updates = 0

    def advance(self, touched: Iterable[float]) -> None:
        """touched: per parameter, on how many ranks it had a gradient."""
        self.updates += 1
        for number, count in enumerate(touched):
            self.steps[number] += count > 0

    def scalars(self) -> dict[str, Any]:
        return {"steps": dict(zip(self.names, self.steps, strict=True)), "updates": self.updates}

    def load(self, scalars: Mapping[str, Any]) -> None:
        """Raises KeyError where they belong to another model."""
        steps = scalars["steps"]
        if missing := [name for name in self.names if name not in steps]:
            raise KeyError(
                f"scalars.steps lacks {missing[:3]} ({len(missing)} parameters): they belong to another model"
            )
        self.steps = [int(steps[name]) for name in self.names]
        self.updates = int(scalars.get("updates", max(self.steps, default=0)))
