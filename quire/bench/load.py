"""The process that writes during a comparison: `python -m quire.bench.load SPEC`.

Format: SPEC is a LoadSpec as JSON. Standard output: one JSON line when ready, with the ledger's
ensemble. Standard input: `go MOMENT`, or, for a successor, `take MOMENT LEDGER_ID`; its end of file
ends the process. Everything else is in the journal.

Invariant: a writer and its successor have the same schedule; the successor appends what its
predecessor's journal does not show as acknowledged.
"""

import asyncio
import json
import os
import signal
import sys
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from random import Random
from time import monotonic, time_ns
from typing import Any, Final

from ledger_client import ClientEvent, LedgerClient, LedgerError
from quire.bench import configurations
from quire.bench.injection import RedirectingStore
from quire.bench.journal import Ack, JournalWriter, read_journal
from quire.bench.open_load import ZONES_EVERY_S, Burst, OpenLoad, due_times

WARM_UP_S: Final = 1.0
WARM_UP_APPENDS_MAX: Final = 1_000
CLOSE_TIMEOUT_S: Final = 3.0
RECOVER_PAUSE_S: Final = 0.05


@dataclass(frozen=True, slots=True)
class LoadSpec:
    """Work for one writing process."""

    metadata_uri: str
    configuration: str
    rate: float
    seconds: float
    entry_bytes: int
    journal: str
    bursts: tuple[tuple[float, int], ...] = ()
    zones_at_s: float = 0.0
    drain_s: float = 3.0
    earlier_journal: str = ""
    """Journal of the predecessor; empty if there is none."""
    redirects: tuple[tuple[str, str], ...] = ()
    """Pairs (address of a bookie, address to connect to in its place)."""

    def as_text(self) -> str:
        """Return the spec as JSON."""
        return json.dumps(asdict(self))

    @classmethod
    def of_text(cls, text: str) -> "LoadSpec":
        """Read what `as_text` wrote."""
        values: dict[str, Any] = json.loads(text)
        for name in ("bursts", "redirects"):
            values[name] = tuple(tuple(pair) for pair in values[name])
        return cls(**{field.name: values[field.name] for field in fields(cls)})

    def due(self) -> list[float]:
        """Return when each append is due, in seconds from the start."""
        return due_times(self.rate, self.seconds, [Burst(*pair) for pair in self.bursts])


async def run(spec: LoadSpec) -> None:
    """Get ready, wait for the start signal, and write until the end."""
    journal = JournalWriter(Path(spec.journal))
    commands = await _standard_input()
    client = await _open_client(spec, journal)
    quorum = configurations.BY_NAME[spec.configuration].quorum
    load = OpenLoad(client, quorum, journal, spec.entry_bytes)
    ensemble: list[str] = []
    if not spec.earlier_journal:
        writer = await load.open()
        ensemble = [str(bookie) for bookie in writer.info.fragments[-1].ensemble]
        await _warm_up(load, spec)
    print(json.dumps({"ensemble": ensemble}), flush=True)
    words = (await commands.readline()).split()
    if words:
        ending = asyncio.ensure_future(_end_with_parent(commands))
        start = float(words[1])
        if words[0] == b"take":
            await _take_over(client, int(words[2]), load, journal)
        await _write(load, spec, start)
        await load.close(CLOSE_TIMEOUT_S)
        journal.note("closed", monotonic())
        ending.cancel()
    await client.aclose()
    journal.close()


async def _end_with_parent(commands: asyncio.StreamReader) -> None:
    await commands.read()
    os.kill(os.getpid(), signal.SIGTERM)


async def _write(load: OpenLoad, spec: LoadSpec, start: float) -> None:
    acknowledged = {ack.number for ack in _earlier_acks(spec)}
    due = [(n, start + at) for n, at in enumerate(spec.due()) if n not in acknowledged]
    count = round(spec.seconds / ZONES_EVERY_S)
    zones = sorted([start + spec.zones_at_s, *(start + n * ZONES_EVERY_S for n in range(count))])
    await load.run(due, start + spec.seconds, spec.drain_s, zones)


def _earlier_acks(spec: LoadSpec) -> tuple[Ack, ...]:
    return read_journal(Path(spec.earlier_journal)).acks if spec.earlier_journal else ()


async def _take_over(
    client: LedgerClient, ledger_id: int, load: OpenLoad, journal: JournalWriter
) -> None:
    """Recover the predecessor's ledger, with as many attempts as needed, and open a new one."""
    while True:
        try:
            await client.recover_ledger(ledger_id)
            break
        except LedgerError as error:
            journal.note("recovery_failed", monotonic(), {"error": str(error)})
            await asyncio.sleep(RECOVER_PAUSE_S)
    journal.note("recovered", monotonic(), {"ledger_id": ledger_id})
    await load.open()


async def _warm_up(load: OpenLoad, spec: LoadSpec) -> None:
    """Append for WARM_UP_S without counting: this creates connections, caches and the bookies'
    files.
    """
    writer = load.writer
    assert writer is not None, "it was just opened"
    count = min(WARM_UP_APPENDS_MAX, round(spec.rate * WARM_UP_S))
    payload = bytes(spec.entry_bytes)
    start = monotonic()
    for number in range(count):
        await asyncio.sleep(max(0.0, start + number * WARM_UP_S / count - monotonic()))
        handle = writer.append_nowait(payload)
        if number == count - 1:
            await handle


async def _open_client(spec: LoadSpec, journal: JournalWriter) -> LedgerClient:
    rng = Random()
    store = RedirectingStore(spec.metadata_uri, rng, dict(spec.redirects))
    await store.connect()

    def take_event(event: ClientEvent) -> None:
        journal.note(type(event).__name__, monotonic(), asdict(event))

    return LedgerClient.from_parts(
        store,
        rng=rng,
        wall_clock_ms=lambda: time_ns() // 1_000_000,
        config=configurations.BY_NAME[spec.configuration].config,
        on_event=take_event,
    )


async def _standard_input() -> asyncio.StreamReader:
    reader = asyncio.StreamReader()
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    return reader


if __name__ == "__main__":
    asyncio.run(run(LoadSpec.of_text(sys.argv[1])))
