"""What a job brings along: what may be written, what is refused before it is stored, and that nothing is echoed."""

from __future__ import annotations

from typing import Any

import pytest

from service.descriptions import runs_code
from service.domain.admission import data_of
from service.domain.errors import Forbidden, SpecRefused
from service.domain.parsing import parse_spec
from service.environments import Environments
from tests.fakes.control_plane import ControlPlane

TOKEN = "hf_QuiteSecret1234"
WHOLE = {
    "working_dir": "code",
    "pip": ["einops==0.8.1", "./mine-1.0-py3-none-any.whl"],
    "variables": {"NCCL_DEBUG": "INFO"},
    "secrets": {"HF_TOKEN": "hugging-face"},
}


def spec(**environment: Any) -> dict[str, Any]:
    return {"model": {"python": "mine:build"}, "environment": environment}


def test_a_whole_environment_is_a_part_of_the_spec() -> None:
    found = parse_spec(spec(**WHOLE))
    assert found.model_dump(mode="json")["environment"] == WHOLE
    assert found.digest() != parse_spec(spec()).digest()


@pytest.mark.parametrize(
    ("environment", "field"),
    [
        ({"secrets": {"HF_TOKEN": TOKEN}}, "secrets.HF_TOKEN"),
        ({"secrets": {"HF_TOKEN": f"../{TOKEN.lower()}"}}, "secrets.HF_TOKEN"),
        ({"secrets": {"HF_TOKEN": {"value": TOKEN}}}, "secrets.HF_TOKEN"),
        ({"secrets": {"HF_TOKEN": f"{TOKEN}\0"}}, "secrets.HF_TOKEN"),
        ({"secrets": [TOKEN]}, "secrets"),
        ({"secret": {"HF_TOKEN": TOKEN}}, "secret"),
        ({"variables": {"HF TOKEN": TOKEN}}, "variables.HF TOKEN"),
        ({"variables": {"RAY_AUTH_TOKEN": TOKEN}}, "variables.RAY_AUTH_TOKEN"),
        ({"variables": {"PYTHONPATH": TOKEN}}, "variables.PYTHONPATH"),
        ({"variables": {"HF_TOKEN": 5}}, "variables.HF_TOKEN"),
        ({"pip": [f"--index-url=https://{TOKEN}@pypi"]}, "pip.0"),
        ({"pip": ["einops", f"mine @ https://user:{TOKEN}@host/mine.whl"]}, "pip.1"),
        ({"pip": f"einops\n-i {TOKEN}"}, "pip"),
        ({"working_dir": f"https://user:{TOKEN}@host/code.zip"}, "working_dir"),
        ({"working_dir": f"https://host/code.zip?X-Amz-Signature={TOKEN}"}, "working_dir"),
        ({"working_dir": "https://host/code"}, "working_dir"),
        ({"working_dir": "ftp://host/code.zip"}, "working_dir"),
    ],
)
def test_what_is_wrong_is_named_by_its_field_and_never_repeated(environment: dict[str, Any], field: str) -> None:
    with pytest.raises(SpecRefused) as caught:
        parse_spec(spec(**environment))
    (problem,) = caught.value.problems
    assert problem.field == f"environment.{field}"
    assert problem.fix
    assert TOKEN not in f"{caught.value} {caught.value.problems}"


def test_a_name_is_a_variable_or_a_secret() -> None:
    with pytest.raises(SpecRefused, match="HF_TOKEN is both"):
        parse_spec(spec(variables={"HF_TOKEN": "x"}, secrets={"HF_TOKEN": "hugging-face"}))


async def test_what_is_not_on_this_machine_is_refused_before_it_is_stored(plane: ControlPlane) -> None:
    plane.files.present = {"/secrets/there"}
    brings = {"working_dir": "my[1]", "secrets": {"A": "there", "B": "might-be-a-token"}}
    with pytest.raises(SpecRefused) as caught:
        await plane.jobs.submit(spec(**brings))
    assert [problem.field for problem in caught.value.problems] == ["environment.working_dir", "environment.secrets.B"]
    assert "might-be-a-token" not in f"{caught.value} {caught.value.problems}"
    assert not (await plane.jobs.list()).items
    plane.files.present = {"/secrets/there", "/secrets/might-be-a-token", "my[[]1]/**"}
    submitted = await plane.jobs.submit(spec(**brings))
    assert submitted.job is not None
    assert submitted.job.spec.environment.secrets == brings["secrets"]


async def test_on_other_machines_a_folder_is_absolute_and_the_rest_is_theirs_to_find() -> None:
    cluster = Environments(files=None, secrets_folder="/run/secrets")
    for place in ("/shared/code", "https://host/code.zip", "s3://bucket/code.zip", None):
        await cluster.check(parse_spec(spec(working_dir=place, secrets={"A": "there"})), None)
    with pytest.raises(SpecRefused, match="on other machines"):
        await cluster.check(parse_spec(spec(working_dir="code")), None)


async def test_a_function_that_is_not_on_this_machine_is_refused_at_once(plane: ControlPlane) -> None:
    plane.files.lacking = {"mine:build": "no module 'mine' on this machine", "mine:data": "mine has no function 'data'"}
    document = {**spec(), "data": {"python": "mine:data"}}
    for dry_run in (False, True):
        with pytest.raises(SpecRefused) as caught:
            await plane.jobs.submit(document, dry_run=dry_run)
        found = [(problem.field, problem.value, problem.problem) for problem in caught.value.problems]
        assert found == [
            ("model.python", "mine:build", "no module 'mine' on this machine"),
            ("data.python", "mine:data", "mine has no function 'data'"),
        ]
    assert plane.launcher.described == [], "no process of the user's code was asked"


async def test_what_a_job_brings_along_may_hold_any_function(plane: ControlPlane) -> None:
    plane.files.lacking = {"mine:build": "no module 'mine' on this machine"}
    plane.files.present = {"code/**"}
    for environment in ({"working_dir": "code"}, {"pip": ["mine"]}):
        assert (await plane.jobs.submit(spec(**environment))).job is not None
    elsewhere = Environments(files=None, secrets_folder="/run/secrets")
    await elsewhere.check(parse_spec(spec()), None)


@pytest.mark.parametrize(("tokens", "wrong"), [((0, 255), None), ((0, 256), 256), ((-1, 255), -1), (None, None)])
async def test_tokens_beyond_the_model_s_vocabulary_are_refused_at_once(
    plane: ControlPlane, tokens: tuple[int, int] | None, wrong: int | None
) -> None:
    plane.files.present = {"/tokens.bin"}
    plane.files.tokens = {} if tokens is None else {"/tokens.bin": tokens}
    document = {"model": "gpt-tiny", "data": {"tokens": "/tokens.bin", "dtype": "int32"}}
    if wrong is None:
        assert (await plane.jobs.submit(document)).job is not None
        return
    with pytest.raises(SpecRefused, match=f"token {wrong} is not in the model's vocabulary 0..255") as caught:
        await plane.jobs.submit(document)
    assert [problem.field for problem in caught.value.problems] == ["data.tokens"]


@pytest.mark.parametrize(
    ("working_dir", "path", "seen"),
    [
        (None, "data/*.txt", "data/*.txt"),
        ("my[1]", "data/*.txt", "my[[]1]/data/*.txt"),
        ("code", "/data/*.txt", "/data/*.txt"),
        ("code.zip", "data/*.txt", None),
        ("s3://bucket/code.zip", "/data/*.txt", "/data/*.txt"),
    ],
)
def test_relative_paths_of_the_data_start_in_the_folder(working_dir: str | None, path: str, seen: str | None) -> None:
    found = parse_spec({"model": "gpt-tiny", "data": {"text": path}, "environment": {"working_dir": working_dir}})
    assert data_of(found) == seen


async def test_a_key_that_may_only_read_has_nothing_installed(plane: ControlPlane) -> None:
    document = {"model": {"hf": "org/model"}, "environment": {"pip": ["anything"]}}
    assert runs_code(parse_spec(document))
    assert not runs_code(parse_spec({"model": {"hf": "org/model"}}))
    with pytest.raises(Forbidden):
        await plane.plans.plan(document, may_run_code=False)
    assert plane.launcher.described == []


async def test_a_new_environment_is_described_anew(plane: ControlPlane) -> None:
    plane.launcher.description = {"error": "not_described", "detail": "no"}
    for environment in ({}, {"variables": {"WIDTH": "8"}}, {"variables": {"WIDTH": "8"}}):
        await plane.jobs.submit(spec(**environment), dry_run=True)
    assert len(plane.launcher.described) == 2


async def test_the_brief_names_the_folder_and_holds_no_value(plane: ControlPlane) -> None:
    plane.files.present = {"/secrets/hugging-face"}
    _, controller = await plane.started(**spec(secrets={"HF_TOKEN": "hugging-face"}))
    brief = await plane.attempts.brief(controller.attempt_id, controller.token)
    assert brief.secrets_folder == "/nowhere/secrets"
    assert brief.spec.environment.secrets == {"HF_TOKEN": "hugging-face"}
