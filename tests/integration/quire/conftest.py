"""One local cluster for each module, started by `quire up` as a user starts it."""

from collections.abc import Iterator

import pytest

from tests.integration.quire.command import RunningCluster, start_cluster


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningCluster]:
    """Start four bookies, for all of a module's tests."""
    running = start_cluster(tmp_path_factory.mktemp("cluster"), bookies=4)
    yield running
    running.stop()
