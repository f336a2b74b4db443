"""``millstream promote``: lets a standby take its leader's place."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from millstream.cli.terminal.help import App, examples
from millstream.cli.terminal.options import connected
from millstream.cli.terminal.output import Output, OutputOption, note, show_json
from millstream.client.connect import Connection
from millstream.core.errors import MillstreamError

app = App()


@app.command(
    epilog=examples(
        ("millstream promote --broker db2:9092", "the standby at db2 leads; its leader is lost"),
        ("millstream promote --broker db2:9092 --force", "db2 takes over from a leader that still runs"),
        ("millstream promote --data ./copy", "the same for a standby that does not run"),
    )
)
@connected
def promote(
    connection: Connection,
    data: Annotated[
        Path | None,
        typer.Option("--data", metavar="DIR", help="The data directory of a standby that is not running."),
    ] = None,
    force: Annotated[
        bool, typer.Option("--force", help="Promote it even if records may be lost, and list them.")
    ] = False,
    output: OutputOption = Output.TABLE,
) -> int:
    """Promote a standby to leader.

    Promotion is refused if the standby knows that records would be lost, or if the leader still answers. With
    --force, a running standby tells a leader that answers to take no more writes, and copies what it lacks,
    so nothing is lost. If the leader does not answer, the command lists what may be lost. Clients that know
    both addresses find the new leader by themselves.
    """
    if data is None:
        from millstream.client.protocol.standby import BrokerPair

        verdict = BrokerPair(connection).promote(force=force)
        allowed, reasons, lost, known = verdict.allowed, verdict.reasons, verdict.lost, verdict.note
        place, done = connection.address, "leads now"
    else:
        from millstream.broker.standby.promotion import promote_directory

        judged = promote_directory(data, force=force)
        allowed, reasons, known = judged.allowed, tuple(judged.reasons), judged.note
        lost = tuple((each.topic, each.partition, each.first_offset, each.end_offset) for each in judged.lost)
        place, done = str(data), f"leads from its next start on: millstream serve --data {data}"
    if output is Output.JSON:
        show_json({"promoted": allowed, "reasons": reasons, "lost": lost, "note": known})
        return 0 if allowed else 1
    if not allowed:
        raise MillstreamError(f"{place} is not promoted: {'; '.join(reasons)}. --force promotes it anyway")
    for line in filter(None, (*reasons, known)):
        note(line)
    print(f"{place} {done}")
    return 0
