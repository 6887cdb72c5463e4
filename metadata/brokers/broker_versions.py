"""Versions of a live broker: its build, and the lowest and highest version of each API.

Leaves its addresses to `broker_registration.py`, which releases before this one read strictly: an
additional field there would hide the broker from them.

Format: the ephemeral node `/broker-versions/<broker id>` contains a msgpack array [1, build str,
[[API name str, lowest version int, highest version int]]].

Invariants: for any bytes, decoding returns versions or raises MetadataFormatError; a broker without
a node is of a release that did not report its versions.

Source: protocol rule 2.1; metadata design, "Registration".
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import Final

from metadata.errors import MetadataFormatError, NodeNotFoundError
from metadata.msgpack_fields import (
    FieldError,
    Packed,
    array_of,
    int_of,
    pack_checked,
    text_of,
    unpack_versioned,
)
from metadata.paths import BROKER_VERSIONS, broker_versions_path
from metadata.store.ephemeral import EphemeralKeeper, unpack_held
from metadata.store.interface import MetadataStore

_FORMAT_VERSION: Final = 1
_FIELD_COUNT: Final = 3
_API_FIELD_COUNT: Final = 3
_VERSION_MAX: Final = 2**15 - 1


@dataclass(frozen=True, slots=True)
class BrokerVersions:
    """Build of a broker, and the lowest and highest version of each API under its name."""

    build: str
    apis: Mapping[str, tuple[int, int]]


def pack_broker_versions(versions: BrokerVersions) -> bytes:
    """Return the stored form."""
    apis: list[Packed] = [[name, low, high] for name, (low, high) in versions.apis.items()]
    what = "the versions of a broker"
    fields: list[Packed] = [_FORMAT_VERSION, versions.build, apis]
    return pack_checked(what, fields, partial(unpack_broker_versions, what))


def unpack_broker_versions(what: str, value: bytes) -> BrokerVersions:
    """Read a stored form. Raises MetadataFormatError for anything else."""
    fields = unpack_versioned(what, value, _FORMAT_VERSION, _FIELD_COUNT)
    try:
        apis = [_api_of(each) for each in array_of(fields[2])]
        return BrokerVersions(text_of(fields[1]), dict(apis))
    except FieldError as error:
        raise MetadataFormatError(what, str(error)) from error


def keep_broker_versions(
    store: MetadataStore, broker_id: int, versions: BrokerVersions, rng: Random
) -> EphemeralKeeper:
    """Return the keeper of a broker's node, which the broker starts once its id is registered."""
    return EphemeralKeeper(
        store, broker_versions_path(broker_id), pack_broker_versions(versions), rng
    )


async def read_broker_versions(store: MetadataStore) -> dict[int, BrokerVersions]:
    """Return the versions of all live brokers that report them in a form that this release can
    read. Raises MetadataError.
    """
    found: dict[int, BrokerVersions] = {}
    for name in await store.children(BROKER_VERSIONS):
        if not (name.isascii() and name.isdigit()):
            continue
        path = broker_versions_path(int(name))
        try:
            held = unpack_held(path, (await store.get(path)).value)
            found[int(name)] = unpack_broker_versions(path, held.content)
        except (NodeNotFoundError, MetadataFormatError):
            continue  # it left since it was listed, or is of a later release
    return found


def _api_of(field: Packed) -> tuple[str, tuple[int, int]]:
    fields = array_of(field)
    if len(fields) != _API_FIELD_COUNT:
        raise FieldError(f"an API has {len(fields)} fields instead of {_API_FIELD_COUNT}")
    low = int_of(fields[1], 0, _VERSION_MAX)
    return text_of(fields[0]), (low, int_of(fields[2], low, _VERSION_MAX))
