"""A .zip with the user's modules, from wherever it is, as a folder of this machine named after its content."""

from __future__ import annotations

import hashlib
import io
import zipfile
from pathlib import Path

import fsspec

from service.domain.checkpoint import OBJECT_SCHEMES
from workers.user_code import SourceUnreachable, SpecError
from workers.worker.kept import entered

LIMIT_BYTES = 512 << 20
UNPACKED_LIMIT_BYTES = 4 * LIMIT_BYTES
FIELD = "environment.working_dir"


def fetch(uri: str) -> bytes:
    """Whole: modules, not data. Raises SpecError for what is not there, SourceUnreachable where nobody answers."""
    try:
        # Not `open`: over HTTP it calls a server that does not answer a file that is not there.
        files, path = fsspec.core.url_to_fs(uri)
        content: bytes = files.cat_file(path)
    except (FileNotFoundError, PermissionError) as error:
        problem = "not there" if isinstance(error, FileNotFoundError) else "these workers may not read it"
        raise SpecError(field=FIELD, value=uri, problem=problem, fix="check the URI, and who may read it") from error
    except ImportError as error:
        driver = OBJECT_SCHEMES.get(uri.partition("://")[0], "aiohttp")
        problem = f"these workers have no driver for it ({error})"
        raise SpecError(field=FIELD, value=uri, problem=problem, fix=f"install {driver} on the workers") from error
    except Exception as error:
        # Each driver has exceptions of its own for a network that fails.
        if 400 <= getattr(error, "status", 0) < 500:
            problem, fix = f"the server answered {error.status}", "check the URI, and who may read it"  # type: ignore[attr-defined]
            raise SpecError(field=FIELD, value=uri, problem=problem, fix=fix) from error
        raise SourceUnreachable(f"{FIELD} = {uri!r}: {type(error).__name__}: {error}"[:500]) from error
    if len(content) > LIMIT_BYTES:
        problem, fix = f"larger than {LIMIT_BYTES >> 20} MiB", "bring modules alone; data have a field of their own"
        raise SpecError(field=FIELD, value=uri, problem=problem, fix=fix)
    return content


def unpack(content: bytes, source: str, cache: Path) -> Path:
    """The same content is unpacked once. Raises SpecError for what is no archive, or too large a one."""
    folder = cache / "working_dirs" / hashlib.sha256(content).hexdigest()[:32]
    return entered(folder, lambda draft: _extract(content, source, draft))


def _extract(content: bytes, source: str, folder: Path) -> None:
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            # No more of a file is unpacked than the archive says that it has.
            if sum(file.file_size for file in archive.infolist()) > UNPACKED_LIMIT_BYTES:
                problem = f"larger than {UNPACKED_LIMIT_BYTES >> 20} MiB when unpacked"
                fix = "bring modules alone; data have a field of their own"
                raise SpecError(field=FIELD, value=source, problem=problem, fix=fix)
            archive.extractall(folder)
    except (zipfile.BadZipFile, NotImplementedError, RuntimeError) as error:
        problem = f"no archive that can be unpacked ({error})"
        raise SpecError(field=FIELD, value=source, problem=problem, fix="give a .zip of the folder") from error
