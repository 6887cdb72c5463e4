"""`quire quota set|list|remove`: quotas of users, client ids and addresses.

Leaves storing quotas and their checks to `metadata.security`, and enforcing them to the servers.

Invariant: an argument that is wrong changes nothing.
"""

import argparse
from collections.abc import Sequence

from ledger_client.cluster_access import open_cluster
from metadata.security.errors import InvalidQuotaError, QuotaNotFoundError
from metadata.security.quota_store import QuotaStore
from metadata.security.quotas import (
    EntityType,
    QuotaEntity,
    QuotaKey,
    QuotaValues,
    check_change,
    entity_of,
)
from quire.cli.command_line import metadata_address, require_consent
from quire.cli.output import Output
from quire.errors import ExitCode
from quire.operate.fields import Row

COLUMNS = (*(kind.value for kind in EntityType), "key", "value")
DEFAULT_TEXT = "<default>"
"""What a table shows for a default, as Kafka's tools do; no JSON has it."""


async def set_quota(arguments: argparse.Namespace, output: Output) -> int:
    """Set values of a quota, and print all of them."""
    entity = entity_of(_names(arguments))
    changes = dict(_change_of(entity, text) for text in arguments.values)
    if len(changes) < len(arguments.values):
        raise InvalidQuotaError("a key is given twice: give each key once")
    async with open_cluster(metadata_address(arguments)) as cluster:
        values = await QuotaStore(cluster.store, cluster.rng).alter(entity, changes)
    _print([(entity, values)], output)
    return ExitCode.DONE


async def list_quotas(arguments: argparse.Namespace, output: Output) -> int:
    """Print all quotas, or the one that is named."""
    names = _names(arguments)
    async with open_cluster(metadata_address(arguments)) as cluster:
        store = QuotaStore(cluster.store, cluster.rng)
        if names:
            entity = entity_of(names)
            _print([(entity, await store.get(entity))], output)
        else:
            _print([quota async for page in store.pages() for quota in page], output)
    return ExitCode.DONE


async def remove(arguments: argparse.Namespace, output: Output) -> int:
    """Remove a quota, or values of it, and print what is removed."""
    entity = entity_of(_names(arguments))
    wanted = [_key_of(entity, word) for word in arguments.keys] or list(QuotaKey)
    async with open_cluster(metadata_address(arguments)) as cluster:
        store = QuotaStore(cluster.store, cluster.rng)
        present = await store.get(entity)
        chosen = {key: value for key, value in present.items() if key in wanted}
        if not chosen:
            raise QuotaNotFoundError(entity.text)
        if not arguments.yes:
            _print([(entity, chosen)], output)
            require_consent(arguments, f"remove {len(chosen)} values of {entity.text}")
        await store.alter(entity, dict.fromkeys(wanted))
    _print([(entity, chosen)], output)
    return ExitCode.DONE


def _names(arguments: argparse.Namespace) -> list[tuple[str, str | None]]:
    """Return the types and names of the arguments; None is the default."""
    found: list[tuple[str, str | None]] = []
    for kind in EntityType:
        name: str | None = getattr(arguments, f"named_{kind.name}")
        if name is not None or getattr(arguments, f"default_{kind.name}"):
            found.append((kind.value, name))
    return found


def _change_of(entity: QuotaEntity, text: str) -> tuple[QuotaKey, float]:
    """Read KEY=VALUE. Raises InvalidQuotaError."""
    key, _, number = text.partition("=")
    try:
        value = float(number)
    except ValueError:
        raise InvalidQuotaError(f"{text!r} is not KEY=VALUE: write a number as its value") from None
    return check_change(entity, key, value), value


def _key_of(entity: QuotaEntity, word: str) -> QuotaKey:
    return check_change(entity, word, 1.0)


def _print(quotas: Sequence[tuple[QuotaEntity, QuotaValues]], output: Output) -> None:
    with output.listing(*COLUMNS) as listing:
        for entity, values in quotas:
            for key, value in values.items():
                listing.add(_row(entity, key, value, is_json=output.as_json))


def _row(entity: QuotaEntity, key: QuotaKey, value: float, *, is_json: bool) -> Row:
    """Return one value. In JSON the row has only the types of the entity, and null is a default."""
    number = int(value) if value.is_integer() else value
    names: dict[str, str | None] = {} if is_json else {kind.value: "" for kind in EntityType}
    for kind, name in entity.names:
        names[kind.value] = name if is_json or name is not None else DEFAULT_TEXT
    return {**names, "key": key.value, "value": number}
