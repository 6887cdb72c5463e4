"""A bookie whose clients log in, the users in its metadata, and clients that send anything."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from random import Random

from bookie.server.access import LedgerAuthorizer
from bookie.server.client_logins import ClientLogins, LoginMode
from bookie.server.server_limits import ServerLimits
from bookie.wire.codec import Entries
from bookie.wire.messages import (
    LOGIN_DUE,
    BeginLogin,
    ContinueLogin,
    HelloReply,
    LoginReply,
    Refused,
    Reply,
    Status,
)
from metadata.security.user_store import UserStore
from metadata.store.memory import MemoryMetadataServer, MemoryMetadataStore
from metadata.store.memory_faults import NoFaults
from quire.identity.sasl.credentials import ScramCredential, ScramMechanism, new_credential
from quire.identity.sasl.mechanism import Mechanism, run_at_once
from quire.identity.sasl.scram import ScramClient
from tests.support.bookie.running_server import BOOKIE, LIMITS, RunningServer, serve
from tests.support.bookie.wire_client import WireClient, batch_of, hello
from tests.until import until

SCRAM = Mechanism.SCRAM_SHA_256
BEGIN = BeginLogin(SCRAM, b"n,,n=alice,r=abc")
PASSWORD = "pencil"
PATIENT = replace(LIMITS, hello_deadline_s=60.0, frame_deadline_s=60.0)


@dataclass
class LoginWorld:
    """One bookie, its users, and its clients."""

    served: RunningServer
    logins: ClientLogins
    users: UserStore
    clients: list[WireClient] = field(default_factory=list)
    nonces: int = 0

    async def add_user(self, name: str) -> None:
        """Add a user, and wait until the bookie knows it."""
        await self.users.add(name, credentials(PASSWORD))
        await until(lambda: name in self.logins._users.users)

    async def change_password(self, name: str, password: str) -> None:
        """Change the password of a user, and wait until the bookie knows it."""
        wanted = credentials(password, seed=9)
        await self.users.replace(name, lambda _: wanted)
        await until(lambda: self.logins._users.users[name].credentials == tuple(wanted))

    async def connect(self) -> WireClient:
        client = await WireClient.connect(self.served.address)
        self.clients.append(client)
        return client

    async def greet(
        self, features: int = LOGIN_DUE, credentials: bytes = b""
    ) -> tuple[WireClient, HelloReply]:
        client = await self.connect()
        reply = await client.request(hello(BOOKIE, credentials=credentials, features=features))
        assert isinstance(reply, HelloReply)
        return client, reply

    def exchange(
        self, user: str, password: str = PASSWORD, mechanism: Mechanism = SCRAM
    ) -> ScramClient:
        self.nonces += 1
        scram = ScramMechanism(mechanism.value)
        return ScramClient(scram, user, password, f"nonce-{self.nonces}", run_at_once)

    async def logged_in(self, user: str, password: str = PASSWORD) -> WireClient:
        client, _ = await self.greet()
        reply = await self.log_in(client, user, password)
        assert isinstance(reply, LoginReply), reply
        return client

    async def log_in(
        self,
        client: WireClient,
        user: str,
        password: str = PASSWORD,
        mechanism: Mechanism = SCRAM,
    ) -> Reply | Entries:
        """Log in on a greeted connection; return the last answer."""
        exchange = self.exchange(user, password, mechanism)
        answer = await client.request(BeginLogin(mechanism.value, exchange.begin()))
        while isinstance(answer, LoginReply):
            message = await exchange.respond(answer.sasl_message)
            assert (message is None) == answer.complete
            if message is None:
                return answer
            answer = await client.request(ContinueLogin(message))
        return answer


def credentials(password: str, seed: int = 4) -> list[ScramCredential]:
    return [new_credential(mechanism, password, Random(seed)) for mechanism in ScramMechanism]


async def stores(client: WireClient, first: int = 0) -> bool:
    """Return whether a client can add a batch."""
    client.attach(7)
    return await client.add(batch_of(7, first)) is Status.OK


def refused(answer: Reply | Entries) -> str:
    """Return why a login was refused."""
    assert isinstance(answer, Refused), answer
    assert answer.status is Status.UNAUTHORIZED
    return answer.reason


@asynccontextmanager
async def login_world(
    mode: LoginMode = LoginMode.REQUIRED,
    *,
    limits: ServerLimits = PATIENT,
    authorizer: LedgerAuthorizer | None = None,
    faults: NoFaults | None = None,
) -> AsyncIterator[LoginWorld]:
    """Run a bookie with the users alice and bob."""
    rng, metadata = Random(5), MemoryMetadataServer(faults=faults or NoFaults())
    own, store = MemoryMetadataStore(metadata), MemoryMetadataStore(metadata)
    logins = ClientLogins(own, rng, mode)
    users = UserStore(store, rng)
    for name in ("alice", "bob"):
        await users.add(name, credentials(PASSWORD))
    await logins.start()
    served = await serve(limits, authorizer, logins)
    world = LoginWorld(served, logins, users)
    try:
        yield world
    finally:
        for client in world.clients:
            await client.close()
        await served.server.close()
        await logins.aclose()
        await own.aclose()
        await store.aclose()
