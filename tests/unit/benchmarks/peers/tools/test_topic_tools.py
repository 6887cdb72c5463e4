"""Output and arguments of stock clients' performance tools; the lines are recorded."""

from pathlib import Path

import pytest

from benchmarks.peers.maven import JavaPeer, PeerUnavailableError
from benchmarks.peers.table import markdown
from benchmarks.peers.tools.jobs import COMPARED, JOBS, LARGE, TABLE, Job, Side, Tool
from benchmarks.peers.tools.output import OutputError, complaints_in, figures_of
from benchmarks.peers.tools.programs import Programs, Target, rdkafka_tool
from benchmarks.peers.workloads import Case, Samples

PRODUCED = """\
11671 records sent, 2334.2 records/sec (2.28 MB/sec), 1822.7 ms avg latency, 3240.0 ms max latency.
29685 records sent, 5898.1 records/sec (5.76 MB/sec), 4961.5 ms avg latency, 6242.0 ms max latency.
60000 records sent, 4561.7 records/sec (4.45 MB/sec), 4535.57 ms avg latency, \
6242.00 ms max latency, 5206 ms 50th, 6022 ms 95th, 6214 ms 99th, 6236 ms 99.9th.
"""
CONSUMED = """\
start.time, end.time, data.consumed.in.MB, MB.sec, data.consumed.in.nMsg, nMsg.sec, \
rebalance.time.ms, fetch.time.ms, fetch.MB.sec, fetch.nMsg.sec
2026-11-22 12:25:48:512, 2026-11-22 12:25:49:922, 58.7686, 41.6798, 60179, 42680.1418, \
623, 787, 74.6741, 76466.3278
"""
ROUND_TRIPS = """\
0\t248.025476
Avg latency: 5.0401 ms
Percentiles: 50th = 3, 99th = 21, 99.9th = 248
"""
WARNING = """\
[main] WARN org.apache.kafka.clients.consumer.internals.ConsumerCoordinator - [Consumer \
clientId=consumer-test-group-1795350955532-1, groupId=test-group-1795350955532] Offset commit \
failed on partition end-to-end-kafka-0 at offset 300: This is not the correct coordinator.
"""
TOO_LARGE = """\
org.apache.kafka.common.errors.RecordTooLargeException: The message is 2000088 bytes when \
serialized which is larger than 1048576, which is the value of the max.request.size configuration.
"""
SETTING = """\
%4|1795350586.644|CONFWARN|rdkafka#producer-1| [thrd:app]: Configuration property \
offset_commit_cb is a consumer property and will be ignored by this producer instance
"""
RDKAFKA_PRODUCED = (
    SETTING
    + """\
% Sending 50000 messages of size 1024 bytes
% 50000 messages produced (51200000 bytes), 49317 delivered (offset 49316, 0 failed) in 1000ms: \
49269 msgs/s and 50.45 MB/s, 0 produce failures, 683 in queue, no compression
% 50000 messages produced (51200000 bytes), 50000 delivered (offset 49999, 0 failed) in 1087ms: \
45985 msgs/s and 47.09 MB/s, 0 produce failures, 0 in queue, no compression
"""
)
RDKAFKA_CONSUMED = """\
% 0 messages (0 bytes) consumed in 0ms: 0 msgs/s (0.00 MB/s)
% 100000 messages (102400000 bytes) consumed in 97ms: 1029929 msgs/s (1054.65 MB/s)
% Average application fetch latency: 5us
"""
NOT_DELIVERED = """\
% 5 messages produced (5120 bytes), 0 delivered (offset -1001, 5 failed) in 8ms: 0 msgs/s and \
0.00 MB/s, 0 produce failures, 0 in queue, no compression
"""
NO_PARTITION = """\
% Consume error for topic "nosuch" [7] offset 0: nosuch [7]: desired partition is not available \
(Local: Unknown partition)
"""
TARGET = Target("127.0.0.1:1", "topic")
LATENCIES = Path("latencies")


def test_the_producers_figures_are_from_its_last_line() -> None:
    found = figures_of(Job(Tool.PRODUCER, "topic", 60_000), PRODUCED)
    assert found["records_per_s"] == 4561.7
    assert found["MB_per_s"] == pytest.approx(4561.7 * 1024 / 1e6)
    assert [found[f"{name}_ms"] for name in ("mean", "p50", "p95", "p99", "p999", "max")] == [
        *(4535.57, 5206, 6022, 6214, 6236, 6242)
    ]
    assert (found["failed_count"], found["complaint_count"]) == (0, 0)


def test_unsent_records_of_a_producer_have_failed() -> None:
    found = figures_of(Job(Tool.PRODUCER, "topic", 60_020), TOO_LARGE * 20 + PRODUCED)
    assert (found["failed_count"], found["complaint_count"]) == (20, 20)
    assert str(found["first_complaint"]).startswith("org.apache.kafka.common.errors.RecordTooL")


def test_the_consumers_rate_begins_at_its_first_fetch() -> None:
    found = figures_of(Job(Tool.CONSUMER, "topic", 60_000), CONSUMED + WARNING)
    assert found["records_per_s"] == 76466.3278
    assert found["rebalance_ms"] == 623
    assert found["failed_count"] == 0
    assert found["complaint_count"] == 1


def test_round_trips_have_a_mean_and_percentiles() -> None:
    found = figures_of(Job(Tool.END_TO_END, "topic", 1_000), WARNING + ROUND_TRIPS)
    assert [found[f"{name}_ms"] for name in ("mean", "p50", "p99", "p999")] == [5.0401, 3, 21, 248]
    assert found["first_complaint"] == WARNING.rstrip()


def test_librdkafka_reports_delivered_records() -> None:
    job = Job(Tool.RDKAFKA_PRODUCER, "topic", 50_000)
    found = figures_of(job, RDKAFKA_PRODUCED)
    assert found["records_per_s"] == 45985
    assert (found["failed_count"], found["complaint_count"]) == (0, 0)
    assert "p99_ms" not in found
    assert figures_of(Job(Tool.RDKAFKA_PRODUCER, "topic", 5), NOT_DELIVERED)["failed_count"] == 5


def test_librdkafka_writes_latencies_in_microseconds() -> None:
    job = Job(Tool.RDKAFKA_PRODUCER, "topic", 50_000, per_s=500)
    found = figures_of(job, RDKAFKA_PRODUCED, ["5648", "5190", "7618"])
    assert found["mean_ms"] == pytest.approx(6.152)
    assert (found["p50_ms"], found["p99_ms"]) == pytest.approx((5.648, 7.618))


def test_librdkafka_reports_consumed_records() -> None:
    found = figures_of(Job(Tool.RDKAFKA_CONSUMER, "topic", 100_000), RDKAFKA_CONSUMED)
    assert found["records_per_s"] == 1_029_929
    assert found["complaint_count"] == 0


def test_warnings_about_settings_of_the_other_half_are_ignored() -> None:
    assert complaints_in(SETTING + RDKAFKA_CONSUMED + PRODUCED + ROUND_TRIPS) == []
    assert complaints_in(NO_PARTITION) == [NO_PARTITION.rstrip()]
    assert len(complaints_in("%3|1795350586.6|FAIL|rdkafka#producer-1| [thrd:x]: refused\n")) == 1


@pytest.mark.parametrize("tool", Tool)
def test_a_tool_without_output_has_no_figures(tool: Tool) -> None:
    unfinished = "\n".join((PRODUCED.splitlines()[0], CONSUMED.splitlines()[0]))
    with pytest.raises(OutputError, match="printed no results"):
        figures_of(Job(tool, "topic", 10), unfinished)


def test_tools_run_with_default_settings_unless_a_job_changes_them() -> None:
    programs = Programs(JavaPeer("java", "jars"), "rdkafka_performance")
    command = programs.command(Job(Tool.PRODUCER, "topic", 10), TARGET, LATENCIES)
    assert command[-1] == "bootstrap.servers=127.0.0.1:1"
    assert command[command.index("--throughput") + 1] == "-1"
    assert "org.apache.kafka.tools.ProducerPerformance" in command
    command = programs.command(Job(Tool.PRODUCER, "topic", 10, settings=LARGE), TARGET, LATENCIES)
    assert command[-2:] == list(LARGE)
    command = programs.command(Job(Tool.RDKAFKA_CONSUMER, "topic", 10), TARGET, LATENCIES)
    assert command[:2] == ["rdkafka_performance", "-C"]
    assert "-X" not in command
    paced = Job(Tool.RDKAFKA_PRODUCER, "topic", 10, settings=("linger.ms=0",), per_s=500)
    command = programs.command(paced, TARGET, LATENCIES)
    assert command[command.index("-X") + 1] == "linger.ms=0"
    assert command[-2:] == ["-A", "latencies"]


def test_a_missing_tool_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(
        PeerUnavailableError, match="not on the PATH; name it by --rdkafka-performance"
    ):
        rdkafka_tool(None)
    with pytest.raises(PeerUnavailableError, match="is not a program"):
        rdkafka_tool(tmp_path / "other")
    program = tmp_path / "rdkafka_performance"
    program.touch(mode=0o755)
    assert rdkafka_tool(None) == str(program) == rdkafka_tool(program)
    assert not Programs(None, str(program)).has(Tool.PRODUCER)
    assert not Programs(JavaPeer("java", ""), None).has(Tool.RDKAFKA_CONSUMER)


def test_jobs_with_default_settings_have_a_target_of_one() -> None:
    wanted = {(ratio.workload, ratio.figure): ratio.wanted for ratio in TABLE.ratios}
    assert len(TABLE.figures) == len(JOBS), "each job has a name of its own"
    for job in JOBS:
        for figure in job.compared:
            assert wanted[job.name, figure] == ({} if job.settings else COMPARED[figure])
        if job.is_consuming:
            assert any(other.topic == job.topic for other in JOBS if not other.is_consuming)


def test_the_table_shows_met_targets() -> None:
    samples, name = Samples(), JOBS[0].name
    for side, rate in ((Side.QUIRE, 30.0), (Side.KAFKA, 40.0), (Side.KAFKA_SYNCED, 10.0)):
        samples.add(Case(name, side), 0, {"records_per_s": rate})
    text = markdown(samples, TABLE)
    assert f"| {name} | records_per_s | 30 (30 to 30) | 40 (40 to 40) | 10 (10 to 10) |" in text
    assert "Kafka default flush | 0.75 (0.75 to 0.75) | at least 1 | missed |" in text
    assert "Kafka flush.messages=1 | 3 (3 to 3) | at least 1 | met |" in text
