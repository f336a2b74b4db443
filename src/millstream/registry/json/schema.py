"""JSON schemas: check a text against the meta-schema of its draft, store it, compare it with another."""

from __future__ import annotations

from typing import Any

from millstream.core.errors import InvalidSchema
from millstream.registry.json.diff import incompatible
from millstream.registry.json.document import SchemaDocument, SchemaNode, dialect_of
from millstream.registry.schema import Difference, compact, json_document


class JsonSchema:
    """A JSON schema, and the documents that it refers to."""

    def __init__(self, text: str, dependencies: tuple[tuple[str, str], ...] = ()) -> None:
        self._raw = json_document(text, "the schema")
        self.dependencies = dependencies
        _check(self._raw)
        others: dict[str, SchemaDocument] = {}
        for name, referred in dependencies:
            document = json_document(referred, f"the schema referred to as {name!r}")
            other = SchemaDocument(document, others, dialect_of(self._raw))
            others[name] = other
            if other.base:
                others.setdefault(other.base, other)
        self.document = SchemaDocument(self._raw, others)
        for reference in self.document.references():
            self.document.resolve(reference)

    @property
    def root(self) -> SchemaNode:
        return self.document.node(self._raw)

    def canonical(self) -> str:
        return compact(self._raw)

    def normalized(self) -> str:
        return compact(_sorted(self._raw))

    def validator(self) -> Any:
        """A validator of documents, with ``iter_errors``. It fetches nothing."""
        from referencing import Registry
        from referencing.jsonschema import DRAFT7

        others = Registry().with_contents(
            ((name, json_document(text, name)) for name, text in self.dependencies),
            default_specification=DRAFT7,
        )
        return self.document.dialect(self._raw, registry=others)

    def problems_reading(self, writer: JsonSchema) -> list[Difference]:
        if (self.normalized(), self.dependencies) == (writer.normalized(), writer.dependencies):
            return []
        return incompatible(writer.root, self.root)


def _check(raw: Any) -> None:
    """Check a schema against the meta-schema of its draft. Raises InvalidSchema."""
    from jsonschema.exceptions import SchemaError

    if not isinstance(raw, bool | dict):
        raise InvalidSchema(f"a JSON schema is an object or a boolean, not {compact(raw)[:80]}")
    try:
        dialect_of(raw).check_schema(raw)
    except SchemaError as error:
        raise InvalidSchema(f"not a JSON schema: {error.json_path}: {error.message[:500]}") from None


def _sorted(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _sorted(value[key]) for key in sorted(value)}
    return [_sorted(each) for each in value] if isinstance(value, list) else value
