"""The registry's decisions: answers to queries, and which changes are allowed, from the store, without I/O.

A query is answered at once. A request for a change returns a ``Decision``: the records to write to the topic,
and the answer to give once they are written. The store takes the change only when it comes back from the
topic. Deciding changes nothing, so it can be repeated if another registry on the same topic was faster.

Refusals are RegistryRefused with the codes of Confluent's registry:

    404xx   no such subject (01), version (02), schema (03); already deleted (04, 06) or not yet (05, 07);
            the subject has no level (08) or mode (09) set
    40901   not compatible with an earlier version
    422xx   not a schema (01), version (02), level (03), mode (04); not permitted in this mode (05); referred
            to by another (06); not a subject's name (08); too large (09)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NoReturn

from millstream.core.errors import InvalidSchema, RegistryRefused
from millstream.registry.parsing import parse
from millstream.registry.schema import TYPES, Difference, ParsedSchema, Reference, Schema
from millstream.registry.service import store as records
from millstream.registry.service.store import (
    Record,
    SchemaStore,
    Version,
    context_of,
    in_context,
    schema_fields,
)

LEVELS = (
    "NONE",
    "BACKWARD",
    "BACKWARD_TRANSITIVE",
    "FORWARD",
    "FORWARD_TRANSITIVE",
    "FULL",
    "FULL_TRANSITIVE",
)
MODES = ("READWRITE", "READONLY", "READONLY_OVERRIDE", "IMPORT")
DEFAULT_LEVEL, DEFAULT_MODE = "BACKWARD", "READWRITE"
LATEST = -1
_MAX_REFERENCES = 1000  # of one schema, direct and indirect


@dataclass(frozen=True, slots=True)
class Decision:
    """The records to write (none if there is nothing to do), and the answer once they are written."""

    records: Sequence[Record]
    answer: Any


def refuse(code: int, message: str) -> NoReturn:
    raise RegistryRefused(code, message)


class Registrar:
    """Decides on all requests to a registry."""

    def __init__(self, store: SchemaStore, *, level: str = DEFAULT_LEVEL) -> None:
        self.store = store
        self._level = level

    # Schemas -----------------------------------------------------------------------------------------

    def dependencies(self, subject: str, references: Sequence[Reference]) -> tuple[tuple[str, str], ...]:
        """Names and texts of all schemas that a schema refers to, each after those that it needs itself."""
        found: dict[str, str] = {}
        self._collect(subject, references, found, ())
        return tuple(found.items())

    def _collect(
        self,
        subject: str,
        references: Sequence[Reference],
        found: dict[str, str],
        way: tuple[tuple[str, int], ...],
    ) -> None:
        for reference in references:
            where = in_context(subject, reference.subject)
            version = self.store.version(where, reference.version)
            if reference.version == LATEST:
                there = self.store.versions(where)
                version = there[-1] if there else None
            if version is None:
                raise InvalidSchema(
                    f"there is no version {reference.version} of subject {reference.subject!r}, which the"
                    f" schema refers to as {reference.name!r}"
                )
            if (where, version.version) in way:
                raise InvalidSchema(f"subject {reference.subject!r} refers to itself")
            if reference.name not in found:
                self._collect(where, version.schema.references, found, (*way, (where, version.version)))
                found[reference.name] = version.schema.text
            elif found[reference.name] != version.schema.text:
                raise InvalidSchema(f"two different schemas are referred to as {reference.name!r}")
            if len(found) > _MAX_REFERENCES:
                raise InvalidSchema(f"the schema refers to more than {_MAX_REFERENCES} others")

    def parsed(self, subject: str, schema: Schema) -> ParsedSchema:
        return parse(schema.type, schema.text, self.dependencies(subject, schema.references))

    def _canonical(self, subject: str, schema: Schema, *, normalize: bool) -> tuple[Schema, ParsedSchema]:
        """The schema in the form in which it is stored, and parsed."""
        references = tuple(self._settled(subject, each) for each in schema.references)
        schema = replace(schema, references=references)
        parsed = self.parsed(subject, schema)
        normalize = normalize or bool(self._config_in_scope(subject).get("normalize"))
        text = parsed.normalized() if normalize else parsed.canonical()
        if normalize:
            schema = replace(schema, references=tuple(sorted(references, key=lambda each: each.name)))
        return replace(schema, text=text), parsed

    def _settled(self, subject: str, reference: Reference) -> Reference:
        """A reference to the latest version becomes one to the version that is latest now, for good."""
        if reference.version != LATEST:
            return reference
        there = self.store.versions(in_context(subject, reference.subject))
        return replace(reference, version=there[-1].version) if there else reference

    def register(
        self, subject: str, schema: Schema, *, normalize: bool = False, id_: int = -1, version: int = 0
    ) -> Decision:
        """Make a schema a version of a subject. A schema that the subject already has keeps its version. A
        schema that another subject has keeps its id."""
        self._check_subject(subject)
        mode = self._mode_in_scope(subject)
        if mode in ("READONLY", "READONLY_OVERRIDE"):
            refuse(42205, f"Subject {subject} is in read-only mode")
        if (id_ >= 0 or version > 0) and mode != "IMPORT":
            refuse(42205, f"Subject {subject} is not in import mode")
        if id_ < 0 and mode == "IMPORT":
            refuse(42205, f"Subject {subject} is in import mode, which needs an id")
        schema, parsed = self._canonical(subject, schema, normalize=normalize)
        versions = self.store.versions(subject, deleted=True)
        living = [each for each in versions if not each.deleted]
        known = self.store.id_of(schema)
        for each in reversed(living):
            if (
                each.schema.identity == schema.identity
                and id_ in (-1, each.id)
                and version in (0, each.version)
            ):
                return Decision((), _registered(each))
        if mode != "IMPORT":
            self._check_compatible(subject, schema, parsed, living)
            number = max((each.version for each in versions), default=0) + 1
            made_id = known if known is not None else self.store.max_id + 1
        else:
            number = version or max((each.version for each in versions), default=0) + 1
            made_id = id_
            there = self.store.schema(id_)
            if there is not None and there.identity != schema.identity:
                refuse(42205, f"Overwrite new schema with id {id_} is not permitted.")
        made = Version(subject, number, made_id, schema)
        written: list[Record] = []
        for each in versions:
            # A deleted version with the same schema is removed, unless another schema refers to it.
            same = each.deleted and each.id == made_id and each.version < number
            if same and not any(self.store.referrers(subject, each.version)):
                written.append(records.gone_record(subject, each.version))
        return Decision((*written, records.version_record(made)), _registered(made))

    def lookup(
        self, subject: str, schema: Schema, *, normalize: bool = False, deleted: bool = False
    ) -> dict[str, Any]:
        """The version that a schema has in a subject."""
        there = self._subject(subject, deleted=deleted)
        schema, _ = self._canonical(subject, schema, normalize=normalize)
        for each in reversed(there):
            if each.schema.identity == schema.identity:
                return told(each)
        refuse(40403, "Schema not found")

    def version(self, subject: str, number: int, *, deleted: bool = False) -> Version:
        there = self._subject(subject, deleted=deleted)
        if number == LATEST:
            living = [each for each in there if not each.deleted]
            return (living or there)[-1]
        for each in there:
            if each.version == number:
                return each
        refuse(40402, f"Version {number} not found.")

    def by_id(self, id_: int) -> Schema:
        found = self.store.schema(id_)
        if found is None:
            refuse(40403, f"Schema {id_} not found")
        return found

    def uses(self, id_: int, *, deleted: bool = False) -> list[Version]:
        self.by_id(id_)
        found = [each for each in self.store.uses(id_) if deleted or not each.deleted]
        return sorted(found, key=lambda each: (each.subject, each.version))

    def delete_version(self, subject: str, number: int, *, permanent: bool = False) -> Decision:
        self._check_writable(subject)
        if not self.store.versions(subject, deleted=True):
            refuse(40401, f"Subject '{subject}' not found.")
        if number == LATEST:
            found = self.version(subject, number, deleted=permanent)
        else:
            there = self.store.version(subject, number)
            if there is None:
                refuse(40402, f"Version {number} not found.")
            found = there
        if found.deleted and not permanent:
            refuse(
                40406,
                f"Subject '{subject}' Version {found.version} was soft deleted. Set permanent=true to delete"
                " permanently",
            )
        if permanent and not found.deleted:
            refuse(
                40407,
                f"Subject '{subject}' Version {found.version} was not deleted first before being permanently"
                " deleted",
            )
        self._check_unreferred(found, among_deleted=permanent)
        if permanent:
            written = [records.max_id_record(self.store.max_id), records.gone_record(subject, found.version)]
        else:
            written = [records.version_record(replace(found, deleted=True))]
        return Decision(written, found.version)

    def delete_subject(self, subject: str, *, permanent: bool = False) -> Decision:
        self._check_writable(subject)
        there = self.store.versions(subject, deleted=True)
        living = [each for each in there if not each.deleted]
        if not there:
            refuse(40401, f"Subject '{subject}' not found.")
        if not living and not permanent:
            refuse(40404, f"Subject '{subject}' was soft deleted. Set permanent=true to delete permanently")
        if living and permanent:
            refuse(40405, f"Subject '{subject}' was not deleted first before being permanently deleted")
        going = there if permanent else living
        for each in going:
            self._check_unreferred(each, among_deleted=permanent, but_by=subject)
        numbers = [each.version for each in going]
        if not permanent:
            return Decision([records.delete_subject_record(subject, numbers[-1])], numbers)
        written = [records.max_id_record(self.store.max_id)]
        written += [records.gone_record(subject, number) for number in reversed(numbers)]
        if self.store.mode(subject) is not None:
            written.append(records.mode_record(subject, None))
        if self.store.config(subject) is not None:
            written.append(records.config_record(subject, None))
        return Decision(written, numbers)

    def _subject(self, subject: str, *, deleted: bool) -> list[Version]:
        there = self.store.versions(subject, deleted=deleted)
        if not there:
            refuse(40401, f"Subject '{subject}' not found.")
        return there

    def _check_subject(self, subject: str) -> None:
        bad = (
            not subject or len(subject) > 1000 or any(ord(each) < 32 or ord(each) == 127 for each in subject)
        )
        if bad or subject in ("__GLOBAL", "__EMPTY"):
            refuse(42208, f"The specified subject '{subject}' is not a valid.")

    def _check_unreferred(self, version: Version, *, among_deleted: bool, but_by: str | None = None) -> None:
        for other in self.store.referrers(version.subject, version.version):
            if other.subject != but_by and (among_deleted or not other.deleted):
                refuse(
                    42206,
                    f"One or more references exist to the schema {version.subject} version {version.version}:"
                    f" {other.subject} version {other.version}",
                )

    # Compatibility -----------------------------------------------------------------------------------

    def compatible(
        self, subject: str, schema: Schema, number: int | None, *, normalize: bool = False
    ) -> list[str]:
        """Why a schema can't be the next version of a subject; empty if it can. With ``number``, the schema
        is compared with that version only."""
        if number is None or (number == LATEST and not self.store.versions(subject)):
            against = self.store.versions(subject)
        else:
            against = [self.version(subject, number)]
        schema, parsed = self._canonical(subject, schema, normalize=normalize)
        return self._problems(subject, schema, parsed, against)

    def _check_compatible(
        self, subject: str, schema: Schema, parsed: ParsedSchema, versions: list[Version]
    ) -> None:
        problems = self._problems(subject, schema, parsed, versions)
        if problems:
            refuse(
                40901,
                f'Schema being registered is incompatible with an earlier schema for subject "{subject}",'
                f" details: [{', '.join(problems)}]",
            )

    def _problems(
        self, subject: str, schema: Schema, parsed: ParsedSchema, versions: list[Version]
    ) -> list[str]:
        config = self._config_in_scope(subject)
        level = config["compatibilityLevel"]
        if level == "NONE" or not versions:
            return []
        group = config.get("compatibilityGroup")
        if group is not None:
            mine = _property(schema, group)
            versions = [each for each in versions if _property(each.schema, group) == mine]
        if not level.endswith("_TRANSITIVE"):
            versions = versions[-1:]
        for each in reversed(versions):
            found = self._against(subject, schema, parsed, each, level.removesuffix("_TRANSITIVE"))
            if found:
                return [*found, f"oldSchemaVersion: {each.version}", f"compatibility: {level}"]
        return []

    def _against(
        self, subject: str, schema: Schema, parsed: ParsedSchema, version: Version, level: str
    ) -> list[str]:
        if version.schema.type != schema.type:
            return [f"SCHEMA_TYPE_CHANGED at /: {schema.type}, was {version.schema.type}"]
        try:
            earlier = self.parsed(subject, version.schema)
        except RegistryRefused as error:
            # Another registry with other rules has written it. It can't be compared.
            return [f"OLD_SCHEMA_UNREADABLE at /: {error}"]
        found = []
        if level in ("BACKWARD", "FULL"):
            found += [
                f"{each} (the new schema {_verb(each)} read the old one's data)"
                for each in parsed.problems_reading(earlier)
            ]
        if level in ("FORWARD", "FULL"):
            found += [
                f"{each} (the old schema {_verb(each)} read the new one's data)"
                for each in earlier.problems_reading(parsed)
            ]
        return found

    # Levels and modes --------------------------------------------------------------------------------

    def config(self, subject: str | None, *, default: bool = False) -> dict[str, Any]:
        own = self.store.config(subject)
        if subject is None or default:
            return self._config_in_scope(subject)
        if own is None:
            refuse(40408, f"Subject '{subject}' does not have subject-level compatibility configured")
        return {name: value for name, value in own.items() if name != "subject"}

    def _config_in_scope(self, subject: str | None) -> dict[str, Any]:
        merged: dict[str, Any] = {"compatibilityLevel": self._level}
        for scope in _scopes(subject):
            merged |= self.store.config(scope) or {}
        merged.pop("subject", None)
        return merged

    def set_config(self, subject: str | None, request: dict[str, Any]) -> Decision:
        if subject is not None:
            self._check_subject(subject)
        self._check_writable(subject)
        level = request.get("compatibility", request.get("compatibilityLevel"))
        if level is not None and str(level).upper() not in LEVELS:
            refuse(
                42203,
                f"Invalid compatibility level {level!r}. Valid values are {', '.join(LEVELS)}",
            )
        own = {name: value for name, value in (self.store.config(subject) or {}).items() if name != "subject"}
        given = {name: value for name, value in request.items() if not name.startswith("compatibility")}
        given |= {n: request[n] for n in ("compatibilityGroup", "compatibilityPolicy") if n in request}
        own |= given
        if level is not None:
            own["compatibilityLevel"] = str(level).upper()
        own = {name: value for name, value in own.items() if value is not None}
        answer = {"compatibility" if name == "compatibilityLevel" else name: v for name, v in own.items()}
        return Decision([records.config_record(subject, own)], answer)

    def delete_config(self, subject: str | None) -> Decision:
        self._check_writable(subject)
        own = self.store.config(subject)
        if own is None and subject is not None:
            refuse(40401, f"Subject '{subject}' not found.")
        if own is None:
            return Decision((), self._config_in_scope(None))
        told = {name: value for name, value in own.items() if name != "subject"}
        return Decision([records.config_record(subject, None)], told)

    def mode(self, subject: str | None, *, default: bool = False) -> dict[str, Any]:
        own = self.store.mode(subject)
        if subject is None or default:
            return {"mode": self._mode_in_scope(subject)}
        if own is None:
            refuse(40409, f"Subject '{subject}' does not have subject-level mode configured")
        return {"mode": own}

    def _mode_in_scope(self, subject: str | None) -> str:
        overall = self.store.mode(None)
        if overall == "READONLY_OVERRIDE":
            return overall
        found = overall or DEFAULT_MODE
        for scope in _scopes(subject):
            found = self.store.mode(scope) or found
        return found

    def set_mode(self, subject: str | None, mode: Any, *, force: bool = False) -> Decision:
        if not isinstance(mode, str) or mode.upper() not in MODES:
            refuse(42204, f"Invalid mode {mode!r}. Valid values are {', '.join(MODES)}")
        mode = mode.upper()
        if subject is not None:
            self._check_subject(subject)
        if mode == "IMPORT" and self._mode_in_scope(subject) != "IMPORT" and not force:
            there = self.store.versions(subject) if subject is not None else list(self.store.every())
            if any(not each.deleted for each in there):
                # The ids to be imported could already belong to other schemas.
                refuse(42205, "Cannot import since found existing subjects")
        return Decision([records.mode_record(subject, mode)], {"mode": mode})

    def delete_mode(self, subject: str | None) -> Decision:
        own = self.store.mode(subject)
        if own is None and subject is not None:
            refuse(40401, f"Subject '{subject}' not found.")
        if own is None:
            return Decision((), {"mode": DEFAULT_MODE})
        return Decision([records.mode_record(subject, None)], {"mode": own})

    def _check_writable(self, subject: str | None) -> None:
        if self._mode_in_scope(subject) in ("READONLY", "READONLY_OVERRIDE"):
            refuse(42205, f"{'Subject ' + subject if subject else 'The registry'} is in read-only mode")


def _scopes(subject: str | None) -> list[str | None]:
    """The scopes that a subject's setting may come from, the most specific one last."""
    if subject is None:
        return [None]
    context = context_of(subject)
    return [None, *([f":{context}:"] if context else []), subject]


def _verb(difference: Difference) -> str:
    return "may not" if difference.kind.endswith("NOT_CHECKED") else "can't"


def _property(schema: Schema, name: str) -> Any:
    properties = (schema.metadata or {}).get("properties")
    return properties.get(name) if isinstance(properties, dict) else None


def told(version: Version) -> dict[str, Any]:
    """A version as the fields of a response."""
    told: dict[str, Any] = {"subject": version.subject, "version": version.version, "id": version.id}
    told |= {"guid": version.schema.guid, **schema_fields(version.schema)}
    if version.timestamp_ms is not None:
        told["ts"] = version.timestamp_ms
    if version.deleted:
        told["deleted"] = True
    return told


def _registered(version: Version) -> dict[str, Any]:
    """The response to a registration. It leaves out the schema: a client that gets it back would take it for
    the form that it requested."""
    return {"id": version.id, "version": version.version, "guid": version.schema.guid}


def schema_of(body: Any) -> Schema:
    """The schema in a request's body. Raises InvalidSchema."""
    if not isinstance(body, dict) or not isinstance(body.get("schema"), str) or not body["schema"].strip():
        raise InvalidSchema("the request has no schema: it is an object with the schema's text in `schema`")
    type_ = body.get("schemaType") or "AVRO"
    if type_ not in TYPES:
        raise InvalidSchema(f"schema type {type_!r} is not one of {', '.join(TYPES)}")
    references = []
    given = body.get("references") or []
    if not isinstance(given, list):
        raise InvalidSchema("references must be a list")
    for each in given:
        fits = isinstance(each, dict) and isinstance(each.get("version", LATEST), int)
        if not fits or not all(isinstance(each.get(key), str) for key in ("name", "subject")):
            raise InvalidSchema(f"a reference has name, subject and version; this is {str(each)[:200]}")
        references.append(Reference(each["name"], each["subject"], each.get("version", LATEST)))
    kept = []
    for name in ("metadata", "ruleSet"):
        value = body.get(name)
        if value is not None and not isinstance(value, dict):
            raise InvalidSchema(f"{name} must be an object")
        kept.append(value)
    return Schema(type_, body["schema"], tuple(references), *kept)
