"""A bookie whose clients need roles, its metadata, and clients by their principals."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field, replace

from bookie.server.access import AuthorizerMode
from bookie.server.connection import follow_grants
from bookie.wire.messages import HelloReply
from metadata.cancelling import cancel_and_wait
from metadata.ledgers.chain import CHAIN_NAME
from tests.support.bookie.roles_setting import RolesSetting
from tests.support.bookie.running_server import BOOKIE, LIMITS, RunningServer, serve
from tests.support.bookie.wire_client import WireClient, hello
from tests.support.metadata.scripted_faults import ScriptedFaults
from tests.support.sample_ledgers import open_ledger

ALICE, ROOT = "User:alice", "User:root"


@dataclass
class World:
    """A bookie, the metadata, and clients by their principals."""

    faults: ScriptedFaults
    roles: RolesSetting
    served: RunningServer
    clients: list[WireClient] = field(default_factory=list)

    async def client(self, principal: str, *ledgers: int) -> WireClient:
        client, _ = await self.greet(principal)
        for ledger in ledgers:
            client.attach(ledger)
        return client

    async def greet(
        self, principal: str, credentials: bytes = b""
    ) -> tuple[WireClient, HelloReply]:
        self.roles.authorizer.next_principal = principal
        client = await WireClient.connect(self.served.address)
        self.clients.append(client)
        reply = await client.request(hello(BOOKIE, credentials=credentials))
        assert isinstance(reply, HelloReply)
        return client, reply


async def world_of(mode: AuthorizerMode) -> AsyncIterator[World]:
    """Run a bookie with two ledgers, one of which has an owner and one a chain."""
    faults = ScriptedFaults()
    roles = RolesSetting(faults, mode, ROOT)
    await roles.create(replace(open_ledger("abc"), owner=ALICE))
    await roles.create(replace(open_ledger("abc", ledger_id=8), custom={CHAIN_NAME: "orders"}))
    await roles.authorizer.start()
    limits = replace(LIMITS, hello_deadline_s=60, attached_ledgers_max=1_000)
    served = await serve(limits, roles.authorizer)
    following = asyncio.get_running_loop().create_task(follow_grants(served.context))
    world = World(faults, roles, served)
    yield world
    faults.is_away = False
    for client in world.clients:
        await client.close()
    await served.server.close()
    await cancel_and_wait(following)
    await roles.authorizer.aclose()
