"""Calls of consoles for Kafka: which are answered, and whether their figures are true."""

import functools
from collections.abc import Callable, Iterator
from typing import Final

import pytest

from quire.local.secure_directory import CLIENT_NAME
from quire.local_cluster import BOOKIES_DEFAULT
from tests.kafka.brokers import QUIRE_BROKERS
from tests.kafka.consoles.replays import PROGRAMS, Cluster, Replay, prepared_cluster, replayed
from tests.kafka.consoles.world import COMMITTED, DELETED, PARTITIONS, RECORDS, VALUE_BYTES, World
from tests.kafka.fetching import TEST_TIMEOUT_S, UNAVAILABLE

pytestmark = pytest.mark.timeout(TEST_TIMEOUT_S)

BATCH_BYTES_MAX: Final = 100
"""More than a batch or a record has besides its value."""
BROKERS: Final = list(range(1, QUIRE_BROKERS + 1))
REFUSED: Final = {
    ("Redpanda Console", "IncrementalAlterConfigs of brokers"): "edit its configuration",
    ("kminion", "IncrementalAlterConfigs of brokers"): "edit its configuration",
    ("kafbat", "describeMetadataQuorum"): "not supported",
    ("kafbat", "alterReplicaLogDirs"): "not supported",
    ("kafbat", "incrementalAlterConfigs of a broker"): "edit its configuration",
    ("kafbat", "alterPartitionReassignments, replication factor"): "the factor cannot be changed",
}
"""Calls that are refused, with a part of what the console shows; docs/topics.md names them."""


@pytest.fixture(scope="module")
def prepared() -> Iterator[tuple[Cluster, World]]:
    with prepared_cluster() as found:
        yield found


@pytest.fixture(scope="module")
def replay_of(prepared: tuple[Cluster, World]) -> Callable[[str], Replay]:
    """Return the function that makes the calls of a program once, or skips the test."""

    @functools.cache
    def made(program: str) -> Replay:
        try:
            return replayed(program, *prepared)
        except UNAVAILABLE as error:
            pytest.skip(str(error))

    return made


@pytest.fixture(params=PROGRAMS)
def replay(request: pytest.FixtureRequest, replay_of: Callable[[str], Replay]) -> Replay:
    return replay_of(request.param)


def test_only_the_named_calls_are_refused(replay: Replay) -> None:
    refused = {
        (line["tool"], line["call"]): str(line.get("error", line["result"]))
        for line in replay.lines
        if line["result"] != "ok"
    }
    tools = {line["tool"] for line in replay.lines}
    expected = {key: text for key, text in REFUSED.items() if key[0] in tools}
    assert refused.keys() == expected.keys(), refused
    for key, text in expected.items():
        assert text in refused[key]


def test_brokers_and_controller(replay: Replay) -> None:
    for found in replay.figures("Metadata", "describeCluster"):
        assert found["brokers"] == BROKERS
        assert found["controller"] == replay.cluster.controller
    for found in replay.figures("DescribeConfigs of brokers", "describeConfigs of brokers"):
        assert {each["broker.id"] for each in found.values()} == set(found)
        assert [each["inter.broker.protocol.version"] for each in found.values()] == ["3.9", "3.9"]


def test_sizes_of_log_directories(replay: Replay) -> None:
    found, *_ = replay.figures("DescribeLogDirs", "describeLogDirs")
    assert list(found["sizes"]) == replay.world.places
    for partition, place in enumerate(replay.world.places):
        least = RECORDS[partition] * VALUE_BYTES
        around = (RECORDS[partition] + 1) * BATCH_BYTES_MAX
        assert least <= found["sizes"][place] <= least + around
    for figure in replay.figures("DescribeLogDirs", "describeLogDirs"):
        assert figure["sizes"] == found["sizes"]
        assert sum(figure["brokers"].values()) >= sum(found["sizes"].values())


def test_offsets(replay: Replay) -> None:
    found = replay.figures("ListOffsets", "listOffsets", "beginningOffsets, endOffsets")
    places = replay.world.places
    of_world = [each for each in found if list(each["ends"]) == places]
    of_new = [each for each in found if list(each["ends"]) != places]
    assert (len(of_world), len(of_new)) == (2, 2)
    for each in of_world:
        assert each["ends"] == {place: RECORDS[index] for index, place in enumerate(places)}
        assert each["starts"] == dict(zip(places, (DELETED, 0, 0), strict=True))
    for each in of_new:  # half of its records are deleted
        assert (sum(each["starts"].values()), sum(each["ends"].values())) == (25, 50)


def test_groups_with_their_lag(replay: Replay) -> None:
    groups = replay.world.groups
    for found in replay.figures("ListGroups", "listGroups"):
        assert {found[name] for name in groups.values()} == {"Stable"}
    lags = {groups[each]: replay.world.lags(each) for each in COMMITTED}
    names = ("OffsetFetch, ListOffsets", "listConsumerGroupOffsets, listOffsets")
    assert lags in replay.figures(*names)
    assert list(lags.values()) == [
        {replay.world.places[0]: 20, replay.world.places[1]: 0},
        {replay.world.places[0]: 40, replay.world.places[1]: 20},
    ]


def test_members_have_their_partitions(replay: Replay) -> None:
    for found in replay.figures("DescribeGroups", "describeConsumerGroups"):
        classic = found[replay.world.groups["classic"]]
        assert (classic["state"], classic["members"]) == ("Stable", 1)
        assert classic["assigned"] == replay.world.places


def test_changed_offsets_of_a_group(replay: Replay) -> None:
    found = replay.figures("OffsetFetch, ListOffsets", "listConsumerGroupOffsets")
    of_idle = [each for each in found if not each.keys() & set(replay.world.groups.values())]
    assert of_idle
    for each in of_idle:
        assert list(each.values()) == [{replay.world.places[0]: RECORDS[0] - 7}]


def test_changed_settings_of_a_topic(replay: Replay) -> None:
    found = replay.figures("DescribeConfigs of a topic", "describeConfigs of a topic")
    values = {name: each["retention.ms"] for topics in found for name, each in topics.items()}
    assert values.pop(replay.world.topic) == "604800000"
    assert list(values.values()) == ["7200000", "7200000"]


def test_quotas_and_access_rules(replay: Replay) -> None:
    user = f"{{user={replay.world.user}}}"
    expected = (
        {user: {"producer_byte_rate": 1_048_576}},
        {user: {"consumer_byte_rate": 2_097_152}},
    )
    for found in replay.figures("DescribeClientQuotas", "describeClientQuotas"):
        assert found in expected
    *_, rules = replay.figures("DescribeAcls", "describeAcls")
    assert rules["authorizer"]
    assert rules.get("resources", rules.get("rules")) == 1
    assert replay.figures("DeleteAcls", "deleteAcls") == [{"rules": 1}]


def test_the_overview_expects_bookies_as_brokers(replay_of: Callable[[str], Replay]) -> None:
    for found in replay_of("franz-go").figures("Metadata"):
        assert found["brokers_expected"] == QUIRE_BROKERS + BOOKIES_DEFAULT
        assert (found["partitions_short"], found["partitions_without_leader"]) == (0, 0)


def test_users_and_messages(replay_of: Callable[[str], Replay]) -> None:
    replay = replay_of("franz-go")
    (users,) = replay.figures("DescribeUserScramCredentials")
    assert users == {CLIENT_NAME: 2, f"{replay.world.user}-of-the-console": 1}
    shown, probed = replay.figures("Fetch")
    assert 50 <= shown["records"] <= sum(RECORDS.values()) - DELETED
    assert probed["records"] == 25


def test_groups_of_the_newer_protocol(replay_of: Callable[[str], Replay]) -> None:
    for program, call, state in (
        ("franz-go", "DescribeGroups", "Dead"),  # without version 6
        ("Java admin client", "describeConsumerGroups", "Stable"),
    ):
        replay = replay_of(program)
        for found in replay.figures(call):
            newer = found[replay.world.groups["consumer"]]
            assert newer["state"] == state
            assert newer["assigned"] == (replay.world.places if state == "Stable" else [])


def test_what_kafbat_asks_at_the_start(replay_of: Callable[[str], Replay]) -> None:
    replay = replay_of("Java admin client")
    assert replay.figures("describeFeatures") == [{"finalized": 1}]  # group.version
    (directories,) = replay.figures("describeReplicaLogDirs")
    assert directories == dict.fromkeys(replay.world.places, "/ledgers")
    operations = replay.figures("describeCluster")[-1]["operations"]
    assert "ALTER" in operations
    assert len(replay.figures("listTopics, describeTopics")) == len(["AKHQ", "kafbat"])
    for found in replay.figures("listTopics, describeTopics"):
        assert found["partitions"] == PARTITIONS
        assert set(found["leaders"]) == set(BROKERS)
        assert found["replicas"] == found["in_sync"] == [3] * PARTITIONS
