"""Memory of one rank, measured and predicted."""

from __future__ import annotations

import torch
from torch import nn

from workers.worker.probes import ActivationMeter, process_bytes


def test_saved_activations_are_counted_once_and_parameters_are_not() -> None:
    model = nn.Sequential(nn.Linear(64, 128), nn.Tanh(), nn.Linear(128, 8))
    meter = ActivationMeter(model)
    batch = torch.randn(32, 64)
    with meter.measure():
        model(batch).sum().backward()
    # The input, and the output of tanh, which the next layer keeps as well.
    assert meter.peak_bytes == 32 * 64 * 4 + 32 * 128 * 4


def test_measuring_changes_no_gradient() -> None:
    model, batch = nn.Linear(5, 3), torch.randn(4, 5)
    model(batch).square().sum().backward()
    expected = [parameter.grad.clone() for parameter in model.parameters() if parameter.grad is not None]
    model.zero_grad()
    with ActivationMeter(model).measure():
        model(batch).square().sum().backward()
    found = [parameter.grad for parameter in model.parameters()]
    assert all(torch.equal(one, other) for one, other in zip(expected, found, strict=True) if other is not None)


def test_this_process_takes_memory() -> None:
    assert process_bytes() > 10_000_000
