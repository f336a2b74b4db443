"""``millstream schema``: manages schemas in a registry, millstream's or Confluent's."""

from __future__ import annotations

import json
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from millstream.cli.terminal.help import App, examples
from millstream.cli.terminal.options import YesOption
from millstream.cli.terminal.output import Cell, Output, OutputOption, ask, note, say, show_json, show_table
from millstream.core.errors import ConfigError, RegistryRefused
from millstream.core.units import count

if TYPE_CHECKING:
    from millstream.registry.client import RegistryClient
    from millstream.registry.schema import Schema

app = App(help="Manage schemas in a schema registry, by subject and version.")


class SchemaType(StrEnum):
    AVRO = "avro"
    JSON = "json"
    PROTOBUF = "protobuf"


RegistryOption = Annotated[
    str,
    typer.Option(
        "--registry",
        "-r",
        envvar="MILLSTREAM_REGISTRY",
        metavar="URL",
        help="The URL of the schema registry. It may contain user and password.",
    ),
]
DEFAULT_REGISTRY = "http://127.0.0.1:8081"
SubjectArgument = Annotated[
    str,
    typer.Argument(metavar="SUBJECT", help="The subject, such as TOPIC-value.", show_default=False),
]
FileArgument = Annotated[
    Path, typer.Argument(metavar="FILE", help="The schema: .avsc, .json or .proto.", show_default=False)
]
TypeOption = Annotated[
    SchemaType | None,
    typer.Option("--type", "-t", metavar="avro|json|protobuf", help="[default: by the file's name]"),
]
ReferenceOption = Annotated[
    list[str] | None,
    typer.Option(
        "--reference",
        metavar="NAME=SUBJECT[:VERSION]",
        help="Another schema that this one imports, under the name it uses. May be repeated.",
    ),
]


@app.command(
    "list",
    epilog=examples(
        ("millstream schema list", "every subject, its newest version and the level of compatibility"),
        ("millstream schema list --registry http://user:password@registry:8081", "another registry"),
    ),
)
def list_(
    registry: RegistryOption = DEFAULT_REGISTRY,
    deleted: Annotated[bool, typer.Option("--deleted", help="Include deleted subjects.")] = False,
    output: OutputOption = Output.TABLE,
) -> None:
    """List the subjects of a registry."""
    client = open_registry(registry)
    rows: list[list[Cell]] = []
    for subject in client.subjects(deleted=deleted):
        try:
            newest = client.version(subject)
        except RegistryRefused as error:
            if error.code != 40401:
                raise
            rows.append([subject, None, None, None, None])
            continue
        rows.append(
            [subject, newest.schema.type.lower(), newest.version, newest.id, client.level(subject).lower()]
        )
    columns = ["subject", "type", "version", "id", "compatibility"]
    if output is Output.JSON:
        show_json([dict(zip(columns, row, strict=True)) for row in rows])
    elif not rows:
        note(f"no subjects at {client.url}")
    else:
        show_table(columns, rows)


@app.command(
    epilog=examples(
        ("millstream schema show payments-value", "the newest version"),
        ("millstream schema show payments-value --version 3", "an older one"),
        ("millstream schema show --id 17", "the schema that a record's header names"),
        ("millstream schema show payments-value > payments.avsc", "into a file"),
    )
)
def show(
    subject: Annotated[
        str | None, typer.Argument(metavar="[SUBJECT]", help="The subject.", show_default=False)
    ] = None,
    version: Annotated[
        str, typer.Option("--version", "-v", metavar="N|latest", help="The version to show.")
    ] = "latest",
    id_: Annotated[
        int | None,
        typer.Option("--id", metavar="N", help="Show the schema with this id, instead of a subject."),
    ] = None,
    registry: RegistryOption = DEFAULT_REGISTRY,
    output: OutputOption = Output.TABLE,
) -> None:
    """Print a schema. Its subject, version, id and references go to standard error, or into the JSON."""
    from millstream.registry.service.store import schema_fields

    if (subject is None) == (id_ is None):
        raise ConfigError("give either a subject or --id")
    client = open_registry(registry)
    about: dict[str, Any]
    if id_ is not None:
        schema, about = client.schema(id_), {"id": id_}
    else:
        found = client.version(str(subject), _version(version))
        schema, about = found.schema, {"subject": found.subject, "version": found.version, "id": found.id}
    if output is Output.JSON:
        show_json({**about, "schemaType": schema.type, **schema_fields(schema)})
        return
    note(", ".join(f"{name} {value}" for name, value in about.items()) + f", {schema.type.lower()}")
    for reference in schema.references:
        note(f"{reference.name} is version {reference.version} of {reference.subject}")
    if schema.type == "PROTOBUF":
        print(schema.text, end="" if schema.text.endswith("\n") else "\n")
    else:
        show_json(json.loads(schema.text))


@app.command(
    epilog=examples(
        ("millstream schema register payments-value payments.avsc", "a new version, if it is compatible"),
        (
            "millstream schema register orders-value order.proto --reference money.proto=money:1",
            "with an imported schema",
        ),
        ("millstream schema register payments-value payments.json", "a JSON schema"),
    )
)
def register(
    subject: SubjectArgument,
    file: FileArgument,
    type: TypeOption = None,
    reference: ReferenceOption = None,
    normalize: Annotated[
        bool,
        typer.Option(
            "--normalize", help="Normalize the schema, so that the order in the file does not matter."
        ),
    ] = False,
    registry: RegistryOption = DEFAULT_REGISTRY,
) -> None:
    """Register a schema as the next version of a subject. Registering it again changes nothing."""
    client = open_registry(registry)
    schema = _read(client, file, type, reference)
    id_ = client.register(subject, schema, normalize=normalize)
    say(f"{subject}: registered with id {id_}")


@app.command(
    epilog=examples(
        ("millstream schema check payments-value payments.avsc", "exits with 1 and says why, if it is not"),
        ("millstream schema check payments-value payments.avsc --version 3", "with one version only"),
    )
)
def check(
    subject: SubjectArgument,
    file: FileArgument,
    type: TypeOption = None,
    reference: ReferenceOption = None,
    version: Annotated[
        str | None,
        typer.Option(
            "--version",
            "-v",
            metavar="N|latest",
            help="Check against this version only. [default: as the compatibility level says]",
        ),
    ] = None,
    registry: RegistryOption = DEFAULT_REGISTRY,
) -> int:
    """Check whether a schema could be the next version of a subject. Changes nothing, so it suits a build."""
    client = open_registry(registry)
    schema = _read(client, file, type, reference)
    against = None if version is None else str(_version(version))
    problems = client.check(subject, schema, against)
    for problem in problems:
        say(problem)
    if problems:
        note(f"{file} is not compatible with {subject}")
        return 1
    say(f"{file} is compatible with {subject} ({client.level(subject).lower()})")
    return 0


@app.command(
    epilog=examples(
        ("millstream schema delete payments-value", "hidden: existing records stay readable"),
        ("millstream schema delete payments-value --version 3", "one version"),
        ("millstream schema delete payments-value --permanent -y", "for good, after it was hidden"),
    )
)
def delete(
    subject: SubjectArgument,
    version: Annotated[
        str | None,
        typer.Option("--version", "-v", metavar="N|latest", help="Delete only this version. [default: all]"),
    ] = None,
    permanent: Annotated[
        bool,
        typer.Option("--permanent", help="Delete it for good. Records that use it can no longer be read."),
    ] = False,
    yes: YesOption = False,
    registry: RegistryOption = DEFAULT_REGISTRY,
) -> None:
    """Delete a subject, or one of its versions."""
    client = open_registry(registry)
    if permanent:
        what = subject if version is None else f"version {version} of {subject}"
        ask(f"Delete {what} for good? Records with it can't be read any more.", yes=yes)
    gone = client.delete(subject, None if version is None else str(_version(version)), permanent=permanent)
    say(f"deleted {count(len(gone), 'version')} of {subject}: {', '.join(map(str, gone))}")


@app.command(
    epilog=examples(
        ("millstream schema config", "the level for all subjects"),
        ("millstream schema config payments-value --set full_transitive", "for one"),
        ("millstream schema config payments-value --unset", "back to the level for all subjects"),
    )
)
def config(
    subject: Annotated[
        str | None,
        typer.Argument(
            metavar="[SUBJECT]",
            help="The subject. Without one, the level for all subjects that have none of their own.",
            show_default=False,
        ),
    ] = None,
    set_: Annotated[
        str | None,
        typer.Option(
            "--set",
            metavar="LEVEL",
            help="The new level: none, backward, forward or full; all but none also with _transitive.",
        ),
    ] = None,
    unset: Annotated[
        bool, typer.Option("--unset", help="Remove the level set here, so that the more general one applies.")
    ] = False,
    registry: RegistryOption = DEFAULT_REGISTRY,
) -> None:
    """Show or set the compatibility level for new versions.

    backward: the new schema can read data of the previous version (update readers first). forward: the
    previous version can read data of the new schema (update writers first). full: both. With _transitive: all
    earlier versions, not just the previous one.
    """
    client = open_registry(registry)
    if set_ is not None and unset:
        raise ConfigError("--set and --unset exclude each other")
    if set_ is not None or unset:
        client.set_level(subject, set_)
    say(f"{subject or 'all subjects'}: {client.level(subject).lower()}")


def open_registry(url: str) -> RegistryClient:
    from millstream.registry import needs_extra

    with needs_extra():
        from millstream.registry.client import RegistryClient
    return RegistryClient(url)


def read_schema(file: Path, type: str | None) -> tuple[str, str]:
    """The type of a file's schema, and its text."""
    kinds = {".avsc": "AVRO", ".avro": "AVRO", ".json": "JSON", ".proto": "PROTOBUF"}
    kind = type.upper() if type is not None else kinds.get(file.suffix)
    if kind is None:
        raise ConfigError(f"{file}: give its type with --type; it is known only for .avsc, .json and .proto")
    try:
        return kind, file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not UTF-8"
        raise ConfigError(f"can't read {file}: {reason}") from None


def _read(client: RegistryClient, file: Path, type: SchemaType | None, reference: list[str] | None) -> Schema:
    from millstream.registry.schema import Reference, Schema

    kind, text = read_schema(file, type)
    references = []
    for given in reference or ():
        name, equals, where = given.partition("=")
        subject, colon, version = where.rpartition(":")
        if not colon:
            subject, version = where, "latest"
        if not equals or not name or not subject:
            raise ConfigError(f"--reference {given!r} is not NAME=SUBJECT[:VERSION]")
        number = client.version(subject, _version(version)).version
        references.append(Reference(name, subject, number))
    return Schema(kind, text, tuple(references))


def _version(text: str) -> int | str:
    if text == "latest":
        return text
    if not text.isdigit() or int(text) < 1:
        raise ConfigError(f"{text!r} is not a version; it is a number from 1, or latest")
    return int(text)
