"""Writes the page of the Python API from the signatures and docstrings of its public names."""

from __future__ import annotations

import importlib
import inspect
import textwrap
from collections.abc import Iterator
from enum import Enum
from typing import Any, ForwardRef

# What a program imports, and the classes of the objects that it is given.
NAMES: dict[str, tuple[str, tuple[str, ...] | None]] = {
    "Pipelines": ("millstream", ("Topology", "aggregate", "step", "absent")),
    "Streams of a pipeline": ("millstream", ("Stream", "Source")),
    "Windows": ("millstream", ("Window",)),
    "Tables": ("millstream", ("Table",)),
    "Steps of a pattern": ("millstream", ("Step",)),
    "Processors": ("millstream", ("Processor", "Event", "Context", "Timer")),
    "Jobs of a program": ("millstream.pipeline.run.handle", ("JobHandle", "JobStatus")),
    "What jobs did": ("millstream.pipeline.run.reporting.totals", ("JobProgress", "JobSummary")),
    "Testing pipelines": ("millstream.testing", None),  # all names that it exports
    "Spark": ("millstream.pipeline", ("register",)),
    "Following views": ("millstream", ("watch", "Watcher", "ViewChange")),
    "Servers in your process": ("millstream", ("Broker", "Registry")),
    "Transactions": ("millstream.client", None),
}

# Classes whose objects a program is given and does not construct.
_HANDED = {"Stream", "Source", "Window", "Table", "Step", "Record", "Reading", "Transaction"}
_HANDED |= {"Event", "Context", "Timer", "ViewChange"}
_HANDED |= {"JobHandle", "JobStatus", "JobProgress", "JobSummary"}
_ERRORS = "millstream.core.errors"
_ABOUT = """\
The public API of `import millstream` and its public modules. Names that begin with an underscore, and
modules not listed here, may change without notice. `millstream.__version__` is the installed version.

A test runs every example; streams that they give are not printed. In the examples, `F` is
`pyspark.sql.functions`, `address` is a broker's, and a pipeline has these declarations:

```python
flow = Topology("fraud")
payments = flow.source(
    "payments",
    schema="card string, eur double, country string, at timestamp",
    time="at",
    lateness="10 seconds",
)
cards = flow.table("cards", schema="card string, limit double", key="card")
```

`processed(processor, output, *rows)` gives the rows that a processor emits for payments. Arguments of the
type `Sql` are SQL expressions, as text or as PySpark's `Column`; `Keys` is one of them or a list."""


def python_page() -> str:
    """docs/reference/python.md"""
    out = ["# Python API", _ABOUT]
    for title, (module_name, names) in NAMES.items():
        module = importlib.import_module(module_name)
        out += [f"## {title}"]
        for name in names or module.__all__:
            out += _described(f"{module_name}.{name}", getattr(module, name))
    out += ["## Exceptions", _prose(importlib.import_module(_ERRORS))]
    out += [_ABOUT_ERRORS]
    for name, error in _errors():
        out += [f"### millstream.{name}", _prose(error)]
    return "\n\n".join(part for part in out if part)


_ABOUT_ERRORS = f"All are in `{_ERRORS}`. `import millstream` has those that a program may have to handle:"


def _errors() -> Iterator[tuple[str, Any]]:
    """The exceptions that ``millstream`` exports."""
    public = importlib.import_module("millstream")
    for name in public.__all__:
        thing = getattr(public, name)
        if inspect.isclass(thing) and issubclass(thing, Exception):
            yield name, thing


def public_docstrings() -> Iterator[tuple[str, str]]:
    """The docstrings on this page, by name: ``Topology``, ``Topology.source``, ..."""
    for module_name, names in NAMES.values():
        module = importlib.import_module(module_name)
        for name in names or module.__all__:
            thing = getattr(module, name)
            yield name, _docstring(thing)
            if inspect.isclass(thing):
                for member, value in _public_members(thing):
                    yield f"{name}.{member}", _docstring(value)
    for name, error in _errors():
        yield name, _docstring(error)


def is_about_jobs(name: str) -> bool:
    """True if the example of a public name has a job, which runs on Spark."""
    return name.startswith("Job") or name in ("Topology.run", "Topology.start")


def _described(path: str, thing: Any) -> Iterator[str]:
    name = path.rpartition(".")[2]
    yield f"### {path}"
    if inspect.isclass(thing) and issubclass(thing, Enum):
        yield "One of " + ", ".join(f"`{name}.{member.name}`" for member in thing) + "."
    elif name not in _HANDED:
        yield _signature(name, thing)
    yield _prose(thing)
    if inspect.isclass(thing):
        if name not in _HANDED:
            yield next((text for part in _parts(thing) if (text := _prose(vars(part).get("__init__")))), "")
        for member, value in _public_members(thing):
            if isinstance(value, property):
                yield f"#### {name}.{member}"
            else:
                yield f"#### {name}.{member}()"
                yield _signature(member, value)
            yield _prose(value)


def _public_members(cls: type) -> Iterator[tuple[str, Any]]:
    """Methods and properties with a docstring, in the order of the source, with those of a base class that
    has no section of its own. Those without a docstring are meant for other modules of millstream.
    """
    for part in _parts(cls):
        for name, value in vars(part).items():
            inner = value.__func__ if isinstance(value, classmethod | staticmethod) else value
            is_member = inspect.isfunction(inner) or isinstance(inner, property)
            if is_member and not name.startswith("_") and inner.__doc__:
                yield name, inner


def _parts(cls: type) -> list[type]:
    """The class, and before it those without a section of their own that it extends."""
    return [one for one in reversed(cls.__mro__) if one.__name__ in (cls.__name__, "HasSinks")]


def _signature(name: str, thing: Any) -> str:
    """The call, without ``self``. Each parameter gets its own line where a single line would be too long."""
    signature = inspect.signature(thing)
    parts: list[str] = []
    for parameter in signature.parameters.values():
        if parameter.name in ("self", "cls"):
            continue
        if parameter.kind is parameter.KEYWORD_ONLY and not any(part.startswith("*") for part in parts):
            parts.append("*")
        parts.append(_parameter(parameter))
    returned = _annotation(signature.return_annotation)
    end = f" -> {returned}" if returned not in ("", "None") else ""
    line = f"{name}({', '.join(parts)}){end}"
    if len(line) > 100:
        line = "\n".join([f"{name}(", *(f"    {part}," for part in parts), f"){end}"])
    return f"```python\n{line}\n```"


def _parameter(parameter: inspect.Parameter) -> str:
    kinds: dict[object, str] = {parameter.VAR_POSITIONAL: "*", parameter.VAR_KEYWORD: "**"}
    stars = kinds.get(parameter.kind, "")
    annotation = _annotation(parameter.annotation)
    text = f"{stars}{parameter.name}{f': {annotation}' if annotation else ''}"
    if parameter.default is parameter.empty:
        return text
    default = repr(parameter.default)
    if default.startswith("<"):  # an internal object, or the default factory of a dataclass field
        default = "..."
    return f"{text} = {default}" if annotation else f"{text}={default}"


def _annotation(given: Any) -> str:
    if given is inspect.Signature.empty:
        return ""
    if isinstance(given, ForwardRef):
        return given.__forward_arg__
    return given if isinstance(given, str) else inspect.formatannotation(given)


def _prose(thing: Any) -> str:
    """A docstring as Markdown. Little has to change, because an indented part is code in both. An example at
    Python's prompt becomes a block of code."""
    parts = _docstring(thing).split("\n\n")
    return "\n\n".join(_fenced(part) if part.lstrip().startswith(">>>") else part for part in parts)


def _docstring(thing: Any) -> str:
    return inspect.cleandoc(getattr(thing, "__doc__", None) or "")


def _fenced(example: str) -> str:
    return f"```pycon\n{textwrap.dedent(example)}\n```"
