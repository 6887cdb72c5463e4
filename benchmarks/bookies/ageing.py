"""Ageing of one bookie on a small part of a disk: many overwrites with mixed lifetimes, deletions
and SIGKILL.

Prints JSON: the live share over time, the write amplification (log bytes and rewritten bytes per
byte of payload), and the seconds in which the bookie was read-only. Leaves the meaning of the
figures to `benchmarks/README.md`.

The run fails, with exit status 1, if an entry of a live ledger is lost or changed, or if the bookie
stays read-only although much of its data is garbage.
"""

import argparse
import asyncio
import contextlib
import json
import random
import sys
import time
import urllib.request
from dataclasses import dataclass, field
from typing import Any, Final

from benchmarks.runner import Bench, run
from ledger_client import LedgerClient, Quorum
from ledger_client.errors import LedgerError
from quire.local_cluster import LocalCluster

MIB: Final = 2**20
ENTRY_BYTES: Final = 4096
WRITERS: Final = 6
LIFETIMES: Final = ((0.7, 0.02), (0.2, 0.15), (0.1, 3.0))
"""Pairs (share of the ledgers, lifetime in capacities written); a third of the disk is live."""
KILLS_PER_OVERWRITE: Final = 0.5
STUCK_S: Final = 120.0
STUCK_GARBAGE_SHARE: Final = 0.15
"""A bookie that is read-only for STUCK_S with at least this share of its capacity as garbage has
failed."""
SAMPLE_S: Final = 2.0
RETRY_S: Final = 0.5
COUNTERS: Final = ("log_bytes_written", "cleaning_written_bytes", "cleaned_bytes")


class AgeingFailedError(Exception):
    """The bookie lost an entry, or stayed read-only with garbage to free."""


@dataclass
class Ageing:
    """State of one run."""

    cluster: LocalCluster
    rng: random.Random
    capacity_bytes: int
    ledger_entries: int
    payload_bytes: int = 0
    live: dict[int, tuple[int, float]] = field(default_factory=dict)
    """By ledger id: number of confirmed entries, and the payload bytes at which it is deleted."""
    read_only_s: float = 0.0
    read_only_since_s: float | None = None
    kills: int = 0
    counts: dict[str, int] = field(default_factory=lambda: dict.fromkeys(COUNTERS, 0))
    counts_of_run: dict[str, int] = field(default_factory=lambda: dict.fromkeys(COUNTERS, 0))
    samples: list[dict[str, float]] = field(default_factory=list)
    verified_entries: int = 0
    is_restarting: bool = False

    @property
    def overwrites(self) -> float:
        """Number of times that the capacity has been written."""
        return self.payload_bytes / self.capacity_bytes

    def count(self) -> dict[str, Any]:
        """Add the bookie's counters, which restart at each start; return its state."""
        url = f"{self.cluster.bookies[0].admin_url}/api/v1/state"
        with urllib.request.urlopen(url, timeout=10) as answer:
            state: dict[str, Any] = json.load(answer)
        for name in COUNTERS:
            value = int(state["storage"][name])
            self.counts[name] += value - self.counts_of_run[name]
            self.counts_of_run[name] = value
        return state


def payload(ledger_id: int, entry_id: int) -> bytes:
    """Return the expected content of an entry."""
    return (b"%d %d " % (ledger_id, entry_id)).ljust(ENTRY_BYTES, b".")


async def write(ageing: Ageing, client: LedgerClient, overwrites: float) -> None:
    """Fill one ledger after the other, and delete the ledgers at the end of their lifetime."""
    rng = ageing.rng
    while ageing.overwrites < overwrites:
        entries = [ageing.ledger_entries // 2, ageing.ledger_entries, ageing.ledger_entries * 3][
            rng.randrange(3)
        ]
        try:
            writer = await client.create_ledger(Quorum(1, 1, 1), timeout=5)
        except LedgerError:
            await asyncio.sleep(RETRY_S)
            continue
        ledger_id, confirmed = int(writer.id), 0
        try:
            while confirmed < entries:
                some = range(confirmed, min(entries, confirmed + 32))
                await writer.append_many([payload(ledger_id, id_) for id_ in some], timeout=10)
                confirmed = some.stop
                ageing.payload_bytes += len(some) * ENTRY_BYTES
            await writer.aclose(timeout=10)
        except LedgerError:
            await close_again(client, ledger_id)
        draw, lifetime = rng.random(), LIFETIMES[-1][1]
        for share, capacities in LIFETIMES:
            if draw < share:
                lifetime = capacities
                break
            draw -= share
        lasts = lifetime * ageing.capacity_bytes * rng.uniform(0.5, 1.5)
        ageing.live[ledger_id] = (confirmed, ageing.payload_bytes + lasts)
        await delete_old(ageing, client)


async def write_all(ageing: Ageing, client: LedgerClient, overwrites: float) -> None:
    """Run every writer to its end."""
    await asyncio.gather(*(write(ageing, client, overwrites) for _ in range(WRITERS)))


async def close_again(client: LedgerClient, ledger_id: int) -> None:
    """Recover a ledger whose bookie was killed or had no room; retry until it succeeds."""
    while True:
        try:
            await client.recover_ledger(ledger_id, timeout=20)
        except LedgerError:
            await asyncio.sleep(RETRY_S)
        else:
            return


async def delete_old(ageing: Ageing, client: LedgerClient) -> None:
    """Delete ledgers at the end of their lifetime, and read some of them before."""
    old = [id_ for id_, (_, until) in ageing.live.items() if until <= ageing.payload_bytes]
    mine = [(ledger_id, *ageing.live.pop(ledger_id)) for ledger_id in old]
    for ledger_id, confirmed, until in mine:
        if ageing.rng.random() < 0.1:
            await verify(ageing, client, ledger_id, confirmed)
        try:
            await client.delete_ledger(ledger_id, timeout=10)
        except LedgerError:
            ageing.live[ledger_id] = (confirmed, until)


async def verify(ageing: Ageing, client: LedgerClient, ledger_id: int, confirmed: int) -> None:
    """Read a ledger and compare its entries. Raises AgeingFailedError."""
    why = ""
    for _ in range(100):
        try:
            async with client.open_ledger(ledger_id, timeout=10) as reader:
                count = 0
                if confirmed:
                    async for batch in reader.read(0, confirmed - 1):
                        for entry in batch:
                            if bytes(entry.data) != payload(ledger_id, entry.id):
                                raise AgeingFailedError(f"{ledger_id}/{entry.id} was changed")
                            count += 1
        except LedgerError as error:
            why = repr(error)
            await asyncio.sleep(RETRY_S)
            continue
        if count != confirmed:
            raise AgeingFailedError(f"ledger {ledger_id} lost {confirmed - count} entries")
        ageing.verified_entries += count
        return
    raise AgeingFailedError(f"ledger {ledger_id} cannot be read: {why}")


async def watch(ageing: Ageing) -> None:
    """Sample the bookie's state until cancelled. Raises AgeingFailedError if it is stuck."""
    while True:
        await asyncio.sleep(SAMPLE_S)
        if ageing.is_restarting:
            continue
        try:
            state = await asyncio.to_thread(ageing.count)
        except OSError:
            continue
        note_state(ageing, state, time.monotonic())


def note_state(ageing: Ageing, state: dict[str, Any], now_s: float) -> None:
    """Record one sample. Raises AgeingFailedError if the bookie is stuck."""
    storage = state["storage"]
    held, live = storage["segment_bytes"], storage["live_bytes"]
    sample = {
        "overwrites": round(ageing.overwrites, 2),
        "live_share": round(live / max(1, held), 3),
        "held_MiB": round(held / MIB),
        "backlog_MiB": round(storage["cleaning_backlog_bytes"] / MIB),
    }
    ageing.samples.append(sample)
    if state["writable"]:
        ageing.read_only_since_s = None
        return
    ageing.read_only_s += SAMPLE_S
    if ageing.read_only_since_s is None:
        ageing.read_only_since_s = now_s
    is_long = now_s - ageing.read_only_since_s > STUCK_S
    if is_long and held - live > STUCK_GARBAGE_SHARE * ageing.capacity_bytes:
        raise AgeingFailedError(f"read-only with garbage: {json.dumps(state)}")


async def kill_now_and_then(ageing: Ageing) -> None:
    """Kill the bookie at random and start it again, until cancelled."""
    following = ageing.rng.expovariate(KILLS_PER_OVERWRITE)
    while True:
        await asyncio.sleep(0.2)
        if ageing.overwrites < following:
            continue
        ageing.is_restarting = True
        bookie = ageing.cluster.bookies[0]
        with contextlib.suppress(OSError):
            await asyncio.to_thread(ageing.count)  # its counters are lost with it
        bookie.kill()
        await bookie.restart()
        ageing.counts_of_run = dict.fromkeys(COUNTERS, 0)
        ageing.is_restarting = False
        ageing.kills += 1
        following = ageing.overwrites + ageing.rng.expovariate(KILLS_PER_OVERWRITE)


async def age(ageing: Ageing, overwrites: float) -> None:
    """Run until the capacity has been written `overwrites` times, then read all live ledgers."""
    async with LedgerClient(ageing.cluster.metadata_uri) as client:
        others = [
            asyncio.create_task(watch(ageing)),
            asyncio.create_task(kill_now_and_then(ageing)),
        ]
        writers = asyncio.create_task(write_all(ageing, client, overwrites))
        try:
            await asyncio.wait([writers, *others], return_when=asyncio.FIRST_COMPLETED)
            for other in others:
                if other.done():
                    other.result()
            await writers
        finally:
            for other in (*others, writers):
                other.cancel()
            await asyncio.gather(*others, writers, return_exceptions=True)
        if ageing.is_restarting:  # it was cancelled between the kill and the start
            await ageing.cluster.bookies[0].restart()
        for ledger_id, (confirmed, _) in list(ageing.live.items()):
            await verify(ageing, client, ledger_id, confirmed)


async def _measure(bench: Bench) -> None:
    capacity_bytes = bench.size(bench.options.capacity_mib * MIB, 64 * MIB)
    segment_bytes = bench.size(bench.options.segment_mib * MIB, 2 * MIB)
    overwrites = bench.size(bench.options.overwrites, 3)
    bookie_options = {
        "capacity-bytes": str(capacity_bytes),
        "segment-bytes-max": str(segment_bytes),
        "checkpoint-log-bytes": str(4 * segment_bytes),
        "disk-high-mark": "0.92",
        "disk-low-mark": "0.88",
        "disk-check-interval-s": "1",
        "clean-interval-s": "5",
    }
    began_s = time.monotonic()
    with bench.subdirectory() as directory:
        async with LocalCluster(1, directory, bookie_options=bookie_options) as cluster:
            ageing = Ageing(
                cluster, random.Random(bench.options.seed), capacity_bytes, segment_bytes // 32_768
            )
            failure = None
            try:
                await age(ageing, overwrites)
                await asyncio.to_thread(ageing.count)
            except AgeingFailedError as error:
                failure = str(error)
    print(json.dumps(_report(ageing, time.monotonic() - began_s, failure)))
    if failure is not None:
        sys.exit(1)


def _report(ageing: Ageing, seconds: float, failure: str | None) -> dict[str, object]:
    settled = [sample for sample in ageing.samples if sample["overwrites"] > 1]
    shares = sorted(row["live_share"] for row in settled) or [0.0]
    written = ageing.counts["log_bytes_written"] + ageing.counts["cleaning_written_bytes"]
    return {
        "failure": failure,
        "overwrites": round(ageing.overwrites, 2),
        "payload_MiB": round(ageing.payload_bytes / MIB),
        "seconds": round(seconds, 1),
        "payload_MB_per_s": round(ageing.payload_bytes / 1e6 / seconds, 1),
        "kills": ageing.kills,
        "live_share_median": shares[len(shares) // 2],
        "live_share_least": shares[0],
        "write_amplification": round(written / max(1, ageing.payload_bytes), 3),
        "read_only_s": round(ageing.read_only_s, 1),
        "verified_entries": ageing.verified_entries,
        "live_ledgers": len(ageing.live),
        "samples": ageing.samples[:: max(1, len(ageing.samples) // 60)],
    }


def _add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--capacity-mib", type=int, default=1024, help="size of the bookie's disk")
    parser.add_argument("--segment-mib", type=int, default=16, help="size of a log file")
    parser.add_argument(
        "--overwrites", type=int, default=30, help="number of overwrites of the complete capacity"
    )
    parser.add_argument("--seed", type=int, default=1)


if __name__ == "__main__":
    run("ageing", _measure, _add_options)
