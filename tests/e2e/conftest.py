from __future__ import annotations

from collections.abc import Iterator

import pytest

from api.client import ElastaneClient
from examples.local_service import LocalService, local_service
from tests.e2e.journey import Curve, curve, run, spec

# Long enough that a job still trains when workers have joined it, or its service has started again.
STEPS = 400
# Of a job that need not wait for either. Under a constant schedule it is the beginning of the longer one.
FEWER_STEPS = 200


@pytest.fixture(scope="package")
def service() -> Iterator[LocalService]:
    """One service for the folder; its end is part of the test: an orderly stop leaves no process behind."""
    with local_service(name="e2e") as local:
        yield local


@pytest.fixture(scope="package")
def client(service: LocalService) -> Iterator[ElastaneClient]:
    with ElastaneClient(service.url) as connected:
        yield connected


@pytest.fixture(scope="package")
def undisturbed(client: ElastaneClient) -> Curve:
    """The curve of one worker that nothing happened to."""
    losses = curve(client, run(client, spec(steps=STEPS, stage=0, workers=1))["id"])
    assert losses[STEPS] < losses[1] - 0.5, "nothing was learnt; agreement would show nothing"
    return losses
