"""One Spark session and one real cluster for all Spark tests of a run, and quicker starts."""

import os
from collections.abc import Callable, Coroutine, Iterator
from typing import Any, TypeVar
from unittest.mock import patch

import pytest

from ledger_client import ClientConfig, Quorum
from ledger_client.sync import LedgerClient, LedgerWriter
from quire.local.local_server import LocalBookie
from quire.local_cluster import LocalCluster
from spark_io.launching import session
from tests.spark.driver_process import SHORT_LIVED_JAVA
from tests.support.quire.forks.forked_server import forked_servers
from tests.support.quire.in_thread import InThread

pyspark = pytest.importorskip("pyspark", reason="the Spark tests need the extra `spark`")

from pyspark.sql import SparkSession  # noqa: E402 - only if PySpark is installed

ResultT = TypeVar("ResultT")
BOOKIES = 4
SEEN_BY_ALL = Quorum(ensemble=3, write=3, ack=1)
"""With an ack quorum of one a reader queries all three for the LAC and finds the newest."""
SEEN_TIMEOUT_S = 60.0
PATIENT = ClientConfig(add_timeout_s=60.0, append_deadline_s=90.0)
"""A slow disk must not make a writer replace a bookie: it may still store entries after that."""


class RunningCluster:
    """A local cluster for blocking tests.

    Without `repair` the cluster leaves what a test damages as it is.
    """

    def __init__(self, bookies: int, brokers: int = 0, *, repair: bool = True) -> None:
        options = {} if repair else {"repair": "false"}
        cluster = LocalCluster(bookies=bookies, broker=brokers, bookie_options=options)
        self._in_thread = InThread(cluster)
        self.cluster = self._in_thread.__enter__()

    @property
    def metadata(self) -> str:
        return self.cluster.metadata_uri

    @property
    def bookies(self) -> list[LocalBookie]:
        return self.cluster.bookies

    def run(self, work: Coroutine[Any, Any, ResultT]) -> ResultT:
        return self._in_thread.run(work)

    def stop(self) -> None:
        self._in_thread.__exit__()


@pytest.fixture(scope="session", autouse=True)
def _quick_starts() -> Iterator[None]:
    with forked_servers(), patch.dict(os.environ, SHORT_LIVED_JAVA):
        yield


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    made = session(
        "quire tests",
        master="local[2,3]",
        conf={
            "spark.sql.shuffle.partitions": "2",
            "spark.ui.enabled": "false",
            "spark.sql.execution.pythonUDF.arrow.enabled": "false",  # it needs pandas
            "spark.sql.streaming.pollingDelay": "10ms",
        },
    )
    made.sparkContext.setLogLevel("OFF")
    yield made
    made.stop()


@pytest.fixture(scope="session")
def cluster() -> Iterator[RunningCluster]:
    made = RunningCluster(BOOKIES)
    yield made
    made.stop()


@pytest.fixture
def own_cluster() -> Iterator[RunningCluster]:
    """Start a cluster for one test that wants it empty, or kills bookies; nothing repairs them."""
    made = RunningCluster(BOOKIES, repair=False)
    yield made
    made.stop()


@pytest.fixture(scope="module")
def unrepaired_cluster() -> Iterator[RunningCluster]:
    made = RunningCluster(BOOKIES, repair=False)
    yield made
    made.stop()


@pytest.fixture
def fragile_cluster(unrepaired_cluster: RunningCluster) -> RunningCluster:
    """Return a cluster for tests of one module that kill bookies or damage copies. Bookies that
    earlier tests killed are started again; nothing repairs their copies.
    """
    for bookie in unrepaired_cluster.bookies:
        if not bookie.is_running:
            unrepaired_cluster.run(bookie.restart())
    return unrepaired_cluster


@pytest.fixture(scope="module")
def served_cluster() -> Iterator[RunningCluster]:
    """Start a cluster with a broker, for the tests of one module."""
    made = RunningCluster(BOOKIES, brokers=1)
    yield made
    made.stop()


@pytest.fixture
def client(cluster: RunningCluster) -> Iterator[LedgerClient]:
    with LedgerClient(cluster.metadata, config=PATIENT) as made:
        yield made


@pytest.fixture
def written(client: LedgerClient) -> Callable[..., int]:
    """Write entries into a closed ledger; return its id."""

    def write(entries: list[bytes], quorum: Quorum | None = None, **metadata: str) -> int:
        with client.create_ledger(quorum or Quorum.all(3), metadata=metadata) as writer:
            writer.append_many(entries)
        return writer.id

    return write


def wait_until_seen(cluster: RunningCluster, writer: LedgerWriter) -> None:
    """Wait until any client sees all appended entries; a LAC reaches the bookies after its append.

    The writer's own client sees them at once, so that another one must ask. The ledger must have
    been created with `SEEN_BY_ALL`.
    """
    with LedgerClient(cluster.metadata) as client, client.open_ledger(writer.id) as reader:
        reader.wait_confirmed(writer.last_confirmed - 1, timeout=SEEN_TIMEOUT_S)
        assert reader.last_confirmed == writer.last_confirmed
