"""A broker in a process of its own, to be signalled, killed and measured."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path
from types import TracebackType

_CODE = """
import sys
from millstream.broker.server import run
from millstream.config import BrokerConfig, with_changes
changes = dict(zip(sys.argv[1::2], sys.argv[2::2]))
sys.exit(run(with_changes(BrokerConfig(), changes), on_ready=lambda address: print(address, flush=True)))
"""


class ServerProcess:
    """``settings`` by their public names; ``address`` is known once it is made."""

    def __init__(self, data: Path | None = None, **settings: str) -> None:
        changes = {"listen": "127.0.0.1:0", **{name.replace("_", "."): v for name, v in settings.items()}}
        if data is not None:
            changes["data"] = str(data)
        self.process = subprocess.Popen(
            [sys.executable, "-c", _CODE, *(part for pair in changes.items() for part in pair)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout is not None
        self.address = self.process.stdout.readline().strip()
        if not self.address:
            raise AssertionError(f"the broker did not start: {self.process.communicate()[1]}")

    def resident_kb(self) -> int:
        for line in Path(f"/proc/{self.process.pid}/status").read_text().splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1])
        raise AssertionError("no VmRSS")

    def stop(self, number: int = signal.SIGTERM) -> tuple[int, str]:
        """End it; its exit code and what it logged."""
        self.process.send_signal(number)
        _, log = self.process.communicate(timeout=30)
        return self.process.returncode, log

    def __enter__(self) -> ServerProcess:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.communicate()
