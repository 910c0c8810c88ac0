"""A checkpoint leaves for other programs and comes in from them, whole, strictly, and tensor by tensor."""

from __future__ import annotations

import json
import sys
import weakref
from pathlib import Path

import pytest
import torch
import torch.distributed.checkpoint as dcp
import torch.nn.functional as F
from safetensors.torch import load_file
from torch import Tensor, nn

from tests.fakes.memory_engine import KINDS, MemoryEngine, whole_values
from tests.unit.checkpoint.saves import JOB, METAS, SCALARS, engines, save, write
from tests.unit.layout.shards import flat
from workers.checkpoint import __main__ as command
from workers.checkpoint.catalogue import inspect
from workers.checkpoint.export import ExportRefused, to_hugging_face
from workers.checkpoint.foreign import ImportRefused, adopt, from_hugging_face
from workers.checkpoint.manifest import Manifest
from workers.checkpoint.reader import read_into
from workers.checkpoint.store import LocalStore
from workers.checkpoint.tensors import TensorReader
from workers.checkpoint.torch_dcp import from_dcp, to_dcp
from workers.checkpoint.writer import publish
from workers.engine.states import StateKind, TensorMeta
from workers.models.gpt import Gpt, GptShape

SHAPE = GptShape(layers=2, width=12, heads=3, vocab=17, context=9)
MODEL = {"name": "gpt", "layers": 2, "width": 12, "heads": 3, "vocab": 17, "context": 9}
pytestmark = pytest.mark.filterwarnings("ignore:torch.distributed is disabled:UserWarning")


@pytest.fixture
def store(tmp_path: Path) -> LocalStore:
    return LocalStore(tmp_path / "store")


def group_of(model: nn.Module, world_size: int) -> list[MemoryEngine]:
    """An engine per rank, whose master values are the model's."""
    metas = {
        name: TensorMeta(shape=tuple(values.shape), dtype="float32", trainable=values.requires_grad)
        for name, values in model.named_parameters()
    }
    group = [
        MemoryEngine(metas, rule=flat, rank=rank, world_size=world_size, buffers=dict(model.named_buffers()))
        for rank in range(world_size)
    ]
    for rank, engine in enumerate(group):
        engine.fill(1)
        engine.load_scalars(SCALARS)
        for name, values in model.named_parameters():
            for piece in engine.layout().of(rank):
                if piece.tensor == name:
                    cut = values.detach().reshape(-1)[piece.interval.start : piece.interval.stop]
                    engine.load(StateKind.MASTER, piece, cut)
    return group


def saved(store: LocalStore, model: nn.Module, extra: dict, *, world_size: int = 3) -> Manifest:
    reports = write(store, group_of(model, world_size), step=5)
    return publish(
        store,
        job=JOB,
        step=5,
        attempt=1,
        samples=160,
        spec_digest="d",
        reports=reports,
        scalars=SCALARS,
        extra=extra,
    )


def gpt(seed: int = 3) -> Gpt:
    torch.manual_seed(seed)
    model = Gpt(SHAPE)
    for values in model.parameters():
        nn.init.normal_(values, std=0.3)
    return model


def gpt2_logits(weights: dict[str, Tensor], config: dict, tokens: Tensor) -> Tensor:
    """GPT-2 as its authors wrote it, from the file's names alone."""
    at = lambda name: weights[f"transformer.{name}"]  # noqa: E731
    (B, T), C, H = tokens.shape, config["n_embd"], config["n_head"]
    norm = lambda x, name: F.layer_norm(  # noqa: E731
        x, (C,), at(f"{name}.weight"), at(f"{name}.bias"), config["layer_norm_epsilon"]
    )
    conv = lambda x, name: x @ at(f"{name}.weight") + at(f"{name}.bias")  # noqa: E731
    x = at("wte.weight")[tokens] + at("wpe.weight")[:T]
    for layer in range(config["n_layer"]):
        q, k, v = (
            part.view(B, T, H, C // H).transpose(1, 2)
            for part in conv(norm(x, f"h.{layer}.ln_1"), f"h.{layer}.attn.c_attn").split(C, dim=2)
        )
        scores = (q @ k.transpose(2, 3) / (C // H) ** 0.5).masked_fill(torch.ones(T, T).triu(1).bool(), -torch.inf)
        x = x + conv((scores.softmax(-1) @ v).transpose(1, 2).reshape(B, T, C), f"h.{layer}.attn.c_proj")
        x = x + conv(F.gelu(conv(norm(x, f"h.{layer}.ln_2"), f"h.{layer}.mlp.c_fc")), f"h.{layer}.mlp.c_proj")
    return norm(x, "ln_f") @ weights["lm_head.weight"].T


def test_our_gpt_leaves_as_a_gpt_2_that_computes_the_same(tmp_path: Path, store: LocalStore) -> None:
    model = gpt()
    files = to_hugging_face(store, saved(store, model, {"model": MODEL}), tmp_path / "out")
    assert files == ("model.safetensors", "config.json")
    config = json.loads((tmp_path / "out" / "config.json").read_text())
    weights = load_file(tmp_path / "out" / "model.safetensors")
    tokens_BT = torch.randint(17, (2, 9), generator=torch.Generator().manual_seed(1))
    torch.testing.assert_close(gpt2_logits(weights, config, tokens_BT), model.logits(tokens_BT))
    assert config["architectures"] == ["GPT2LMHeadModel"]


def test_a_large_model_leaves_in_shards_with_an_index(tmp_path: Path, store: LocalStore) -> None:
    manifest = saved(store, gpt(), {"model": MODEL})
    files = to_hugging_face(store, manifest, tmp_path / "out", shard_bytes=4000)
    to_hugging_face(store, manifest, tmp_path / "one")
    index = json.loads((tmp_path / "out" / "model.safetensors.index.json").read_text())
    shards = sorted(set(index["weight_map"].values()))
    assert files == (*shards, "model.safetensors.index.json", "config.json")
    assert len(shards) > 3
    whole = load_file(tmp_path / "one" / "model.safetensors")
    assert set(index["weight_map"]) == set(whole)
    assert index["metadata"]["total_size"] == sum(values.numel() * 4 for values in whole.values())
    for name, file in index["weight_map"].items():
        assert torch.equal(load_file(tmp_path / "out" / file)[name], whole[name])


class Odd(nn.Module):
    """Tied, frozen, odd-sized, scalar, with a buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(7, 5)
        self.head = nn.Linear(5, 7, bias=False)
        self.head.weight = self.table.weight
        self.frozen = nn.Parameter(torch.randn(3), requires_grad=False)
        self.scale = nn.Parameter(torch.tensor(2.0))
        self.register_buffer("seen", torch.tensor(2**40 + 1))


def test_any_other_model_leaves_under_its_own_names_and_loads_strictly(tmp_path: Path, store: LocalStore) -> None:
    torch.manual_seed(5)
    model = Odd()
    to_hugging_face(store, saved(store, model, {"ties": {"head.weight": "table.weight"}}), tmp_path / "out")
    torch.manual_seed(6)
    other = Odd()
    other.load_state_dict(load_file(tmp_path / "out" / "model.safetensors"), strict=True)
    for name, values in model.state_dict().items():
        assert torch.equal(other.state_dict()[name], values), name


def test_another_type_is_a_cast_of_the_master(tmp_path: Path, store: LocalStore) -> None:
    model = gpt()
    to_hugging_face(store, saved(store, model, {"model": MODEL}), tmp_path / "out", dtype="bfloat16")
    weights = load_file(tmp_path / "out" / "model.safetensors")
    assert torch.equal(weights["transformer.wte.weight"], model.tokens.weight.bfloat16())


def test_the_average_of_the_weights_leaves_in_their_place(tmp_path: Path, store: LocalStore) -> None:
    manifest = save(store, engines(2, seed=1, kinds=(*KINDS, StateKind.EMA)), step=5)
    to_hugging_face(store, manifest, tmp_path / "out", average=True)
    left = load_file(tmp_path / "out" / "model.safetensors")
    for name, meta in METAS.items():
        kind = StateKind.EMA if meta.trainable else StateKind.MASTER
        assert torch.equal(left[name].reshape(-1), whole_values(kind, name, meta.numel, 1)), name
    plain = save(store, engines(2, seed=1), step=6)
    with pytest.raises(ExportRefused, match=r"has no average .* training\.ema_decay"):
        to_hugging_face(store, plain, tmp_path / "none", average=True)


def test_one_tensor_at_a_time_is_in_memory(tmp_path: Path, store: LocalStore, monkeypatch: pytest.MonkeyPatch) -> None:
    manifest = saved(store, gpt(), {"model": MODEL})
    alive: list[weakref.ref[Tensor]] = []
    plain = TensorReader.read

    def read(self: TensorReader, name: str) -> Tensor:
        # The one before may still be named by the loop that wrote it.
        assert sum(reference() is not None for reference in alive) <= 1
        values = plain(self, name)
        alive.append(weakref.ref(values))
        return values

    monkeypatch.setattr(TensorReader, "read", read)
    to_hugging_face(store, manifest, tmp_path / "out")
    to_dcp(store, manifest, tmp_path / "dcp")
    assert len(alive) > 100


def test_a_folder_with_files_is_not_written_over(tmp_path: Path, store: LocalStore) -> None:
    manifest = saved(store, gpt(), {"model": MODEL})
    to_hugging_face(store, manifest, tmp_path / "out")
    with pytest.raises(ExportRefused, match=r"has config\.json, model\.safetensors already; choose an empty folder"):
        to_hugging_face(store, manifest, tmp_path / "out")


def test_a_checkpoint_of_another_model_than_it_names_is_refused(tmp_path: Path, store: LocalStore) -> None:
    with pytest.raises(ExportRefused, match="is not of the model that it names"):
        to_hugging_face(store, saved(store, gpt(), {"model": {**MODEL, "layers": 3}}), tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_hugging_face_folder_comes_in_as_it_left(tmp_path: Path, store: LocalStore) -> None:
    model = gpt()
    to_hugging_face(store, saved(store, model, {"model": MODEL}), tmp_path / "out", shard_bytes=4000)
    manifest = adopt(store, from_hugging_face(tmp_path / "out"), job="new", source="out")
    assert (manifest.step, manifest.samples, manifest.extra["model"]) == (0, 0, MODEL)
    (engine,) = group_of(gpt(seed=4), 1)
    said = read_into(engine, rank=0, manifest=manifest, store=store, allow_missing=True)
    assert {line.split("/")[0] for line in said} == {"exp_avg", "exp_avg_sq"}
    for name, values in model.named_parameters():
        assert torch.equal(engine.state()[StateKind.MASTER, name].view(values.shape), values), name


def test_a_gpt_2_that_ours_cannot_be_is_refused_by_its_field(tmp_path: Path, store: LocalStore) -> None:
    to_hugging_face(store, saved(store, gpt(), {"model": MODEL}), tmp_path / "out")
    config = json.loads((tmp_path / "out" / "config.json").read_text())
    (tmp_path / "out" / "config.json").write_text(json.dumps({**config, "activation_function": "gelu_new"}))
    with pytest.raises(ImportRefused, match="activation_function is 'gelu_new'"):
        from_hugging_face(tmp_path / "out")


def test_an_index_cannot_lead_out_of_its_folder(tmp_path: Path) -> None:
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {"a": "../secret"}}))
    with pytest.raises(ImportRefused, match=r"names '\.\./secret'"):
        from_hugging_face(tmp_path)


def test_torchs_distributed_checkpoint_reads_what_leaves_and_it_comes_in_again(
    tmp_path: Path, store: LocalStore
) -> None:
    to_dcp(store, save(store, engines(3, seed=1), step=5), tmp_path / "dcp")
    state = {
        "model": {name: torch.zeros(meta.shape) for name, meta in METAS.items()},
        "optim": {"state": {"table": {"exp_avg": torch.zeros(23, 7), "step": torch.tensor(0.0)}}},
    }
    dcp.load(state, checkpoint_id=tmp_path / "dcp", no_dist=True)
    for name, meta in METAS.items():
        expected = whole_values(StateKind.MASTER, name, meta.numel, 1)
        assert torch.equal(state["model"][name].reshape(-1), expected), name
    moments = state["optim"]["state"]["table"]
    assert torch.equal(moments["exp_avg"].reshape(-1), whole_values(StateKind.EXP_AVG, "table", 161, 1))
    assert moments["step"] == SCALARS["steps"]["table"]
    found = from_dcp(tmp_path / "dcp", buffers=("mean", "empty"))
    assert (found.steps, found.unused) == (SCALARS["steps"], ())
    again = adopt(store, found, job="new", source="dcp")
    assert again.tensors.keys() == inspect(store, JOB, 5).tensors.keys()
    assert again.scalars["steps"].items() >= SCALARS["steps"].items()
    group = engines(2)
    for rank, engine in enumerate(group):
        read_into(engine, rank=rank, manifest=again, store=store)
    for mine, other in zip(group, engines(2, seed=1), strict=True):
        for kind in KINDS:
            assert torch.equal(mine.state()[kind, "table"].nan_to_num(), other.state()[kind, "table"].nan_to_num())


# ---- the command -----------------------------------------------------------------------------------------------------


def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, *words: object) -> tuple[int, dict]:
    monkeypatch.setattr(sys, "argv", ["checkpoint", *map(str, words)])
    status = command.main()
    return status, json.loads(capsys.readouterr().out)


def test_verify_answers_yes_or_names_every_damaged_file(tmp_path: Path, capsys, monkeypatch) -> None:
    manifest = save(LocalStore(tmp_path), engines(2, seed=1), step=5)
    status, answer = run(capsys, monkeypatch, "verify", tmp_path, JOB)
    assert (status, answer["whole"], answer["files"], answer["problems"]) == (0, True, 2, [])
    damaged = tmp_path / JOB / "step-00000005" / sorted(manifest.files)[1]
    data = bytearray(damaged.read_bytes())
    data[-1] ^= 1
    damaged.write_bytes(data)
    status, answer = run(capsys, monkeypatch, "verify", tmp_path, JOB, "--step", 5)
    assert (status, answer["whole"]) == (1, False)
    assert damaged.name in answer["problems"][0]


def test_list_pin_and_delete_say_what_they_did(tmp_path: Path, capsys, monkeypatch) -> None:
    for step in (5, 10):
        save(LocalStore(tmp_path), engines(1, seed=1), step=step)
    assert run(capsys, monkeypatch, "pin", tmp_path, JOB, 5)[1] == {"step": 5, "pinned": True}
    assert run(capsys, monkeypatch, "delete", tmp_path, JOB, 10)[0] == 0
    _, answer = run(capsys, monkeypatch, "list", tmp_path, JOB)
    assert [(item["step"], item["whole"], item["pinned"]) for item in answer["items"]] == [(5, True, True)]


def test_an_import_that_unpickles_asks_for_trust(tmp_path: Path, capsys, monkeypatch) -> None:
    to_dcp(LocalStore(tmp_path), save(LocalStore(tmp_path), engines(1, seed=1), step=5), tmp_path / "dcp")
    status, answer = run(capsys, monkeypatch, "import-dcp", tmp_path, "new", tmp_path / "dcp")
    assert status == 1
    assert "say --trust" in answer["detail"]
    assert not (tmp_path / "new").exists()
    status, answer = run(capsys, monkeypatch, "import-dcp", tmp_path, "new", tmp_path / "dcp", "--trust")
    assert (status, answer["step"]) == (0, 0)


def test_export_without_a_whole_checkpoint_says_so(tmp_path: Path, capsys, monkeypatch) -> None:
    write(LocalStore(tmp_path), engines(1, seed=1), step=5)
    status, answer = run(capsys, monkeypatch, "export", tmp_path, JOB, "--to", tmp_path / "out")
    assert (status, answer["error"]) == (1, "CheckpointIncomplete")
