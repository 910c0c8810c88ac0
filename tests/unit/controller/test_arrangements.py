"""Stage and offload change while a job trains: at a wish, and where fewer workers could not hold its state."""

from __future__ import annotations

from dataclasses import replace

from service.domain.arrangement import Arrangement, fitting
from service.domain.choice import Room
from service.domain.profile import profile_of
from service.domain.spec import JobSpec, Offload
from service.domain.worker_memory import WorkerMemory
from tests.unit.controller.troupe import Troupe, running
from workers.worker.messages import FromMembers, Ready

# Of gpt-small 4 workers hold a stage-2 share in so much, and 2 do not.
SMALL = {"model": "gpt-small", "resources": {"cpu": 1, "memory_gb": 0.6}, "precision": "fp32"}
OURS = Room(profile_of=profile_of, memory=None)


def test_a_wish_for_another_stage_stops_the_same_members_and_moves_what_they_hold() -> None:
    troupe = running(workers=2, stage=1)
    troupe.order(arrangement=Arrangement(stage=3, offload=Offload(optimizer="cpu")))
    troupe.turn()
    troupe.stop(step=7)
    join = troupe.newest()
    assert (join.members, join.origin) == (("w1", "w2"), FromMembers(step=7, holders=("w1", "w2")))
    assert join.arrangement == Arrangement(stage=3, offload=Offload(optimizer="cpu"))
    troupe.join(step=7, source="survivors")
    kind, payload = troupe.uplink.events[-1]
    assert (kind, payload["from"]["stage"], payload["to"]["stage"], payload["redone_steps"]) == ("rearranged", 1, 3, 0)
    assert payload["message"].startswith("From stage 1 to stage 3 with offload cpu at step 7, on 2 workers")
    troupe.turn()
    assert len(troupe.told("stop")) == 1, "once"


def test_a_wish_that_is_the_present_arrangement_changes_nothing() -> None:
    troupe = running(workers=2, stage=1)
    troupe.order(arrangement=Arrangement(stage=1))
    troupe.turn()
    assert troupe.told("stop") == []


def test_fewer_workers_take_the_next_arrangement_that_fits_and_more_take_it_back() -> None:
    troupe = running(workers=4, stage=1, **SMALL)
    arrangements = [troupe.newest().arrangement]
    for step, count in ((5, 2), (9, 4)):
        troupe.order(workers=count)
        troupe.turn()
        if count == 4:
            troupe.warm()
        troupe.stop(step=step)
        arrangements.append(troupe.newest().arrangement)
        troupe.join(step=step, source="survivors")
    assert arrangements[0] == arrangements[2] == Arrangement(stage=1)
    assert arrangements[1] != Arrangement(stage=1)
    assert [payload["to"]["stage"] for kind, payload in troupe.uplink.events if kind == "rearranged"][-1] == 1


def test_a_loss_takes_the_arrangement_that_fits_the_survivors() -> None:
    troupe = running(workers=4, stage=1, **SMALL)
    for worker in ("w2", "w3"):
        troupe.die(worker)
    troupe.turn()
    for worker in ("w1", "w4"):
        troupe.report(worker, troupe.broken(worker, step=9))
    troupe.turn()
    assert troupe.newest().arrangement != Arrangement(stage=1)


def test_the_next_that_fits_is_a_higher_stage_and_then_a_disk() -> None:
    def at(workers: int, memory_gb: float) -> str:
        spec = JobSpec.model_validate({**SMALL, "resources": {"cpu": 1, "memory_gb": memory_gb}})
        return str(fitting(spec, Arrangement(stage=1), workers=workers, room=OURS))

    found = [at(workers=2, memory_gb=parts / 40) for parts in range(160, 0, -1)]
    order = list(dict.fromkeys(found))
    assert order[0] == "stage 1"
    assert order.index("stage 3") < order.index("stage 3 with offload nvme")
    assert found[-1] == "stage 1", "where nothing fits, the job may try as it is"


def test_without_a_known_memory_nothing_changes_by_itself() -> None:
    troupe = Troupe(workers=1, stage=1, model="gpt-small")
    spec = troupe.controller._brief.spec
    assert fitting(spec, Arrangement(stage=1), workers=1, room=OURS) == Arrangement(stage=1)


def test_auto_is_chosen_again_for_each_number_of_workers_and_says_why() -> None:
    troupe = running(workers=4, auto=["stage", "offload"], **SMALL)
    found = [troupe.newest().arrangement]
    for step, count in ((5, 2), (9, 1), (13, 4)):
        troupe.order(workers=count)
        troupe.turn()
        if count == 4:
            troupe.warm()
        troupe.stop(step=step)
        found.append(troupe.newest().arrangement)
        troupe.join(step=step, source="survivors")
    assert [str(each) for each in found] == ["stage 1", "stage 2", "stage 0 with offload nvme", "stage 1"]
    told = [payload["message"] for kind, payload in troupe.uplink.events if kind == "rearranged"]
    assert all(": stage " in message and "bytes per worker" in message for message in told), told


def test_what_the_user_says_after_all_is_no_longer_chosen() -> None:
    troupe = running(workers=2, auto=["stage"], **SMALL)
    troupe.order(arrangement=Arrangement(stage=2), auto=())
    troupe.turn()
    troupe.stop(step=5)
    assert troupe.newest().arrangement == Arrangement(stage=2)


def test_what_workers_find_under_them_decides_before_what_was_known_of_them() -> None:
    def first(device_bytes: int | None) -> str:
        troupe = Troupe(workers=2, auto=["stage", "offload"], model="gpt-small", resources={"gpu": 1})
        troupe.turn()
        for worker in [hand.id for hand in troupe.group]:
            ready = Ready(pid=1, node="n", device="cuda:0", warm_s=1.0, device_bytes=device_bytes)
            troupe.report(worker, ready)
        troupe.turn()
        return str(troupe.newest().arrangement)

    assert first(None) == first(2**34) == "stage 1"
    assert first(33 * 10**7) == "stage 1 with offload cpu"


def test_where_an_accelerator_is_too_small_host_memory_comes_before_a_disk() -> None:
    spec = JobSpec.model_validate({**SMALL, "resources": {"gpu": 1}})

    def at(parts: int, **host: int) -> str:
        memory = WorkerMemory(device_bytes=parts * 10**7, apart=True, **host)
        return str(fitting(spec, Arrangement(stage=1), workers=2, room=replace(OURS, memory=memory)))

    found = [at(parts) for parts in range(100, 0, -1)]
    order = list(dict.fromkeys(found))
    assert order[:4] == ["stage 1", "stage 2", "stage 3", "stage 1 with offload cpu"]
    assert not any("nvme" in each for each in order), "a disk takes no more from a device than host memory does"
    tight = at(next(parts for parts in range(100, 0, -1) if at(parts).endswith("cpu")), host_bytes=10**8)
    assert tight.endswith("nvme")
