"""S3, GCS, Azure and whatever else fsspec speaks, behind the six verbs of a store.

An object appears whole or not at all: a multipart upload is invisible before it is completed, a put is one request.
Credentials come from the environment or the platform (the drivers' own rules), never from a URI. A driver's retries
cover its requests; ours cover the calls that may simply be made again.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from typing import Any, TypeVar

# S3 takes 10,000 parts: a rank's file may have 640 GB. One part is in memory at a time.
PART_BYTES = 64 << 20
WAITS_S = (0.25, 1.0, 4.0)
# Ranged reads on their way at once, of a block each.
AHEAD = 8
FETCHERS = 4
# Asking again would give the same answer.
FINAL = (FileNotFoundError, FileExistsError, PermissionError, IsADirectoryError, NotADirectoryError)

Answer = TypeVar("Answer")


class ObjectStore:
    """Objects under `root` of an fsspec file system (synchronous face, listings not cached)."""

    def __init__(
        self, filesystem: Any, root: str, *, part_bytes: int = PART_BYTES, waits_s: Sequence[float] = WAITS_S
    ) -> None:
        self._filesystem = filesystem
        self._root = root.rstrip("/")
        self._part_bytes = part_bytes
        self._waits_s = tuple(waits_s)

    @contextmanager
    def create(self, path: str) -> Iterator[_ObjectSink]:
        """Names are never used twice, so nothing is asked first."""
        with _as_os_error(path):
            file = self._filesystem.open(self._place(path), "wb", block_size=self._part_bytes)
        try:
            yield _ObjectSink(file, path)
            with _as_os_error(path):
                file.close()
        except BaseException:
            _discard(file, path)
            # Some file systems show a file before it is closed.
            with suppress(OSError):
                self.delete(path)
            raise

    def put(self, path: str, data: bytes, *, fresh: bool = False) -> None:
        mode = "create" if fresh else "overwrite"
        tried = False

        def put_once() -> None:
            nonlocal tried
            again, tried = tried, True
            try:
                self._filesystem.pipe_file(self._place(path), data, mode=mode)
            except FileExistsError:
                # The answer to an earlier try may have been lost on the way.
                if not again or self._filesystem.cat_file(self._place(path)) != data:
                    raise

        self._call(path, put_once)

    @contextmanager
    def open(self, path: str) -> Iterator[_ObjectSource]:
        source = _ObjectSource(self.size(path), lambda start, stop: self._range(path, start, stop))
        try:
            yield source
        finally:
            source.close()

    def size(self, path: str) -> int:
        return int(self._call(path, lambda: self._filesystem.info(self._place(path))["size"]))

    def names(self, folder: str) -> tuple[str, ...]:
        place = self._place(folder).rstrip("/")
        try:
            found = self._call(folder, lambda: self._filesystem.ls(place, detail=False, refresh=True))
        except (FileNotFoundError, NotADirectoryError):
            return ()
        inside = (str(entry).rstrip("/") for entry in found)
        prefix = place.lstrip("/") + "/"
        return tuple(
            sorted(entry.lstrip("/")[len(prefix) :] for entry in inside if entry.lstrip("/").startswith(prefix))
        )

    def delete(self, path: str) -> None:
        with suppress(FileNotFoundError):
            self._call(path, lambda: self._filesystem.rm(self._place(path), recursive=True))

    def _place(self, path: str) -> str:
        return f"{self._root}/{path}"

    def _range(self, path: str, start: int, stop: int) -> bytes:
        data: bytes = self._call(path, lambda: self._filesystem.cat_file(self._place(path), start=start, end=stop))
        return data

    def _call(self, path: str, ask: Callable[[], Answer]) -> Answer:
        for wait_s in self._waits_s:
            try:
                with _as_os_error(path):
                    return ask()
            except FINAL:
                raise
            except OSError:
                time.sleep(wait_s)
        with _as_os_error(path):
            return ask()


class _ObjectSink:
    def __init__(self, file: Any, path: str) -> None:
        self._file, self._path = file, path

    def write(self, data: memoryview) -> None:
        with _as_os_error(self._path):
            self._file.write(data)


class _ObjectSource:
    """Ranges that were announced are fetched ahead, a few at a time."""

    def __init__(self, size_bytes: int, fetch: Callable[[int, int], bytes]) -> None:
        self.size_bytes = size_bytes
        self._fetch = fetch
        self._fetchers: ThreadPoolExecutor | None = None
        self._announced: deque[tuple[int, int]] = deque()
        self._coming: dict[tuple[int, int], Future[bytes]] = {}

    def expect(self, ranges: Sequence[tuple[int, int]]) -> None:
        self._announced = deque(ranges)
        self._fetchers = self._fetchers or ThreadPoolExecutor(FETCHERS, thread_name_prefix="fetch")
        self._send_for_more()

    def read_into(self, offset: int, buffer: memoryview) -> int:
        wanted = (offset, min(offset + len(buffer), self.size_bytes))
        if wanted[0] >= wanted[1]:
            return 0
        coming = self._coming.pop(wanted, None)
        self._send_for_more()
        data = coming.result() if coming is not None else self._fetch(*wanted)
        count = min(len(data), len(buffer))
        buffer[:count] = data[:count]
        return count

    def close(self) -> None:
        if self._fetchers is not None:
            self._fetchers.shutdown(cancel_futures=True)

    def _send_for_more(self) -> None:
        while self._fetchers is not None and self._announced and len(self._coming) < AHEAD:
            wanted = self._announced.popleft()
            self._coming[wanted] = self._fetchers.submit(self._fetch, *wanted)


def _discard(file: Any, path: str) -> None:
    """Give the upload up. A file of fsspec that is only forgotten would complete itself when it is collected."""
    with suppress(OSError), _as_os_error(path):
        file.discard()
    with suppress(AttributeError):
        file.closed = True


@contextmanager
def _as_os_error(path: str) -> Iterator[None]:
    """A driver's own exceptions (a connection, a credential) as what a store may raise."""
    try:
        yield
    except OSError:
        raise
    except Exception as error:
        raise OSError(f"{path}: {type(error).__name__}: {error}") from error
