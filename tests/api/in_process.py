"""The services of a control plane over fakes, for the application without a socket: the test makes the ticks."""

from __future__ import annotations

from service.adapters.public_http import PublicHttp
from service.census import Census
from service.logs import Logs
from service.metrics import Metrics
from service.retention import Retention
from service.webhooks import Deliveries, Webhooks
from service.wiring import Services
from tests.fakes.control_plane import ControlPlane


def services_of(plane: ControlPlane) -> Services:
    database, clock = plane.database, plane.clock
    return Services(
        settings=plane.settings,
        jobs=plane.jobs,
        metrics=Metrics(database=database),
        logs=Logs(database=database),
        checkpoints=plane.checkpoints,
        plans=plane.plans,
        cluster=plane.cluster,
        keys=plane.keys,
        attempts=plane.attempts,
        stream=plane.stream,
        census=Census(database=database, ray=plane.ray, clock=clock, tally=plane.attempts.tally, disks=lambda: dict()),
        reconciler=plane.reconciler,
        retention=Retention(database=database, clock=clock, files=plane.files, settings=plane.settings),
        webhooks=Webhooks(database=database, clock=clock, tokens=plane.tokens),
        deliveries=Deliveries(database=database, clock=clock, post=PublicHttp()),
        database=database,  # type: ignore[arg-type]
        ray=plane.ray,
        lock=None,
    )
