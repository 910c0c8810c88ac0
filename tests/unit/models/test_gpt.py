"""The GPT family is the model that its preset says, and starts equal everywhere."""

from __future__ import annotations

import pickle
import subprocess
import sys

import pytest
import torch
from torch import nn

from service.domain.presets import GPT_CLASSES, PRESETS, GptShape
from service.domain.spec import GptModel, PythonModel
from workers.models.gpt import Gpt
from workers.models.registry import build
from workers.user_code import SpecError

TINY = GptShape(layers=2, width=16, heads=2, vocab=11, context=8)


def numel(model: nn.Module) -> int:
    return sum(parameter.numel() for parameter in model.parameters())


def batch(vocab: int, rows: int = 3, tokens: int = 9) -> torch.Tensor:
    return torch.randint(vocab, (rows, tokens), generator=torch.Generator().manual_seed(0))


def user_model(width: int) -> nn.Module:
    class Square(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(width, 1)

        def forward(self, batch: torch.Tensor) -> torch.Tensor:
            return self.linear(batch).square().mean()

    return Square()


def user_pair() -> tuple[nn.Module, object]:
    return nn.Linear(4, 1), lambda model, batch: model(batch).abs().mean()


def user_nonsense() -> str:
    return "a model"


@pytest.mark.parametrize("name", PRESETS)
def test_the_exact_count_of_a_preset_is_what_the_module_has(name: str) -> None:
    with torch.device("meta"):
        assert numel(Gpt(PRESETS[name])) == PRESETS[name].numel


def test_the_presets_have_the_sizes_that_their_names_promise() -> None:
    assert PRESETS["gpt2"].numel == 124_439_808  # as published
    assert PRESETS["gpt-tiny"].numel == pytest.approx(1e6, rel=0.1)
    assert PRESETS["gpt-small"].numel == pytest.approx(25e6, rel=0.05)
    assert PRESETS["gpt-medium"].numel == pytest.approx(110e6, rel=0.05)


def test_presets_import_no_torch() -> None:
    code = "import sys, service.domain.presets; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_an_untrained_model_is_as_unsure_as_its_vocabulary() -> None:
    loss = Gpt(TINY)(batch(TINY.vocab))
    assert loss.shape == ()
    assert loss.item() == pytest.approx(torch.tensor(float(TINY.vocab)).log().item(), abs=0.1)


def test_a_token_never_sees_those_after_it() -> None:
    model, tokens = Gpt(TINY), batch(TINY.vocab, tokens=8)
    changed = tokens.clone()
    changed[:, 5] = (changed[:, 5] + 1) % TINY.vocab
    before, after = model.logits(tokens), model.logits(changed)
    torch.testing.assert_close(before[:, :5], after[:, :5], rtol=0, atol=0)
    assert not torch.equal(before[:, 5:], after[:, 5:])


def test_the_head_is_the_token_table() -> None:
    model = Gpt(TINY)
    assert model.head.weight is model.tokens.weight


def test_equal_seeds_give_equal_weights_and_leave_the_random_state_alone() -> None:
    state = torch.get_rng_state()
    first, again, other = (build("gpt-tiny", seed=seed) for seed in (7, 7, 8))
    assert torch.equal(state, torch.get_rng_state())
    assert all(torch.equal(a, b) for a, b in zip(first.parameters(), again.parameters(), strict=True))
    assert not torch.equal(next(first.parameters()), next(other.parameters()))


def test_a_gpt_of_ones_own_size_is_built() -> None:
    spec = GptModel(layers=1, width=8, heads=2, vocab=5, context=4)
    assert numel(build(spec, seed=1)) == GptShape(layers=1, width=8, heads=2, vocab=5, context=4).numel


def test_a_sequence_longer_than_the_context_is_refused_by_name() -> None:
    build("gpt-tiny", seed=1, seq_len=256)
    with pytest.raises(SpecError, match=r"training.seq_len = 257: .*context 256"):
        build("gpt-tiny", seed=1, seq_len=257)


def test_a_users_module_and_a_users_pair_both_give_a_loss() -> None:
    module = build(PythonModel(python=f"{__name__}:user_model", args={"width": 4}), seed=1)
    pair = build(PythonModel(python=f"{__name__}:user_pair"), seed=1)
    for model in (module, pair):
        model(torch.ones(2, 4)).backward()
        assert all(parameter.grad is not None for parameter in model.parameters())


@pytest.mark.parametrize(
    ("target", "problem"),
    [("user_nonsense", "returned str"), ("absent", "has no function 'absent'"), ("TINY", "has no function 'TINY'")],
)
def test_a_users_function_that_gives_no_model_is_refused_by_name(target: str, problem: str) -> None:
    with pytest.raises(SpecError, match=problem):
        build(PythonModel(python=f"{__name__}:{target}"), seed=1)


def test_a_module_that_is_not_installed_is_named() -> None:
    with pytest.raises(SpecError, match=r"model.python = 'nowhere.at_all:build': no module 'nowhere'"):
        build(PythonModel(python="nowhere.at_all:build"), seed=1)


def test_a_spec_error_survives_pickling() -> None:
    error = SpecError(field="a", value=1, problem="b", fix="c")
    again = pickle.loads(pickle.dumps(error))
    assert str(again) == str(error) == "a = 1: b; c"
    assert again.field == "a"


def test_the_control_plane_knows_the_classes_that_a_unit_may_be_named_by() -> None:
    model = Gpt(GptShape(layers=1, width=8, heads=2, vocab=8, context=8))
    assert sorted({type(module).__name__ for module in model.modules()}) == list(GPT_CLASSES)
