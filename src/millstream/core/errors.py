"""Every exception that millstream raises on purpose.

    MillstreamError
    ├── ConfigError            a setting, an option or a settings file is wrong
    ├── DataDirectoryError     the data directory can't be used (unreadable, locked, foreign)
    │   └── CatalogueDamaged   its catalogue can't be read; it can be rebuilt
    ├── CorruptBatch           bytes that should be a record batch are not one
    │   └── BatchTooLarge      they would decompress to more than was allowed
    ├── LogError               a partition's log refuses an operation; carries Kafka's error code
    │   ├── AppendRefused      these records can't be appended; nothing was written
    │   ├── OffsetOutOfRange   there is no such offset in this log
    │   ├── OffsetArchived     the records are only in the archive, which is read elsewhere
    │   ├── IndexRebuilding    an index disagrees with its log and is being rebuilt; try again
    │   └── LogFailed          this log takes no more writes (disk full, failed sync)
    │       ├── NotLeader      because another broker leads; this log is a copy of that broker's
    │       └── LogOffline     because records are missing, and nobody has accepted that yet
    ├── ArchiveError           the archive does not answer, or does not have what it should
    │   └── ArchiveMissing     there is no such object
    ├── RequestRefused         the broker can't do what a request asks; carries Kafka's error code
    │   └── CatalogueFailed    the change could not be stored; nothing changed
    ├── ProtocolError          a peer sent something that is not the Kafka protocol
    ├── BrokerUnavailable      no broker answers at the given address
    ├── RequestFailed          a broker answered with an error; carries Kafka's error code
    │   └── ProducerFenced     another producer has taken over this one's transactional id
    ├── TransactionAborted     a transaction was rolled back; nothing of it is visible
    ├── TransactionDecided     a prepared transaction was decided otherwise, or its outcome is unknown
    ├── DataLoss               records that were to be read are gone, or can't be read; says which
    ├── InputError             text to produce is not a record; says in which line
    ├── OperatorFailed         a user's function raised; says for which key and record
    ├── StateError             the state of a stateful operator can't be used, or is too large; says which
    │   └── StateConnectionError   the database that holds it does not answer
    ├── RegistryUnavailable    no schema registry answers at the given address
    ├── RegistryRefused        a schema registry can't do what is asked; carries its error code
    │   └── InvalidSchema      a schema is invalid, or refers to one that does not exist
    ├── UndecodableRecord      a record's bytes do not match their schema
    └── TopologyError          a pipeline is wrong; says where in the user's file

Each message says what was wrong, where, and what to do next: the command line prints it as it is, without a
traceback. Any other exception that escapes is a bug in millstream.
"""

from __future__ import annotations


class MillstreamError(Exception):
    """Root of everything millstream raises on purpose.

    >>> try:
    ...     Driver(flow, engine="duckdb")
    ... except MillstreamError as error:
    ...     print(error)
    engine='duckdb' is not 'python' or 'spark'
    """


class ConfigError(MillstreamError):
    """A setting, an option or a settings file is wrong.

    >>> try:
    ...     Connection("localhost:port").servers()
    ... except ConfigError as error:
    ...     print(error)
    the broker's address: ...
    """


class DataDirectoryError(MillstreamError):
    """The data directory can't be used.

    >>> try:
    ...     Broker("/dev/null").start()
    ... except DataDirectoryError as error:
    ...     print(error)
    can't use the data directory /dev/null: File exists; give one that this user may read and write
    """


class CorruptBatch(MillstreamError):
    """Bytes that should be a record batch are not one.

    ``position`` is where the batch starts in the file or buffer that was read.
    """

    def __init__(self, reason: str, *, position: int = 0, source: str = "") -> None:
        self.reason = reason
        self.position = position
        self.source = source
        where = f"{source} at byte {position}" if source else f"at byte {position}"
        super().__init__(f"corrupt record batch ({where}): {reason}")


class BatchTooLarge(CorruptBatch):
    """The records of a batch would decompress to more than was allowed."""


class CatalogueDamaged(DataDirectoryError):
    """A broker's catalogue can't be read; it can be rebuilt."""


class LogError(MillstreamError):
    """A partition's log refuses an operation. ``code`` is the number Kafka uses for it on the wire."""

    def __init__(self, code: int, message: str) -> None:
        self.code = code
        super().__init__(message)


class AppendRefused(LogError):
    """These records can't be appended. Nothing was written; the log is as it was.

    ``records`` are the numbers, within the batch, of the records concerned, if not all of them are."""

    def __init__(self, code: int, message: str, records: tuple[int, ...] = ()) -> None:
        super().__init__(code, message)
        self.records = records


class OffsetOutOfRange(LogError):
    """There is no such offset in this log."""

    def __init__(self, message: str) -> None:
        super().__init__(1, message)


class OffsetArchived(LogError):
    """The records at this offset are only in the archive. A caller that can wait reads them from there."""

    def __init__(self, message: str) -> None:
        super().__init__(56, message)


class IndexRebuilding(LogError):
    """An index disagrees with its log and is being rebuilt. Clients are told to retry."""

    def __init__(self, message: str) -> None:
        super().__init__(56, message)


class LogFailed(LogError):
    """This log takes no more writes; reads continue. Kafka calls it KAFKA_STORAGE_ERROR."""

    def __init__(self, message: str) -> None:
        super().__init__(56, message)


class LogOffline(LogFailed):
    """This log is shorter than it is known to have been. It takes no writes and no reads until a person has
    decided. ``known_end`` is the offset that it should reach."""

    def __init__(self, message: str, known_end: int = 0) -> None:
        super().__init__(message)
        self.known_end = known_end


class NotLeader(LogFailed):
    """This log takes no writes because another broker leads. Clients look for that broker."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.code = 6


class ArchiveError(MillstreamError):
    """The archive does not answer, or does not have what it should. It may a little later."""


class ArchiveMissing(ArchiveError):
    """There is no such object in the archive."""


class RequestRefused(MillstreamError):
    """The broker can't do what a request asks. ``code`` is the number Kafka uses for it on the wire."""

    def __init__(self, code: int, message: str) -> None:
        self.code = code
        super().__init__(message)


class CatalogueFailed(RequestRefused):
    """A change could not be stored (disk full, catalogue closed); nothing changed."""

    def __init__(self, message: str) -> None:
        super().__init__(56, message)


class ProtocolError(MillstreamError):
    """A peer sent something that is not the Kafka protocol; the connection can't continue."""


class BrokerUnavailable(MillstreamError):
    """No broker answers at the given address.

    >>> try:
    ...     Connection("127.0.0.1:1").check()
    ... except BrokerUnavailable as error:
    ...     print(error)
    no broker answers at 127.0.0.1:1 (connection refused); start one with ...
    """


class RequestFailed(MillstreamError):
    """A broker answered with an error. ``code`` is Kafka's number for it, ``name`` is Kafka's name.

    >>> error = RequestFailed(3, "UNKNOWN_TOPIC_OR_PARTITION", "there is no topic 'paymets'")
    >>> error.code, error.name
    (3, 'UNKNOWN_TOPIC_OR_PARTITION')
    """

    def __init__(self, code: int, name: str, message: str) -> None:
        self.code = code
        self.name = name
        super().__init__(message)


class ProducerFenced(RequestFailed):
    """Another producer has taken over this one's transactional id, or its transaction timed out.

    >>> with Transactions(address, "billing-9") as first:
    ...     try:
    ...         with first.begin() as txn, transaction(address, "billing-9"):
    ...             txn.send("bills", b"17 EUR")   # the second has taken over the id
    ...     except ProducerFenced as error:
    ...         print(error.name)
    PRODUCER_FENCED
    """


class TransactionAborted(MillstreamError):
    """A transaction was rolled back; nothing of it is visible. ``rebalanced`` is True if the reason is that
    the records it had read now belong to another member.

        >>> TransactionAborted("the group has a new member", rebalanced=True).rebalanced
        True
    """

    def __init__(self, message: str, *, rebalanced: bool = False) -> None:
        self.rebalanced = rebalanced
        super().__init__(message)


class TransactionDecided(MillstreamError):
    """A prepared transaction was decided otherwise before, or its outcome is no longer known.

    >>> with TwoPhase(address, "order-8") as both:
    ...     both.send("bills", b"17 EUR")
    ...     token = both.prepare()
    >>> outcome = abort_prepared(address, token)
    >>> try:
    ...     commit_prepared(address, token)
    ... except TransactionDecided as error:
    ...     print("too late")
    too late
    """


class DataLoss(MillstreamError):
    """Records that were to be read are gone, or can't be read.

    >>> try:
    ...     raise DataLoss("payments[0]: offsets 5 to 9 were deleted before they were read")
    ... except MillstreamError as error:
    ...     print(error)
    payments[0]: offsets 5 to 9 were deleted before they were read
    """


class InputError(MillstreamError):
    """Text to produce is not a record. ``line`` is its line number, from 1.

    >>> InputError(3, "no JSON").line
    3
    """

    def __init__(self, line: int, message: str) -> None:
        self.line = line
        super().__init__(f"line {line}: {message}")


class StateError(MillstreamError):
    """The state of a stateful operator can't be used, or has grown too large.

    >>> issubclass(StateConnectionError, StateError)
    True
    """


class StateConnectionError(StateError):
    """The database that holds the state does not answer. It may a little later.

    >>> try:
    ...     raise StateConnectionError("postgresql://localhost/state does not answer")
    ... except StateError as error:
    ...     print(error)
    postgresql://localhost/state does not answer
    """


class RegistryUnavailable(MillstreamError):
    """No schema registry answers at the given address. One may a little later.

    >>> try:
    ...     flow.source("bills", format="avro", registry="http://127.0.0.1:1")
    ... except MillstreamError as error:
    ...     print(type(error.__cause__ or error).__name__)
    TopologyError
    """


class RegistryRefused(MillstreamError):
    """A schema registry can't do what is asked. ``code`` is the number that Confluent's registry uses for
    it (40401: no such subject); its first three digits are the HTTP status.

        >>> RegistryRefused(40401, "there is no subject 'bills-value'").code
        40401
    """

    def __init__(self, code: int, message: str) -> None:
        self.code = code
        super().__init__(message)


class InvalidSchema(RegistryRefused):
    """A schema is invalid, or refers to one that does not exist.

    >>> InvalidSchema("an Avro record needs fields").code
    42201
    """

    def __init__(self, message: str) -> None:
        super().__init__(42201, message)


class UndecodableRecord(MillstreamError):
    """A record's bytes do not match their schema, or their schema is not known.

    >>> issubclass(UndecodableRecord, MillstreamError)
    True
    """


class TopologyError(MillstreamError):
    """A pipeline is wrong. ``where`` is ``file:line`` in the user's own code, if known.

    >>> try:
    ...     payments.where("eurs > 2")
    ... except TopologyError as error:
    ...     print(str(error).partition(": ")[2])   # after the file and the line
    the condition 'eurs > 2': there is no column 'eurs'; did you mean 'eur'? The columns are ...
    """

    def __init__(self, message: str, *, where: str | None = None) -> None:
        self.where = where
        super().__init__(f"{where}: {message}" if where else message)


class OperatorFailed(MillstreamError):
    """A user's function in a stateful operator raised. The message names the operator, key and record.

    >>> class Broken(Processor):
    ...     def on_event(self, event, context):
    ...         context.emit(n=1 // 0)
    >>> try:
    ...     processed(Broken, "n int", {"card": "c1"})
    ... except OperatorFailed as error:
    ...     print(error)
    operator 'made' failed for card='c1': ZeroDivisionError: ...
    """
