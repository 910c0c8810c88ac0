"""What Ray's own tables say of actors, in the Ray that is installed."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from tests.elastic.cluster import Bench

_DRIVER = """
import json, os, sys, time, ray
from workers.controller.ray_tables import begun

address, gate = sys.argv[1:]
ray.init(address=address, log_to_driver=False, logging_level=40)
names = {"elastane:tables:one", "elastane:tables:two"}

@ray.remote(num_cpus=ray.cluster_resources()["CPU"])
class Slow:
    def __init__(self):
        while not os.path.exists(gate):
            time.sleep(0.02)

    def name(self):
        return ray.get_runtime_context().get_actor_name()

workers = [Slow.options(name=name).remote() for name in sorted(names)]
answers = [worker.name.remote() for worker in workers]
end = time.monotonic() + 60
while not names & begun() and time.monotonic() < end:
    time.sleep(0.05)
answered, _ = ray.wait(answers, timeout=0)
told = {"answered": len(answered), "starting": sorted(names & begun())}
open(gate, "w").close()
(first,), _ = ray.wait(answers, timeout=60)
print(json.dumps({**told, "standing": sorted(names & begun()), "first": ray.get(first)}))
"""


def test_of_two_workers_for_one_slot_the_one_that_has_a_process_has_begun(bench: Bench, tmp_path: Path) -> None:
    command = [sys.executable, "-c", _DRIVER, bench.address, str(tmp_path / "gate")]
    driver = subprocess.run(command, check=True, stdout=subprocess.PIPE, timeout=150)
    told = json.loads(driver.stdout.splitlines()[-1])
    assert told["answered"] == 0
    assert told["starting"] == told["standing"] == [told["first"]]
