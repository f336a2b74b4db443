"""``millstream txn``: lists, describes and aborts transactions; prepare and commit in two phases."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer

from millstream.cli.terminal.help import App, examples
from millstream.cli.terminal.options import YesOption, complete_topic, connected
from millstream.cli.terminal.output import Output, OutputOption, ask, note, say, show_json, show_table
from millstream.client.connect import Connection
from millstream.core.errors import ConfigError
from millstream.core.units import count, duration_text

if TYPE_CHECKING:
    from millstream.client.insight.open_transactions import OpenTransactions, TransactionInfo

app = App(help="Inspect and end open transactions; two-phase commit.")

TokenArgument = Annotated[
    str,
    typer.Argument(
        metavar="TOKEN", help="The token that `millstream txn prepare` printed.", show_default=False
    ),
]


@app.command(
    "list",
    epilog=examples(
        ("millstream txn list", "open transactions, those that hold readers back first"),
        ("millstream txn list --all", "every transactional id"),
        ("millstream txn list --output json | jq '[.[].held_back] | add'", "for an alarm"),
    ),
)
@connected
def list_(
    connection: Connection,
    all_: Annotated[
        bool, typer.Option("--all", "-a", help="Include ids whose transactions have ended.")
    ] = False,
    output: OutputOption = Output.TABLE,
) -> None:
    """List open transactions.

    A reader of committed records stops at the first record of the oldest open transaction. If a transaction
    is the oldest in some partition, the list shows how many records it holds back. A hanging transaction is
    in a partition's log, but no coordinator knows it: it has no transactional id and never ends by itself.
    """
    with _opened(connection) as transactions:
        found = transactions.transactions(ended=all_)
    now = _now()
    if output is Output.JSON:
        show_json([_json(info, now) for info in found])
    elif found:
        _show(found, now)
        for info in found:
            _advise(info)
    else:
        note("no transactional ids" if all_ else "no open transactions")


def _show(found: list[TransactionInfo], now: int) -> None:
    show_table(
        ["transactional id", "producer", "state", "age", "timeout", "partitions", "holds back"],
        [
            [
                info.transactional_id,
                f"{info.producer_id}:{info.epoch}",
                _state(info),
                _age(info, now),
                _timeout(info),
                _places(info),
                count(info.held_back, "record") if info.held_back else None,
            ]
            for info in found
        ],
    )


def _advise(info: TransactionInfo) -> None:
    """Print the command that ends a transaction which does not end by itself."""
    from millstream.client.two_phase import token_of

    token = token_of(info) if info.two_phase and info.unfinished else None
    if token is not None:
        note(f"{info.transactional_id} waits for a decision: millstream txn commit {token} (or abort)")
    if info.hangs:
        place, start = info.stakes[0].partition, info.stakes[0].start
        note(
            f"producer {info.producer_id} hangs in {place}; end it with: millstream txn abort"
            f" --topic {place.topic} --partition {place.partition} --start-offset {start}"
        )


@app.command(
    epilog=examples(
        ("millstream txn describe billing-1", "its state, its open partitions and first offsets"),
        ("millstream txn describe billing-1 --output json", "for a program"),
    )
)
@connected
def describe(
    connection: Connection,
    transactional_id: Annotated[
        str, typer.Argument(metavar="ID", help="The transactional id.", show_default=False)
    ],
    output: OutputOption = Output.TABLE,
) -> None:
    """Show a transactional id: its producer, its transaction, and the records that it holds back."""
    with _opened(connection) as transactions:
        info = transactions.describe(transactional_id)
    now = _now()
    if output is Output.JSON:
        show_json(_json(info, now))
        return
    age = _age(info, now)
    say(
        f"{info.transactional_id}: {_state(info)}{f' for {age}' if age else ''}, producer {info.producer_id}"
        f" epoch {info.epoch}, timeout {_timeout(info)}"
    )
    if info.stakes:
        show_table(
            ["topic", "partition", "first offset", "readers stop at", "end", "holds back"],
            [
                [
                    stake.partition.topic,
                    stake.partition.partition,
                    stake.start,
                    stake.stable,
                    stake.end,
                    stake.held_back,
                ]
                for stake in info.stakes
            ],
        )


@app.command(
    epilog=examples(
        ("millstream txn abort billing-1", "whatever is open under that id; its producer is fenced"),
        ("millstream txn abort orders-7:4711:3 --yes", "a prepared one, by its token"),
        (
            "millstream txn abort --topic payments --partition 0 --start-offset 1234",
            "a hanging transaction, unknown to any coordinator",
        ),
    )
)
@connected
def abort(
    connection: Connection,
    transaction: Annotated[
        str | None,
        typer.Argument(
            metavar="ID", help="The transactional id, or a token from `txn prepare`.", show_default=False
        ),
    ] = None,
    topic: Annotated[
        str | None,
        typer.Option(
            "--topic",
            "-t",
            metavar="TOPIC",
            help="The topic of a hanging transaction.",
            autocompletion=complete_topic,
        ),
    ] = None,
    partition: Annotated[
        int | None,
        typer.Option("--partition", "-p", metavar="N", min=0, help="The partition of a hanging transaction."),
    ] = None,
    start_offset: Annotated[
        int | None,
        typer.Option(
            "--start-offset", metavar="OFFSET", min=0, help="The first offset of the hanging transaction."
        ),
    ] = None,
    yes: YesOption = False,
) -> None:
    """Abort a transaction. Readers of committed records never see its records.

    To abort by id, the command takes over the id: a producer that still uses it is fenced and must start
    again. A hanging transaction is ended in its partition, by writing the marker that its coordinator never
    wrote.
    """
    from millstream.client.text.position import TopicPartition

    where = (topic, partition, start_offset)
    if (transaction is None) == all(part is None for part in where):
        raise ConfigError(
            "give a transactional id, or for a hanging transaction --topic, --partition and --start-offset"
        )
    if transaction is not None:
        _abort_by_id(connection, transaction, yes=yes)
        return
    if topic is None or partition is None or start_offset is None:
        raise ConfigError("a hanging transaction needs all of --topic, --partition and --start-offset")
    place = TopicPartition(topic, partition)
    with _opened(connection) as transactions:
        info = transactions.hanging(place, start_offset)
        ask(f"Abort the transaction of producer {info.producer_id} in {place}? {_lost(info)}", yes=yes)
        transactions.abort_hanging(place, start_offset)
    say(f"aborted the transaction at offset {start_offset} of {place}")


def _abort_by_id(connection: Connection, name: str, *, yes: bool) -> None:
    from millstream.client.two_phase import Token, abort_prepared
    from millstream.core.errors import RequestFailed
    from millstream.core.kafka_errors import TRANSACTIONAL_ID_NOT_FOUND

    with _opened(connection) as transactions:
        try:
            info = transactions.describe(name)
        except RequestFailed as unknown:
            if unknown.code != TRANSACTIONAL_ID_NOT_FOUND:
                raise
            try:
                token = Token.parse(name)
            except ConfigError:
                raise unknown from None
        else:
            if not info.unfinished:
                say(f"{name} has no transaction open: {info.state}")
                return
            ask(f"Abort the transaction of {name}, open for {_age(info, _now())}? {_lost(info)}", yes=yes)
            transactions.abort(name)
            say(f"aborted the transaction of {name}")
            return
    ask(f"Abort the prepared transaction of {token.transactional_id}? Nobody will see its records.", yes=yes)
    say(abort_prepared(connection, token).sentence(token))


@app.command(
    epilog=examples(
        ("millstream txn prepare order-7 --topic orders < lines.txt", "write, and decide later"),
        ("token=$(echo paid | millstream txn prepare order-7 -t orders)", "keep the token"),
        ("millstream txn commit $token", "and then decide"),
    )
)
@connected
def prepare(
    connection: Connection,
    transactional_id: Annotated[
        str, typer.Argument(metavar="ID", help="The transactional id.", show_default=False)
    ],
    topic: Annotated[
        str,
        typer.Option(
            "--topic", "-t", metavar="TOPIC", help="The topic to write to.", autocompletion=complete_topic
        ),
    ],
    key_separator: Annotated[
        str | None,
        typer.Option(
            "--key-separator",
            "-K",
            metavar="TEXT",
            help="The text that separates the key from the value in a line.",
        ),
    ] = None,
) -> None:
    """Write lines from standard input in a transaction, and prepare it (phase one of two-phase commit).

    The command prints a token for the prepared transaction. The transaction survives any crash, has no
    time-out, and waits for `millstream txn commit` or `abort`. Until then, readers of committed records can't
    read past it.
    """
    from millstream.cli.terminal.input import Input
    from millstream.client.text.lines import blocks_of_lines, line_parser
    from millstream.client.two_phase import TwoPhase

    parse = line_parser(key_separator=key_separator.encode() if key_separator else None)
    with TwoPhase(connection, transactional_id) as txn:
        number = 0
        for lines in blocks_of_lines(Input(sys.stdin.fileno(), bool)):
            for line in lines:
                number += 1
                record = parse(line, number)
                txn.send(topic, record.value, key=record.key)
        if not number:
            raise ConfigError("there is nothing to prepare: no lines on standard input")
        print(txn.prepare())
    note(f"{count(number, 'record')} prepared; decide with `millstream txn commit` or `abort` and that token")


@app.command(epilog=examples(("millstream txn commit order-7:4711:3", "by the token that prepare printed")))
@connected
def commit(connection: Connection, token: TokenArgument) -> None:
    """Commit a prepared transaction. Committing it again reports that and changes nothing."""
    from millstream.client.two_phase import Token, commit_prepared

    parsed = Token.parse(token)
    say(commit_prepared(connection, parsed).sentence(parsed))


# ---- what the commands share -------------------------------------------------------------------------


@contextmanager
def _opened(connection: Connection) -> Iterator[OpenTransactions]:
    from millstream.client.insight.open_transactions import OpenTransactions
    from millstream.client.protocol.cluster import Cluster

    connection.check()
    cluster = Cluster(connection, patience=connection.patience)
    try:
        yield OpenTransactions(cluster)
    finally:
        cluster.close()


def _now() -> int:
    from millstream.core.clock import SystemClock

    return SystemClock().now_ms()


def _state(info: TransactionInfo) -> str:
    return f"{info.state}, two-phase" if info.two_phase and info.unfinished else info.state


def _age(info: TransactionInfo, now: int) -> str | None:
    return None if info.started_ms is None else duration_text(max(0, now - info.started_ms))


def _timeout(info: TransactionInfo) -> str | None:
    if info.timeout_ms is None:
        return None
    return "none" if info.two_phase else duration_text(info.timeout_ms)


def _places(info: TransactionInfo) -> str | None:
    return ", ".join(str(stake.partition) for stake in info.stakes) or None


def _lost(info: TransactionInfo) -> str:
    where = _places(info)
    if where is None:
        return "It has written nothing yet."
    return (
        f"Its records, among the last {count(info.records, 'record')} of {where}, are lost, and so are the"
        " offsets that it would have committed."
    )


def _json(info: TransactionInfo, now: int) -> dict[str, Any]:
    return {
        "transactional_id": info.transactional_id,
        "producer_id": info.producer_id,
        "producer_epoch": info.epoch,
        "state": info.state,
        "two_phase": info.two_phase,
        "timeout_ms": None if info.two_phase else info.timeout_ms,
        "started_ms": info.started_ms,
        "age_ms": None if info.started_ms is None else max(0, now - info.started_ms),
        "held_back": info.held_back,
        "partitions": [
            {
                "topic": stake.partition.topic,
                "partition": stake.partition.partition,
                "start_offset": stake.start,
                "last_stable_offset": stake.stable,
                "end": stake.end,
                "held_back": stake.held_back,
            }
            for stake in info.stakes
        ],
    }
