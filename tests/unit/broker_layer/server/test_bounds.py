"""Tests of limits and their parts: frames, memory, sessions, listeners, options."""

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bookie.wire.frames import BodyPool
from broker_layer.broker_process import control_config, groups_config
from broker_layer.control.control_config import ControlConfig
from broker_layer.groups.values import GroupsConfig
from broker_layer.kafka.error_codes import ErrorCode
from broker_layer.kafka.errors import KafkaFrameError
from broker_layer.options import BROKER
from broker_layer.server.connections import MemoryBudget
from broker_layer.server.fetch_sessions import FetchOwner, FetchPosition, FetchSessions
from broker_layer.server.frame_assembler import KafkaFrameAssembler
from broker_layer.server.listeners import ListenerAddress, advertise, parse_listeners
from broker_layer.server.server_limits import BrokerLimits
from quire.options import OptionError, with_options


@given(
    sizes=st.lists(st.integers(8, 900), max_size=20),
    cuts=st.lists(st.integers(1, 400), min_size=1, max_size=20),
)
def test_frames_are_assembled_from_any_pieces(sizes: list[int], cuts: list[int]) -> None:
    rng = Random(3)
    frames = [rng.randbytes(size) for size in sizes]
    stream = b"".join(len(frame).to_bytes(4, "big") + frame for frame in frames)
    shared = bytearray(300)
    assembler = KafkaFrameAssembler(shared, 1_000, BodyPool(10_000))
    found: list[bytes] = []
    position, turn = 0, 0
    while position < len(stream):
        buffer = assembler.get_buffer()
        count = min(cuts[turn % len(cuts)], len(buffer), len(stream) - position)
        buffer[:count] = stream[position : position + count]
        found += [bytes(each) for each in assembler.buffer_updated(count)]
        shared[:] = rng.randbytes(len(shared))  # another connection uses the buffer
        position, turn = position + count, turn + 1
    assert found == frames
    assert not assembler.is_mid_frame


@pytest.mark.parametrize("size", [-1, 0, 7, 1_001])
def test_frame_of_invalid_size_is_refused(size: int) -> None:
    assembler = KafkaFrameAssembler(bytearray(300), 1_000, BodyPool(0))
    assembler.get_buffer()[:4] = size.to_bytes(4, "big", signed=True)
    with pytest.raises(KafkaFrameError):
        assembler.buffer_updated(4)


def test_announced_frame_allocates_as_bytes_arrive() -> None:
    assembler = KafkaFrameAssembler(bytearray(300), 2**30, BodyPool(0))
    assembler.get_buffer()[:4] = (2**29).to_bytes(4, "big")
    assert assembler.buffer_updated(4) == []
    assert assembler.announced_bytes == 2**29
    assert len(assembler.get_buffer()) <= 2**18


def test_memory_waiters_continue_in_order() -> None:
    budget = MemoryBudget(100)
    resumed: list[int] = []

    def resume(holder: int) -> None:
        resumed.append(holder)
        budget.take(60)

    budget.take(150)
    for holder in (1, 2, 3, 4):
        budget.wait(holder, lambda holder=holder: resume(holder))  # type: ignore[misc]
    budget.cancel_wait(2)
    budget.give_back(30)
    assert resumed == []
    budget.give_back(90)
    assert resumed == [1, 3]
    assert budget.waiting_count == 1


def position(topic: str, partition: int, offset: int = 0) -> FetchPosition:
    return FetchPosition(topic, partition, offset, 100, -1, -1)


OWNER = FetchOwner("User:a", 1)


def test_session_keeps_unrepeated_partitions() -> None:
    sessions = FetchSessions(10, 100, Random(1))
    asked = [position("a", 0), position("a", 1)]
    first = sessions.plan(0, 0, asked, (), owner=OWNER, uses_topic_ids=False, now_s=0.0)
    assert first.session is not None
    number = first.session_id
    second = sessions.plan(
        number,
        1,
        [position("a", 1, 7), position("b", 0)],
        (),
        owner=OWNER,
        uses_topic_ids=False,
        now_s=1.0,
    )
    assert [
        (fetch_position.topic, fetch_position.partition, fetch_position.offset)
        for fetch_position in second.positions
    ] == [
        ("a", 0, 0),
        ("a", 1, 7),
        ("b", 0, 0),
    ]
    first.session.put_last(second.positions[0])
    third = sessions.plan(number, 2, (), [("a", 1)], owner=OWNER, uses_topic_ids=False, now_s=2.0)
    assert [
        (fetch_position.topic, fetch_position.partition) for fetch_position in third.positions
    ] == [("b", 0), ("a", 0)]
    by_id = sessions.plan(number, 3, (), (), owner=OWNER, uses_topic_ids=True, now_s=2.0)
    assert by_id.error == ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR
    ended = sessions.plan(number, -1, (), (), owner=OWNER, uses_topic_ids=False, now_s=2.0)
    assert (ended.error, ended.session, len(sessions)) == (ErrorCode.NONE, None, 0)


def test_sessions_are_limited_and_old_ones_are_dropped() -> None:
    sessions = FetchSessions(4, 200, Random(1))
    numbers = [
        sessions.plan(
            0, 0, [position("a", 0)], (), owner=OWNER, uses_topic_ids=False, now_s=now_s
        ).session_id
        for now_s in (0.0, 1.0, 2.0)
    ]
    assert numbers[2] == 0
    late = sessions.plan(
        0, 0, [position("a", 0)], (), owner=OWNER, uses_topic_ids=False, now_s=121.0
    )
    assert late.session_id > 0
    gone = sessions.plan(numbers[0], 1, (), (), owner=OWNER, uses_topic_ids=False, now_s=121.0)
    assert gone.error == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


def test_unchanged_partition_is_not_named() -> None:
    known = position("a", 0)
    assert known.must_name(byte_count=0, error=0, high_watermark=5, log_start=0)
    assert not known.must_name(byte_count=0, error=0, high_watermark=5, log_start=0)
    assert known.must_name(byte_count=9, error=0, high_watermark=5, log_start=0)
    assert known.must_name(byte_count=0, error=0, high_watermark=5, log_start=2)
    assert known.must_name(byte_count=0, error=6, high_watermark=5, log_start=2)
    assert known.must_name(byte_count=0, error=0, high_watermark=5, log_start=2)


def test_listeners_are_parsed_and_advertised() -> None:
    bound = parse_listeners("INNER://127.0.0.1:0, OUTER://[::1]:9093")
    assert bound[1] == ListenerAddress("OUTER", "::1", 9093)
    taken = (ListenerAddress("INNER", "127.0.0.1", 4_000), bound[1])
    told = advertise(taken, parse_listeners("INNER://broker.example:0"))
    assert told == (ListenerAddress("INNER", "broker.example", 4_000), bound[1])


@pytest.mark.parametrize("text", ["host:1", "A://host", "A://h:70000", "A://h:1,A://h:2"])
def test_invalid_listeners_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"listener|port|form|twice"):
        parse_listeners(text)
    with pytest.raises(OptionError):
        BROKER.load(None, {}, {"listeners": text})


def test_options_come_from_file_variables_and_flags() -> None:
    text = "[broker]\nbroker_id = 3\nrack = 'a'\nidle_s_max = 5\n[bookie]\nport = 1\n"
    variables = {"QUIRE_BROKER_RACK": "b", "QUIRE_METADATA": "zk://x/y", "QUIRE_BOOKIE_PORT": "2"}
    options = BROKER.load(text, variables, {"rack": "c"})
    assert (options.broker_id, options.rack, options.idle_s_max) == (3, "c", 5.0)
    assert options.metadata == "zk://x/y"


def test_options_reach_groups_transactions_and_new_topics() -> None:
    flags: dict[str, str | int | float | bool] = {
        "topic_defaults": "min.insync.replicas=2 cleanup.policy=compact,delete",
        "group_initial_rebalance_delay_ms": 0,
        "group_session_timeout_min_ms": 100,
        "offsets_retention_ms": 5_000,
    }
    options = BROKER.load(None, {}, flags)
    defaults = control_config(options).topic_defaults
    assert defaults.value("min.insync.replicas") == "2"
    assert defaults.value("cleanup.policy") == "compact,delete"
    assert defaults.value("retention.ms") == "604800000"
    groups = groups_config(options)
    assert (groups.group_initial_rebalance_delay_ms, groups.group_session_timeout_min_ms) == (
        0,
        100,
    )
    assert groups.offsets_retention_ms == 5_000


def test_option_defaults_equal_config_defaults() -> None:
    options = BROKER.load(None, {}, {})
    assert groups_config(options) == GroupsConfig()
    assert control_config(options) == ControlConfig()


def test_options_reach_configurations_of_equal_names() -> None:
    limits: dict[str, int | float] = {
        "connections_max": 2,
        "idle_s_max": 3.0,
        "frame_bytes_max": 2**17,
        "request_bytes_max": 2**21,
        "fetch_bytes_max": 2**18,
        "produce_bytes_per_s": 4,
        "fetch_bytes_per_s": 5,
        "drain_timeout_s": 6.0,
    }
    groups = {
        "group_initial_rebalance_delay_ms": 7,
        "group_session_timeout_min_ms": 8,
        "group_session_timeout_max_ms": 9,
        "offsets_retention_ms": 10,
        "offsets_retention_check_interval_ms": 11,
    }
    options = BROKER.load(None, {}, {**limits, **groups})
    assert with_options(BrokerLimits(), options) == BrokerLimits(**limits)  # type: ignore[arg-type]
    assert groups_config(options) == GroupsConfig(**groups)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("text", "variables", "flags"),
    [
        ("[broker]\nbroker_idd = 3\n", {}, {}),
        ("[broker]\nbroker_id = 'x'\n", {}, {}),
        ("[brokers]\n", {}, {}),
        ("broker = 3\n", {}, {}),
        ("[broker", {}, {}),
        (None, {"QUIRE_BROKER_X": "1"}, {}),
        (None, {"QUIRE_BROKER_BROKER_ID": "1000000"}, {}),
        (None, {"QUIRE_BROKER_AUTO_CREATE_TOPICS": "maybe"}, {}),
        (None, {}, {"log_level": "loud"}),
        (None, {}, {"advertised_listeners": "OTHER://h:1"}),
        (None, {}, {"inter_broker_listener": "OTHER"}),
        (None, {}, {"request_bytes_max": 2**20}),
        (None, {}, {"topic_defaults": "retention.ms"}),
        (None, {}, {"topic_defaults": "no.such.setting=1"}),
        (None, {}, {"topic_defaults": "retention.ms=soon"}),
        (None, {}, {"group_session_timeout_max_ms": 100}),
    ],
)
def test_invalid_options_are_refused(
    text: str | None, variables: dict[str, str], flags: dict[str, str | int | float | bool]
) -> None:
    with pytest.raises(OptionError):
        BROKER.load(text, variables, flags)
