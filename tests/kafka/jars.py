"""Gets what of Apache Kafka 4.1.0 scenarios run ready: its tools and our Java scenarios ("java"),
Kafka Streams' own system tests ("streams"), Kafka Connect ("connect"); or Spark ("spark").

Leaves Maven and the cache's form to `benchmarks.peers.maven`, and which jars to each directory's
pom.xml.
"""

from pathlib import Path
from typing import Final

from benchmarks.peers.maven import JavaPeer, default_cache, prepare

SOURCES: Final = Path(__file__).parent


async def kafka_jars(part: str = "java") -> JavaPeer:
    """Fetch and compile unless the cache has it. Raises PeerUnavailableError."""
    return await prepare(part, default_cache(), SOURCES)
