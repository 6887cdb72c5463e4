"""One pass of the script of security over one broker; each client is a user that logs in.

Leaves requests and answers to `tests.differential.run`, and logins to `login`.

Invariants: the client without a name is the super user. All users have one password.
"""

import asyncio
from collections.abc import Mapping, Sequence
from random import Random
from typing import ClassVar, Final

from quire.server.overriding import override
from tests.differential.answers import KEPT, at
from tests.differential.run import Run
from tests.differential.security.login import HASH, ITERATIONS, LoginWire, salted
from tests.differential.security.servers import SecureBroker
from tests.differential.wire import Tree, Wire
from tests.until import WAIT_S

ALTER_USERS: Final = ("AlterUserScramCredentials", 51)
DESCRIBE_USERS: Final = ("DescribeUserScramCredentials", 50)
SHA_256, SHA_512 = 1, 2
HASHES: Final = {SHA_256: "sha256", SHA_512: "sha512"}
SALT: Final = b"salt of all users"
PASSWORD: Final = "password of all users"
SECURITY_FIELDS: Final = frozenset(
    {
        "authorized_operations",
        "cluster_authorized_operations",
        "entity_name",
        "entity_type",
        "host",
        "iterations",
        "mechanism",
        "mechanisms",
        "operation",
        "pattern_type",
        "permission_type",
        "principal",
        "topic_authorized_operations",
        "user",
    }
)


class SecureRun(Run):
    """Sends requests to one broker with logins; `client` is the name of the user."""

    kept: ClassVar = KEPT | SECURITY_FIELDS

    def __init__(self, broker: SecureBroker, rng: Random) -> None:
        super().__init__(broker.address, rng)
        self.broker = broker

    @override
    def wire(self, client: str = "") -> Wire:
        """Return the connection of one user, which may be logged in."""
        if client not in self._wires:
            if client:
                wire = self.login_wire(client, PASSWORD)
            else:
                wire = self.login_wire(self.broker.admin, self.broker.password)
            self._wires[client] = wire
        return self._wires[client]

    def login_wire(self, user: str | None, password: str) -> LoginWire:
        """Return another connection; without a user it does not log in."""
        return LoginWire(self.address, self.broker.context, user, password)

    async def add_users(self, names: Sequence[str]) -> None:
        """Make users, and return once the broker shows them."""
        values: Mapping[str, Tree] = {
            "deletions": [],
            "upsertions": [new_user(name) for name in names],
        }
        await self.quietly(ALTER_USERS, 0, values)
        asked: Mapping[str, Tree] = {"users": [{"name": name} for name in names]}
        async with asyncio.timeout(WAIT_S):
            while True:
                await self.wait_spread()
                results = at(await self.quietly(DESCRIBE_USERS, 0, asked), "results")
                assert isinstance(results, Sequence)
                if all(at(result, "error_code") == 0 for result in results):
                    return


def new_user(
    name: str, mechanism: int = SHA_512, iterations: int = ITERATIONS
) -> Mapping[str, Tree]:
    """Return one upsertion of AlterUserScramCredentials, with the password of all users."""
    return {
        "name": name,
        "mechanism": mechanism,
        "iterations": iterations,
        "salt": SALT,
        "salted_password": salted(PASSWORD, SALT, iterations, HASHES.get(mechanism, HASH)),
    }
