"""Audit log of a server: who tried or changed what, from where, and with which result.

Leaves writing lines to `quire.server.server_log`: they go to the same stream, with `"event":
"audit"`.

Format of the fields: `act`, `result` (`done`, `failed`, `unknown` or `refused`), `who` (a
principal, or what is known instead), `peer` (the address), and what the act needs. `left_out`
counts the lines of this peer that were not written before this one.

Invariants: no secret is written; one peer causes at most LINES_PER_PEER_MAX lines of refusals in
PERIOD_S, however many it causes, and no peer affects the lines of another; what was done or failed
with the right to do it is always written.
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

LOGGER: Final = "quire.server.audit"
EVENT: Final = "audit"
LINES_PER_PEER_MAX: Final = 10
PERIOD_S: Final = 10.0
PEERS_MAX: Final = 10_000
"""Number of peers that are remembered; the one whose first line is oldest is replaced."""

_LOGGER: Final = logging.getLogger(LOGGER)


class Result(StrEnum):
    """Result of an act."""

    DONE = "done"
    FAILED = "failed"
    UNKNOWN = "unknown"
    REFUSED = "refused"


@dataclass(slots=True)
class _Peer:
    since_s: float
    lines: int = 0
    left_out: int = 0


class AuditLog:
    """Writer of audit lines of one server."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._peers: dict[str, _Peer] = {}

    def refused(self, act: str, *, who: str, peer: str, **values: object) -> None:
        """Note that an act was refused."""
        left_out = self._admit(peer)
        if left_out is not None:
            more = {"left_out": left_out} if left_out else {}
            self._write(logging.WARNING, act, Result.REFUSED, who, peer, {**values, **more})

    def done(
        self, act: str, *, who: str, peer: str, failed: bool = False, **values: object
    ) -> None:
        """Note that an act was done, or failed, by one who may do it."""
        result = Result.FAILED if failed else Result.DONE
        self._write(logging.INFO, act, result, who, peer, values)

    def unknown(self, act: str, *, who: str, peer: str, **values: object) -> None:
        """Note that one who may do it asked for an act, which may have been done."""
        self._write(logging.WARNING, act, Result.UNKNOWN, who, peer, values)

    def _write(
        self, level: int, act: str, result: Result, who: str, peer: str, values: dict[str, object]
    ) -> None:
        fields = {"act": act, "result": result.value, "who": who, "peer": peer, **values}
        _LOGGER.log(level, EVENT, extra={"fields": fields})

    def _admit(self, peer: str) -> int | None:
        """Return how many lines of a peer were left out before this one; None if it is too."""
        now_s = self._now()
        known = self._peers.get(peer)
        if known is None or now_s - known.since_s >= PERIOD_S:
            left_out = 0 if known is None else known.left_out
            self._peers.pop(peer, None)
            if len(self._peers) >= PEERS_MAX:
                del self._peers[next(iter(self._peers))]
            self._peers[peer] = _Peer(now_s, 1)
            return left_out
        if known.lines < LINES_PER_PEER_MAX:
            known.lines += 1
            return 0
        known.left_out += 1
        return None
