"""Writes the page that lists every file, from the first paragraph of each module's docstring."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import millstream

_ABOUT = """\
What each file is for, from its own docstring. [Architecture](../architecture.md) describes the path of a
record through them, and which layer may import which."""


def modules_page() -> str:
    """docs/reference/modules.md"""
    root = Path(millstream.__file__).parent
    out = ["# Every file", _ABOUT]
    for package in sorted({path.parent for path in root.rglob("*.py")}):
        rows = ["| file | |", "| --- | --- |"]
        rows += [f"| `{path.name}` | {_first_paragraph(path)} |" for path in _modules(package)]
        own = _first_paragraph(package / "__init__.py")
        out += [f"## {package.relative_to(root.parent).as_posix()}", own]
        if len(rows) > 2:
            out.append("\n".join(rows))
    return "\n\n".join(out)


def _modules(package: Path) -> Iterator[Path]:
    return (path for path in sorted(package.glob("*.py")) if path.name != "__init__.py")


def _first_paragraph(path: Path) -> str:
    text = ast.get_docstring(ast.parse(path.read_text())) or ""
    return " ".join(text.split("\n\n")[0].split()).replace("|", "&#124;").replace("<", "&lt;")
