"""Runs the integration tests in kafka-python's source distribution.

With ``KAFKA_URI``, they use a broker that already runs. Two modules that they import are not distributed with
them: ``test/__init__.py``, and ``test/service.py``, which starts brokers and is replaced here by a stub.
"""

from __future__ import annotations

import os
import shutil
import sys
import tarfile
import xml.etree.ElementTree as ElementTree
from collections.abc import Mapping
from importlib.metadata import version
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

_SERVICE = '''"""Replaces the module that starts brokers: here one is already running."""


class ExternalService:
    def __init__(self, host, port):
        self.host, self.port = host, port

    def open(self):
        pass

    def dump_logs(self):
        pass

    def stop(self):
        pass


class SpawnedService:
    def __init__(self, *arguments, **options):
        raise RuntimeError("this broker is not ours to start: set KAFKA_URI")
'''


def _sources() -> Path:
    """The unpacked source distribution of the installed version."""
    name = f"kafka_python-{version('kafka-python')}"
    unpacked = BUILD / name
    if not (unpacked / "test" / "service.py").exists():
        shutil.rmtree(unpacked, ignore_errors=True)
        BUILD.mkdir(parents=True, exist_ok=True)
        command = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--no-binary", ":all:"]
        command += ["--no-build-isolation", "-d", str(BUILD), f"kafka-python=={version('kafka-python')}"]
        code, said = run_quietly(command)
        if code != 0:
            raise SuiteUnavailable(f"pip could not fetch the sources of kafka-python: {said[-300:]}")
        with tarfile.open(BUILD / f"{name}.tar.gz") as archive:
            archive.extractall(BUILD, filter="data")
        (unpacked / "test" / "__init__.py").touch()
        (unpacked / "servers" / "4.3.1" / "kafka-bin").mkdir(parents=True)  # looked for, not used
        (unpacked / "test" / "service.py").write_text(_SERVICE)
    return unpacked


def _codecs() -> Path:
    """The compression libraries that the tests need. They are installed beside the sources, because nothing
    else here needs them.
    """
    directory = BUILD / "codecs"
    if not directory.exists():
        command = [sys.executable, "-m", "pip", "install", "-q", "--target", str(directory)]
        code, said = run_quietly([*command, "python-snappy", "lz4", "zstandard"])
        if code != 0:
            raise SuiteUnavailable(f"pip could not fetch the codecs of kafka-python: {said[-300:]}")
    return directory


def run(target: Target) -> Mapping[str, Outcome]:
    sources = _sources()
    report = BUILD / f"kafka-python-{target.name}.xml"
    report.unlink(missing_ok=True)
    environment = {
        **os.environ,
        "KAFKA_URI": f"kafka://{target.address}",
        "KAFKA_VERSION": "4.3.1",
        "PYTHONPATH": f"{sources}{os.pathsep}{_codecs()}",
    }
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", str(sources)]
    command += ["-c", os.devnull, "--timeout", "120", f"--junitxml={report}"]
    # The tests of SASL and TLS need brokers that they configure themselves.
    command += [
        f"test/integration/test_{about}_integration.py" for about in ("admin", "consumer", "producer")
    ]
    _, said = run_quietly(command, cwd=sources, env=environment)
    if not report.exists():
        return {"the suite": Outcome(FAILED, said[-2000:])}
    return junit_outcomes(report)


def junit_outcomes(report: Path) -> dict[str, Outcome]:
    """The verdicts in a JUnit report, by file and name."""
    outcomes = {}
    for case in ElementTree.parse(report).iter("testcase"):
        name = f"{case.get('classname', '').rsplit('.', 1)[-1]}::{case.get('name')}"
        problem = next((child for child in case if child.tag in ("failure", "error", "skipped")), None)
        if problem is None:
            outcomes[name] = Outcome(PASSED)
        else:
            verdict = SKIPPED if problem.tag == "skipped" else FAILED
            outcomes[name] = Outcome(verdict, (problem.get("message") or "")[:500])
    return outcomes


SUITE = Suite(
    "kafka-python",
    "the integration tests in the source distribution of kafka-python",
    run,
    {"group.min.session.timeout.ms": "1000", "num.partitions": "4"},
)
