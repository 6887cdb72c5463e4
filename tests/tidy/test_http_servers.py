"""Only the listed modules serve HTTP: the routes of another one need a decision on who may use it.

The routes are listed in `tests/unit/quire/operate/test_admin_routes.py` and
`console/test_guard.py`.
"""

import ast

from tests.tidy.test_tidy import PRODUCT

SERVERS = {
    "AdminServer": {
        "bookie/bookie_process.py",
        "broker_layer/broker_process.py",
        "quire/gateway/gateway_process.py",
    },
    "Application": {"quire/console/server.py", "quire/server/admin.py"},
}
"""Modules that open an admin port, or make an application of aiohttp."""


def test_no_other_module_serves_http() -> None:
    found: dict[str, set[str]] = {name: set() for name in SERVERS}
    for path, module in PRODUCT.items():
        for node in module.nodes:
            if isinstance(node, ast.Call):
                name = getattr(node.func, "id", getattr(node.func, "attr", ""))
                if name in found:
                    found[name].add(path)
    assert found == SERVERS
