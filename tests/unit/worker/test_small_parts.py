"""Schedule, wishes, journal and the meaning of an exception."""

from __future__ import annotations

import errno
import json
import sys
from functools import partial
from pathlib import Path

import pytest

from service.domain.spec import JobSpec
from service.domain.training import ScheduleSpec
from workers.checkpoint.errors import CheckpointMismatch
from workers.optimizers.config import Hyper
from workers.user_code import SourceUnreachable, SpecError
from workers.worker import assemble, failure
from workers.worker.journal import BURST, Journal
from workers.worker.messages import Line
from workers.worker.redaction import CleanStream
from workers.worker.schedule import lr_scale
from workers.worker.wishes import Votes, Wishes


def test_the_warm_up_reaches_one_and_the_cosine_its_floor() -> None:
    schedule = ScheduleSpec(name="cosine", warmup_steps=10, min_lr_ratio=0.1)
    scales = [lr_scale(step, schedule=schedule, steps=110) for step in range(1, 111)]
    assert scales[0] == pytest.approx(0.1)
    assert scales[9] == 1.0
    assert scales[59] == pytest.approx(0.55)
    assert scales[-1] == pytest.approx(0.1)
    assert scales[9:] == sorted(scales[9:], reverse=True)


def test_the_linear_schedule_falls_evenly_and_wsd_only_in_its_last_steps() -> None:
    linear = ScheduleSpec(name="linear", warmup_steps=10, min_lr_ratio=0.0)
    scales = [lr_scale(step, schedule=linear, steps=110) for step in range(1, 111)]
    assert (scales[9], scales[59], scales[-1]) == (1.0, pytest.approx(0.5), 0.0)
    told = ScheduleSpec(name="wsd", warmup_steps=10, min_lr_ratio=0.1, decay_steps=20)
    untold = told.model_copy(update={"decay_steps": None})
    for schedule, stable in ((told, 90), (untold, 88)):
        scales = [lr_scale(step, schedule=schedule, steps=110) for step in range(1, 111)]
        assert scales[4] == pytest.approx(0.5)
        assert set(scales[9:stable]) == {1.0}
        assert scales[stable] < 1.0
        assert scales[(stable + 110) // 2 - 1] == pytest.approx(0.55)
        assert scales[-1] == pytest.approx(0.1)


def test_a_group_without_a_parameter_is_told_and_changes_nothing(caplog: pytest.LogCaptureFixture) -> None:
    groups = [{"match": "*.bias", "lr": 0.5, "weight_decay": 0.0}, {"match": "haed.*"}]
    training = {"optimizer": {"name": "lion", "groups": groups, "no_decay": "auto"}, "ema_decay": 0.99}
    spec = JobSpec.model_validate({"model": "gpt-tiny", "training": training})
    config = assemble.optimizer_config(spec.training, assemble.build_model(spec))
    assert "groups.1: no parameter is named like haed.*" in caplog.text
    assert "groups.0" not in caplog.text
    assert config.hyper("blocks.0.norm_mlp.bias", ndim=1) == Hyper(lr=0.5, weight_decay=0.0)
    assert config.hyper("blocks.0.norm_mlp.weight", ndim=1) == Hyper(lr=1e-4, weight_decay=0.0)
    assert config.hyper("blocks.0.mlp.up.weight", ndim=2) == Hyper(lr=1e-4, weight_decay=0.1)
    assert config.ema_decay == 0.99


def test_a_constant_schedule_without_warm_up_never_changes() -> None:
    schedule = ScheduleSpec(name="constant", warmup_steps=0)
    assert {lr_scale(step, schedule=schedule, steps=5) for step in range(1, 6)} == {1.0}


def test_a_wish_is_met_once_and_only_by_its_generation() -> None:
    wishes = Wishes()
    wishes.stop(2)
    wishes.save(2, "r")
    assert wishes.votes(1, orphaned=False) == Votes()
    assert wishes.votes(2, orphaned=False) == Votes(stop=True, save=True)
    assert (wishes.take_save(1), wishes.take_save(2), wishes.take_save(2)) == (None, "r", None)
    assert not wishes.votes(2, orphaned=False).save


def test_a_full_disk_costs_lines_and_raises_nothing(tmp_path: Path) -> None:
    told: list[Line] = []
    (tmp_path / "w.jsonl").symlink_to("/dev/full")
    journal = Journal(tmp_path / "w.jsonl", worker_id="w", tell=told.append)
    journal.write("error", "no room for this")
    assert [line.text for line in told] == ["no room for this"]


def test_every_line_is_in_the_file_and_a_flood_is_not_told(tmp_path: Path) -> None:
    told: list[Line] = []
    journal = Journal(tmp_path / "w.jsonl", worker_id="w", tell=told.append)
    journal.rank = 1
    for number in range(1000):
        journal.write("info", str(number))
    lines = [json.loads(line) for line in (tmp_path / "w.jsonl").read_text().splitlines()]
    assert [line["text"] for line in lines] == [str(number) for number in range(1000)]
    assert lines[0]["rank"] == 1
    assert BURST <= len(told) < 400


def test_printed_text_becomes_whole_lines(tmp_path: Path) -> None:
    told: list[Line] = []
    journal = Journal(tmp_path / "w.jsonl", worker_id="w", tell=told.append)
    stream = CleanStream(sys.stdout, journal.redactor, tell=partial(journal.write, "info"))
    stream.write("one\ntw")
    stream.write("o\n\n")
    assert [line.text for line in told] == ["one", "two"]


def test_a_users_exception_is_told_with_its_place() -> None:
    with pytest.raises(ValueError, match="bad label") as raised:
        raise ValueError("bad label")
    sentence = failure.sentence(raised.value)
    assert failure.cause(raised.value) == "user"
    assert sentence.startswith("ValueError: bad label (")
    assert "test_small_parts.py:" in sentence


@pytest.mark.parametrize(
    ("error", "cause"),
    [
        (CheckpointMismatch(step=3, differences=["table: shape [3] there, [4] here"]), "user"),
        (RuntimeError("CUDA error: uncorrectable ECC error encountered"), "machine"),
        (RuntimeError("CUDA error: an illegal memory access was encountered"), "machine"),
        (RuntimeError("NCCL Error 3: internal error"), "machine"),
        (RuntimeError("CUDA error: device-side assert triggered"), "user"),
        (RuntimeError("CUDA out of memory. Tried to allocate 2 GiB"), "user"),
        (OSError(errno.EIO, "Input/output error"), "machine"),
        (OSError(errno.ENOENT, "No such file"), "user"),
        (SourceUnreachable("environment.pip: the index could not be reached"), "machine"),
    ],
)
def test_a_failed_machine_is_told_from_what_no_retry_heals(error: Exception, cause: str) -> None:
    with pytest.raises(type(error)) as raised:
        raise error
    assert failure.cause(raised.value) == cause


def test_a_wrong_spec_is_the_users_and_explains_itself() -> None:
    error = SpecError(field="data.text", value="*.txt", problem="no file matches", fix="check the pattern")
    assert failure.cause(error) == "user"
    assert failure.sentence(error) == str(error)


def test_units_that_the_model_has_not_are_the_users_to_mend() -> None:
    spec = JobSpec.model_validate({"model": "gpt-tiny", "units": {"layers": ["Nope"]}})
    with pytest.raises(SpecError, match="no module of the model is of class Nope; it has") as caught:
        assemble.build_model(spec)
    assert (caught.value.field, failure.cause(caught.value)) == ("units.layers", "user")
