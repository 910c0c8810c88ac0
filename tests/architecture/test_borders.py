"""Who may touch what: the rules that name single files, which the import contracts in pyproject.toml cannot say."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from tests.architecture.source_tree import PACKAGES, files, imported, imports_package, name, tree

SOURCES = files(".py", under=PACKAGES)


def outside(allowed: str) -> Iterator[Path]:
    return (path for path in SOURCES if not re.fullmatch(allowed, name(path)))


def importers(package: str, *, allowed: str) -> list[str]:
    return [name(path) for path in outside(allowed) if imports_package(path, package)]


def dotted(node: ast.expr) -> str:
    """`dist.all_reduce` of an expression made of names and dots; empty for any other."""
    if isinstance(node, ast.Name):
        return node.id
    inner = dotted(node.value) if isinstance(node, ast.Attribute) else ""
    return f"{inner}.{node.attr}" if isinstance(node, ast.Attribute) and inner else ""


def aliases(path: Path, module: str) -> dict[str, str]:
    """local name -> what it stands for, of everything imported from `module` or below."""
    found: dict[str, str] = {}
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.Import):
            pairs = [(alias.asname or alias.name, alias.name) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            pairs = [(alias.asname or alias.name, f"{node.module}.{alias.name}") for alias in node.names]
        else:
            continue
        found |= {local: full for local, full in pairs if full == module or full.startswith(module + ".")}
    return found


def callers(module: str, *, allowed: str) -> list[str]:
    """Files outside `allowed` that call into `module`; naming its types in annotations is free."""
    found = []
    for path in outside(allowed):
        known = aliases(path, module)
        calls = [dotted(node.func) for node in ast.walk(tree(path)) if isinstance(node, ast.Call)]
        if any(call == local or call.startswith(local + ".") for call in calls for local in known):
            found.append(name(path))
    return found


def test_only_the_controller_and_the_actor_import_ray() -> None:
    allowed = r"workers/controller/.*|workers/drain\.py|workers/worker/actor\.py|service/adapters/.*"
    assert importers("ray", allowed=allowed) == []


def test_only_the_collectives_and_their_neighbours_call_torch_distributed() -> None:
    """The rendezvous is the store that outlives the ranks, so the controller keeps it; DCP is a format of files."""
    engines = r"workers/engine/zero/collectives\.py|workers/engine/fsdp2/.*"
    processes = r"workers/worker/(exchange|process_group)\.py|workers/controller/rendezvous\.py"
    formats = r"workers/checkpoint/torch_dcp\.py"
    assert callers("torch.distributed", allowed=f"{engines}|{processes}|{formats}") == []


def test_only_the_hooks_file_registers_hooks() -> None:
    registrars = {
        name(path)
        for path in outside(r"workers/engine/(zero/hooks\.py|fsdp2/.*)")
        for node in ast.walk(tree(path))
        if isinstance(node, ast.Attribute) and re.fullmatch(r"register_\w*hook\w*", node.attr)
    }
    assert registrars == set()


def test_only_the_database_adapter_and_the_migrations_import_sqlalchemy() -> None:
    assert importers("sqlalchemy", allowed=r"service/adapters/database/.*|migrations/.*") == []


def test_only_the_wiring_imports_adapters() -> None:
    assert (
        importers("service.adapters", allowed=r"service/(wiring|__main__)\.py|service/adapters/.*|migrations/.*") == []
    )


def test_only_the_routes_and_the_application_import_fastapi() -> None:
    assert importers("fastapi", allowed=r"api/[a-z_]+\.py|api/routes/.*|api/cli/server\.py") == []


def test_the_client_and_the_command_line_know_the_rest_api_alone() -> None:
    """`serve`, `db upgrade` and `keys --local` are the service, and so may see it; every other command may not."""
    outward = [
        path for path in SOURCES if re.fullmatch(r"api/client\.py|api/cli/(?!serve|db|operate|keys).*\.py", name(path))
    ]
    assert [name(path) for path in outward if imports_package(path, "service")] == []


def test_nothing_from_outside_is_unpickled() -> None:
    banned = {"pickle", "cPickle", "dill", "cloudpickle", "shelve", "marshal"}
    assert [name(path) for path in SOURCES if banned & {found.split(".")[0] for found in imported(path)}] == []


def test_torch_load_reads_weights_only() -> None:
    loads = [
        f"{name(path)}:{node.lineno}"
        for path in SOURCES
        for node in ast.walk(tree(path))
        if isinstance(node, ast.Call) and dotted(node.func) == "torch.load"
        if not any(key.arg == "weights_only" and getattr(key.value, "value", False) is True for key in node.keywords)
    ]
    assert loads == []


def test_the_environment_is_read_where_settings_are_made() -> None:
    """Configuration is a JobSpec or Settings, parsed once; the command line reads where its service is; what a job
    brings for code of the user's is put there."""
    commands = r"api/cli/.*|workers/controller/__main__\.py"
    processes = r"workers/worker/(process_group|environment)\.py"
    allowed = rf"service/settings\.py|{commands}|{processes}"
    readers = [
        name(path)
        for path in outside(allowed)
        if any(
            dotted(node) in {"os.environ", "os.getenv"}
            for node in ast.walk(tree(path))
            if isinstance(node, ast.Attribute)
        )
    ]
    assert readers == []


# Where everything is caught and not raised again. What a task, a thread or a process of ours does next must not depend
# on what failed; code that is not ours raises what it likes.
BORDERS = {
    "a task": {
        "service/reconciler.py run",
        "service/reconciler.py _guarded",
        "service/stream.py _follow",
        "service/webhooks.py _run",
        "service/retention.py _run",
    },
    "a thread": {
        "workers/worker/actor.py _live",
        "workers/controller/uplink.py _run",
        "workers/checkpoint/background.py _run",
    },
    "a process": {"workers/controller/__main__.py _drive", "workers/worker/describe.py _answer"},
    "code of others": {
        "workers/worker/describe.py describe",
        "workers/models/blueprint.py draw_up",
        "workers/controller/launches.py launches",
    },
}


def catches_everything(node: ast.AST) -> bool:
    """An `except` for every exception that raises none, or a `suppress` of every one."""
    everything = {"Exception", "BaseException"}
    if isinstance(node, ast.ExceptHandler):
        kinds = {"BaseException"} if node.type is None else {dotted(each) for each in ast.walk(node.type)}
        return bool(kinds & everything) and not any(isinstance(inner, ast.Raise) for inner in ast.walk(node))
    suppresses = isinstance(node, ast.Call) and dotted(node.func).endswith("suppress")
    return suppresses and bool({dotted(each) for each in node.args} & everything)


def test_everything_is_caught_at_the_borders_alone() -> None:
    found = [
        f"{name(path)} {function.name}"
        for path in SOURCES
        for function in ast.walk(tree(path))
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef)
        and any(catches_everything(node) for node in ast.walk(function))
    ]
    assert sorted(found) == sorted(border for borders in BORDERS.values() for border in borders)
