"""A writer on bookies with real storage, one of which restarts with damage in the middle of its log
and then fences every ledger (protocol 2.4, 4.7).
"""

import asyncio
from pathlib import Path
from random import Random

import pytest

from bookie.log.records import RECORD_HEADER_BYTES
from bookie.storage.upkeep import Upkeep
from bookie.wire.batch import BATCH_HEADER_BYTES
from ledger_client import LedgerClient, LedgerFenced
from tests.support.bookie.bookie_machine import Machine, Running
from tests.support.ledger_client.cluster import THREE

ENTRIES = 10


def payload(entry_id: int) -> bytes:
    return b"payload of entry %03d" % entry_id


def damage(directory: Path, wanted: bytes) -> int:
    """Overwrite the record that holds these bytes, with its header; return the number of places."""
    count = 0
    for path in sorted(directory.iterdir()):
        data = bytearray(path.read_bytes())
        at = data.find(wanted)
        if at >= 0:
            start = at - RECORD_HEADER_BYTES - BATCH_HEADER_BYTES
            data[start : at + len(wanted)] = bytes(at + len(wanted) - start)
            path.write_bytes(data)
            count += 1
    return count


async def no_checkpoint(_upkeep: Upkeep) -> None:
    """Leave everything to the replay."""


async def test_the_writer_continues(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine(tmp_path)
    running: dict[str, Running] = {}
    for name in "abc":
        await machine.format(name)
        running[name] = await machine.start(name)
    events: list[object] = []
    client = LedgerClient.from_parts(
        machine.store(), rng=Random(5), wall_clock_ms=lambda: 5, on_event=events.append
    )
    writer = await client.create_ledger(THREE)
    for entry_id in range(ENTRIES):
        assert await writer.append(payload(entry_id)) == entry_id
    await writer.wait_fully_replicated(ENTRIES - 1)

    damaged = running["a"].bookie_id
    with monkeypatch.context() as patch:  # as if killed: the next start replays the log
        patch.setattr(Upkeep, "checkpoint", no_checkpoint)
        await running["a"].cut_off()
    assert damage(tmp_path / "a" / "log", payload(ENTRIES // 2)) == 1
    running["a"] = await machine.start("a")
    await machine.format("d")
    running["d"] = await machine.start("d")
    await asyncio.sleep(1.0)  # the client reads the new address

    for entry_id in range(ENTRIES, 2 * ENTRIES):
        assert await writer.append(payload(entry_id)) == entry_id
    assert damaged not in writer.members
    assert writer._shell.protocol.false_fences == [damaged]
    await writer.aclose()
    assert LedgerFenced(writer.id) not in events
    async with client.open_ledger(writer.id) as reader:
        found = [entry.data async for batch in reader.read() for entry in batch]
    assert found == [payload(entry_id) for entry_id in range(2 * ENTRIES)]
    await client.aclose()
    for each in running.values():
        await each.stop()
