"""Program that starts an embedded ZooKeeper, prints its process id and port, and waits to be
killed.

Leaves the killing to `test_embedded.py`, which starts this program.
"""

import asyncio
import sys
from pathlib import Path

from metadata.store.embedded import EmbeddedZooKeeper


async def main() -> None:
    server = EmbeddedZooKeeper(Path(sys.argv[1]), tick_ms=200)
    await server.start()
    sys.stdout.write(f"{server.pid} {server.port}\n")
    sys.stdout.flush()
    await asyncio.sleep(3600)


asyncio.run(main())
