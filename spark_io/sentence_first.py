"""Errors whose text comes first in Spark's message.

Leaves the texts to `errors` and `ledger_client.errors`.

Spark shows the report of Python's worker: a traceback, then the text, at the end of many lines. A
worker reports the text only if its environment says so when it fails. It ends after that, so no
other code that runs in it loses its traceback. The traceback is in the log of the worker: the
driver's for planning and publishing, the executor's for tasks.

Invariants: only the environment of a worker that ends with this error is changed.

Source: measured: PySpark 4.3, whose workers end after an error of a data source.
"""

import logging
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from ledger_client import LedgerError
from spark_io.errors import SparkIoError

TEXT_ONLY: Final = "SPARK_HIDE_TRACEBACK"
"""PySpark's environment variable: a worker reports errors without their traceback."""

_log = logging.getLogger(__name__)


@contextmanager
def sentence_first() -> Iterator[None]:
    """Make the text of an error of the block the first line of Spark's message. Also a decorator,
    but not of a generator function, whose body runs later.
    """
    try:
        yield
    except (SparkIoError, LedgerError) as error:
        if is_worker():
            _log.warning("%s", error, exc_info=True)
            os.environ[TEXT_ONLY] = "1"
        raise


def is_worker() -> bool:
    """Return whether this process is one that Spark started to run Python code."""
    spec = getattr(sys.modules.get("__main__"), "__spec__", None)
    return spec is not None and spec.name.startswith("pyspark.")
