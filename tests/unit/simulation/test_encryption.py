"""Simulated clusters with an encrypted ledger, of which a bookie and the writer die (protocol
sections 5 and 7).
"""

import asyncio
import random
from collections import defaultdict
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace

import pytest

from ledger_client import ClientConfig, Encryption, LedgerClient, LedgerInfo, LedgerWriter, Quorum
from ledger_client.encryption.ledger_cipher import LedgerCipher
from metadata.ids import EntryId
from tests.simulation.cluster import Cluster
from tests.simulation.loop import SimulationLoop
from tests.simulation.model import Model
from tests.simulation.network import NetworkOdds
from tests.simulation.nodes import ClientNode
from tests.simulation.plan import make_plan
from tests.simulation.run import forget
from tests.simulation.store import StoreOdds

KEY = random.Random(9).randbytes(32)
MARK = b"plain text that must stay in the client"
BOOKIES = 5
PATIENCE_S = 120.0
PLAN = replace(
    make_plan(11),
    bookie_count=BOOKIES,
    bookies_per_host=1,
    fault_every_s={},
    network=NetworkOdds(),
    store=StoreOdds(),
    config=ClientConfig(spare_after_s=1.0),
)


def keys(seed: int) -> Encryption:
    return Encryption(lambda _: KEY, "k", rng=random.Random(seed))


@dataclass(slots=True)
class Setting:
    """One cluster, a client that writes and another one that takes over."""

    cluster: Cluster
    writer: ClientNode
    other: ClientNode
    handle: LedgerWriter | None = None
    confirmed: list[bytes] = field(default_factory=list)
    closed: LedgerInfo | None = None
    found: list[bytes] = field(default_factory=list)
    is_read: bool = False

    def kill_member(self) -> None:
        """Kill the first member of the last fragment for good."""
        assert self.handle is not None
        (node,) = [b for b in self.cluster.bookies if b.bookie_id == self.handle.members[0]]
        node.is_wanted = False
        node.kill(power_off=True)

    async def wait(self, is_so: Callable[[], bool]) -> None:
        assert await self.cluster.wait_until(is_so, PATIENCE_S)


class Encrypted:
    """Every payload that was encrypted, by key and entry id."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.payloads: defaultdict[tuple[bytes, int], list[bytes]] = defaultdict(list)
        original = LedgerCipher.encrypt

        def encrypt(
            cipher: LedgerCipher, first_entry_id: EntryId, payloads: Sequence[bytes]
        ) -> list[bytes]:
            for entry_id, payload in enumerate(payloads, first_entry_id):
                self.payloads[cipher._associated, entry_id].append(payload)
            return original(cipher, first_entry_id, payloads)

        patch.setattr(LedgerCipher, "encrypt", encrypt)


def play(quorum: Quorum, story: Callable[[Setting], Awaitable[None]]) -> Setting:
    """Write while the story runs; then kill the writer, recover and read with another client."""
    loop = SimulationLoop(3)
    settings: list[Setting] = []

    async def write(_: ClientNode, client: LedgerClient, _rng: random.Random) -> None:
        setting = settings[0]
        writer = setting.handle = await client.create_ledger(quorum, encryption=keys(1))
        while True:
            group = [MARK + b" %d" % (len(setting.confirmed) + i) for i in range(20)]
            await writer.append_many(group)
            setting.confirmed += group
            await asyncio.sleep(0.05)

    async def take_over(_: ClientNode, client: LedgerClient, _rng: random.Random) -> None:
        setting = settings[0]
        assert setting.handle is not None
        setting.closed = await client.recover_ledger(setting.handle.id)
        async with client.open_ledger(setting.handle.id, encryption=keys(2)) as reader:
            async for batch in reader.read():
                setting.found += [entry.data for entry in batch]
        setting.is_read = True
        await asyncio.Event().wait()  # a client that ends would be started again

    async def main() -> None:
        cluster = Cluster(loop, PLAN, Model(loop))
        writer, other = ClientNode(cluster, "w", write), ClientNode(cluster, "o", take_over)
        setting = Setting(cluster, writer, other)
        settings.append(setting)
        for bookie in cluster.bookies:
            bookie.start()
        await setting.wait(lambda: all(b.is_serving for b in cluster.bookies))
        writer.start()
        await setting.wait(lambda: len(setting.confirmed) > 50)
        await story(setting)
        writer.is_wanted = False
        writer.kill(power_off=True)
        other.start()
        await setting.wait(lambda: setting.is_read)

    try:
        loop.run_until_complete(asyncio.wait_for(main(), 1000.0))
    finally:
        forget(loop)
    return settings[0]


QUORUMS = pytest.mark.parametrize(
    "quorum",
    [Quorum(3, 3, 2), Quorum(4, 3, 2, stripe_entries=8), Quorum.in_sync(3, 2)],
    ids=["replicated", "striped", "in-sync"],
)


@QUORUMS
def test_an_encrypted_ledger_outlives_bookies_and_its_writer(
    quorum: Quorum, monkeypatch: pytest.MonkeyPatch
) -> None:
    encrypted = Encrypted(monkeypatch)

    async def story(setting: Setting) -> None:
        handle = setting.handle
        assert handle is not None
        before = len(handle.info.fragments)
        setting.kill_member()
        await setting.wait(lambda: len(handle.info.fragments) > before)
        count = len(setting.confirmed)
        await setting.wait(lambda: len(setting.confirmed) > count + 100)

    setting = play(quorum, story)

    assert setting.closed is not None
    assert len(setting.closed.fragments) > 1
    assert setting.found[: len(setting.confirmed)] == setting.confirmed
    assert len(setting.found) - len(setting.confirmed) <= 20
    # Resends, the change of the ensemble and the recovery encrypted nothing again.
    assert len(encrypted.payloads) >= len(setting.found)
    assert [payload for payload in encrypted.payloads.values() if len(payload) > 1] == []
    # No bookie has seen a payload.
    held = [
        bytes(content.current)
        for node in setting.cluster.bookies
        for content in node.platter.names.values()
    ]
    assert sum(map(len, held)) > len(setting.found) * len(MARK)
    assert not [each for each in held if MARK in each]
