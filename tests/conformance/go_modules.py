"""Runs the tests of Go clients from their modules: copies them, sets the address, and calls ``go test``.

These suites have the address and the number of their brokers in their sources, and a module in Go's cache
can't be changed. So each module is copied, and a few words of the copy are replaced. Only tests in files that
talk to a broker are run.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from tests.conformance.suite import (
    BUILD,
    FAILED,
    PASSED,
    SKIPPED,
    Outcome,
    Suite,
    SuiteUnavailable,
    Target,
    run_quietly,
)

FRANZ_GO, SARAMA, KAFKA_GO = (
    "github.com/twmb/franz-go@v1.22.2",
    "github.com/IBM/sarama@v1.61.1",
    "github.com/segmentio/kafka-go@v0.4.51",
)
_VERDICTS = {"pass": PASSED, "fail": FAILED, "skip": SKIPPED}
_TEST = re.compile(r"^func (Test\w+)\(", re.MULTILINE)

Edit = Callable[[str], str]


def _copy(module: str, name: str) -> Path:
    """A fresh copy of a module's sources, which can be changed."""
    if shutil.which("go") is None:
        raise SuiteUnavailable("go is not installed")
    code, said = run_quietly(["go", "mod", "download", "-json", module], cwd=_anywhere())
    if code != 0:
        raise SuiteUnavailable(f"go could not fetch {module}: {said[-300:]}")
    copy = BUILD / name
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(json.loads(said)["Dir"], copy, copy_function=shutil.copyfile)
    for directory in [copy, *(path for path in copy.rglob("*") if path.is_dir())]:
        directory.chmod(0o755)
    return copy


def _anywhere() -> Path:
    """A directory outside of any Go module."""
    BUILD.mkdir(parents=True, exist_ok=True)
    return BUILD


def _edit(directory: Path, pattern: str, edit: Edit) -> None:
    for path in directory.glob(pattern):
        path.write_text(edit(path.read_text()))


def _tests(directory: Path, talks: str, leave_out: frozenset[str]) -> list[str]:
    """The tests in the files that match ``talks``, without those in ``leave_out``."""
    found = []
    for path in sorted(directory.glob("*_test.go")):
        text = path.read_text()
        if re.search(talks, text):
            found += [name for name in _TEST.findall(text) if name not in leave_out]
    return found


def _go_test(
    directory: Path, tests: list[str], environment: Mapping[str, str], *options: str, timeout: int = 600
) -> dict[str, Outcome]:
    chosen = "^(" + "|".join(tests) + ")$"
    command = [
        "go",
        "test",
        "-mod=mod",
        "-json",
        "-count=1",
        f"-timeout={timeout}s",
        *options,
        "-run",
        chosen,
        ".",
    ]
    _, said = run_quietly(command, cwd=directory, env={**os.environ, **environment}, timeout=timeout + 300)
    outcomes: dict[str, Outcome] = {}
    output: dict[str, list[str]] = {}
    other = []
    for line in said.splitlines():
        try:
            event = json.loads(line)
        except ValueError:
            other.append(line)
            continue
        test = event.get("Test", "").partition("/")[0]
        if event["Action"] in ("output", "build-output"):
            output.setdefault(test, []).append(event["Output"])
        elif event["Action"] in _VERDICTS and event.get("Test") == test and test:
            verdict = _VERDICTS[event["Action"]]
            detail = "" if verdict == PASSED else "".join(output.get(test, []))[-1500:]
            outcomes[test] = Outcome(verdict, detail)
    if not outcomes:
        return {"the suite": Outcome(FAILED, "".join([*output.get("", []), *other])[-3000:])}
    for test in tests:  # a test that ended the whole process, and those that did not run because of it
        outcomes.setdefault(test, Outcome(FAILED, "".join(output.get(test, ["did not run"]))[-1500:]))
    return outcomes


# franz-go takes the address from the environment.


def _franz_go(target: Target) -> Mapping[str, Outcome]:
    copy = _copy(FRANZ_GO, "franz-go") / "pkg" / "kgo"
    leave_out = frozenset({"TestSCRAMAuth", "TestSCRAMAuthBadCredentials"})
    tests = _tests(copy, r"tmpTopic|newTestClient|getSeedBrokers", leave_out)
    environment = {
        "KGO_SEEDS": target.address,
        "KGO_TEST_RF": "1",
        "KGO_TEST_RECORDS": "20000",
        "KGO_TEST_MAX_TOPIC_PARTS": "7",
        "KGO_LOG_LEVEL": "none",
    }
    return _go_test(copy, tests, environment)


# sarama expects five brokers behind a proxy that breaks connections on demand. Here there is one broker, and
# nothing is broken.


def _sarama(target: Target) -> Mapping[str, Outcome]:
    copy = _copy(SARAMA, "sarama")

    def edit(text: str) -> str:
        text = text.replace('fmt.Sprintf("127.0.0.1:%d", 29090+i)', f'"{target.address}"')
        return re.sub(r"(ReplicationFactor:\s+)3", r"\g<1>1", text)

    _edit(copy, "functional_*test.go", edit)
    tests = _tests(copy, r"setupFunctionalTest|FunctionalTestEnv", frozenset({"TestMain"}))
    with _proxy() as proxy:
        environment = {"TOXIPROXY_ADDR": proxy, "KAFKA_VERSION": "4.1.0"}
        return _go_test(copy, tests, environment, "-tags=functional", timeout=900)


class _NothingToBreak(BaseHTTPRequestHandler):
    """Answers as toxiproxy does when there are proxies and no toxics."""

    def _answer(self) -> None:
        name = self.path.removeprefix("/proxies/").partition("/")[0]
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        reset = self.path == "/reset"
        told = {"name": name, "listen": "", "upstream": "", "enabled": True}
        body = b"" if reset else json.dumps(told).encode()
        self.send_response(204 if reset else 200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_GET = do_POST = do_DELETE = _answer  # noqa: N815 (names that the base class looks for)

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def _proxy() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), _NothingToBreak)
    thread = threading.Thread(target=partial(server.serve_forever, poll_interval=0.05))
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


# kafka-go expects port 9092 of localhost, in most of its files.


def _kafka_go(target: Target) -> Mapping[str, Outcome]:
    copy = _copy(KAFKA_GO, "kafka-go")

    def edit(text: str) -> str:
        return text.replace('TCP("localhost")', 'TCP("localhost:9092")').replace("9092", str(target.port))

    _edit(copy, "*_test.go", edit)
    # The first does not talk to a broker. The second ends the whole process when a coordinator moves, also on
    # Kafka.
    leave_out = frozenset({"TestNetworkAddress", "TestReaderConsumerGroup"})
    tests = _tests(copy, rf"{target.port}|newLocalClient", leave_out)
    environment = {"KAFKA_VERSION": "4.0.0", "KAFKA_SKIP_NETTEST": "1"}
    return _go_test(copy, tests, environment)


SUITES = [
    Suite("franz-go", f"the tests of {FRANZ_GO}/pkg/kgo that talk to a broker", _franz_go),
    Suite(
        "sarama",
        f"the functional tests of {SARAMA}",
        _sarama,
        {"auto.create.topics.enable": "false"},
        node_id=1,
    ),
    Suite(
        "kafka-go", f"the tests of {KAFKA_GO} that talk to a broker", _kafka_go, node_id=1, host="localhost"
    ),
]
