"""Quotas, set, listed and removed by operators."""

import pytest

from metadata.security.errors import InvalidQuotaError, QuotaNotFoundError
from quire.cli.rights_verbs import quota_parser as parser
from quire.errors import ExitCode, NeedsConsentError, exit_code
from tests.support.quire.memory_cluster import MemoryCluster

PRODUCED = {"user": "alice", "key": "producer_byte_rate", "value": 1_000}
FETCHED = {"user": "alice", "key": "consumer_byte_rate", "value": 2_000}
WORKED = {"user": None, "client-id": "web", "key": "request_percentage", "value": 12.5}
CONNECTED = {"ip": "10.0.0.1", "key": "connection_creation_rate", "value": 3}
ALICE = ("--user", "alice")


@pytest.fixture
async def cluster(memory_cluster: MemoryCluster) -> MemoryCluster:
    await memory_cluster.create()
    return memory_cluster


async def rows(cluster: MemoryCluster, *words: str) -> object:
    status, found = await cluster.run(parser(), *words)
    assert status == ExitCode.DONE
    return found


async def test_quotas_are_set_listed_and_removed(cluster: MemoryCluster) -> None:
    assert await rows(cluster, "list") == []
    assert await rows(cluster, "set", *ALICE, "producer_byte_rate=1000") == [PRODUCED]
    both = [PRODUCED, FETCHED]
    assert await rows(cluster, "set", *ALICE, "consumer_byte_rate=2e3") == both
    web = ("--default-user", "--client-id", "web")
    assert await rows(cluster, "set", *web, "request_percentage=12.5") == [WORKED]
    address = ("--address", "10.0.0.1")
    assert await rows(cluster, "set", *address, "connection_creation_rate=3") == [CONNECTED]
    assert await rows(cluster, "list") == [CONNECTED, WORKED, *both]
    assert await rows(cluster, "list", *ALICE) == both
    assert await rows(cluster, "list", "--default-user") == []
    assert await rows(cluster, "remove", *ALICE, "producer_byte_rate", "--yes") == [PRODUCED]
    assert await rows(cluster, "remove", *address, "--yes") == [CONNECTED]
    assert await rows(cluster, "list") == [WORKED, FETCHED]


async def test_a_table_shows_names_and_defaults(cluster: MemoryCluster) -> None:
    await rows(cluster, "set", "--default-user", "--client-id", "web", "request_percentage=12.5")
    _, text = await cluster.text(parser(), "list")
    heading, line = text.splitlines()
    assert heading.split() == ["USER", "CLIENT-ID", "IP", "KEY", "VALUE"]
    assert line.split() == ["<default>", "web", "request_percentage", "12.50"]


async def test_nothing_is_removed_without_consent(cluster: MemoryCluster) -> None:
    await rows(cluster, "set", *ALICE, "producer_byte_rate=1000")
    with pytest.raises(NeedsConsentError, match="remove 1 values of user 'alice'"):
        await cluster.run(parser(), "remove", *ALICE)
    assert await rows(cluster, "list") == [PRODUCED]


@pytest.mark.parametrize(
    "words",
    [
        ["producer_byte_rate=5"],
        [*ALICE, "producer_byte_rate=0"],
        [*ALICE, "producer_byte_rate=many"],
        [*ALICE, "producer_byte_rate"],
        [*ALICE, "producer_byte_rate=5", "producer_byte_rate=6"],
        [*ALICE, "consumer_byte_rate=5", "connection_creation_rate=5"],
        [*ALICE, "--address", "10.0.0.1", "connection_creation_rate=5"],
        ["--address", "example.org", "connection_creation_rate=5"],
        ["--user", "", "producer_byte_rate=5"],
    ],
    ids=" ".join,
)
async def test_wrong_arguments_change_nothing(cluster: MemoryCluster, words: list[str]) -> None:
    with pytest.raises(InvalidQuotaError) as refused:
        await cluster.run(parser(), "set", *words)
    assert exit_code(refused.value) == ExitCode.USAGE
    assert await rows(cluster, "list") == []


async def test_removes_only_what_exists(cluster: MemoryCluster) -> None:
    await rows(cluster, "set", *ALICE, "producer_byte_rate=1000")
    for words in (["--user", "bob"], [*ALICE, "consumer_byte_rate"]):
        with pytest.raises(QuotaNotFoundError) as missing:
            await cluster.run(parser(), "remove", *words, "--yes")
        assert exit_code(missing.value) == ExitCode.NOT_FOUND
    with pytest.raises(InvalidQuotaError):
        await cluster.run(parser(), "remove", *ALICE, "producer", "--yes")
    assert await rows(cluster, "list") == [PRODUCED]
