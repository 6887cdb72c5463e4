"""Load process that reads one closed ledger repeatedly to keep the bookies busy.

Leaves starting and stopping it to `benchmarks.ledgers.append`. Prints one JSON line when its input
ends.
"""

import asyncio
import json
import sys
from time import perf_counter

from benchmarks.measures import megabytes_per_second
from benchmarks.runner import run_loop
from ledger_client import LedgerClient


async def _read_for_ever(uri: str, ledger_id: int) -> None:
    ended = asyncio.get_running_loop().create_task(asyncio.to_thread(sys.stdin.read))
    size, start = 0, perf_counter()
    async with LedgerClient(uri) as client, client.open_ledger(ledger_id) as reader:
        print("ready", flush=True)
        while not ended.done():
            async for batch in reader.read():
                payload, _ = batch.buffers()
                size += len(payload)
                if ended.done():
                    break
    print(json.dumps({"MB_per_s": megabytes_per_second(size, perf_counter() - start)}))


if __name__ == "__main__":
    run_loop(_read_for_ever(sys.argv[1], int(sys.argv[2])))
