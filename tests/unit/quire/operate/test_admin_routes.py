"""Routes of all admin ports: a new one must be listed here, with what it does.

`quire.server.admin` decides about each request by its method: GET and HEAD need the token or a
certificate, other methods the right to change the server (`test_admin_access.py`). The routes of
the console are in `console/test_guard.py`, and the modules that serve HTTP in
`tests/tidy/test_http_servers.py`.
"""

import ast
import inspect
from collections.abc import Iterable
from typing import Any, cast

from prometheus_client import Metric

from bookie.server.admin import BookieAdmin
from broker_layer.server.admin import BrokerAdmin
from quire.gateway import gateway_process
from quire.server.admin import HEALTH_ROUTES, AdminContent, AdminServer
from quire.server.server_log import ServerLog

READING = {
    "bookie": {
        "/api/v1/ledgers",
        "/api/v1/ledgers/{ledger_id}/entries",
        "/api/v1/state",
    },
    "broker": {"/api/v1/partitions", "/api/v1/state", "/health", "/partitions", "/ready"},
}
CHANGING = {
    "bookie": {
        "/api/v1/accept-metadata",
        "/api/v1/checkpoint",
        "/api/v1/clean",
        "/api/v1/read-only",
    },
    "broker": set[str](),
}
EVERYWHERE = {*HEALTH_ROUTES, "/metrics"}
"""Routes of every admin port. Those of HEALTH_ROUTES need nothing."""
PARTS = cast("Any", None)
"""The parts of a server, which routes need only when they are called."""


def test_each_route_is_listed() -> None:
    admins: dict[str, BookieAdmin | BrokerAdmin] = {
        "bookie": BookieAdmin(PARTS, PARTS, {}, PARTS, PARTS),
        "broker": BrokerAdmin(PARTS, PARTS, PARTS),
    }
    for kind, admin in admins.items():
        routes = [(route.method, route.path) for route in admin.routes()]
        reading = {path for method, path in routes if method == "GET"}
        changing = {path for method, path in routes if method == "POST"}
        assert reading == READING[kind]
        assert changing == CHANGING[kind]
        assert len(routes) == len(reading) + len(changing), "no other methods"


def test_a_gateway_has_no_routes_of_its_own() -> None:
    tree = ast.parse(inspect.getsource(gateway_process))
    (content,) = (
        t
        for t in ast.walk(tree)
        if isinstance(t, ast.Call) and getattr(t.func, "id", "") == "AdminContent"
    )
    assert ast.unparse(content.args[3]) == "()"


class NoMetrics:
    """Collector without metrics."""

    def collect(self) -> Iterable[Metric]:
        return ()


async def test_each_admin_port_has_health_and_metrics() -> None:
    content = AdminContent("thing", NoMetrics(), lambda: None, ())
    server = AdminServer(content, ServerLog(lambda: 0.0))
    await server.start("127.0.0.1", 0)
    try:
        runner = server._runner
        assert runner is not None
        routes = [(route.method, route.resource) for route in runner.app.router.routes()]
        assert {resource.canonical for _, resource in routes if resource is not None} == EVERYWHERE
        assert {method for method, _ in routes} == {"GET", "HEAD"}
        assert HEALTH_ROUTES == ("/livez", "/readyz")
    finally:
        await server.close()
