"""Gets Apache Kafka 4.1.0, its tools and our Java scenarios ready to run.

Leaves Maven and the cache's form to `benchmarks.peers.maven`.
"""

from pathlib import Path
from typing import Final

from benchmarks.peers.maven import JavaPeer, default_cache, prepare

SOURCES: Final = Path(__file__).parent


async def kafka_jars() -> JavaPeer:
    """Fetch and compile unless the cache has it. Raises PeerUnavailableError."""
    return await prepare("java", default_cache(), SOURCES)
