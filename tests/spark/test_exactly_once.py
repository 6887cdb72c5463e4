"""Holds that a streaming job that dies publishes every entry once: a few of the deaths of
`python -m tests.spark.exactly_once`.
"""

from pathlib import Path

import pytest

from tests.spark.conftest import RunningCluster
from tests.spark.exactly_once import Campaign


@pytest.mark.timeout(300)
def test_drivers_that_die_neither_lose_nor_repeat(
    own_cluster: RunningCluster, tmp_path: Path
) -> None:
    Campaign(own_cluster.metadata, tmp_path, seed=7).run(kills=3)
