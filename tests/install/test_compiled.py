"""``pip install millstream`` on a machine with a C compiler."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.support.environments import environment, wheel


def test_with_a_compiler_the_record_codec_is_compiled(tmp_path: Path) -> None:
    if shutil.which("cc") is None:
        pytest.skip("no C compiler here")
    built = wheel(tmp_path, compiler=True)
    assert built.stat().st_size < 3e6
    made = environment(tmp_path / "env", built)
    assert made.megabytes() < 80
    program = "from millstream.records import _check; from millstream.records.keys import _keys"
    assert made.run("python", "-c", program).returncode == 0
