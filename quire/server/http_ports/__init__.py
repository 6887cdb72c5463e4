"""Ports that speak HTTP: admin ports, and those of consoles.

- `http_listening`: addresses with a limited number of connections, also of one client's address.
- `http_log`: lines about requests that are not HTTP, without their content.

Leaves routes and rights to `quire.server.admin` and `quire.console`.
"""
