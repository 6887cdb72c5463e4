"""Tests of `quire bench compare` on real processes: two configurations, two scenarios, some
seconds.
"""

import asyncio
import json
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import pytest

from quire.bench.injection import DelayingProxy
from tests.integration.quire.command import run_quire

SECONDS = 3
RATE = 200
CONFIGURATIONS = ("majority-3", "all-of-2")
SCENARIOS = ("killed-bookie", "writer-takeover")

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Run the comparison once, for all tests; return the directory of its results."""
    made = tmp_path_factory.mktemp("compare")
    words = [
        *("bench", "compare", "--seconds", str(SECONDS), "--rate", str(RATE)),
        *("--configurations", ",".join(CONFIGURATIONS), "--scenarios", ",".join(SCENARIOS)),
        *("--entry-bytes", "100", "--repeat", "1", "--out", str(made), "-o", "json"),
    ]
    done = run_quire(*words)
    assert done.returncode == 0, done.stderr.decode()
    (made / "printed").write_bytes(done.stdout)
    return made


def run_of(directory: Path, scenario: str, configuration: str) -> dict[str, Any]:
    path = directory / f"{scenario}--{configuration}--{RATE}--0.json"
    told: dict[str, Any] = json.loads(path.read_text())
    return told


@pytest.mark.parametrize("configuration", CONFIGURATIONS)
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_every_due_append_is_in_the_figures(
    directory: Path, scenario: str, configuration: str
) -> None:
    told = run_of(directory, scenario, configuration)
    assert told["quire"]["latency"]["count"] == RATE * SECONDS
    assert told["quire"]["unacknowledged_count"] == 0
    assert told["quire"]["derived"]["lost_count"] == 0
    acknowledged = sum(each["entry_count"] for each in told["quire"]["safety"])
    assert acknowledged >= RATE * SECONDS
    assert told["quire"]["written_bytes_per_entry"] > 100 * told["quire"]["safety"][0]["ack_quorum"]


@pytest.mark.parametrize("configuration", CONFIGURATIONS)
def test_a_killed_bookie_is_replaced(directory: Path, configuration: str) -> None:
    own = run_of(directory, "killed-bookie", configuration)["quire"]
    assert [mark["label"] for mark in own["marks"]] == [
        "bookie 1 killed (-9)",
        "bookie 1 started again",
        "bookie 1 serves again",
    ]
    assert len(own["changes"]) >= 1
    assert own["safety"][0]["fragment_count"] == len(own["changes"]) + 1
    assert own["sent_bytes_per_entry"] > 100 * own["safety"][0]["ack_quorum"]


@pytest.mark.parametrize("configuration", CONFIGURATIONS)
def test_a_successor_continues_in_a_new_ledger(directory: Path, configuration: str) -> None:
    own = run_of(directory, "writer-takeover", configuration)["quire"]
    assert 0 < own["takeover"]["closed_s"] < own["takeover"]["first_ack_s"]
    assert len(own["safety"]) >= 2
    assert {each["state"] for each in own["safety"]} == {"closed"}


def test_the_table_and_the_page_show_every_cell(directory: Path) -> None:
    told = json.loads((directory / "printed").read_bytes())
    rows = told["figures"]
    assert [(row["scenario"], row["configuration"]) for row in rows] == [
        (scenario, configuration) for scenario in SCENARIOS for configuration in CONFIGURATIONS
    ]
    assert all(row["p50_ms"]["median"] > 0 for row in rows)
    assert all(row["p99_ms"] is None for row in rows)  # too few appends lie above it
    assert [each["need"] for each in told["recommendations"]] == [
        "lowest-latency",
        "steady-latency",
        "two-losses",
        "fewest-copies",
    ]
    chosen = [] if told["doubts"] else ["all-of-2"]  # none beside other work
    assert told["recommendations"][-1]["chosen"] == chosen
    page = ET.fromstring((directory / "report.html").read_text().partition("\n")[2])
    assert [element.get("id") for element in page.iter("section")] == [
        "answer",
        "glance",
        "method",
        *(f"{scenario}-{RATE}" for scenario in SCENARIOS),
    ]
    assert len(list(page.iter("svg"))) == 3 + 4 * len(SCENARIOS)


def test_the_page_is_drawn_again_from_the_files(directory: Path) -> None:
    page = directory / "report.html"
    drawn = page.read_text()
    page.unlink()
    done = run_quire("bench", "report", "--out", str(directory), "-o", "json")
    assert done.returncode == 0, done.stderr.decode()
    assert page.read_text() == drawn


def test_an_unknown_name_is_refused_with_the_known_names(tmp_path: Path) -> None:
    done = run_quire("bench", "compare", "--scenarios", "calm", "--out", str(tmp_path))
    assert done.returncode == 2
    assert b"steady" in done.stderr


async def test_the_delaying_proxy_passes_every_byte_both_ways_in_order() -> None:
    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(1_000):
            writer.write(data)
        writer.close()

    async with await asyncio.start_server(echo, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        proxy = await DelayingProxy(f"127.0.0.1:{port}").start()
        proxy.delay_s = 0.01
        host, _, listening = proxy.address.rpartition(":")
        reader, writer = await asyncio.open_connection(host, int(listening))
        sent = bytes(number % 251 for number in range(300_000))
        for start in range(0, len(sent), 7_000):
            writer.write(sent[start : start + 7_000])
        writer.write_eof()
        assert await reader.read(-1) == sent  # the end of the stream arrives as well
        writer.close()
        await proxy.aclose()
