"""Faults that can be injected into a running cluster, as values.

Format: members are positions in the ledger's first ensemble.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class PauseBookie:
    """Pause it (SIGSTOP): it keeps its connections and its registration, but does not respond."""

    member: int


@dataclass(frozen=True, slots=True)
class ResumeBookie:
    """SIGCONT."""

    member: int


@dataclass(frozen=True, slots=True)
class KillBookie:
    """Kill it (SIGKILL)."""

    member: int


@dataclass(frozen=True, slots=True)
class RestartBookie:
    """Start a killed bookie again, on its own directory."""

    member: int


@dataclass(frozen=True, slots=True)
class SlowBookie:
    """Pause it (SIGSTOP) for a part of every period, until it is healed."""

    member: int
    stopped_s: float
    period_s: float


@dataclass(frozen=True, slots=True)
class DelayNetwork:
    """Delay every byte between the client and a bookie, in both directions."""

    member: int
    delay_s: float


@dataclass(frozen=True, slots=True)
class SlowZooKeeper:
    """Pause ZooKeeper for a part of every period, until it is healed."""

    stopped_s: float
    period_s: float


@dataclass(frozen=True, slots=True)
class PauseZooKeeper:
    """Pause it (SIGSTOP): no metadata can be read or written."""


@dataclass(frozen=True, slots=True)
class HealSlowness:
    """End the slowness of bookies, network and ZooKeeper; resume ZooKeeper."""


@dataclass(frozen=True, slots=True)
class KillWriter:
    """Kill the writing process (SIGKILL); a waiting second process takes over its ledger."""


Fault = (
    PauseBookie
    | ResumeBookie
    | KillBookie
    | RestartBookie
    | SlowBookie
    | DelayNetwork
    | SlowZooKeeper
    | PauseZooKeeper
    | HealSlowness
    | KillWriter
)


def describe(fault: Fault) -> str:  # one line each
    """Return the text of a fault for the marks in the report."""
    match fault:
        case PauseBookie(member):
            return f"bookie {member + 1} paused (SIGSTOP)"
        case ResumeBookie(member):
            return f"bookie {member + 1} resumed"
        case KillBookie(member):
            return f"bookie {member + 1} killed (-9)"
        case RestartBookie(member):
            return f"bookie {member + 1} started again"
        case SlowBookie(member, stopped_s, period_s):
            share = f"{stopped_s * 1e3:.0f} of every {period_s * 1e3:.0f} ms"
            return f"bookie {member + 1} stopped {share}"
        case DelayNetwork(member, delay_s):
            return f"network to bookie {member + 1} delayed by {delay_s * 1e3:.0f} ms each way"
        case SlowZooKeeper(stopped_s, period_s):
            return f"ZooKeeper stopped {stopped_s * 1e3:.0f} of every {period_s * 1e3:.0f} ms"
        case _:
            return _PLAIN[type(fault)]


_PLAIN = {
    PauseZooKeeper: "ZooKeeper paused (SIGSTOP)",
    HealSlowness: "slowness ends",
    KillWriter: "writer killed (-9)",
}
