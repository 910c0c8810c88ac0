"""From a DataSpec to a map-style dataset (`len`, `[i]`): the same samples, in the same places, on every worker."""

from __future__ import annotations

import glob
import hashlib
import os
import sys
import sysconfig
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from service.domain.spec import DataSpec, PythonData, TextData, TokensData
from workers.data.errors import DataError
from workers.data.windows import TokenWindows
from workers.user_code import import_function

# Not the library's own text, or not on every build of the same Python.
NOT_LIBRARY = frozenset({"site-packages", "dist-packages", "__pycache__", "test", "tests"})


class Dataset(Protocol):
    """A map-style dataset."""

    def __len__(self) -> int: ...

    def __getitem__(self, index: int, /) -> Any: ...


def open_corpus(data_spec: DataSpec, *, seq_len: int, cache_folder: Path, vocab: int | None = None) -> Dataset:
    """The samples of a spec. Text becomes one file of bytes in `cache_folder`, memory-mapped.

    Raises DataError where there is nothing to read, or less than one sample.
    """
    if isinstance(data_spec, PythonData):
        return _users(data_spec)
    if isinstance(data_spec, TokensData):
        tokens, source = _token_file(data_spec), data_spec.tokens
    elif isinstance(data_spec, TextData):
        tokens, source = _text(data_spec.text, cache_folder), data_spec.text
    else:
        tokens, source = _stdlib(cache_folder), data_spec
    return TokenWindows(tokens, seq_len=seq_len, source=source, vocab=vocab)


def stdlib_files() -> list[Path]:
    """The Python standard library's own .py files on this machine, sorted by their path inside it."""
    root = Path(sysconfig.get_paths()["stdlib"])
    found: list[Path] = []
    for folder, inner, names in os.walk(root):
        inner[:] = [name for name in inner if name not in NOT_LIBRARY]
        found += (Path(folder, name) for name in names if name.endswith(".py"))
    return sorted(found, key=lambda path: path.relative_to(root).as_posix())


def _stdlib(cache_folder: Path) -> npt.NDArray[np.uint8]:
    files = stdlib_files()
    if not files:
        fix = "install it, or give data: {text: GLOB}"
        raise DataError(field="data", value="stdlib", problem="no source of the standard library here", fix=fix)
    # Two builds of one version may differ, and workers of several machines may share this folder.
    listing = hashlib.blake2b(digest_size=8)
    for path in files:
        listing.update(f"{path.name} {path.stat().st_size}\n".encode())
    version = ".".join(map(str, sys.version_info[:3]))
    return _bytes_of(files, cache_folder / f"stdlib-{version}-{listing.hexdigest()}.u8")


def _text(pattern: str, cache_folder: Path) -> npt.NDArray[np.uint8]:
    files = [
        Path(path) for path in sorted(glob.glob(os.path.expanduser(pattern), recursive=True)) if os.path.isfile(path)
    ]
    if not files:
        fix = "check the pattern, and that every worker's machine has the files"
        raise DataError(field="data.text", value=pattern, problem="no file matches", fix=fix)
    listing = hashlib.blake2b(digest_size=16)
    for path in files:
        stat = path.stat()
        listing.update(f"{path.absolute()} {stat.st_size} {stat.st_mtime_ns}\n".encode())
    return _bytes_of(files, cache_folder / f"text-{listing.hexdigest()}.u8")


def _token_file(spec: TokensData) -> npt.NDArray[np.integer]:
    try:
        path = Path(os.path.expanduser(spec.tokens))
        size_bytes = path.stat().st_size
    except OSError as error:
        fix = "check the path, and that every worker's machine has the file"
        raise DataError(field="data.tokens", value=spec.tokens, problem=str(error.strerror), fix=fix) from error
    itemsize = np.dtype(spec.dtype).itemsize
    if size_bytes % itemsize:
        problem = f"{size_bytes} bytes are no multiple of {itemsize}, the size of {spec.dtype}"
        raise DataError(field="data.dtype", value=spec.dtype, problem=problem, fix="give the type that the file has")
    return _mapped(path, spec.dtype)


def _users(spec: PythonData) -> Dataset:
    dataset = import_function(spec.python, field="data.python")(**spec.args)
    if not hasattr(dataset, "__len__") or not hasattr(dataset, "__getitem__"):
        problem = f"returned {type(dataset).__name__}, which has no length or no items"
        raise DataError(field="data.python", value=spec.python, problem=problem, fix="return a map-style dataset")
    if len(dataset) < 1:
        raise DataError(field="data.python", value=spec.python, problem="the dataset is empty", fix="give it samples")
    return dataset  # type: ignore[no-any-return]


def _bytes_of(files: Sequence[Path], cached: Path) -> npt.NDArray[np.uint8]:
    """The files' bytes, one after the other, from the cache; made there first where it is not yet."""
    if not cached.exists():
        cached.parent.mkdir(parents=True, exist_ok=True)
        _write_atomically(cached, (path.read_bytes() for path in files))
    return _mapped(cached, "uint8")


def _write_atomically(path: Path, chunks: Iterable[bytes]) -> None:
    """Workers may do this at the same time: each writes its own file, and the last rename wins with equal bytes."""
    descriptor, name = tempfile.mkstemp(prefix=path.name, suffix=".partial", dir=path.parent)
    try:
        with os.fdopen(descriptor, "wb") as file:
            for chunk in chunks:
                file.write(chunk)
            file.flush()
            os.fsync(file.fileno())
        os.replace(name, path)
    except BaseException:
        os.unlink(name)
        raise


def _mapped(path: Path, dtype: str) -> npt.NDArray[Any]:
    if path.stat().st_size == 0:  # which the system refuses to map
        return np.empty(0, dtype=dtype)
    return np.memmap(path, dtype=dtype, mode="r")
