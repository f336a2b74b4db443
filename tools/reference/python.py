"""Writes the page of the Python API from the signatures and docstrings of its public names."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Iterator
from enum import Enum
from typing import Any, ForwardRef

# What a program imports, and the classes of the objects that it is given.
NAMES: dict[str, tuple[str, tuple[str, ...] | None]] = {
    "Pipelines": ("millstream", ("Topology", "Processor", "aggregate", "step", "no")),
    "Streams of a pipeline": ("millstream.pipeline.dsl.streams", ("Stream", "Source")),
    "Windows": ("millstream.pipeline.dsl.streams", ("Window",)),
    "Tables": ("millstream.pipeline.dsl.streams", ("Table",)),
    "Steps of a pattern": ("millstream.pipeline.dsl.pattern_steps", ("Step",)),
    "Jobs of a program": ("millstream.pipeline.run.handle", ("JobHandle", "JobStatus")),
    "What jobs did": ("millstream.pipeline.run.reporting.totals", ("JobProgress", "JobSummary")),
    "Testing pipelines": ("millstream.testing", ("Driver", "Record")),
    "Spark": ("millstream.pipeline", ("register",)),
    "Following views": ("millstream.views.watching", ("watch", "Watcher")),
    "A broker in your process": ("millstream", ("Broker",)),
    "Transactions": ("millstream.client", None),  # all names that it exports
}

# Classes whose objects a program is given and does not construct.
_HANDED = {
    *("Stream", "Source", "Window", "Table", "Step", "Record", "Reading", "Transaction"),
    *("JobHandle", "JobStatus", "JobProgress", "JobSummary"),
}
_ABOUT = """\
The public API of `import millstream` and its public modules. Names that begin with an underscore, and
modules not listed here, may change without notice."""


def python_page() -> str:
    """docs/reference/python.md"""
    out = ["# Python API", _ABOUT]
    for title, (module_name, names) in NAMES.items():
        module = importlib.import_module(module_name)
        out += [f"## {title}"]
        for name in names or module.__all__:
            out += _described(f"{module_name}.{name}", getattr(module, name))
    errors = importlib.import_module("millstream.core.errors")
    out += ["## Exceptions", "In `millstream.core.errors`.", _prose(errors)]
    return "\n\n".join(part for part in out if part)


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
    """Methods and properties with a docstring, in the order of the source. Those without one are meant for
    other modules of millstream.
    """
    for part in _parts(cls):
        for name, value in vars(part).items():
            inner = value.__func__ if isinstance(value, classmethod | staticmethod) else value
            is_member = inspect.isfunction(inner) or isinstance(inner, property)
            if is_member and not name.startswith("_") and inner.__doc__:
                yield name, inner


def _parts(cls: type) -> list[type]:
    """The class, and before it the one of the same name that it extends."""
    return [one for one in reversed(cls.__mro__) if one.__name__ == cls.__name__]


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
    """A docstring as Markdown. Little has to change, because an indented part is code in both."""
    return inspect.cleandoc(getattr(thing, "__doc__", None) or "")
