"""What is freed stays with the process: the kernel does not zero it again."""

from __future__ import annotations

import subprocess
import sys

ROUNDS = """
import ctypes, resource, sys, torch
from workers.worker.heap import keep_freed_memory
if sys.argv[1] == "kept":
    assert keep_freed_memory()
else:
    # Every vector is mapped and unmapped: what is measured below is seen where it happens.
    assert ctypes.CDLL(None).mallopt(-3, 2**17)
def use():
    vectors = [torch.zeros(5_000_000) for _ in range(3)]
def faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt
counts = []
for _ in range(20):
    before = faults()
    use()
    counts.append(faults() - before)
print(*counts)
"""


def faults_by_round(how: str) -> list[int]:
    ran = subprocess.run([sys.executable, "-c", ROUNDS, how], capture_output=True, text=True, check=True, timeout=120)
    return [int(count) for count in ran.stdout.split()]


def test_memory_that_comes_and_goes_is_not_faulted_in_again() -> None:
    kept, unmapped = faults_by_round("kept"), faults_by_round("unmapped")
    # The heap finds its size in the first rounds: four of them as a rule, sometimes more.
    assert max(kept[-8:]) < 200, kept
    assert min(unmapped) > 2_000, unmapped
