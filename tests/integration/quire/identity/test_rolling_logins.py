"""Logins at bookies are turned on in a running cluster, step by step, and off again; no append
fails.
"""

from pathlib import Path

import pytest

from quire.local_cluster import LocalCluster
from tests.integration.quire.identity.test_bookie_logins import LoginCluster
from tests.integration.quire.identity.test_rolling_tls import FOUR, appending, restart_all

OFF, OPTIONAL, REQUIRED = ({"client_logins": mode} for mode in ("off", "optional", "required"))


@pytest.mark.long
async def test_no_append_fails_while_logins_are_turned_on_and_off(tmp_path: Path) -> None:
    options = {"repair": "false"}
    async with LocalCluster(FOUR, tmp_path / "data", bookie_options=options) as cluster:
        logins = LoginCluster(cluster, tmp_path)
        await logins.add_user("alice")
        plain, alice = cluster.metadata_uri, logins.uri("alice")
        async with appending(plain), appending(alice):
            await restart_all(cluster, OPTIONAL)
        async with appending(alice):
            await restart_all(cluster, REQUIRED)
        async with appending(alice):
            await restart_all(cluster, OPTIONAL)
        async with appending(plain), appending(alice):
            await restart_all(cluster, OFF)
