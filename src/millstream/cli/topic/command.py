"""``millstream topic``: creates, lists, describes, alters, deletes, trims and exports topics."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from millstream.cli.terminal.help import App, examples
from millstream.cli.terminal.options import (
    DryRunOption,
    TopicArgument,
    TopicsArgument,
    YesOption,
    connected,
    pairs,
)
from millstream.cli.terminal.output import Output, OutputOption, ask, note, say, show_json, show_table
from millstream.cli.topic.export import EXPORT_EXAMPLES, export
from millstream.client.connect import Connection
from millstream.core.errors import ConfigError, RequestFailed
from millstream.core.units import count, did_you_mean

app = App(help="Create, inspect, change, delete, trim and export topics.")

ConfigOption = Annotated[
    list[str] | None,
    typer.Option(
        "--config",
        "-c",
        metavar="NAME=VALUE",
        help="A setting of the topic, such as retention.ms=86400000. May be repeated.",
    ),
]


@app.command(
    epilog=examples(
        ("millstream topic create payments", "with the broker's default number of partitions"),
        ("millstream topic create payments alerts -p 6", "two topics of six partitions"),
        ("millstream topic create log -c retention.ms=3600000", "kept for an hour"),
        ("millstream topic create ticks -c millstream.storage=memory", "never touches the disk"),
    )
)
@connected
def create(
    connection: Connection,
    topics: TopicsArgument,
    partitions: Annotated[
        int | None,
        typer.Option(
            "--partitions",
            "-p",
            metavar="N",
            min=1,
            help="The number of partitions of each topic. [default: the broker's]",
        ),
    ] = None,
    replicas: Annotated[
        int | None,
        typer.Option(
            "--replicas",
            "-r",
            metavar="N",
            min=1,
            help="The replication factor of each topic. [default: the broker's]",
        ),
    ] = None,
    config: ConfigOption = None,
    if_not_exists: Annotated[
        bool, typer.Option("--if-not-exists", help="Do not fail if a topic already exists.")
    ] = False,
) -> None:
    """Create topics."""
    from millstream.client.librdkafka.admin import Admin

    settings = pairs(config or (), "--config")
    with Admin(connection) as admin:
        for name in topics:
            try:
                created = admin.create_topic(
                    name,
                    partitions=partitions or -1,
                    replicas=replicas or -1,
                    config=settings,
                    if_not_exists=if_not_exists,
                )
            except RequestFailed as error:
                raise _with_near_setting(error, settings) from None
            if created:
                number = partitions or len(admin.partitions([name]))
                say(f"created {name} with {count(number, 'partition')}")
            else:
                say(f"{name} already exists")


def _with_near_setting(error: RequestFailed, settings: Any) -> RequestFailed:
    """Add the most similar known setting to an error. Apache Kafka only says that a setting is unknown;
    millstream's broker suggests one itself.
    """
    from millstream.core.config import settings_of
    from millstream.core.topic_config import TopicConfig

    known = settings_of(TopicConfig)
    for name in settings if "did you mean" not in str(error) else ():
        if name not in known and (hint := did_you_mean(name, known)):
            return RequestFailed(error.code, error.name, f"{error}; {hint}")
    return error


@app.command(
    "list",
    epilog=examples(
        ("millstream topic list", "every topic with its partitions and records"),
        ("millstream topic list 'pay*'", "those whose names match"),
        ("millstream topic list --output json | jq -r '.[].topic'", "only the names"),
    ),
)
@connected
def list_(
    connection: Connection,
    pattern: Annotated[
        str,
        typer.Argument(
            metavar="[PATTERN]",
            help="Only topics whose names match; * and ? are wildcards.",
            show_default=False,
        ),
    ] = "*",
    internal: Annotated[bool, typer.Option("--internal", help="Include internal topics (__...).")] = False,
    output: OutputOption = Output.TABLE,
) -> None:
    """List topics."""
    from fnmatch import fnmatchcase

    from millstream.client.librdkafka.admin import Admin
    from millstream.client.text.position import TopicPartition

    with Admin(connection) as admin:
        topics = {
            name: partitions
            for name, partitions in admin.topics().items()
            if fnmatchcase(name, pattern) and (internal or not name.startswith("__"))
        }
        problems: dict[TopicPartition, str] = {}
        places = [TopicPartition(name, index) for name, total in topics.items() for index in range(total)]
        bounds = admin.bounds(places, problems=problems)
    records = dict.fromkeys(topics, 0)
    for partition, (start, end) in bounds.items():
        records[partition.topic] += end - start
    if output is Output.JSON:
        show_json(
            [
                {"topic": name, "partitions": partitions, "records": records[name]}
                for name, partitions in topics.items()
            ]
        )
        return
    if not topics:
        note("no topics" if pattern == "*" else f"no topic matches {pattern!r}")
        return
    show_table(
        ["topic", "partitions", "records"],
        [[name, partitions, records[name]] for name, partitions in topics.items()],
    )
    for place, problem in problems.items():
        note(f"{place} is not counted: {problem}")


@app.command(
    epilog=examples(
        ("millstream topic describe payments", "partitions, size, horizon, settings that were changed"),
        ("millstream topic describe payments --all", "every setting, with its default and meaning"),
        ("millstream topic describe payments --output json", "the same for a program"),
    )
)
@connected
def describe(
    connection: Connection,
    topics: TopicsArgument,
    all_settings: Annotated[
        bool, typer.Option("--all", help="Show all settings, including inherited ones.")
    ] = False,
    output: OutputOption = Output.TABLE,
) -> None:
    """Show topics: partitions, offsets, records, sizes, how far back they reach, and settings.

    Rates are averages over the last ten minutes, by the records' timestamps. How far back a topic reaches is
    what its retention, by time or by size, keeps at these rates. The forecast for a full disk assumes that
    all topics on it grow as far as their retention allows.
    """
    from millstream.cli.topic.description import described, show_description
    from millstream.client.insight.horizon import look_ahead
    from millstream.client.librdkafka.admin import Admin
    from millstream.core.clock import SystemClock

    now_ms = SystemClock().now_ms()
    with Admin(connection) as admin:
        found = admin.describe_topics(topics)
        horizon = look_ahead(admin, now_ms)
        topics_described = [described(admin, topic, horizon) for topic in found]
    if output is Output.JSON:
        show_json(topics_described)
        return
    for at, topic in enumerate(topics_described):
        if at:
            say()
        show_description(topic, now_ms=now_ms, all_settings=all_settings)


@app.command(
    epilog=examples(
        ("millstream topic alter payments -c retention.ms=86400000", "keep a day"),
        ("millstream topic alter payments --unset retention.ms", "back to the broker's default"),
    )
)
@connected
def alter(
    connection: Connection,
    topic: TopicArgument,
    config: ConfigOption = None,
    unset: Annotated[
        list[str] | None,
        typer.Option("--unset", metavar="NAME", help="Reset this setting to its default. May be repeated."),
    ] = None,
) -> None:
    """Change a topic's settings, and print the old and the new values."""
    from millstream.client.librdkafka.admin import Admin

    changes, defaults = pairs(config or (), "--config"), list(unset or ())
    if not changes and not defaults:
        raise ConfigError("nothing to change; pass --config NAME=VALUE or --unset NAME")
    with Admin(connection) as admin:
        admin.describe_topics([topic])  # for an unknown topic, the error lists the names that exist
        before = {value.name: value.value for value in admin.topic_config(topic)}
        try:
            admin.alter_topic(topic, changes, defaults)
        except RequestFailed as error:
            raise _with_near_setting(error, [*changes, *defaults]) from None
        after = {value.name: value.value for value in admin.topic_config(topic)}
    names = [*changes, *defaults]
    show_table(["setting", "was", "is"], [[name, before.get(name), after.get(name)] for name in names])


@app.command(
    epilog=examples(
        ("millstream topic delete old-payments", "says what would be lost, and asks"),
        ("millstream topic delete a b c --yes", "in a script"),
    )
)
@connected
def delete(connection: Connection, topics: TopicsArgument, yes: YesOption = False) -> int:
    """Delete topics and all their records."""
    from millstream.client.librdkafka.admin import Admin

    with Admin(connection) as admin:
        places = admin.partitions(topics)
        records = dict.fromkeys(topics, 0)
        for place, (start, end) in admin.bounds(places, problems={}).items():
            records[place.topic] += end - start
        what = ", ".join(f"{name} ({count(records[name], 'record')})" for name in topics)
        ask(f"Delete {what}? They can't be brought back.", yes=yes)
        failed = 0
        for name, error in admin.delete_topics(topics).items():
            if error is None:
                say(f"deleted {name} with {count(records[name], 'record')}")
            else:
                note(str(error))
                failed = 1
    return failed


@app.command(
    "add-partitions",
    epilog=examples(
        ("millstream topic add-partitions payments --total 12", "twelve in total"),
        ("millstream topic add-partitions payments --add 2", "two more than now"),
    ),
)
@connected
def add_partitions(
    connection: Connection,
    topic: TopicArgument,
    add: Annotated[
        int | None, typer.Option("--add", "-n", metavar="N", min=1, help="The number of partitions to add.")
    ] = None,
    total: Annotated[
        int | None, typer.Option("--total", metavar="N", min=1, help="The new total number of partitions.")
    ] = None,
) -> None:
    """Add partitions to a topic. Partitions can't be removed."""
    from millstream.client.librdkafka.admin import Admin

    if (add is None) == (total is None):
        raise ConfigError("give either --add (how many more) or --total (how many in total)")
    with Admin(connection) as admin:
        before = len(admin.partitions([topic]))
        wanted = total if total is not None else before + (add or 0)
        if wanted <= before:
            raise ConfigError(
                f"topic {topic!r} has {count(before, 'partition')} already; a topic can only get more"
            )
        admin.add_partitions(topic, wanted)
    say(f"{topic} has {count(wanted, 'partition')} now, {before} before")
    note(
        "keys are distributed differently now: new records of a key may go to another partition"
        " than its old ones"
    )


@app.command(
    epilog=examples(
        ("millstream topic trim payments --to @-7d", "everything older than a week"),
        ("millstream topic trim payments --to 1000 -p 3", "what is before offset 1000 in partition 3"),
        ("millstream topic trim payments --to end --yes", "everything there is, without asking"),
    )
)
@connected
def trim(
    connection: Connection,
    topic: TopicArgument,
    to: Annotated[
        str,
        typer.Option(
            "--to",
            metavar="POSITION",
            help="Keep records from here on: an offset, end, -100 (the last hundred), @-7d or @2026-01-01.",
        ),
    ],
    partition: Annotated[
        list[int] | None,
        typer.Option("--partition", "-p", metavar="N", help="Only this partition. May be repeated."),
    ] = None,
    yes: YesOption = False,
    dry_run: DryRunOption = False,
    output: OutputOption = Output.TABLE,
) -> None:
    """Delete the oldest records of a topic, up to a position."""
    from millstream.client.librdkafka.admin import Admin
    from millstream.client.text.position import chosen_partitions, parse_position
    from millstream.core.clock import SystemClock

    position = parse_position(to, SystemClock().now_ms())
    with Admin(connection) as admin:
        places = chosen_partitions(admin.partitions([topic]), partition or ())
        bounds = admin.bounds(places)
        targets = admin.resolve(dict.fromkeys(places, position), bounds=bounds)
        doomed = sum(targets[place] - bounds[place].start for place in places)
        if doomed and not dry_run:
            ask(
                f"Delete the oldest {count(doomed, 'record')} of {topic}? They can't be brought back.",
                yes=yes,
            )
            moving = {place: target for place, target in targets.items() if target > bounds[place].start}
            targets.update(admin.trim(moving))
    rows = [
        {
            "partition": place.partition,
            "old_start": bounds[place].start,
            "new_start": targets[place],
            "deleted": targets[place] - bounds[place].start,
        }
        for place in places
    ]
    if output is Output.JSON:
        show_json(rows)
        return
    show_table(["partition", "old start", "new start", "deleted"], [list(row.values()) for row in rows])
    if dry_run:
        note("nothing was deleted (--dry-run)")


app.command(epilog=EXPORT_EXAMPLES)(export)
