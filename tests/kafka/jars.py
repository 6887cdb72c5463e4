"""Jars of Apache Kafka 4.1.0 for the scenarios.

Its tools and our Java scenarios ("java"), Kafka Streams' own system tests ("streams"), Kafka
Connect ("connect"); or Spark ("spark").

Leaves Maven and the cache's format to `benchmarks.peers.maven`, and the list of jars to each
directory's pom.xml.
"""

from pathlib import Path
from typing import Final

from benchmarks.peers.maven import JavaPeer, default_cache, prepare

SOURCES: Final = Path(__file__).parent


async def kafka_jars(part: str = "java") -> JavaPeer:
    """Fetch and compile, unless the cache has them. Raises PeerUnavailableError."""
    return await prepare(part, default_cache(), SOURCES)
