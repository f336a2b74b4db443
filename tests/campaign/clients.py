"""A client of the campaign as a process: ``python -m tests.campaign.clients ADDRESS JOURNAL ROLE JSON``.

The journal's name is the name of this life. SIGTERM ends the client, once it has finished what is in
progress. SIGUSR1 prints where its threads are.
"""

from __future__ import annotations

import faulthandler
import json
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.campaign import (
    clients_churning,
    clients_group,
    clients_keyed,
    clients_looking,
    clients_producing,
    clients_trimming,
)
from tests.campaign.clients_common import ask_to_stop
from tests.campaign.journal import Journal

Role = Callable[[str, Journal, dict[str, Any]], None]

ROLES: dict[str, Role] = {
    "produce": clients_producing.with_librdkafka,
    "produce-with-kafka-python": clients_producing.with_kafka_python,
    "write-keys": clients_keyed.write,
    "member": clients_group.member,
    "follow": clients_looking.follow,
    "look-up": clients_looking.look_up,
    "watch": clients_looking.watch,
    "trim": clients_trimming.trim,
    "churn": clients_churning.churn,
}


def main(address: str, journal: str, role: str, options: str) -> None:
    signal.signal(signal.SIGTERM, ask_to_stop)
    faulthandler.register(signal.SIGUSR1)
    ROLES[role](address, Journal(Path(journal)), json.loads(options))


if __name__ == "__main__":
    main(*sys.argv[1:])
