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
for _ in range(4):
    use()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(5):
    use()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def faults(how: str) -> int:
    ran = subprocess.run([sys.executable, "-c", ROUNDS, how], capture_output=True, text=True, check=True, timeout=120)
    return int(ran.stdout)


def test_memory_that_comes_and_goes_is_not_faulted_in_again() -> None:
    assert faults("kept") < 1000 < 10_000 < faults("unmapped")
