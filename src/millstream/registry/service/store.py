"""The registry's topic as a table: the result of applying all its records in order.

    key      {"keytype":"SCHEMA","subject":"payments-value","version":1,"magic":1}
    value    {"subject":"payments-value","version":1,"id":7,"schema":"...","deleted":false, ...}
    key      {"keytype":"CONFIG","subject":null,"magic":0}              value {"compatibilityLevel":"FULL"}
    key      {"keytype":"MODE","subject":"payments-value","magic":0}    value {"mode":"READONLY"}
    key      {"keytype":"DELETE_SUBJECT","subject":"payments-value","magic":0}
    value    {"subject":"payments-value","version":3}                   versions up to 3 are deleted
    key      {"keytype":"CLEAR_SUBJECT","subject":"...","magic":0}      only Confluent's registry writes it
    key      {"keytype":"NOOP","magic":0}                               value {"maxId":7}, see below

The format is that of Confluent's registry. Keys are the same byte for byte, because compaction goes by them.
So either registry can continue with the other's topic. A deleted version is a record that says so. A version
deleted for good is a record without a value. Its id must never be given to another schema, because records
with that id may still exist. So the highest id ever given is stored under the NOOP key, whose value no other
program reads.

A record that can't be read is skipped and counted: one bad record must not keep the registry from starting.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from millstream.registry.schema import AVRO, Reference, Schema, compact

_log = logging.getLogger(__name__)

Record = tuple[bytes, bytes | None]  # key and value, as in the topic


@dataclass(frozen=True, slots=True)
class Version:
    """A version of a subject, with its schema."""

    subject: str
    version: int
    id: int
    schema: Schema
    deleted: bool = False
    timestamp_ms: int | None = None


class SchemaStore:
    """The contents of the topic. Only ``apply`` changes it, on one thread. Other threads may read at the same
    time, because readers first copy what they iterate over, in one step."""

    def __init__(self) -> None:
        self._subjects: dict[str, dict[int, Version]] = {}
        self._ids: dict[int, Schema] = {}
        self._by_identity: dict[str, int] = {}
        self._by_guid: dict[str, int] = {}
        self._configs: dict[str | None, dict[str, Any]] = {}
        self._modes: dict[str | None, str] = {}
        self.max_id = 0
        self.skipped = 0

    # Records -----------------------------------------------------------------------------------------

    def apply(self, key: bytes | None, value: bytes | None, timestamp_ms: int | None = None) -> None:
        """Apply one record of the topic."""
        try:
            parsed = json.loads(key or b"")
            content = None if value is None else json.loads(value)
            self._apply(parsed, content, timestamp_ms)
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            self.skipped += 1
            _log.warning("a record of the schemas' topic is skipped: %s (key %.200r)", error, key)

    def _apply(self, key: dict[str, Any], value: Any, timestamp_ms: int | None) -> None:
        kind = key["keytype"]
        subject: Any = key.get("subject")
        if kind == "SCHEMA":
            self._put(subject, int(key["version"]), value, timestamp_ms)
        elif kind == "CONFIG":
            _set(self._configs, subject, value)
        elif kind == "MODE":
            _set(self._modes, subject, value and str(value["mode"]))
        elif kind == "DELETE_SUBJECT" and value is not None:
            for version in list(self._subjects.get(subject, {}).values()):
                if version.version <= value["version"]:
                    self._subjects[subject][version.version] = replace(version, deleted=True)
        elif kind == "CLEAR_SUBJECT" and value is not None:
            for number in list(self._subjects.get(subject, {})):
                self._remove(subject, number)
        elif kind == "NOOP" and isinstance(value, dict):
            self.max_id = max(self.max_id, int(value.get("maxId", 0)))

    def _put(self, subject: str, number: int, value: Any, timestamp_ms: int | None) -> None:
        if value is None:
            self._remove(subject, number)
            return
        schema = Schema(
            value.get("schemaType") or AVRO,
            value["schema"],
            tuple(
                Reference(r["name"], r["subject"], int(r["version"])) for r in value.get("references") or ()
            ),
            value.get("metadata"),
            value.get("ruleSet"),
        )
        id_ = int(value["id"])
        known = self._ids.get(id_)
        if known is not None and known.identity != schema.identity:
            # Two writers did not know of each other. The first one counts: data with its id may exist.
            raise ValueError(f"id {id_} already belongs to another schema")
        if number in self._subjects.get(subject, {}):
            self._remove(subject, number)
        self._ids[id_] = schema
        self._by_identity.setdefault(schema.identity, id_)
        self._by_guid.setdefault(schema.guid, id_)
        self.max_id = max(self.max_id, id_)
        self._subjects.setdefault(subject, {})[number] = Version(
            subject, number, id_, schema, bool(value.get("deleted")), timestamp_ms
        )

    def _remove(self, subject: str, number: int) -> None:
        gone = self._subjects.get(subject, {}).pop(number, None)
        if gone is None:
            return
        if not self._subjects[subject]:
            del self._subjects[subject]
        if not any(True for _ in self.uses(gone.id)):
            schema = self._ids.pop(gone.id)
            self._by_identity.pop(schema.identity, None)
            self._by_guid.pop(schema.guid, None)

    # Queries -----------------------------------------------------------------------------------------

    def subjects(self) -> list[str]:
        return sorted(self._subjects)

    def versions(self, subject: str, *, deleted: bool = False) -> list[Version]:
        """The versions of a subject, oldest first; with ``deleted``, deleted versions too."""
        found = self._subjects.get(subject, {}).copy()
        return [found[number] for number in sorted(found) if deleted or not found[number].deleted]

    def version(self, subject: str, number: int) -> Version | None:
        return self._subjects.get(subject, {}).get(number)

    def every(self) -> Iterator[Version]:
        for versions in list(self._subjects.values()):
            yield from list(versions.values())

    def uses(self, id_: int) -> Iterator[Version]:
        """The versions that have an id, deleted ones included."""
        return (version for version in self.every() if version.id == id_)

    def schema(self, id_: int) -> Schema | None:
        return self._ids.get(id_)

    def id_of(self, schema: Schema) -> int | None:
        return self._by_identity.get(schema.identity)

    def id_of_guid(self, guid: str) -> int | None:
        return self._by_guid.get(guid)

    def config(self, subject: str | None) -> dict[str, Any] | None:
        return self._configs.get(subject)

    def mode(self, subject: str | None) -> str | None:
        return self._modes.get(subject)

    def referrers(self, subject: str, number: int) -> Iterator[Version]:
        """The versions that refer to a version."""
        for version in self.every():
            for reference in version.schema.references:
                if reference.version == number and in_context(version.subject, reference.subject) == subject:
                    yield version
                    break


def _set(table: dict[str | None, Any], subject: str | None, value: Any) -> None:
    if value is None:
        table.pop(subject, None)
    else:
        table[subject] = value


def context_of(subject: str) -> str:
    """The context of a subject: ``.orders`` for ``:.orders:payments-value``, empty for the default one."""
    if subject.startswith(":."):
        context, colon, _ = subject[1:].partition(":")
        if colon:
            return context
    return ""


def in_context(of: str, subject: str) -> str:
    """The full name of ``subject`` where the subject ``of`` refers to it: by default, in the same context."""
    context = context_of(of)
    return f":{context}:{subject}" if context and not subject.startswith(":.") else subject


# ---- records to write -------------------------------------------------------------------------------


def schema_key(subject: str, version: int) -> bytes:
    return compact({"keytype": "SCHEMA", "subject": subject, "version": version, "magic": 1}).encode()


def _key(kind: str, subject: str | None) -> bytes:
    return compact({"keytype": kind, "subject": subject, "magic": 0}).encode()


def version_record(version: Version) -> Record:
    value: dict[str, Any] = {"subject": version.subject, "version": version.version, "id": version.id}
    value |= schema_fields(version.schema)
    value["deleted"] = version.deleted
    return schema_key(version.subject, version.version), compact(value).encode()


def gone_record(subject: str, version: int) -> Record:
    return schema_key(subject, version), None


def delete_subject_record(subject: str, version: int) -> Record:
    return _key("DELETE_SUBJECT", subject), compact({"subject": subject, "version": version}).encode()


def config_record(subject: str | None, config: dict[str, Any] | None) -> Record:
    if config is None:
        return _key("CONFIG", subject), None
    named = {"subject": subject} if subject is not None else {}
    return _key("CONFIG", subject), compact({**named, **config}).encode()


def mode_record(subject: str | None, mode: str | None) -> Record:
    if mode is None:
        return _key("MODE", subject), None
    named = {"subject": subject} if subject is not None else {}
    return _key("MODE", subject), compact({**named, "mode": mode}).encode()


def max_id_record(max_id: int) -> Record:
    return compact({"keytype": "NOOP", "magic": 0}).encode(), compact({"maxId": max_id}).encode()


def schema_fields(schema: Schema) -> dict[str, Any]:
    """The fields of a schema in JSON. Missing parts are left out, and so is the type if it is Avro."""
    made: dict[str, Any] = {}
    if schema.type != AVRO:
        made["schemaType"] = schema.type
    if schema.references:
        made["references"] = [
            {"name": each.name, "subject": each.subject, "version": each.version}
            for each in schema.references
        ]
    if schema.metadata is not None:
        made["metadata"] = schema.metadata
    if schema.rule_set is not None:
        made["ruleSet"] = schema.rule_set
    made["schema"] = schema.text
    return made
