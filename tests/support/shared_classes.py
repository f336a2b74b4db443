"""Makes Java start in half the time, by sharing archived classes between JVMs (class-data sharing).

The classes of Kafka and of Spark are loaded and verified once and kept in files under ``build/``. Every JVM
that a test starts maps such a file into its memory. ``python -m tests.support.archive_classes`` makes the
files. If there is none, or if the JVM finds that it was made from other jars, the JVM loads its classes
itself, without a message.
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
# For JVMs that live only for seconds. The first compiler alone gets a code cache of 48 MB by default, which
# the shared Spark sessions fill: the JVM would go on dropping and compiling the same methods again.
QUICK_JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:ReservedCodeCacheSize=240m"


@cache
def archive(name: str, jars: Path) -> Path:
    """The archive of the classes that ``name`` uses from these jars, for the installed Java."""
    home = os.environ.get("JAVA_HOME")
    java = Path(home, "bin", "java") if home else Path(shutil.which("java") or "java")
    digest = hashlib.sha256()
    for path in (java.resolve(), *sorted(jars.glob("*.jar"))):
        about = path.stat() if path.exists() else None
        digest.update(f"{path} {about and (about.st_size, about.st_mtime_ns)}\n".encode())
    return DIRECTORY / f"{name}-{digest.hexdigest()[:16]}.jsa"


def sharing(name: str, jars: Path) -> list[str]:
    """The options of a JVM whose class path begins with these jars. The JVM's log is off, because it would
    go to the standard output of programs whose output tests read.
    """
    return [f"-XX:SharedArchiveFile={archive(name, jars)}", "-Xlog:disable"]


def archiving(command: list[str], into: Path) -> list[str]:
    """The same command, changed to write an archive of the classes that it loads instead of using one."""
    program, *rest = (part for part in command if not part.startswith("-XX:SharedArchiveFile="))
    return [program, f"-XX:ArchiveClassesAtExit={into}", *rest]


def spark_jars() -> Path:
    import pyspark

    return Path(pyspark.__file__).parent / "jars"


def quick_spark() -> str:
    """The Java options for every Spark that tests start, with room for what a batch allocates, so that the
    collector copies little of it.
    """
    quick = f"{QUICK_JAVA} -Xmn320m"
    if importlib.util.find_spec("pyspark") is None:
        return quick
    return " ".join([quick, *sharing("spark", spark_jars())])
