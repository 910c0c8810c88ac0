"""`python -m workers.controller --service URL --job JOB --attempt ATTEMPT`: the Ray driver of one attempt.

The attempt's token is in ELASTANE_ATTEMPT_TOKEN. Exit status 0: the attempt ended and the service knows how.
"""

from __future__ import annotations

import argparse
import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import ray

from service.domain.wire import Brief, Outcome
from workers.controller import adoption
from workers.controller.controller import Controller
from workers.controller.group import WorkerGroup, worker_options
from workers.controller.rendezvous import RendezvousPoint
from workers.controller.transport import HttpTransport, Refused, Superseded
from workers.controller.uplink import Uplink

log = logging.getLogger("workers.controller")

BRIEF_S = 60.0
# A driver that attaches to a cluster that is not there waits for minutes inside Ray.
ATTACH_S = 60.0
DELIVER_S = 600.0
# After SIGTERM somebody waits for this process to go.
DELIVER_AT_SIGTERM_S = 5.0
UNREACHABLE = 3


def main(argv: list[str]) -> int:
    arguments = _arguments(argv)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s %(message)s")
    logging.getLogger("httpx").setLevel(logging.WARNING)
    token = os.environ.get("ELASTANE_ATTEMPT_TOKEN", "")
    transport = HttpTransport(service_url=arguments.service, attempt_id=arguments.attempt, token=token)
    brief = _brief(transport)
    if brief is None:
        return UNREACHABLE
    if brief.job_id != arguments.job:
        log.error("attempt %s belongs to job %s, not to %s", arguments.attempt, brief.job_id, arguments.job)
        return 2
    uplink = Uplink(brief, transport)
    uplink.start()
    with _within(ATTACH_S, f"ray at {brief.ray_address} did not answer in {ATTACH_S:.0f} s"):
        ray.init(
            address=brief.ray_address,
            namespace=brief.namespace,
            log_to_driver=False,
            logging_level=logging.WARNING,
        )
    return _drive(brief, uplink)


def _drive(brief: Brief, uplink: Uplink) -> int:
    _claim_log_folder(brief)
    options = worker_options(
        brief,
        cluster_has_gpus=_has_gpus(brief),
        environment={key: os.environ[key] for key in ("PYTHONPATH",) if key in os.environ},
    )
    group = WorkerGroup(brief, options=options)
    left = adoption.find(brief)
    for actor, adopted in left.workers:
        group.adopt(actor, adopted)
    meeting_point = RendezvousPoint(brief, left=left.stores)
    controller = Controller(brief, uplink=uplink, group=group, meeting_point=meeting_point)
    controller.adopt([adopted for _, adopted in left.workers])
    told_to_end = threading.Event()

    def on_sigterm(signum: int, frame: object) -> None:
        told_to_end.set()
        controller.leave()

    signal.signal(signal.SIGTERM, on_sigterm)
    try:
        outcome = controller.run()
    except Exception as error:
        log.exception("the controller failed")
        outcome = Outcome(result="failed", cause="system", reason=f"{type(error).__name__}: {error}"[:500])
    finally:
        meeting_point.end()
    delivered = uplink.end(outcome, within_s=DELIVER_AT_SIGTERM_S if told_to_end.is_set() else DELIVER_S)
    ray.shutdown()
    return 0 if delivered else UNREACHABLE


def _has_gpus(brief: Brief) -> bool:
    """A pool that is empty now cannot be asked."""
    if brief.slot_kind is not None:
        return brief.slot_kind == "gpu"
    return bool(ray.cluster_resources().get("GPU", 0) > 0)  # type: ignore[no-untyped-call]


def _claim_log_folder(brief: Brief) -> None:
    folder = Path(brief.log_folder)
    folder.mkdir(parents=True, exist_ok=True)
    handler = logging.FileHandler(folder / "controller.log")
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s %(message)s"))
    logging.getLogger().addHandler(handler)


def _brief(transport: HttpTransport) -> Brief | None:
    """The service may be restarting just now."""
    end = time.monotonic() + BRIEF_S
    while True:
        try:
            return transport.brief()
        except (Superseded, Refused) as error:
            log.error("nothing to do: %s", error)
            return None
        except (OSError, ValueError) as error:
            log.warning("no brief yet: %s", error)
            if time.monotonic() > end:
                return None
            time.sleep(1.0)


@contextmanager
def _within(limit_s: float, complaint: str) -> Iterator[None]:
    """Leave the process when the body takes longer: what hangs inside a C++ call cannot be interrupted."""

    def give_up() -> None:
        log.error("%s", complaint)
        logging.shutdown()
        os._exit(UNREACHABLE)

    timer = threading.Timer(limit_s, give_up)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def _arguments(argv: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m workers.controller", description="The driver of one attempt.")
    parser.add_argument("--service", required=True, help="the service's URL")
    parser.add_argument("--job", required=True, help="the job's id")
    parser.add_argument("--attempt", required=True, help="the attempt's id")
    return parser.parse_args(argv)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
