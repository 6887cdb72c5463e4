"""A killed streaming job publishes every entry once: a short campaign of `python -m
tests.spark.exactly_once`.
"""

from pathlib import Path

from tests.spark.conftest import RunningCluster
from tests.spark.exactly_once import Campaign


def test_killed_drivers_lose_and_repeat_no_entry(
    own_cluster: RunningCluster, tmp_path: Path
) -> None:
    Campaign(own_cluster.metadata, tmp_path, seed=7).run(kills=3)
