"""Versions that brokers report."""

from random import Random

import pytest

from metadata.brokers.broker_versions import (
    BrokerVersions,
    keep_broker_versions,
    pack_broker_versions,
    read_broker_versions,
    unpack_broker_versions,
)
from metadata.errors import MetadataFormatError
from metadata.msgpack_fields import pack
from metadata.paths import BROKER_VERSIONS
from metadata.store.memory import MemoryMetadataStore

VERSIONS = BrokerVersions("0.9.0", {"Fetch": (4, 16), "Produce": (0, 11)})


def test_versions_round_trip() -> None:
    assert unpack_broker_versions("x", pack_broker_versions(VERSIONS)) == VERSIONS


@pytest.mark.parametrize("api", [["Fetch", 4], ["Fetch", 5, 4], [1, 4, 5]])
def test_other_values_are_refused(api: list[int | str]) -> None:
    with pytest.raises(MetadataFormatError):
        unpack_broker_versions("x", pack("x", [1, "0.9.0", [list(api)]]))


async def test_the_versions_of_live_brokers_are_read(
    store: MemoryMetadataStore, other_store: MemoryMetadataStore, rng: Random
) -> None:
    keeper = keep_broker_versions(store, 7, VERSIONS, rng)
    await keeper.start()
    await other_store.create(f"{BROKER_VERSIONS}/8", b"\x91\x63")
    assert await read_broker_versions(other_store) == {7: VERSIONS}, "8 is of a later release"
    await keeper.aclose()
    assert await read_broker_versions(other_store) == {}
