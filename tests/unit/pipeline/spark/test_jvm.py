"""Why Java ended, from what it says."""

from __future__ import annotations

import pytest

from millstream.pipeline.spark.jvm import causes

WRAPPED = """\
07:14:01 ERROR SparkContext: Error initializing SparkContext.
java.lang.reflect.InvocationTargetException
\tat java.base/jdk.internal.reflect.DirectMethodHandleAccessor.invoke(Unknown Source)
Caused by: org.apache.spark.SparkException: Could not parse Master URL: 'sparky://host'
\tat org.apache.spark.SparkContext.<init>(SparkContext.scala:3204)
\t... 14 more
"""
OF_JAVA = """\
WARNING: Using incubator modules: jdk.incubator.vector
Invalid maximum heap size: -Xmx1x
Error: Could not create the Java Virtual Machine.
Error: A fatal exception has occurred. Program will exit.
"""
PLAIN = """\
Exception in thread "main" java.lang.IllegalArgumentException: spark.driver.memory should be a number
\tat org.apache.spark.network.util.JavaUtils.byteStringAs(JavaUtils.java:1)
"""


@pytest.mark.parametrize(
    ("log", "says"),
    [
        (WRAPPED, ["SparkException: Could not parse Master URL: 'sparky://host'"]),
        (OF_JAVA, ["Invalid maximum heap size: -Xmx1x"]),
        (PLAIN, ["IllegalArgumentException: spark.driver.memory should be a number"]),
        ("07:14:01 INFO all is well\n", []),
        ("", []),
    ],
)
def test_the_cause_is_what_is_said_and_not_the_last_line_of_a_log(log: str, says: list[str]) -> None:
    assert causes(log) == says
