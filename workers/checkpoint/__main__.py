"""`python -m workers.checkpoint`: look at, prove, pin, delete, export and import checkpoints where they lie.

The service has no torch; its routes and the `elastane` command run this on a machine that sees the store. One JSON
document on the standard output; exit status 0, 1 where the answer is no, 2 for wrong use.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from workers.checkpoint import catalogue, deepspeed, export, foreign, retention, torch_dcp
from workers.checkpoint.errors import CheckpointDamaged, CheckpointError, CheckpointIncomplete
from workers.checkpoint.manifest import Manifest
from workers.checkpoint.store import Store, open_store
from workers.checkpoint.verify import damages
from workers.user_code import SpecError

Answer = tuple[dict[str, Any], bool]


def list_all(store: Store, arguments: argparse.Namespace) -> Answer:
    """Every step that has a folder, newest first, and what is wrong with it."""
    pins = retention.pinned(store, arguments.job)
    items = [
        _looked_at(store, arguments.job, step) | {"pinned": step in pins}
        for step in reversed(catalogue.steps(store, arguments.job))
    ]
    return {"items": items}, True


def verify(store: Store, arguments: argparse.Namespace) -> Answer:
    """Read every byte; name every damaged file."""
    step = _step(store, arguments)
    try:
        manifest = catalogue.inspect(store, arguments.job, step)
        found = list(damages(store, manifest))
    except (CheckpointDamaged, CheckpointIncomplete) as error:
        return {"step": step, "whole": False, "problems": [str(error)]}, False
    answer = {"step": step, "whole": not found, "files": len(manifest.files), "size_bytes": manifest.size_bytes}
    return {**answer, "problems": [str(damage) for damage in found]}, not found


def pin(store: Store, arguments: argparse.Namespace) -> Answer:
    """Retention does not remove it any more."""
    retention.pin(store, job=arguments.job, step=arguments.step)
    return {"step": arguments.step, "pinned": True}, True


def unpin(store: Store, arguments: argparse.Namespace) -> Answer:
    """Retention may remove it again."""
    retention.unpin(store, job=arguments.job, step=arguments.step)
    return {"step": arguments.step, "pinned": False}, True


def delete(store: Store, arguments: argparse.Namespace) -> Answer:
    """Remove one checkpoint and its pin."""
    retention.remove(store, job=arguments.job, step=arguments.step)
    return {"step": arguments.step, "deleted": True}, True


def erase(store: Store, arguments: argparse.Namespace) -> Answer:
    """Remove everything of the job."""
    retention.erase(store, job=arguments.job)
    return {"job": arguments.job, "erased": True}, True


def export_one(store: Store, arguments: argparse.Namespace) -> Answer:
    """Write a folder that others read."""
    manifest = catalogue.inspect(store, arguments.job, _step(store, arguments))
    if arguments.format == "dcp":
        files = torch_dcp.to_dcp(store, manifest, arguments.to)
    else:
        files = export.to_hugging_face(store, manifest, arguments.to, dtype=arguments.dtype, average=arguments.average)
    return {"step": manifest.step, "to": str(arguments.to), "format": arguments.format, "files": list(files)}, True


def import_hf(store: Store, arguments: argparse.Namespace) -> Answer:
    """A Hugging Face folder (config and safetensors) as the checkpoint of step 0."""
    return _adopted(store, arguments, foreign.from_hugging_face(arguments.source))


def import_dcp(store: Store, arguments: argparse.Namespace) -> Answer:
    """A torch DCP folder as the checkpoint of step 0. UNPICKLES its metadata: for files that you trust."""
    _trusted(arguments)
    found = torch_dcp.from_dcp(
        arguments.source,
        buffers=arguments.buffer,
        model_prefix=arguments.model_prefix,
        optimizer_prefix=arguments.optimizer_prefix,
    )
    return _adopted(store, arguments, found)


def import_deepspeed(store: Store, arguments: argparse.Namespace) -> Answer:
    """A DeepSpeed ZeRO checkpoint, stage 1 to 3, as the checkpoint of step 0. UNPICKLES: for files that you trust."""
    _trusted(arguments)
    return _adopted(store, arguments, deepspeed.from_deepspeed(arguments.source, tag=arguments.tag))


def _trusted(arguments: argparse.Namespace) -> None:
    if not arguments.trust:
        raise foreign.ImportRefused(f"{arguments.source} holds a pickle, which can run code: say --trust if you do")


def _adopted(store: Store, arguments: argparse.Namespace, found: foreign.Foreign) -> Answer:
    manifest = foreign.adopt(store, found, job=arguments.job, source=str(arguments.source))
    return {"step": manifest.step, "tensors": len(manifest.tensors), "unused": list(found.unused)}, True


def _looked_at(store: Store, job: str, step: int) -> dict[str, Any]:
    try:
        manifest: Manifest = catalogue.inspect(store, job, step)
    except CheckpointError as error:
        return {"step": step, "whole": False, "problem": str(error)}
    return {"step": step, "whole": True, "size_bytes": manifest.size_bytes, "attempt": manifest.attempt}


def _step(store: Store, arguments: argparse.Namespace) -> int:
    """The one that was named, or the newest that looks whole."""
    if arguments.step is not None:
        return int(arguments.step)
    manifest = catalogue.newest_complete(store, arguments.job).manifest
    if manifest is None:
        raise CheckpointIncomplete(step=0, missing=["no whole checkpoint is there"], hint="name another job or store")
    return manifest.step


def parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(prog="python -m workers.checkpoint", description=__doc__)
    commands = top.add_subparsers(required=True, metavar="COMMAND")

    def command(name: str, run: Callable[[Store, argparse.Namespace], Answer]) -> argparse.ArgumentParser:
        added = commands.add_parser(name, help=run.__doc__, description=run.__doc__)
        added.set_defaults(run=run)
        added.add_argument("store", help="a folder, or s3://, gs://, az://")
        added.add_argument("job")
        return added

    command("list", list_all)
    command("verify", verify).add_argument("--step", type=int, help="default: the newest")
    for name, run in (("pin", pin), ("unpin", unpin), ("delete", delete)):
        command(name, run).add_argument("step", type=int)
    command("erase", erase)
    out = command("export", export_one)
    out.add_argument("--step", type=int, help="default: the newest whole one")
    out.add_argument("--to", type=Path, required=True, metavar="DIR")
    out.add_argument("--format", choices=["safetensors", "dcp"], default="safetensors")
    out.add_argument("--dtype", choices=["float32", "bfloat16", "float16"], default="float32")
    out.add_argument("--average", action="store_true", help="the average of the weights; dcp has it beside them")
    command("import-hf", import_hf).add_argument("source", type=Path)
    dcp = command("import-dcp", import_dcp)
    dcp.add_argument("--buffer", action="append", default=[], metavar="NAME", help="a buffer, not a parameter")
    dcp.add_argument("--model-prefix", default=torch_dcp.MODEL, help="of the parameters' keys; default: %(default)s")
    dcp.add_argument("--optimizer-prefix", default=torch_dcp.OPTIMIZER, help="default: %(default)s")
    zero = command("import-deepspeed", import_deepspeed)
    zero.add_argument("--tag", help="default: the one that the file `latest` names")
    for trusted in (dcp, zero):
        trusted.add_argument("source", type=Path)
        trusted.add_argument("--trust", action="store_true", help="you trust these files: reading them unpickles")
    return top


def main() -> int:
    arguments = parser().parse_args()
    try:
        answer, good = arguments.run(open_store(arguments.store), arguments)
    except (CheckpointError, SpecError, export.ExportRefused, foreign.ImportRefused, OSError) as error:
        print(json.dumps({"error": type(error).__name__, "detail": str(error)}))
        return 1
    print(json.dumps(answer, indent=2))
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
