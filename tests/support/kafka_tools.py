"""Runs Kafka's command-line tools in one Java process, because starting one for each tool takes longer."""

from __future__ import annotations

import subprocess
from types import TracebackType

from tests.support.apache_kafka import jars
from tests.support.java_program import java_program

# The packages of tools that are not in org.apache.kafka.tools.
_PACKAGES = {"ConfigCommand": "kafka.admin", "ConsumerGroupCommand": "org.apache.kafka.tools.consumer.group"}
_PACKAGES["ShareGroupCommand"] = _PACKAGES["ConsumerGroupCommand"]
_PACKAGES["ReassignPartitionsCommand"] = "org.apache.kafka.tools.reassign"


class KafkaTools:
    """A Java process that runs tools against one address, one at a time."""

    def __init__(self, address: str) -> None:
        self.address = address
        self._process = subprocess.Popen(
            java_program("Tools", jars()),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )

    def run(self, tool: str, *arguments: object) -> tuple[int, str]:
        """Run a tool, and return its exit code and output."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        name = tool if "." in tool else f"{_PACKAGES.get(tool, 'org.apache.kafka.tools')}.{tool}"
        words = [name, "--bootstrap-server", self.address, *map(str, arguments)]
        assert not any("\t" in word or "\n" in word for word in words)
        self._process.stdin.write("\t".join(words).encode() + b"\n")
        self._process.stdin.flush()
        head = self._process.stdout.readline()
        assert head, f"{tool} ended the whole process"
        code, size = map(int, head.split())
        return code, self._process.stdout.read(size).decode()

    def ok(self, tool: str, *arguments: object) -> str:
        """Run a tool that must succeed, and return its output."""
        code, said = self.run(tool, *arguments)
        assert code == 0, f"{tool} {arguments}: {said}"
        return said

    def __enter__(self) -> KafkaTools:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.kill()
        self._process.wait()
        self._process.stdin.close()
        self._process.stdout.close()
