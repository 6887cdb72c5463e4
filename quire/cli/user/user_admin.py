"""`quire user add|password|remove|list|show`: users of brokers.

Leaves storing users to `metadata.security.user_store`, and reading passwords to `password_source`.

Invariant: keys and salts are never printed.
"""

import argparse
from collections.abc import Iterable
from random import Random

from ledger_client.cluster_access import open_cluster
from metadata.security.user_store import UserStore
from metadata.security.users import UserRecord, check_user_name
from quire.cli.command_line import metadata_address
from quire.cli.output import Output
from quire.cli.user.password_source import read_password
from quire.errors import ExitCode
from quire.identity.sasl.credentials import (
    ScramCredential,
    ScramMechanism,
    new_credential,
)
from quire.operate.fields import Row


async def add(arguments: argparse.Namespace, output: Output) -> int:
    """Create a user."""
    name, password = check_user_name(arguments.user), read_password(arguments)
    mechanisms = _chosen(arguments) or tuple(ScramMechanism)
    async with open_cluster(metadata_address(arguments)) as cluster:
        made = _credentials(mechanisms, password, arguments.iterations, cluster.rng)
        await UserStore(cluster.store, cluster.rng).add(name, made)
    output.record({"user": name, "mechanisms": [each.value for each in mechanisms]})
    return ExitCode.DONE


async def change_password(arguments: argparse.Namespace, output: Output) -> int:
    """Replace all credentials of a user."""
    name, password = check_user_name(arguments.user), read_password(arguments)
    chosen = _chosen(arguments)
    async with open_cluster(metadata_address(arguments)) as cluster:

        def credentials_of(user: UserRecord) -> Iterable[ScramCredential]:
            mechanisms = chosen or user.mechanisms
            return _credentials(mechanisms, password, arguments.iterations, cluster.rng)

        user = await UserStore(cluster.store, cluster.rng).replace(name, credentials_of)
    output.record(_as_row(user))
    return ExitCode.DONE


async def remove(arguments: argparse.Namespace, output: Output) -> int:
    """Remove a user."""
    async with open_cluster(metadata_address(arguments)) as cluster:
        await UserStore(cluster.store, cluster.rng).remove(arguments.user)
    output.record({"user": arguments.user, "removed": True})
    return ExitCode.DONE


async def list_users(arguments: argparse.Namespace, output: Output) -> int:
    """List all users and their mechanisms."""
    async with open_cluster(metadata_address(arguments)) as cluster:
        with output.listing("user", "mechanisms") as listing:
            async for page in UserStore(cluster.store, cluster.rng).pages():
                for user in page:
                    listing.add(_as_row(user))
    return ExitCode.DONE


async def show(arguments: argparse.Namespace, output: Output) -> int:
    """Show the mechanisms and iterations of a user."""
    async with open_cluster(metadata_address(arguments)) as cluster:
        user = await UserStore(cluster.store, cluster.rng).get(arguments.user)
    output.record(
        {
            "user": user.name,
            "iterations": {each.mechanism.value: each.iterations for each in user.credentials},
        }
    )
    return ExitCode.DONE


def _chosen(arguments: argparse.Namespace) -> tuple[ScramMechanism, ...]:
    """Return the mechanisms that the command names, in their order; none if it names none."""
    named: list[str] = arguments.mechanism or []
    return tuple(each for each in ScramMechanism if each.value in named)


def _credentials(
    mechanisms: Iterable[ScramMechanism], password: str, iterations: int, rng: Random
) -> list[ScramCredential]:
    return [new_credential(each, password, rng, iterations) for each in mechanisms]


def _as_row(user: UserRecord) -> Row:
    return {"user": user.name, "mechanisms": [each.value for each in user.mechanisms]}
