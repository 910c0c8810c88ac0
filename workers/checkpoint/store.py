"""Where checkpoints lie: a few verbs over paths with `/`, so that a folder and an object store look the same."""

from __future__ import annotations

import ctypes
import errno
import os
import secrets
import shutil
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Protocol
from urllib.parse import unquote, urlsplit

from fsspec.core import url_to_fs

from service.domain.checkpoint import OBJECT_SCHEMES
from workers.checkpoint.object_store import ObjectStore
from workers.user_code import SpecError

# What a kill in the middle of `put` leaves beside the file.
PARTIAL = ".partial"
# Written before the disk is told to begin with it; Linux' `sync_file_range`, which Python has no name for.
BEGIN_BYTES = 32 << 20
SYNC_FILE_RANGE_WRITE = 2
_sync_file_range = getattr(ctypes.CDLL(None), "sync_file_range", None)
if _sync_file_range is not None:
    _sync_file_range.argtypes = (ctypes.c_int, ctypes.c_int64, ctypes.c_int64, ctypes.c_uint)
# What a file system without hard links answers.
NO_LINKS = {errno.EPERM, errno.ENOTSUP, errno.ENOSYS, errno.EMLINK}


class Sink(Protocol):
    """A new file, written from front to back."""

    def write(self, data: memoryview) -> None: ...


class Source(Protocol):
    """An open file, read anywhere."""

    size_bytes: int

    def expect(self, ranges: Sequence[tuple[int, int]]) -> None:
        """Reads of exactly these byte ranges will follow, in this order: a hint to a place that is far away."""
        ...

    def read_into(self, offset: int, buffer: memoryview) -> int:
        """Fill the buffer from the file at `offset`; returns the bytes read, fewer only where the file ends."""
        ...


class Store(Protocol):
    """What a checkpoint needs. A missing path raises FileNotFoundError, other trouble an OSError."""

    def create(self, path: str) -> AbstractContextManager[Sink]:
        """A file that did not exist; durable when the context ends, gone when it ends with an error."""
        ...

    def put(self, path: str, data: bytes, *, fresh: bool = False) -> None:
        """The whole file at once: readers see the old content or the new, and the new one is durable on return.

        `fresh`: only where there is none; of two that try at once, one gets FileExistsError.
        """
        ...

    def open(self, path: str) -> AbstractContextManager[Source]: ...

    def size(self, path: str) -> int: ...

    def names(self, folder: str) -> tuple[str, ...]:
        """Names of files and folders directly inside, sorted; none where there is no folder."""
        ...

    def delete(self, path: str) -> None:
        """The file, or the folder with all in it; nothing where there is nothing."""
        ...


def open_store(uri: str) -> Store:
    """The store of a `checkpoint.uri`: a path, `file://`, or an object store by its scheme.

    Raises SpecError for a scheme that nobody speaks here, a missing driver, and a URI with credentials in it.
    """
    parts = urlsplit(uri)
    if not parts.scheme or "://" not in uri:
        return LocalStore(Path(uri))
    if parts.scheme == "file":
        return LocalStore(Path(unquote(parts.path)))
    if parts.scheme not in OBJECT_SCHEMES:
        fix = f"give a folder that every worker sees, or one of {', '.join(f'{each}://' for each in OBJECT_SCHEMES)}"
        raise SpecError(field="checkpoint.uri", value=uri, problem=f"{parts.scheme} is no store", fix=fix)
    if parts.username or parts.password or parts.query:
        fix = "leave them to the environment of the workers"
        raise SpecError(field="checkpoint.uri", value=_bare(uri), problem="holds credentials or options", fix=fix)
    try:
        # Listings of another moment would hide what another process just published; a remembered file system
        # would go on with the address and the credentials that the environment had when it was first asked for.
        filesystem, root = url_to_fs(uri, use_listings_cache=False, skip_instance_cache=True)
    except ImportError as error:
        fix = f"install {OBJECT_SCHEMES[parts.scheme]} on the workers"
        raise SpecError(field="checkpoint.uri", value=uri, problem=str(error), fix=fix) from error
    return ObjectStore(filesystem, str(root))


def _bare(uri: str) -> str:
    """Without what may be secret: messages are stored and shown."""
    parts = urlsplit(uri)
    return f"{parts.scheme}://...@{parts.hostname}{parts.path}"


def read_whole(store: Store, path: str) -> bytes:
    """A small file's bytes."""
    with store.open(path) as source:
        data = bytearray(source.size_bytes)
        count = source.read_into(0, memoryview(data))
    return bytes(data[:count])


class LocalStore:
    """A folder of this machine, or one that a network file system shows to all of them."""

    def __init__(self, root: Path) -> None:
        self._root = root

    @contextmanager
    def create(self, path: str) -> Iterator[Sink]:
        target = self._root / path
        _make_folder(target.parent)
        descriptor = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
        try:
            yield _LocalSink(descriptor)
            os.fsync(descriptor)
        except BaseException:
            target.unlink(missing_ok=True)
            raise
        finally:
            os.close(descriptor)
        _sync_folder(target.parent)

    def put(self, path: str, data: bytes, *, fresh: bool = False) -> None:
        partial = f"{path}.{secrets.token_hex(4)}{PARTIAL}"
        with self.create(partial) as sink:
            sink.write(memoryview(data))
        if fresh:
            self._link(self._root / partial, self._root / path)
        else:
            os.replace(self._root / partial, self._root / path)
        _sync_folder((self._root / path).parent)

    def _link(self, partial: Path, target: Path) -> None:
        """A rename that does not replace."""
        try:
            os.link(partial, target)
        except OSError as error:
            if error.errno not in NO_LINKS or target.exists():
                raise
            os.replace(partial, target)
        finally:
            partial.unlink(missing_ok=True)

    @contextmanager
    def open(self, path: str) -> Iterator[Source]:
        descriptor = os.open(self._root / path, os.O_RDONLY)
        try:
            yield _LocalSource(descriptor)
        finally:
            os.close(descriptor)

    def size(self, path: str) -> int:
        return (self._root / path).stat().st_size

    def names(self, folder: str) -> tuple[str, ...]:
        try:
            return tuple(sorted(os.listdir(self._root / folder)))
        except FileNotFoundError:
            return ()

    def delete(self, path: str) -> None:
        target = self._root / path
        if target.is_dir() and not target.is_symlink():
            shutil.rmtree(target)
        else:
            target.unlink(missing_ok=True)
        if target.parent.exists():
            _sync_folder(target.parent)


class _LocalSink:
    """The disk begins with what was written while the rest is on its way, and not in the one `fsync` at the end."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._written = self._begun = 0

    def write(self, data: memoryview) -> None:
        while data:
            count = os.write(self._descriptor, data)
            self._written, data = self._written + count, data[count:]
        if self._written - self._begun >= BEGIN_BYTES and _sync_file_range is not None:
            # A hint: where it fails, `fsync` does all and says why.
            _sync_file_range(self._descriptor, self._begun, self._written - self._begun, SYNC_FILE_RANGE_WRITE)
            self._begun = self._written


class _LocalSource:
    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self.size_bytes = os.fstat(descriptor).st_size

    def expect(self, ranges: Sequence[tuple[int, int]]) -> None:
        """The kernel reads ahead by itself."""

    def read_into(self, offset: int, buffer: memoryview) -> int:
        done = 0
        while done < len(buffer):
            count = os.preadv(self._descriptor, [buffer[done:]], offset + done)
            if count == 0:
                break
            done += count
        return done


def _make_folder(folder: Path) -> None:
    """With its parents; each new entry is durable, or a power cut could lose the folder with a synced file inside."""
    new = [path for path in (folder, *folder.parents) if not path.exists()]
    folder.mkdir(parents=True, exist_ok=True)
    for path in new:
        _sync_folder(path.parent)


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
