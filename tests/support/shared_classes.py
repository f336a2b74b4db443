"""Java that starts in half the time: the classes of Kafka and of Spark, read and checked once and kept in a
file under ``build/``, which every JVM that a test starts maps into its memory (class-data sharing).

``python -m tests.support.archive_classes`` makes the files. Where there is none, or a JVM finds that it is
not of these very jars, it reads its classes itself, and says nothing about it.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import shutil
from functools import cache
from pathlib import Path

from tests.support.maven import REPOSITORY

DIRECTORY = REPOSITORY / "build" / "shared_classes"
QUICK_JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"  # for what lives for seconds only


@cache
def archive(name: str, jars: Path) -> Path:
    """Where the classes of these jars, as ``name`` uses them, are kept for the Java that there is."""
    home = os.environ.get("JAVA_HOME")
    java = Path(home, "bin", "java") if home else Path(shutil.which("java") or "java")
    digest = hashlib.sha256()
    for path in (java.resolve(), *sorted(jars.glob("*.jar"))):
        about = path.stat() if path.exists() else None
        digest.update(f"{path} {about and (about.st_size, about.st_mtime_ns)}\n".encode())
    return DIRECTORY / f"{name}-{digest.hexdigest()[:16]}.jsa"


def sharing(name: str, jars: Path) -> list[str]:
    """The options of a JVM whose class path begins with these jars. Its log is off: it would write to the
    standard output of programs whose output is read."""
    return [f"-XX:SharedArchiveFile={archive(name, jars)}", "-Xlog:disable"]


def archiving(command: list[str], into: Path) -> list[str]:
    """The same command, which leaves the classes that it loads in a file instead of using those of one."""
    program, *rest = (part for part in command if not part.startswith("-XX:SharedArchiveFile="))
    return [program, f"-XX:ArchiveClassesAtExit={into}", *rest]


def spark_jars() -> Path:
    import pyspark

    return Path(pyspark.__file__).parent / "jars"


def quick_spark() -> str:
    """Options for every Spark that tests start, if there is one to be started."""
    if importlib.util.find_spec("pyspark") is None:
        return QUICK_JAVA
    return " ".join([QUICK_JAVA, *sharing("spark", spark_jars())])
