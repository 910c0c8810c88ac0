"""One process that writes or reads so many bytes and does nothing else: the least that any checkpoint can cost here."""

from __future__ import annotations

import argparse
import os
import time
from pathlib import Path

STRIDE_BYTES = 4 << 20


def write(path: Path, size_bytes: int) -> None:
    data = memoryview(os.urandom(STRIDE_BYTES))
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    for start in range(0, size_bytes, STRIDE_BYTES):
        os.write(descriptor, data[: size_bytes - start])
    os.fsync(descriptor)
    os.close(descriptor)


def read(path: Path) -> None:
    buffer = bytearray(STRIDE_BYTES)
    descriptor = os.open(path, os.O_RDONLY)
    while os.readv(descriptor, [buffer]):
        pass
    os.close(descriptor)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("act", choices=["write", "read"])
    parser.add_argument("path", type=Path)
    parser.add_argument("size_bytes", type=int)
    arguments = parser.parse_args()
    began = time.perf_counter()
    if arguments.act == "write":
        write(arguments.path, arguments.size_bytes)
    else:
        read(arguments.path)
    print(time.perf_counter() - began)


if __name__ == "__main__":
    main()
