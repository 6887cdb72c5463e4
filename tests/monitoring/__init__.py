"""Dashboards of `monitoring/`, made from tables, and checks of what it names.

- `boards`: the panels of each dashboard.
- `queries`: queries in PromQL.
- `grafana`: a dashboard as Grafana's JSON. Pure.
- `__main__`: `python -m tests.monitoring` writes the dashboards.
"""
