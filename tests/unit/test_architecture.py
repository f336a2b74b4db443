"""The layout shows the architecture, and this keeps it so: who may import whom."""

from __future__ import annotations

import ast
import re
from collections import Counter, deque
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parents[2] / "src" / "millstream"

MOST_IN_A_ROOM = 24

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
    # The catalogue keeps what groups and transactions decide, so it knows the types of their rows.
    "broker/catalogue": {"broker/groups", "broker/transactions"},
    "broker/topics": {"broker/catalogue"},
    "broker/net": {"broker/catalogue", "broker/topics"},
    "broker/groups": {
        "broker/catalogue",
        "broker/groups/classic",
        "broker/groups/consumer",
        "broker/groups/migration",
        "broker/groups/share",
    },
    "broker/groups/classic": {"broker/groups"},
    "broker/groups/consumer": {"broker/groups", "broker/groups/classic"},
    "broker/groups/migration": {"broker/groups", "broker/groups/classic", "broker/groups/consumer"},
    "broker/groups/share": {"broker/catalogue", "broker/groups"},
    "broker/transactions": {"broker/catalogue", "broker/groups", "broker/topics"},
    "broker/overload": {"broker/catalogue", "broker/groups", "broker/topics"},
    "broker/horizon": {"broker/catalogue", "broker/topics"},
    "broker/standby": {"broker/catalogue", "broker/net", "broker/topics"},
    "broker/upkeep": {"broker/catalogue", "broker/horizon", "broker/topics"},
    "broker/api": {
        "broker",
        "broker/api/groups",
        "broker/api/share",
        "broker/catalogue",
        "broker/groups",
        "broker/groups/classic",
        "broker/groups/consumer",
        "broker/groups/share",
        "broker/net",
        "broker/overload",
        "broker/standby",
        "broker/topics",
        "broker/transactions",
        "broker/upkeep",
    },
    "broker/api/groups": {
        "broker",
        "broker/api",
        "broker/catalogue",
        "broker/groups",
        "broker/groups/classic",
        "broker/groups/consumer",
        "broker/groups/share",
    },
    "broker/api/share": {"broker", "broker/api", "broker/groups/share", "broker/net", "broker/topics"},
    "pipeline/dsl": {
        "pipeline/dsl/joins",
        "pipeline/dsl/windows",
        "pipeline/formats",
        "pipeline/kernel",
        "pipeline/kernel/joins",
        "pipeline/kernel/patterns",
        "pipeline/kernel/processor",
        "pipeline/kernel/windows",
    },
    "pipeline/dsl/joins": {"pipeline/dsl", "pipeline/kernel", "pipeline/kernel/joins"},
    "pipeline/dsl/windows": {"pipeline/dsl", "pipeline/kernel", "pipeline/kernel/windows"},
    "pipeline/planning": {
        "pipeline/dsl",
        "pipeline/dsl/windows",
        "pipeline/kernel",
        "pipeline/kernel/state",
    },
    "pipeline/drawing": {"pipeline/dsl", "pipeline/planning"},
    "pipeline/spark/lowering": {
        "pipeline/dsl",
        "pipeline/dsl/windows",
        "pipeline/formats",
        "pipeline/kernel",
        "pipeline/kernel/state",
        "pipeline/planning",
        "pipeline/spark",
    },
    "pipeline/kernel": {"pipeline/kernel/state"},
    "pipeline/kernel/state": {"pipeline/kernel"},
    "pipeline/kernel/windows": {"pipeline/kernel", "pipeline/kernel/state"},
    "pipeline/kernel/patterns": {"pipeline/kernel", "pipeline/kernel/state", "pipeline/kernel/windows"},
    "pipeline/kernel/joins": {"pipeline/kernel", "pipeline/kernel/state"},
    "pipeline/kernel/processor": {"pipeline/kernel", "pipeline/kernel/state"},
    "pipeline/connector": set(),
    "pipeline/sql": {"pipeline/dsl"},
    "pipeline/run/checkpoint": {
        "pipeline/connector",
        "pipeline/dsl",
        "pipeline/planning",
        "pipeline/spark",
        "pipeline/kernel",
        "pipeline/kernel/processor",
        "pipeline/kernel/state",
    },
    "pipeline/run/delivery": {
        "pipeline/connector",
        "pipeline/dsl",
        "pipeline/planning",
        "pipeline/spark",
        "pipeline/kernel",
        "pipeline/run/checkpoint",
    },
    "pipeline/run/reporting": {
        "pipeline/connector",
        "pipeline/drawing",
        "pipeline/dsl",
        "pipeline/formats",
        "pipeline/planning",
        "pipeline/kernel",
        "pipeline/run/delivery",
    },
    "pipeline/run/bounded": {
        "pipeline/connector",
        "pipeline/kernel",
        "pipeline/planning",
        "pipeline/run",
        "pipeline/run/reporting",
    },
    "pipeline/run/rebuild": {
        "pipeline/connector",
        "pipeline/dsl",
        "pipeline/planning",
        "pipeline/run",
        "pipeline/run/bounded",
        "pipeline/run/checkpoint",
        "pipeline/run/delivery",
    },
    "console/observing": {"console"},
    "console/views": {"console"},
    "console/pipelines": {"console", "console/observing"},
    "console/overview": {"console", "console/observing", "console/pipelines"},
    "cli/run": {"cli/terminal"},
    "cli/stage": {"cli/terminal"},
}


def modules() -> list[Path]:
    return sorted(PACKAGE.rglob("*.py"))


def imports(path: Path) -> Iterator[str]:
    """What a module imports of millstream, wherever in it the import stands."""
    pending: list[ast.AST] = [ast.parse(path.read_text())]
    while pending:
        node = pending.pop()
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


def imported(path: Path) -> set[Path]:
    found = (file_of(name) for name in imports(path))
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


def test_no_module_leads_back_to_itself() -> None:
    """Counts every import: those for annotations (``TYPE_CHECKING``) and those within functions too."""
    graph = {path: imported(path) for path in modules()}
    cycles = [cycle for path in graph if (cycle := cycle_through(path, graph))]
    assert [" -> ".join(str(path.relative_to(PACKAGE)) for path in cycle) for cycle in cycles] == []


def cycle_through(start: Path, graph: dict[Path, set[Path]]) -> list[Path]:
    """The shortest way from a module back to itself; empty if there is none."""
    came_from: dict[Path, Path] = {}
    pending = deque([start])
    while pending:
        path = pending.popleft()
        for needed in sorted(graph[path] - came_from.keys()):
            came_from[needed] = path
            if needed == start:
                way = [start]
                while len(way) == 1 or way[-1] != start:
                    way.append(came_from[way[-1]])
                return way[::-1]
            pending.append(needed)
    return []


def test_a_room_holds_what_one_person_can_keep_in_mind() -> None:
    rooms = Counter(path.parent for path in modules() if path.name != "__init__.py")
    assert {room_of(room / "x"): size for room, size in rooms.items() if size > MOST_IN_A_ROOM} == {}


@pytest.mark.parametrize(
    "package",
    [p.parent for p in modules() if p.name == "__init__.py"],
    ids=lambda p: str(p.relative_to(PACKAGE)),
)
def test_every_package_says_what_it_is_for(package: Path) -> None:
    """A room of more than three modules also says which of them to start with."""
    docstring = ast.get_docstring(ast.parse((package / "__init__.py").read_text()))
    assert docstring, f"{package.name}/__init__.py has no docstring"
    in_the_room = {p.stem for p in package.glob("*.py")} - {"__init__"}
    if len(in_the_room) > 3:
        start = re.search(r"Start (?:with|reading at) ((?:``.+?``|[^`.])+)", " ".join(docstring.split()))
        named = set(re.findall(r"``(\w+)``", start[1])) if start else set()
        assert named & in_the_room, f"{room_of(package / 'x')}/__init__.py names no module to start with"


def test_no_module_has_outgrown_one_sitting() -> None:
    long = {str(p.relative_to(PACKAGE)): n for p in modules() if (n := len(p.read_text().splitlines())) > 650}
    assert long == {}
