"""Program that starts a cluster, prints its processes, and waits to be killed."""

import asyncio
import json
import sys

from quire.local_cluster import LocalCluster


async def main() -> None:
    async with LocalCluster(bookies=2) as cluster:
        pids = [cluster.zookeeper.pid, *(bookie.pid for bookie in cluster.bookies)]
        sys.stdout.write(json.dumps([*pids, str(cluster.data_dir)]) + "\n")
        sys.stdout.flush()
        await asyncio.Event().wait()


asyncio.run(main())
