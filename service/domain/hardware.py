"""Accelerators that are known without asking them: memory, rates, and the names that others have for them."""

from __future__ import annotations

import re
from dataclasses import dataclass

# Of the vendors' operations per second so much is counted on.
ACHIEVED = 0.4
# Bytes per second of a host's memory and of its disk.
HOST_BYTES_PER_S, DISK_BYTES_PER_S = 60e9, 3e9


@dataclass(frozen=True, slots=True, kw_only=True)
class Rates:
    """What one rank gets done in a second: operations on matrices; bytes that it sends to the others, that pass between
    its device and the host, that move in the device's memory, in the host's, and on the disk. overlaps: whether it
    computes and sends at the same time."""

    operations: float
    link: float
    host: float
    memory: float
    host_memory: float = HOST_BYTES_PER_S
    disk: float = DISK_BYTES_PER_S
    overlaps: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Accelerator:
    """Memory, operations per second, and bytes per second to the others of its machine, to the host, in its memory."""

    name: str
    memory_bytes: int
    flops: float
    link: float
    host: float
    bandwidth: float

    def rates(self, *, item_bytes: int) -> Rates:
        """item_bytes: of a parameter in matrices; those of two bytes are twice as fast as those of four."""
        operations = ACHIEVED * self.flops * 2 / item_bytes
        return Rates(operations=operations, link=self.link, host=self.host, memory=self.bandwidth)


# The vendors' own: dense 16-bit matrices; one direction of the link between accelerators of a machine.
KNOWN = tuple(
    Accelerator(
        name=name,
        memory_bytes=memory * 10**9,
        flops=flops * 1e12,
        link=link * 1e9,
        host=host * 1e9,
        bandwidth=bandwidth * 1e9,
    )
    for name, memory, flops, link, host, bandwidth in (
        ("B200", 180, 2250, 900, 64, 8000),
        ("MI300X", 192, 1307, 448, 64, 5300),
        ("H200", 141, 989, 450, 64, 4800),
        ("H100", 80, 989, 450, 64, 3350),
        ("A100-80GB", 80, 312, 300, 32, 2039),
        ("A100-40GB", 40, 312, 300, 32, 1555),
        ("L40S", 48, 362, 32, 32, 864),
        ("L4", 24, 121, 32, 32, 300),
        ("RTX 4090", 24, 165, 32, 32, 1008),
        ("V100-32GB", 32, 125, 150, 16, 900),
    )
)
# One core of a server, to an order of magnitude: what a job on CPUs has measured makes it right.
CORE = Rates(operations=3e10, link=1e9, host=float("inf"), memory=1e10, host_memory=1e10, overlaps=False)
# Gigabytes of those that no rate is known of, by the word of a name that tells the model.
_GIGABYTES = {
    **{"GB300": 279, "B300": 279, "GB200": 186, "GH200": 96, "H20": 96, "A800": 40, "A40": 48, "A30": 24, "A10G": 24},
    **{"A10": 24, "L40": 48, "T4": 16, "V100": 16, "P100": 12, "P4": 8, "5090": 32, "3090": 24, "PRO 6000": 96},
    **{"MI355X": 288, "MI350X": 288, "MI325X": 256, "MI308X": 192, "MI300A": 128},
    **{"MI250X": 64, "MI210": 64, "MI100": 32},
}


def memory_named(name: str | None) -> int | None:
    """Bytes of one accelerator, by the name that a driver, a cluster or a spec has for it: the gigabytes that it says,
    else the least that its model is sold with. None where neither is known."""
    said = re.search(r"(?<![A-Za-z0-9])(\d+)\s?G(?:i?B)?\b", name or "")
    if said is not None:
        return int(said.group(1)) * 10**9
    others = (size * 10**9 for model, size in _GIGABYTES.items() if is_named(model, name or ""))
    return min((*(each.memory_bytes for each in _alike(name)), *others), default=None)


def known_as(name: str | None) -> Accelerator | None:
    """The known one of that name; of one that is known with more or less memory, the one that has as much."""
    return min(_alike(name), key=lambda each: each.memory_bytes != memory_named(name), default=None)


def _alike(name: str | None) -> list[Accelerator]:
    return [each for each in KNOWN if is_named(re.sub(r"-\d+GB$", "", each.name), name or "")]


def is_named(model: str, name: str) -> bool:
    """Whether a name has the words of a model in it, as "NVIDIA A100-SXM4-40GB" has A100."""
    asked, there = (f" {' '.join(re.findall(r'[A-Z0-9]+', text.upper()))} " for text in (model, name))
    return asked in there
