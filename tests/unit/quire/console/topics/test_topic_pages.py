"""Pages of topics, messages, groups and transactions, over a whole broker in memory."""

import asyncio
import json
import re
from collections.abc import AsyncIterator
from urllib.parse import unquote

import pytest
from kafka.protocol.consumer.metadata import ConsumerProtocolAssignment

from broker_layer.kafka.record_batch import Record, build_batch
from quire.console.pages import messages_page as live_messages
from quire.console.pages.messages_page import ROWS_PER_STEP, newest_rows
from quire.console.topics import groups as group_reading
from quire.console.topics import records as record_pages
from tests.support.quire.broker_console import (
    OPTIONS,
    TIME_MS,
    BrokerConsole,
    broker_console,
)
from tests.support.quire.console import open_console
from tests.support.quire.memory_cluster import MemoryCluster
from tests.until import WAIT_S

HOSTILE = "<script>alert(1)</script>/%2F?&{{7*7}}"
HOSTILE_PATH = "/groups/%3Cscript%3Ealert%281%29%3C%2Fscript%3E%2F%252F%3F%26%7B%7B7%2A7%7D%7D"


@pytest.fixture
async def world(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[BrokerConsole]:
    async with broker_console(monkeypatch) as running:
        yield running


def records(count: int, *, key: bytes | None = None) -> list[Record]:
    """Return records one second apart."""
    return [
        Record(index, TIME_MS + 1_000 * index, key, b"value %d" % index) for index in range(count)
    ]


async def test_topics_with_everything_behind_them(world: BrokerConsole) -> None:
    await world.create_topic("orders", 2)
    await world.produce("orders", *records(3))
    await world.commit("readers", "orders", 1)
    text = (await world.browser.get("/topics")).text
    assert 'href="/topics/orders"' in text
    assert "of coordinators" in text
    text = (await world.browser.get("/topics/orders")).text
    assert re.search(r'href="/ledgers/\d+"', text)
    assert 'href="/groups/readers"' in text
    changed, _, defaults = text.partition("settings with the default")
    assert "<code>retention.ms</code>" not in changed
    assert '604,800,000 <span class="quiet">7.0 days</span>' in defaults
    bookie = re.search(r'href="/bookies/([^"]+)"', text)
    assert bookie is not None
    assert f">{bookie.group(1)}</a>" in text
    assert "1000001" not in text
    assert "__consumer_offsets" in (await world.browser.get("/topics")).text
    assert (await world.browser.get("/topics/__consumer_offsets")).status == 200
    assert (await world.browser.get("/topics/__consumer_offsets/messages")).status == 404
    assert (await world.browser.get("/topics/unknown")).status == 404
    assert (await world.browser.get("/topics/unknown/messages")).status == 404


async def test_messages_are_decoded_and_escaped(world: BrokerConsole) -> None:
    await world.create_topic("t")
    values = [b'{"a": "<b>"}', b"<img src=x>", b"\xff\x00", None, b"x" * 10_000]
    rows = [
        Record(index, TIME_MS, b"<key>", value, (("<header>", b"<content>"),))
        for index, value in enumerate(values)
    ]
    await world.produce("t", *rows)
    text = (await world.browser.get("/topics/t/messages")).text
    assert "&lt;img src=x&gt;" in text
    for hostile in ("<img src=x", "<key>", "<header>", "<content>", "<b>"):
        assert hostile not in text
    assert "JSON" in text
    assert "ff 00" in text
    assert "x" * 4_096 in text
    assert "x" * 4_097 not in text
    assert "3c 69 6d 67" in (await world.browser.get("/topics/t/messages?form=hex")).text


async def test_messages_by_offset_time_and_key(
    world: BrokerConsole, monkeypatch: pytest.MonkeyPatch
) -> None:
    await world.create_topic("t")
    await world.produce("t", *records(60))
    await world.produce("t", *records(20, key=b"k"))
    get = world.browser.get
    text = (await get("/topics/t/messages")).text
    assert "value 49" in text
    assert "value 50" not in text
    assert "offset=50" in text
    text = (await get("/topics/t/messages?offset=50")).text
    assert "value 50" in text
    assert 'rel="next"' not in text
    assert "offset=0" in text
    text = (await get(f"/topics/t/messages?time={TIME_MS + 58_500}")).text
    assert "value 59" in text
    assert "value 58" not in text
    text = (await get("/topics/t/messages?key=k")).text
    assert text.count("value") > 20
    assert "80 records read" in text
    assert (await get("/topics/t/messages?time=2150-01-01")).text.count("value 1") == 0
    assert "value 19" in (await get("/topics/t/messages?at=end")).text
    monkeypatch.setattr(record_pages, "SCANNED_MAX", 10)
    text = (await get("/topics/t/messages?key=k")).text
    assert "10 records read" in text
    assert "stopped before offset 10" in text
    assert (await get(f"/topics/t/messages?offset={2**63 - 1}")).status == 200
    for odd in ("offset=-1", "offset=x", f"offset={'9' * 40}", "form=x", "partition=x"):
        assert (await get(f"/topics/t/messages?{odd}")).status == 400
    assert (await get("/topics/t/messages?time=yesterday")).status == 400
    assert (await get("/topics/t/messages?partition=7")).status == 404


async def test_new_messages_are_streamed(
    world: BrokerConsole, monkeypatch: pytest.MonkeyPatch
) -> None:
    await world.create_topic("t")
    await world.produce("t", *records(1))
    assert (await world.browser.get("/topics/unknown/live")).status == 404
    address = f"{world.browser.address}topics/t/live"
    async with asyncio.timeout(WAIT_S), world.browser.session.get(address) as answer:
        assert answer.headers["Content-Type"].startswith("text/event-stream")
        assert "default-src 'none'" in answer.headers["Content-Security-Policy"]
        await world.produce("t", Record(0, TIME_MS, None, b"<new>\n\nevent: x"))
        while (line := await answer.content.readline()).startswith((b":", b"\n")):
            pass
        assert line == b"event: record\n"
        data = json.loads((await answer.content.readline()).removeprefix(b"data: "))
        assert (data["offset"], data["value"]) == (1, "<new>\n\nevent: x")
        monkeypatch.setattr(live_messages, "STREAMS_MAX", 1)
        assert (await world.browser.get("/topics/t/live")).status == 429


def test_messages_that_come_too_fast_are_counted() -> None:
    data = bytes(build_batch(records(ROWS_PER_STEP + 5)))
    rows, skipped = newest_rows(data, 2)
    assert (len(rows), skipped, rows[-1].offset) == (ROWS_PER_STEP, 3, ROWS_PER_STEP + 4)


async def test_a_group_and_new_offsets(world: BrokerConsole) -> None:
    await world.create_topic("t")
    await world.produce("t", *records(10))
    await world.commit(HOSTILE, "t", 4)
    get = world.browser.get
    assert f'href="{HOSTILE_PATH}"' in (await get("/groups")).text
    page = await get(HOSTILE_PATH)
    assert "<script>alert" not in page.text
    assert "<i>" not in page.text
    assert "6 records behind" in page.text
    assert "6.0 s" in page.text or "6 s" in page.text
    plan = await get(f"{HOSTILE_PATH}/reset?topic=t&to=time&value={TIME_MS + 7_000}")
    assert "+3" in plan.text
    for way, after in (("earliest", 0), ("latest", 10), ("offset&value=99", 10)):
        text = (await get(f"{HOSTILE_PATH}/reset?topic=t&to={way}")).text
        assert f'name="offset:0:t" value="{after}"' in text
    form = {"form_token": plan.form_token, "offset:0:t": "7"}
    answer = await world.browser.post(f"{HOSTILE_PATH}/reset", form)
    assert answer.status == 303
    assert unquote(answer.headers["Location"]) == unquote(HOSTILE_PATH)
    assert "3 records behind" in (await get(HOSTILE_PATH)).text
    for path in ("/groups/unknown", "/groups/unknown/reset?topic=t&to=latest"):
        assert (await get(path)).status == 404
    for odd in ("topic=t&to=x", "topic=t&to=offset&value=x", "topic=t&to=time&value=x"):
        assert (await get(f"{HOSTILE_PATH}/reset?{odd}")).status == 400
    assert (await get(f"{HOSTILE_PATH}/reset?topic=u&to=latest")).status == 404
    for fields in ({}, {"offset:x:t": "1"}, {"offset:0:t": "-1"}):
        form = {"form_token": plan.form_token, **fields}
        assert (await world.browser.post(f"{HOSTILE_PATH}/reset", form)).status == 400


async def test_a_group_with_members_keeps_its_offsets(world: BrokerConsole) -> None:
    await world.create_topic("t")
    await world.produce("t", *records(10))
    await world.commit("readers", "t", 4)
    await world.join("readers", "t")
    page = await world.browser.get("/groups/readers")
    assert "&lt;member&gt;" in page.text
    assert "only while it has no members" in page.text
    token = (await world.browser.get("/repair")).form_token
    answer = await world.browser.get("/groups/readers/reset?topic=t&to=latest")
    assert (answer.status, "has members" in answer.text) == (409, True)
    form = {"form_token": token, "offset:0:t": "7"}
    assert (await world.browser.post("/groups/readers/reset", form)).status == 409
    assert "6 records behind" in (await world.browser.get("/groups/readers")).text


async def test_partitions_of_a_classic_member(
    world: BrokerConsole, monkeypatch: pytest.MonkeyPatch
) -> None:
    await world.create_topic("orders", 3)
    kind = ConsumerProtocolAssignment.TopicPartition
    topics = [kind(topic="<orders>", partitions=[2, 0]), kind(topic="others", partitions=[1])]
    assignment = ConsumerProtocolAssignment(assigned_partitions=topics, user_data=None)
    await world.join_classic("readers", bytes(assignment.encode(version=3)))
    text = (await world.browser.get("/groups/readers")).text
    assert "&lt;orders&gt;-2, &lt;orders&gt;-0, others-1" in text
    monkeypatch.setattr(group_reading, "ASSIGNED_MAX", 2)
    text = (await world.browser.get("/groups/readers")).text
    assert "&lt;orders&gt;-2, &lt;orders&gt;-0, and more" in text
    await world.join_classic("odd", b"\0\0 not an assignment")
    page = await world.browser.get("/groups/odd")
    assert (page.status, "1 member" in page.text) == (200, True)


async def test_a_transaction_that_hangs_is_aborted(world: BrokerConsole) -> None:
    await world.create_topic("t")
    await world.begin_transaction("<tx>", "t")
    text = (await world.browser.get("/transactions?seconds=0")).text
    assert "&lt;tx&gt;" in text
    assert "t-0" in text
    assert "No transaction is open" in (await world.browser.get("/transactions")).text
    page = await world.browser.get("/transactions/abort?id=%3Ctx%3E")
    form = {"form_token": page.form_token, "id": "<tx>"}
    answer = await world.browser.post("/transactions/abort", form)
    assert (answer.status, answer.headers["Location"]) == (303, "/transactions")
    while "Abort</a>" in (await world.browser.get("/transactions?seconds=0")).text:
        pass
    assert (await world.browser.post("/transactions/abort", form)).status == 409
    assert (await world.browser.get("/transactions/abort?id=x")).status == 404


async def test_brokers_that_are_away_are_a_notice(memory_cluster: MemoryCluster) -> None:
    await memory_cluster.create("a")
    async with open_console(OPTIONS) as (_, browser):
        await browser.log_in()
        token = {"form_token": (await browser.get("/repair")).form_token}
        for path in ("/topics", "/topics/t", "/topics/t/messages", "/groups", "/groups/g"):
            answer = await browser.get(path)
            assert answer.status == 200
            assert "no broker is up" in answer.text
        answer = await browser.post("/groups/g/reset", {**token, "offset:0:t": "1"})
        assert answer.status == 503
