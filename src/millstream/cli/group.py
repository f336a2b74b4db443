"""``millstream group``: lists, describes, measures, moves and deletes groups of consumers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from millstream.cli.terminal.help import App, examples
from millstream.cli.terminal.options import (
    DryRunOption,
    GroupArgument,
    YesOption,
    complete_group,
    complete_topic,
    connected,
)
from millstream.cli.terminal.output import Output, OutputOption, ask, note, say, show_json, show_table
from millstream.client.connect import Connection
from millstream.core.units import count, runs

if TYPE_CHECKING:
    from millstream.client.librdkafka.groups import GroupInfo
    from millstream.client.text.position import TopicPartition
    from millstream.jobs.owners import Owner

app = App(help="Inspect consumer groups and share groups, measure their lag, move and delete them.")

_ALARM = 3  # a separate exit code: 1 means that the lag could not be determined


@app.command(
    "list",
    epilog=examples(
        ("millstream group list", "every group and its state"),
        ("millstream group list --output json", "for a program"),
    ),
)
@connected
def list_(connection: Connection, output: OutputOption = Output.TABLE) -> None:
    """List groups, with the kind of each: classic, consumer (KIP-848) or share (KIP-932).

    For a group that a pipeline owns, show the pipeline and its state.
    """
    from millstream.client.librdkafka.admin import Admin
    from millstream.jobs.owners import owners

    with Admin(connection) as admin:
        groups = admin.groups()
        owned = owners(connection)
    if output is Output.JSON:
        show_json(
            [
                {"group": group.name, "state": group.state, "type": group.kind}
                | {"pipeline": _owner_json(owned.get(group.name))}
                for group in groups
            ]
        )
    elif not groups:
        note("no consumer groups")
    else:
        show_table(
            ["group", "state", "type"],
            [[each.name, str(owned.get(each.name, each.state)), each.kind] for each in groups],
        )


@app.command(
    epilog=examples(
        ("millstream group describe audit", "its state, its kind, members and what each of them reads"),
        ("millstream group describe audit --output json", "for a program"),
    )
)
@connected
def describe(connection: Connection, group: GroupArgument, output: OutputOption = Output.TABLE) -> None:
    """Show a group's state and members, what each member reads, and which records the group missed.

    For a group of the consumer protocol (KIP-848), also show its epochs, and the partitions that members wait
    for because others have not released them yet. A group missed records if they were deleted before it had
    committed them. Apache Kafka does not record that, but `millstream group lag` shows what is missing now.

    A share group commits no offsets. For each partition, show the first record that it has not finished, and
    how many it has not finished from there on.
    """
    from millstream.cli.group_lag import missed_json, show_missed
    from millstream.client.insight.lag import missed_by
    from millstream.client.librdkafka.admin import Admin
    from millstream.client.librdkafka.groups import SHARE
    from millstream.jobs.owners import owners

    with Admin(connection) as admin:
        info = admin.group(group)
        shares = admin.share_offsets(group) if info.kind == SHARE else None
        committed = {} if shares is not None else admin.committed(group)
        missed = missed_by(admin, group) or []
        owner = owners(connection).get(group)
    if output is Output.JSON:
        shown = _group_json(info)
        if shares is not None:
            shown["start_offsets"] = [
                {"topic": place.topic, "partition": place.partition}
                | {"start": at.start, "unfinished": at.unfinished}
                for place, at in sorted(shares.items())
            ]
        shown["committed"] = [
            {"topic": place.topic, "partition": place.partition, "offset": offset}
            for place, offset in committed.items()
        ]
        show_json(shown | {"missed": missed_json(missed), "pipeline": _owner_json(owner)})
        return
    say(_headline(info, owner))
    _show_members(info)
    if shares:
        show_table(
            ["topic", "partition", "start offset", "unfinished"],
            [[p.topic, p.partition, at.start, at.unfinished] for p, at in sorted(shares.items())],
        )
    elif shares is not None:
        say("It has not begun to read.")
    elif committed:
        show_table(
            ["topic", "partition", "committed"],
            [[place.topic, place.partition, offset] for place, offset in committed.items()],
        )
    else:
        say("It has committed no offsets.")
    show_missed(missed)


def _group_json(info: GroupInfo) -> dict[str, Any]:
    return {
        "group": info.name,
        "state": info.state,
        "type": info.kind,
        "assignor": info.assignor,
        "epoch": info.epoch,
        "assignment_epoch": info.assignment_epoch,
        "coordinator": info.coordinator,
        "members": [
            {
                "id": member.id,
                "instance": member.instance,
                "client": member.client,
                "host": member.host,
                "epoch": member.epoch,
                "assigned": _as_json(member.assigned),
                "awaited": _as_json(member.awaited),
            }
            for member in info.members
        ],
    }


def _headline(info: GroupInfo, owner: Owner | None) -> str:
    assignor = f", assignor {info.assignor}" if info.assignor else ""
    epochs = f", epoch {info.epoch}, assigned in {info.assignment_epoch}" if info.epoch is not None else ""
    what = f"{info.state}, {info.kind}, {count(len(info.members), 'member')}"
    if owner is not None and not info.members:
        # The broker sees no members and calls the group empty.
        what = f"owned by {owner}, which reads without being a member"
    return f"{info.name}: {what}{assignor}{epochs}"


def _show_members(info: GroupInfo) -> None:
    if not info.members:
        return
    columns = ["client", "host", "partitions", "reads"]
    rows: list[list[Any]] = [
        [member.instance or member.client, member.host, len(member.assigned), _reads(member.assigned)]
        for member in info.members
    ]
    if info.epoch is not None:
        columns += ["waits for", "epoch"] if info.kind == "consumer" else ["epoch"]
        for row, member in zip(rows, info.members, strict=True):
            row += [_reads(member.awaited), member.epoch] if info.kind == "consumer" else [member.epoch]
    show_table(columns, rows)


def _owner_json(owner: Owner | None) -> dict[str, Any] | None:
    if owner is None:
        return None
    return {"job": owner.job, "state": owner.state, "host": owner.host, "pid": owner.pid}


def _refuse_while_owned(connection: Connection, groups: list[str]) -> None:
    """Raise JobRuns for a group that is the ledger of a running job: offsets that it did not write would
    stop the job.
    """
    from millstream.jobs.owners import JobRuns, owners

    owned = owners(connection, settle=True)
    for group in groups:
        if (owner := owned.get(group)) is not None and owner.refused:
            raise JobRuns(f"{group}: {owner.refused}")


def _as_json(places: tuple[TopicPartition, ...]) -> list[dict[str, Any]]:
    return [{"topic": place.topic, "partition": place.partition} for place in places]


def _reads(places: tuple[TopicPartition, ...]) -> str:
    """The partitions of each topic, runs shortened: ``payments 0-3,7; alerts 0``."""
    topics: dict[str, list[int]] = {}
    for place in places:
        topics.setdefault(place.topic, []).append(place.partition)
    return "; ".join(f"{topic} {runs(indexes)}" for topic, indexes in topics.items())


@app.command(
    epilog=examples(
        ("millstream group lag audit", "unread records, how old they are, and when they will be deleted"),
        ("millstream group lag", "of every group"),
        ("millstream group lag audit --alert 10000", "exits with 3 if it is further behind than that"),
        (
            "millstream group lag --alert-before 2h",
            "exits with 3 if any group loses records within two hours",
        ),
        ("millstream group lag audit --output json | jq '[.[].records] | add'", "the total, as a number"),
    )
)
@connected
def lag(
    connection: Connection,
    group: Annotated[
        str | None,
        typer.Argument(
            metavar="[GROUP]",
            help="The consumer group. [default: all of them]",
            autocompletion=complete_group,
            show_default=False,
        ),
    ] = None,
    alert: Annotated[
        int | None,
        typer.Option(
            "--alert", metavar="N", min=0, help="Fail if a group is more than this many records behind."
        ),
    ] = None,
    alert_before: Annotated[
        str | None,
        typer.Option(
            "--alert-before",
            metavar="TIME",
            help="Fail if retention overtakes a group within this time: 30m, 2h, 1d.",
        ),
    ] = None,
    over: Annotated[
        str | None,
        typer.Option(
            "--over",
            metavar="TIME",
            help="Measure for this long how fast groups read. [default: not measured; 10s before "
            "--alert-before fails]",
        ),
    ] = None,
    output: OutputOption = Output.TABLE,
) -> int:
    """Show how far groups are behind, in records and in time, and when they will lose records.

    "Behind" is the time from the oldest unread record to the newest one. "Loses in" is how soon retention, by
    time or by size, deletes records that the group has not read. It assumes the write rate of the last ten
    minutes, and that the group does not read on, unless --over measures how fast it reads. Records already
    deleted unread are shown as lost.

    With an --alert option, the command also fails if anything is already lost. It prints the reasons on
    standard error and exits with 3, which no other failure uses. That makes it suitable for cron and
    monitoring.
    """
    from millstream.cli.group_lag import alarms, measured, show
    from millstream.client.librdkafka.admin import Admin
    from millstream.client.text.position import parse_duration_ms

    before_ms = None if alert_before is None else parse_duration_ms(alert_before)
    over_ms = None if over is None else parse_duration_ms(over)
    with Admin(connection) as admin:
        groups = measured(admin, group, before_ms, over_ms)
    show(groups, named=group is not None, json=output is Output.JSON)
    if alert is None and before_ms is None:
        return 0
    reasons = alarms(groups, alert, before_ms)
    for reason in reasons:
        note(reason)
    return _ALARM if reasons else 0


@app.command(
    epilog=examples(
        ("millstream group seek audit --to start", "read everything again"),
        ("millstream group seek audit --to @-1h", "go back an hour, on every topic it reads"),
        (
            "millstream group seek audit --to -100 --topic payments -p 3",
            "a hundred records back, in one partition",
        ),
        ("millstream group seek new --to @2026-01-01 --topic payments", "a group that has not read yet"),
        ("millstream group seek audit --to end --dry-run", "only show what it would do"),
    )
)
@connected
def seek(
    connection: Connection,
    group: GroupArgument,
    to: Annotated[
        str,
        typer.Option(
            "--to",
            metavar="POSITION",
            help="start, end, an offset (47), -100 or +100 relative to the group's offsets, or a time (@-1h, "
            "@2026-01-01).",
        ),
    ],
    topic: Annotated[
        list[str] | None,
        typer.Option(
            "--topic",
            "-t",
            metavar="TOPIC",
            help="Only this topic. May be repeated. [default: all topics that the group has committed]",
            autocompletion=complete_topic,
        ),
    ] = None,
    partition: Annotated[
        list[int] | None,
        typer.Option("--partition", "-p", metavar="N", help="Only this partition. May be repeated."),
    ] = None,
    dry_run: DryRunOption = False,
    output: OutputOption = Output.TABLE,
) -> None:
    """Move a group's offsets, and print the old and the new ones.

    The group must have no members: they would continue from their own positions and overwrite the new
    offsets. A share group delivers all records from its new start offset on, those too that it has finished
    before.
    """
    from millstream.client.insight.reset import carry_out, planned, refuse_to_move
    from millstream.client.librdkafka.admin import Admin
    from millstream.client.text.position import parse_position
    from millstream.core.clock import SystemClock

    position = parse_position(to, SystemClock().now_ms())
    with Admin(connection) as admin:
        refuse_to_move(admin, group, new=bool(topic))
        _refuse_while_owned(connection, [group])
        moves = planned(admin, group, position, topic or (), partition or ())
        if not dry_run:
            carry_out(admin, group, moves)
    rows = [
        {
            "topic": move.partition.topic,
            "partition": move.partition.partition,
            "old": move.old,
            "new": move.new,
            "unread": move.unread,
        }
        for move in moves
    ]
    if output is Output.JSON:
        show_json(rows)
        return
    show_table(
        ["topic", "partition", "old offset", "new offset", "unread"], [list(row.values()) for row in rows]
    )
    if dry_run:
        note("nothing was changed (--dry-run)")


@app.command(
    epilog=examples(
        ("millstream group delete audit", "asks first"),
        ("millstream group delete a b --yes", "in a script"),
    )
)
@connected
def delete(
    connection: Connection,
    groups: Annotated[
        list[str],
        typer.Argument(
            metavar="GROUP...", help="The consumer groups.", autocompletion=complete_group, show_default=False
        ),
    ],
    yes: YesOption = False,
) -> int:
    """Delete groups and their offsets. Records are not touched."""
    from millstream.client.insight.lag import positions
    from millstream.client.insight.reset import refuse_while_active
    from millstream.client.librdkafka.admin import Admin

    with Admin(connection) as admin:
        for group in groups:
            refuse_while_active(admin, group, "a group in use is not deleted")
        _refuse_while_owned(connection, groups)
        infos = [admin.group(group) for group in groups]
        kept = {info.name: _kept(info, len(positions(admin, info))) for info in infos}
        what = ", ".join(f"{group} ({kept[group]})" for group in groups)
        ask(f"Delete {what}? Consumers with that name start over.", yes=yes)
        failed = 0
        for group, error in admin.delete_groups(groups).items():
            if error is None:
                say(f"deleted {group} with {kept[group]}")
            else:
                note(str(error))
                failed = 1
    return failed


def _kept(info: GroupInfo, offsets: int) -> str:
    return count(offsets, "start offset" if info.kind == "share" else "committed offset")
