"""Fuzz targets whose blocks are episodes: clients of one server, on a simulated loop.

Invariant: what a client raises, what the server logs as its own failure, and what is raised on the
loop are findings, with the bytes that the client sent.
"""

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Protocol

from typing_extensions import override  # `typing` has it from 3.12 on

from quire.server.server_log import AuditLog, ServerLog
from tests.fuzz.findings import Finding, Tally, describe, require
from tests.simulation.loop import run_simulation, simulation_loop

RECORDED_MAX: Final = 64


class Episode(Protocol):
    """One server with its clients."""

    async def run(self) -> None:
        """Serve all clients."""


@dataclass(frozen=True, slots=True)
class EpisodeTarget:
    """See `tests.fuzz.targets.Target`; a replay has the bytes alone, and no other client."""

    name: str
    weight: float
    make: Callable[[random.Random, Tally, str, bytes | None], Episode]

    def run_block(self, seed: int, number: int, tally: Tally) -> None:
        """See `Target`."""
        block = f"{self.name} {seed} {number}"
        run_simulation(self.make(random.Random(block), tally, block, None).run, number)

    def replay(self, data: bytes, *, is_forged: bool) -> Tally:
        """See `Target`."""
        del is_forged
        tally = Tally()
        run_simulation(self.make(random.Random(1), tally, "replay", data).run, 1)
        return tally


class RecordingLog(ServerLog):
    """Records the server's own failures, which are findings, and writes nothing."""

    def __init__(self) -> None:
        super().__init__(lambda: 0.0)
        self.failures: list[BaseException] = []

    @override
    def warning(self, event: str, **values: object) -> None:
        str(values)

    @override
    def failure(self, event: str, error: BaseException | None, **values: object) -> None:
        self.failures.append(error or RuntimeError(event))


class QuietAudit(AuditLog):
    """Writes nothing, and checks what would be written."""

    @override
    def refused(self, act: str, *, who: str, peer: str, **values: object) -> None:
        require(all(f"{each}" for each in (act, who, peer)), "a refusal names who and where")


class Visits:
    """Clients that visit one server, one after the other, and what they record for each other."""

    name = ""
    visits = 0
    """Number of clients of an episode."""

    def __init__(
        self, rng: random.Random, tally: Tally, block: str, data: bytes | None = None
    ) -> None:
        self.rng = rng
        self.tally = tally
        self.log = RecordingLog()
        self.log.audit = QuietAudit(lambda: 0.0)
        self.recorded: list[bytes] = []
        """Messages of logins of all connections."""
        self.data = data
        """What the only client of a replay sends."""
        self._block = block

    async def visit(self, stream: bytearray) -> None:
        """Be one client, which adds to the stream what it sends."""
        raise NotImplementedError

    async def receive_visits(self) -> None:
        """Let every client visit, and note what fails."""
        loop = simulation_loop()
        for _ in range(1 if self.data is not None else self.visits):
            self.tally.inputs += 1
            stream = bytearray()
            errors: list[BaseException] = []
            try:
                await self.visit(stream)
            except Exception as error:  # noqa: BLE001 - this is what is looked for
                errors.append(error)
            for failure in (*errors, *self.log.failures, *loop.failures):
                what, where = describe(failure)
                self.tally.note(Finding(self.name, what, self._block, stream.hex(), where))
            self.log.failures.clear()
            loop.failures.clear()

    def record(self, message: bytes) -> None:
        """Keep a message for other connections."""
        if len(self.recorded) >= RECORDED_MAX:
            self.recorded[int(self.rng.random() * RECORDED_MAX)] = message
        else:
            self.recorded.append(message)
