"""``millstream standby``: shows which of two brokers leads, and how far the standby is behind."""

from __future__ import annotations

from typing import Any

from millstream.cli.terminal.help import App, examples
from millstream.cli.terminal.options import connected
from millstream.cli.terminal.output import Output, OutputOption, note, say, show_json
from millstream.client.connect import Connection
from millstream.core.units import bytes_text, count, duration_text

app = App(help="Show the state of a leader and its standby, a second machine that keeps a copy.")


@app.callback()
def _group() -> None:
    """Makes ``status`` a command of a group, although it is the only one so far."""


@app.command(
    epilog=examples(
        ("millstream standby status --broker db2:9092", "on a standby: how far it is behind"),
        ("millstream standby status --broker db1:9092", "on a leader: its standbys"),
        ("millstream standby status --output json | jq .standby.behind_records", "for an alarm"),
    )
)
@connected
def status(connection: Connection, output: OutputOption = Output.TABLE) -> int:
    """Show whether a broker leads or is a standby, and how far the standby is behind.

    The exit code is 1 if the broker is a standby that has lost its leader, or was replaced by another broker.
    """
    from millstream.client.protocol.standby import BrokerPair

    found = BrokerPair(connection).status()
    standby: dict[str, Any] | None = found.get("standby")
    if output is Output.JSON:
        show_json(found)
    elif standby is not None:
        _show_standby(connection.address, standby)
    elif found["role"] == "fenced":
        say(f"{connection.address} was replaced by {found['fenced_by']} and takes no writes")
    else:
        _show_leader(connection.address, found["followers"])
    return 1 if found["role"] == "fenced" or (standby is not None and not standby["connected"]) else 0


def _show_standby(address: str, standby: dict[str, Any]) -> None:
    say(f"{address} is a standby of {standby['leader']}")
    if standby["whole"] is None:
        say("it has no complete copy yet")
    unknown = standby["unknown_since_ms"] is not None
    if not standby["connected"]:
        say(f"the leader was last heard from {_time(standby['silent_seconds'])} ago")
    if standby["behind_records"]:
        say(f"{_behind(standby)}, {bytes_text(standby['behind_bytes'])}")
        for topic, partition, first, end in standby["missing"]:
            say(f"  {topic}-{partition}: offsets {first} to {end - 1}")
    if standby["behind_commits"]:
        say(f"behind by {count(standby['behind_commits'], 'change')} of topics, offsets or transactions")
    if unknown:
        say("what the leader acknowledged after it was last heard from is unknown")
    elif not standby["behind_records"] and not standby["behind_commits"]:
        say("it has everything")


def _show_leader(address: str, followers: list[dict[str, Any]]) -> None:
    say(f"{address} leads")
    for follower in followers:
        place = _behind(follower) if follower["behind_records"] else "has everything"
        say(f"standby {follower['name']}: {place}")
    if not followers:
        note("no standby follows it; `millstream serve --data DIR --follow` starts a standby")


def _behind(found: dict[str, Any]) -> str:
    return f"behind by {_time(found['behind_seconds'])}, {count(found['behind_records'], 'record')}"


def _time(seconds: float) -> str:
    return duration_text(round(seconds * 1000))
