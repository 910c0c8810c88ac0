"""What is freed stays with the process: the kernel does not zero it again."""

from __future__ import annotations

import statistics
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
for _ in range(15):
    before = faults()
    use()
    counts.append(faults() - before)
print(*counts)
"""


def faults_of_a_round(how: str) -> float:
    """The median: a heap that a small value splits grows once more, by a vector, and stays as it is then."""
    ran = subprocess.run([sys.executable, "-c", ROUNDS, how], capture_output=True, text=True, check=True, timeout=120)
    return statistics.median(int(count) for count in ran.stdout.split())


def test_memory_that_comes_and_goes_is_not_faulted_in_again() -> None:
    assert faults_of_a_round("kept") < 200 < 2_000 < faults_of_a_round("unmapped")
