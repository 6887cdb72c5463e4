"""Queries of the dashboards, for the chosen clusters and instances. Pure."""

from typing import Final

from tests.monitoring.grafana import Panel

OF_CLUSTER: Final = '{cluster=~"$cluster"}'
OF_INSTANCE: Final = '{cluster=~"$cluster", instance=~"$instance"}'
INSTANCE: Final = "{{instance}}"


def rate(metric: str, by: str = "instance") -> str:
    """Return the rate of a counter over five minutes."""
    return f"sum by ({by}) (rate({metric}{OF_INSTANCE}[5m]))"


def p99(metric: str) -> str:
    """Return the time within which 99 % were done."""
    return (
        f"histogram_quantile(0.99, sum by (instance, le) (rate({metric}_bucket{OF_INSTANCE}[5m])))"
    )


def p50(metric: str) -> str:
    """Return the time within which half were done."""
    return (
        f"histogram_quantile(0.5, sum by (instance, le) (rate({metric}_bucket{OF_INSTANCE}[5m])))"
    )


def each(metric: str) -> str:
    """Return a gauge of each process."""
    return f"{metric}{OF_INSTANCE}"


def cluster(metric: str, labels: str = "") -> str:
    """Return a figure of the complete cluster, which every console has."""
    by = "cluster" + (f", {labels}" if labels else "")
    return f"max by ({by}) (quire_cluster_{metric}{OF_CLUSTER})"


def latency(title: str, description: str, metric: str) -> Panel:
    """Return a panel of a histogram: half, and 99 %."""
    return Panel(
        title,
        description,
        "s",
        ((p50(metric), f"{INSTANCE} half"), (p99(metric), f"{INSTANCE} 99 %")),
    )
