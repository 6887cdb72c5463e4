"""A gateway leaves a record of where it serves."""

import random
from functools import partial

from metadata.registry.gateways import GATEWAY_KIND, GatewayRecord
from metadata.store.memory import MemoryMetadataStore
from metadata.store.records import RecordStore


async def test_the_record_of_each_address_is_kept(
    store: MemoryMetadataStore, rng: random.Random
) -> None:
    records = [
        GatewayRecord("g1:2188", "http://g1:9", tls=True),
        GatewayRecord("[::1]:2188"),
    ]
    gateways = RecordStore(GATEWAY_KIND, store, rng)
    for record in (*records, *records):  # at each start
        await GATEWAY_KIND.node(record.address).change(store, rng, partial(_now, record))
    stored = await gateways.get_all()
    assert stored == {record.address: record for record in records}


def _now(record: GatewayRecord, _before: GatewayRecord | None) -> GatewayRecord:
    return record
