"""The layout shows the architecture, and this keeps it so: who may import whom."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parents[2] / "src" / "millstream"

MOST_IN_A_ROOM = 25

# Each layer, and the layers it may look down to. `cli` starts a broker and checks its files in these modules
# only; everything else above `client` knows a broker by its address alone.
MAY_IMPORT: dict[str, set[str]] = {
    "core": set(),
    "sqltypes": {"core"},
    "records": {"core"},
    "wire": {"core"},
    "log": {"core", "records"},
    "broker": {"core", "records", "wire", "log"},
    "client": {"core", "records", "wire"},
    "registry": {"core", "client"},
    "views": {"core", "sqltypes"},
    "jobs": {"core", "client"},
    "integration": {"core", "client"},
    "pipeline": {"core", "sqltypes", "records", "wire", "client", "registry", "views", "jobs"},
    "testing": {"core", "sqltypes", "pipeline", "views"},
    "examples": {"core", "client", "pipeline", "testing"},
    "console": {"core", "client", "registry", "views", "jobs", "pipeline"},
    "cli": {
        "core",
        "client",
        "integration",
        "registry",
        "views",
        "jobs",
        "pipeline",
        "examples",
        "console",
    },
    "embedded": {"core", "broker"},
    "pytest_plugin": {"embedded", "registry", "pipeline", "testing"},
}
EXCEPTIONS: dict[str, set[str]] = {
    "cli/serve.py": {"broker"},
    "cli/log.py": {"broker", "log"},
    "cli/promote.py": {"broker"},
    "cli/stage/stage.py": {"embedded"},
}

# Rooms inside a package, and the rooms of the same package they may look down to. A room not named here is
# held by the test of cycles alone.
ROOMS: dict[str, set[str]] = {
    "records/columns": {"records"},
    "records/keys": {"records"},
    "wire/codec": {"wire"},
    "wire/hot": {"wire"},
    "client/text": set(),
    "client/protocol": {"client", "client/text"},
    "client/librdkafka": {"client", "client/text", "client/protocol"},
    "client/insight": {"client", "client/text", "client/protocol", "client/librdkafka"},
    "registry/avro": {"registry"},
    "registry/json": {"registry"},
    "registry/protobuf": {"registry"},
    "registry/service": {"registry", "registry/protobuf"},
    "log/segment": {"log", "log/storage"},
    "log/archive": {"log", "log/segment", "log/storage"},
    "log/compaction": {"log", "log/segment", "log/storage"},
    "broker/groups/classic": {"broker/groups"},
    "broker/groups/consumer": {"broker/groups", "broker/groups/classic"},
    "broker/outlook": {"broker/catalogue", "broker/groups", "broker/topics"},
    "pipeline/drawing": {"pipeline/dsl", "pipeline/planning"},
    "pipeline/kernel/state": {"pipeline/kernel"},
    "pipeline/kernel/windows": {"pipeline/kernel", "pipeline/kernel/state"},
    "pipeline/kernel/patterns": {"pipeline/kernel", "pipeline/kernel/state", "pipeline/kernel/windows"},
    "console/observing": {"console"},
    "console/views": {"console"},
    "console/pipelines": {"console", "console/observing"},
    "console/overview": {"console", "console/observing", "console/pipelines"},
    "cli/run": {"cli/terminal"},
    "cli/stage": {"cli/terminal"},
}


def modules() -> list[Path]:
    return sorted(PACKAGE.rglob("*.py"))


def imports(path: Path, *, at_load: bool = False) -> Iterator[str]:
    """What a module imports of millstream, wherever in it the import stands; or only what loading it does."""
    pending: list[ast.AST] = [ast.parse(path.read_text())]
    while pending:
        node = pending.pop()
        if at_load and isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        if at_load and isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            continue
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno}: imports are absolute here"
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        yield from (name for name in names if name.startswith("millstream."))
        pending += ast.iter_child_nodes(node)


def file_of(name: str) -> Path | None:
    """The module that ``name`` is, or is defined in; None for a public name of the package itself."""
    parts = name.split(".")[1:]
    while parts:
        for candidate in (
            PACKAGE.joinpath(*parts).with_suffix(".py"),
            PACKAGE.joinpath(*parts, "__init__.py"),
        ):
            if candidate.exists():
                return candidate
        parts.pop()
    return None


def imported(path: Path, *, at_load: bool = False) -> set[Path]:
    found = (file_of(name) for name in imports(path, at_load=at_load))
    return {file for file in found if file is not None and file != path}


def layer_of(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def room_of(path: Path) -> str:
    return str(path.relative_to(PACKAGE).parent)


@pytest.mark.parametrize("path", modules(), ids=lambda path: str(path.relative_to(PACKAGE)))
def test_a_layer_imports_only_from_below(path: Path) -> None:
    layer = layer_of(path)
    if layer == "__init__":
        return
    allowed = MAY_IMPORT[layer] | {layer} | EXCEPTIONS.get(str(path.relative_to(PACKAGE)), set())
    assert {layer_of(file) for file in imported(path)} <= allowed


@pytest.mark.parametrize("room", ROOMS)
def test_a_room_imports_only_from_the_rooms_it_may(room: str) -> None:
    layer = room.split("/")[0]
    for path in sorted((PACKAGE / room).glob("*.py")):
        used = {room_of(file) for file in imported(path) if layer_of(file) == layer}
        assert used <= ROOMS[room] | {room}, path.relative_to(PACKAGE)


def test_no_module_needs_itself_to_be_loaded() -> None:
    needs = {path: imported(path, at_load=True) for path in modules()}
    loaded: set[Path] = set()
    while ready := {path for path in needs if path not in loaded and needs[path] <= loaded}:
        loaded |= ready
    assert not {str(path.relative_to(PACKAGE)) for path in needs.keys() - loaded}


def test_a_room_holds_what_one_person_can_keep_in_mind() -> None:
    rooms = Counter(path.parent for path in modules() if path.name != "__init__.py")
    assert {room_of(room / "x"): size for room, size in rooms.items() if size > MOST_IN_A_ROOM} == {}


@pytest.mark.parametrize(
    "package", [p.parent for p in modules() if p.name == "__init__.py"], ids=lambda p: p.name
)
def test_every_package_says_what_it_is_for(package: Path) -> None:
    docstring = ast.get_docstring(ast.parse((package / "__init__.py").read_text()))
    assert docstring, f"{package.name}/__init__.py has no docstring"


def test_no_module_has_outgrown_one_sitting() -> None:
    long = {str(p.relative_to(PACKAGE)): n for p in modules() if (n := len(p.read_text().splitlines())) > 650}
    assert long == {}
