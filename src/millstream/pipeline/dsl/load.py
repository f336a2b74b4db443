"""Loads the topology that a user's Python file defines, and reports its errors at the user's line."""

from __future__ import annotations

import importlib.util
import sys
import sysconfig
import traceback
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType

from millstream.core.errors import MillstreamError, TopologyError
from millstream.core.extras import how_to_install
from millstream.pipeline.dsl.declaring import shown
from millstream.pipeline.dsl.streams import Stream, Table
from millstream.pipeline.dsl.topology import Topology

_MODULE = "millstream_pipeline_"  # followed by the file's name: its name in sys.modules
_OURS = ("millstream", "pyspark_millstream")
_PACKAGES = {"site-packages", "dist-packages"}


def user_modules(flow: Topology | None = None) -> dict[str, ModuleType]:
    """The user's modules by name: the loaded pipelines and, if given, the module that made a topology, and
    the modules from the same folders that were imported with them."""
    files = {
        name: Path(file).resolve()
        for name, module in list(sys.modules.items())
        if (file := getattr(module, "__file__", None)) is not None
    }
    homes = {file.parent for name, file in files.items() if name.startswith(_MODULE)}
    if flow is not None:
        made_in = files.get(flow.module)
        # Cells of a notebook, and lines typed at Python's prompt, are in no file.
        homes.add(Path.cwd() if made_in is None else made_in.parent)
    return {
        name: sys.modules[name]
        for name, file in files.items()
        if any(file.is_relative_to(home) for home in homes) and not _is_installed(name, file)
    }


def _is_installed(name: str, file: Path) -> bool:
    """True for a module that workers can import as well: one of Python's, or of an installed package."""
    if name.partition(".")[0] in _OURS or not _PACKAGES.isdisjoint(file.parts):
        return True
    return any(file.is_relative_to(sysconfig.get_path(where)) for where in ("stdlib", "platstdlib"))


def load_topology(file: str | Path, name: str | None = None) -> Topology:
    """The topology that ``file`` defines. ``name`` chooses one if the file defines several."""
    path = Path(file)
    _check_names(path)
    module = _run(path)
    found: dict[int, Topology] = {}
    for value in vars(module).values():
        if isinstance(value, Topology):
            found[id(value)] = value
    flows = list(found.values())
    if name is not None:
        flows = [flow for flow in flows if flow.name == name]
    if not flows:
        wanted = f" named {name!r}" if name is not None else ""
        raise TopologyError(
            f'the file defines no topology{wanted} at its top level: flow = Topology("name")',
            where=shown(str(path)),
        )
    if len(flows) > 1:
        names = ", ".join(flow.name for flow in flows)
        raise TopologyError(
            f"the file defines several topologies ({names}); choose one with --name", where=shown(str(path))
        )
    flow = flows[0]
    name_streams(flow, vars(module))
    return flow


def name_streams(flow: Topology, variables: Mapping[str, object]) -> None:
    """Name the streams that were given no name after the variables that hold them."""
    for variable, value in list(variables.items()):
        stream = value.changes if isinstance(value, Table) else value
        if isinstance(stream, Stream) and stream.node.flow is flow and not variable.startswith("_"):
            flow.rename(stream.node, variable)


def _run(path: Path) -> ModuleType:
    if not path.is_file():
        raise TopologyError(f"there is no file {shown(str(path))}")
    module_name = f"{_MODULE}{path.stem}"
    spec = importlib.util.spec_from_file_location(module_name, path.resolve())
    if spec is None or spec.loader is None:
        raise TopologyError("a pipeline is a Python file (.py)", where=shown(str(path)))
    module = importlib.util.module_from_spec(spec)
    sys.modules[module_name] = module
    # The file's directory comes first, as for a script: pipelines import helpers that lie next to them.
    sys.path.insert(0, str(path.resolve().parent))
    try:
        spec.loader.exec_module(module)
    except MillstreamError:
        raise
    except SyntaxError as error:
        line = (error.text or "").strip()
        raise TopologyError(
            f"{error.msg}{': ' + line if line else ''}",
            where=f"{shown(error.filename or str(path))}:{error.lineno}",
        ) from None
    except Exception as error:
        reason = f"{type(error).__name__}: {error}{how_to_install(error)}"
        raise TopologyError(reason, where=user_line(error, path)) from error
    except SystemExit as error:
        raise TopologyError(
            f"the file exits (exit code {error.code}) while it is loaded", where=shown(str(path))
        ) from None
    finally:
        sys.path.remove(str(path.resolve().parent))
    return module


def _check_names(path: Path) -> None:
    """Refuse a folder with a file named like a module of Python's own. Spark's Python processes would import
    it instead, and fail in many ways that don't name the cause."""
    own = {file.stem for file in path.resolve().parent.glob("*.py")}
    if hidden := sorted(own & sys.stdlib_module_names):
        raise TopologyError(
            f"{hidden[0]}.py has the name of a standard Python module; programs that run in this folder,"
            " Spark included, would import your file instead. Rename it",
            where=shown(str(path)),
        )


def user_line(error: BaseException, path: Path) -> str:
    """``file:line`` of the innermost frame in the user's files; only the file if there is none."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if Path(frame.filename).resolve().is_relative_to(path.resolve().parent)]
    return f"{shown(own[-1].filename)}:{own[-1].lineno}" if own else shown(str(path))
