"""What is said of nodes that are on their way, or do not come."""

from __future__ import annotations

from ray.autoscaler.v2.schema import ClusterStatus, LaunchRequest, NodeInfo

from service.domain.parsing import parse_spec
from service.domain.wire import Brief
from workers.controller.group import worker_options
from workers.controller.launches import told
from workers.controller.reservation import bundle


def launch(count: int, *, details: str | None = None) -> LaunchRequest:
    state = LaunchRequest.Status.PENDING if details is None else LaunchRequest.Status.FAILED
    return LaunchRequest("m", "spot", count, state, 0, details=details)


def test_a_quiet_autoscaler_adds_nothing() -> None:
    assert told(ClusterStatus()) == ""


def test_nodes_that_were_asked_for_and_nodes_that_start_are_counted_by_kind() -> None:
    status = ClusterStatus(
        pending_launches=[launch(2)], pending_nodes=[NodeInfo("m", kind, "i", "ip") for kind in ("spot", "on-demand")]
    )
    assert told(status) == "the autoscaler starts 1 of on-demand, 3 of spot"


def test_a_launch_that_failed_is_told_with_its_reason_on_one_line() -> None:
    status = ClusterStatus(
        pending_launches=[launch(1)], failed_launches=[launch(1, details="old"), launch(2, details="no\n quota")]
    )
    assert told(status) == "the autoscaler could not start 2 of spot (no quota); the autoscaler starts 1 of spot"


def test_a_place_asks_for_what_the_worker_will_take() -> None:
    options = {"num_cpus": 0.0, "num_gpus": 1.0, "memory": 4, "accelerator_type": "H100", "runtime_env": {}}
    assert bundle(options) == {"GPU": 1.0, "memory": 4.0, "accelerator_type:H100": 0.001}


def test_ray_is_told_of_variables_and_of_no_secret_and_no_token() -> None:
    environment = {"variables": {"NCCL_DEBUG": "INFO"}, "secrets": {"HF_TOKEN": "hugging-face"}}
    brief = Brief(
        job_id="job",
        attempt_id="attempt",
        attempt_number=1,
        spec=parse_spec({"model": "gpt-tiny", "environment": environment}),
        workers=1,
        checkpoint_uri="",
        cache_folder="",
        log_folder="",
        secrets_folder="/secrets",
        ray_address="",
        namespace="",
        orphan_timeout_s=60.0,
    )
    options = worker_options(brief, cluster_has_gpus=False, environment={})
    assert options["runtime_env"] == {
        "env_vars": {"OMP_NUM_THREADS": "1", "NCCL_DEBUG": "INFO", "ELASTANE_ATTEMPT_TOKEN": ""}
    }
