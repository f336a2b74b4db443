"""The layout shows the architecture, and this keeps it so: who may import whom."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parents[2] / "src" / "millstream"
GROUND = {
    "address",
    "errors",
    "clock",
    "settings",
    "config",
    "horizon",
    "origin",
    "serving",
    "units",
    "extras",
    "pattern",
    "slices",
}

# Each layer, and the layers it may look down to. `cli` starts a broker and checks its files in these modules
# only; everything else above `client` knows a broker by its address alone.
MAY_IMPORT: dict[str, set[str]] = {
    "records": set(),
    "wire": set(),
    "log": {"records"},
    "broker": {"records", "wire", "log"},
    "client": {"records", "wire"},
    "files": {"client"},
    "registry": {"client"},
    "pipeline": {"records", "wire", "client", "registry"},
    "testing": {"pipeline"},
    "examples": {"client", "pipeline", "testing"},
    "console": {"client", "registry", "pipeline"},
    "cli": {"client", "files", "registry", "pipeline", "examples", "console"},
    "embedded": {"broker"},
    "pytest_plugin": {"embedded", "registry", "pipeline", "testing"},
}
EXCEPTIONS: dict[str, set[str]] = {
    "cli/serve.py": {"broker"},
    "cli/log.py": {"broker", "log"},
    "cli/promote.py": {"broker"},
    "cli/stage.py": {"embedded"},
    "cli/reference_metrics.py": {"broker"},
}


def modules() -> list[Path]:
    return sorted(PACKAGE.rglob("*.py"))


def imported_layers(path: Path) -> set[str]:
    """The layers of millstream that a module imports, wherever in it the import stands."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno}: imports are absolute here"
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        for name in names:
            parts = name.split(".")
            if parts[0] == "millstream" and len(parts) > 1:
                found.add(parts[1])
    return found


def layer_of(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


@pytest.mark.parametrize("path", modules(), ids=lambda path: str(path.relative_to(PACKAGE)))
def test_a_layer_imports_only_from_below(path: Path) -> None:
    layer = layer_of(path)
    if layer in GROUND or layer == "__init__":
        allowed = set(GROUND) if layer in GROUND else GROUND | set(MAY_IMPORT)
    else:
        allowed = GROUND | MAY_IMPORT[layer] | {layer}
        allowed |= EXCEPTIONS.get(str(path.relative_to(PACKAGE)), set())
    siblings = {
        "Broker",
        "Processor",
        "Topology",
        "no",
        "step",
        "__version__",
    }  # the public names, for examples
    assert imported_layers(path) - siblings <= allowed


@pytest.mark.parametrize(
    "package", [p.parent for p in modules() if p.name == "__init__.py"], ids=lambda p: p.name
)
def test_every_package_says_what_it_is_for(package: Path) -> None:
    docstring = ast.get_docstring(ast.parse((package / "__init__.py").read_text()))
    assert docstring, f"{package.name}/__init__.py has no docstring"


def test_no_module_has_outgrown_one_sitting() -> None:
    long = {str(p.relative_to(PACKAGE)): n for p in modules() if (n := len(p.read_text().splitlines())) > 650}
    assert long == {}
