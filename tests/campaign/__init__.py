"""The campaign: everything a broker does, at once and under faults, with every record accounted for.

    python -m tests.campaign --seed 7 --minutes 60        (or: make campaign ARGS="--seed 7 --minutes 60")

One ``millstream serve`` process runs beside many clients. The campaign is a series of rounds. In each round
a choice of *parts* (idempotent producers, transactions, groups, compaction, retention, archive, rings,
exports, ...) works at full speed while faults strike: kills, stopped processes, a full disk, an archive
that goes away. At the end of a round the faults stop, the clients finish what they began, and the whole log
is compared with what the clients wrote down. docs/internals/campaign.md says what is checked.

- ``schedule.py``: which parts and which faults, from a seed. Pure.
- ``ledger.py``, ``keyed.py``, ``coverage.py``, ``bounds.py``, ``lookups.py``, ``exported.py``: what a log
  may look like after what clients did. Pure, and tested with planted faults (``tests/unit/campaign``).
- ``journal.py``: what a client did, written down as it happens, so that its death loses nothing.
- ``clients.py``, ``clients_*.py``: the clients, each in its own process; ``processes.py`` runs them.
- ``parts.py``, ``parts_*.py``: topics, clients and checks that belong together.
- ``broker.py``, ``log_lines.py``: the broker under test, and the lines of its log that are expected.
- ``faults.py``: what a fault does. ``conductor.py``: runs rounds and faults. ``__main__.py``: the command.
"""
