"""A Ray whose nodes come and go: a head that trains nothing, and the real autoscaler over nodes of this machine."""

from __future__ import annotations

import json
import secrets
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from service.adapters.processes import end, with_environment
from service.adapters.ray_environment import MARK, ray_environment
from service.adapters.ray_head import interpreter
from service.settings import inherited_environment

# The provider of these nodes knows its head by this name.
HEAD = "f" * 51 + "00000"
KIND = "pool"
IDLE_S = 6.0
STARTED = "Ray runtime started"
OF_THE_HEAD = {
    "RAY_FAKE_CLUSTER": "1",
    "RAY_enable_autoscaler_v2": "1",
    "RAY_CLOUD_INSTANCE_ID": HEAD,
    "RAY_OVERRIDE_NODE_ID_FOR_TESTING": HEAD,
    "AUTOSCALER_UPDATE_INTERVAL_S": "1",
}


@dataclass(frozen=True)
class Pool:
    """Up to `most` nodes of one CPU."""

    address: str
    environment: dict[str, str]
    probe: subprocess.Popen[str]

    def nodes(self) -> list[str]:
        """Ray's ids of those that live, without the head."""
        return sorted(node for node, kind in self._look()["nodes"].items() if kind == KIND)

    def asked_for(self) -> int:
        """Bundles that nobody has yet."""
        return int(self._look()["asked_for"])

    def hook(self, node: str) -> int:
        """The status of the preStop hook of that node's container."""
        command = [sys.executable, "-m", "workers.drain", "--within", "60", "--address", self.address, "--node", node]
        return subprocess.run(command, env={**inherited_environment(), **self.environment}, timeout=120).returncode

    def _look(self) -> dict[str, Any]:
        assert self.probe.stdin is not None
        assert self.probe.stdout is not None
        self.probe.stdin.write("look\n")
        self.probe.stdin.flush()
        found: dict[str, Any] = json.loads(self.probe.stdout.readline())
        return found


@contextmanager
def pool(folder: Path, *, most: int) -> Iterator[Pool]:
    """All its processes are gone afterwards."""
    folder.mkdir()
    (folder / "token").write_text(secrets.token_hex(32))
    address, log = f"127.0.0.1:{free_port()}", folder / "ray.log"
    environment = {**ray_environment(folder), MARK: str(folder), "OMP_NUM_THREADS": "1"}
    with log.open("wb") as output:
        head = subprocess.Popen(
            head_command(folder, address, most=most),
            env={**inherited_environment(), **environment, **OF_THE_HEAD},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        until(lambda: STARTED in log.read_text(errors="replace") or head.poll() is not None, within_s=100, what="Ray")
        assert head.poll() is None, log.read_text(errors="replace")
        probe = subprocess.Popen(
            [sys.executable, "-m", "tests.elastic.pool_probe", address],
            env={**inherited_environment(), **environment},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        with probe:
            yield Pool(address, environment, probe)
    finally:
        end(with_environment(f"{MARK}={folder}"), grace_s=1.0)
        head.wait(30)


def head_command(folder: Path, address: str, *, most: int) -> list[str]:
    config = folder / "autoscaler.json"
    config.write_text(json.dumps(autoscaler_config(address, most=most)))
    return [
        *(interpreter(folder), "-m", "ray.scripts.scripts", "start", "--head", "--block"),
        f"--port={address.partition(':')[2]}",
        f"--ray-client-server-port={free_port()}",
        f"--dashboard-agent-listen-port={free_port()}",
        "--node-ip-address=127.0.0.1",
        f"--temp-dir={folder}",
        "--num-cpus=0",
        "--object-store-memory=80000000",
        "--include-dashboard=false",
        "--disable-usage-stats",
        f"--autoscaling-config={config}",
    ]


def autoscaler_config(address: str, *, most: int) -> dict[str, object]:
    return {
        "cluster_name": "elastane-test",
        "max_workers": most,
        "idle_timeout_minutes": IDLE_S / 60,
        "upscaling_speed": 1.0,
        "provider": {
            "type": "external",
            "module": "ray.autoscaler._private.fake_multi_node.node_provider.FakeMultiNodeProvider",
            "gcs_address": address,
            "head_node_id": HEAD,
            "launch_multiple": True,
        },
        "auth": {},
        "available_node_types": {
            "ray.head.default": {"resources": {"CPU": 0}, "node_config": {}, "max_workers": 0},
            KIND: {
                "resources": {"CPU": 1, "object_store_memory": 80_000_000},
                "node_config": {},
                "min_workers": 0,
                "max_workers": most,
            },
        },
        "head_node_type": "ray.head.default",
        "file_mounts": {},
        "cluster_synced_files": [],
        "file_mounts_sync_continuously": False,
        "rsync_exclude": [],
        "rsync_filter": [],
        "initialization_commands": [],
        "setup_commands": [],
        "head_setup_commands": [],
        "worker_setup_commands": [],
        "head_start_ray_commands": [],
        "worker_start_ray_commands": [],
    }


def until(condition: Callable[[], object], *, within_s: float, what: str) -> float:
    """How long it took."""
    began = time.monotonic()
    while not condition():
        assert time.monotonic() - began < within_s, f"no {what} within {within_s:.0f} s"
        time.sleep(0.2)
    return time.monotonic() - began


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
