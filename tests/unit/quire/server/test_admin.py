"""The admin port always answers in JSON, and refuses requests from web pages."""

from collections.abc import Iterator

import aiohttp
import pytest
from aiohttp import web
from prometheus_client import Metric
from prometheus_client.registry import Collector

from quire.server.admin import AdminContent, AdminServer
from quire.server.errors import CannotListenError
from quire.server.latency import LatencyCounts
from quire.server.metrics import counter, described_metric, gauge, histogram_metric
from quire.server.overriding import override
from quire.server.server_log import ServerLog


class Metrics(Collector):
    @override
    def collect(self) -> Iterator[Metric]:
        latency = LatencyCounts((0.1, 1.0))
        for seconds in (0.05, 0.1, 0.5, 7.0):
            latency.record(seconds)
        yield described_metric("thing_polls_now", gauge("Polls that wait."), 4)
        yield described_metric("thing_adds", counter("Adds answered."), 5)
        yield histogram_metric("thing_add_latency_seconds", "From arrival to answer.", latency)


async def act(request: web.Request) -> web.Response:
    match request.query.get("way"):
        case "refuse":
            raise web.HTTPBadRequest(reason="no such thing")
        case "fail":
            raise OSError("not now")
        case "break":
            raise KeyError("a defect")
        case _:
            return web.json_response({})


@pytest.mark.parametrize(
    ("way", "headers", "status", "says"),
    [
        ("", {}, 200, "{}"),
        ("", {"Origin": "http://page"}, 403, "web page"),
        ("refuse", {}, 400, '{"error": "no such thing"}'),
        ("fail", {}, 503, '{"error": "not now"}'),
        ("break", {}, 500, "the thing failed"),
    ],
)
async def test_every_answer_is_json(
    way: str, headers: dict[str, str], status: int, says: str
) -> None:
    administered = AdminContent(
        "thing", Metrics(), lambda: "a part", (web.post("/act", act),), (OSError,)
    )
    server = AdminServer(administered, ServerLog(lambda: 0.0))
    host, port = await server.start("127.0.0.1", 0)
    try:
        async with aiohttp.ClientSession(f"http://{host}:{port}") as http:
            async with http.post("/act", params={"way": way}, headers=headers) as answer:
                assert answer.status == status
                assert says in await answer.text()
            async with http.get("/readyz") as answer:
                assert (answer.status, (await answer.json())["missing"]) == (503, "a part")
            async with http.get("/metrics") as answer:
                lines = (await answer.text()).splitlines()
    finally:
        await server.close()
    assert "thing_polls_now 4.0" in lines
    assert "thing_adds_total 5.0" in lines
    for name in ("descriptors_open", "descriptors_max", "loop_lag_longest_seconds"):
        assert any(line.startswith(f"quire_thing_{name} ") for line in lines)
    buckets = [line for line in lines if line.startswith("thing_add_latency_seconds_bucket")]
    assert [line.split()[1] for line in buckets] == ["2.0", "3.0", "4.0"]


async def test_address_in_use_is_reported() -> None:
    administered = AdminContent("thing", Metrics(), lambda: None, ())
    log = ServerLog(lambda: 0.0)
    first, second = AdminServer(administered, log), AdminServer(administered, log)
    host, port = await first.start("127.0.0.1", 0)
    try:
        with pytest.raises(CannotListenError, match=str(port)):
            await second.start(host, port)
    finally:
        await second.close()
        await first.close()
