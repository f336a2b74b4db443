"""UDFs are declared before there is a Spark session: their types are read without one."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("py4j", reason="needs PySpark itself")

from pyspark.sql import types

from millstream.sqltypes.before_spark import data_type

DECLARED = """
@udf("string")
def one(x): return x

@udf(returnType="a int, b array<string>")
def two(x): return x

@arrow_udf("struct<a:decimal(10,2)>")
def three(x: pa.Array) -> pa.Array: return x

@pandas_udf("double")
def four(x: pd.Series) -> pd.Series: return x

print([f.returnType.simpleString() for f in (one, two, three, four)])
"""
IMPORTS = (
    "import pandas as pd\nimport pyarrow as pa\n"
    "from pyspark.sql.functions import arrow_udf, pandas_udf, udf\n"
)


@pytest.mark.parametrize("first", ["millstream", "pyspark"])
def test_udfs_are_declared_without_a_session_whatever_was_imported_first(first: str, tmp_path: Path) -> None:
    ours = "from millstream import Topology\n"
    (tmp_path / "udfs.py").write_text(
        (ours + IMPORTS if first == "millstream" else IMPORTS + ours) + DECLARED
    )
    said = subprocess.run(
        [sys.executable, str(tmp_path / "udfs.py")], capture_output=True, text=True, timeout=120
    )
    assert said.stderr == ""
    assert (
        said.stdout.strip()
        == "['string', 'struct<a:int,b:array<string>>', 'struct<a:decimal(10,2)>', 'double']"
    )


def test_pyspark_is_imported_from_spark_s_zip_file_as_workers_do() -> None:
    import pyspark

    archive = Path(pyspark.__file__).parent / "python" / "lib" / "pyspark.zip"
    program = (
        f"import sys; import millstream.pipeline; sys.path.insert(0, {str(archive)!r})\n"
        "import pyspark.daemon, pyspark.sql.functions as f; print(f.__file__, f.udf('int')(len).returnType)"
    )
    said = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120)
    assert said.stderr == ""
    assert str(archive) in said.stdout
    assert "IntegerType()" in said.stdout


def test_what_only_spark_can_read_is_said_to_need_an_object() -> None:
    for text in ("interval day to second", "nonsense", "array<int", "", "a int,"):
        with pytest.raises(ValueError, match=r"must be given as an object of pyspark\.sql\.types"):
            data_type(text)
    assert data_type(" INT ") == types.IntegerType()
