"""Creation of a chain, with the token that identifies it among the chains of its name.

Leaves changes of a chain to `chain_store.py`. The token that a head holds differs after every
change; this one never changes.

Format: the value of `/chains/<name>/creation` is a msgpack array [1, token bin of 16 bytes].

Invariants: the token is created in one multi with the head, and is removed with the chain; a chain
that a release without these tokens created has none, and never gets one.

Source: protocol rule 1.3; Spark design, "Reading".
"""

import asyncio
from random import Random
from typing import Final

from metadata.backoff import Backoff
from metadata.errors import (
    ChainExistsError,
    MetadataFormatError,
    NodeExistsError,
    NodeNotFoundError,
    OutcomeUnknownError,
    StoreUnavailableError,
)
from metadata.ids import UPDATE_TOKEN_BYTES, UpdateToken
from metadata.ledgers.chain import ChainHead, check_chain_name, pack_head
from metadata.msgpack_fields import FieldError, bytes_of, pack, unpack_versioned
from metadata.paths import CHAINS, chain_creation_path, chain_path
from metadata.store.interface import Create, MetadataStore, find

NO_TOKEN: Final = UpdateToken(b"")
"""The creation token of a chain that has none."""

_FORMAT_VERSION: Final = 1


async def create_chain(store: MetadataStore, name: str, rng: Random) -> None:
    """Create an empty chain. Raises ChainExistsError, InvalidChainNameError, and
    StoreUnavailableError when nothing was written.
    """
    path, creation_path = chain_path(check_chain_name(name)), chain_creation_path(name)
    token = UpdateToken(rng.randbytes(UPDATE_TOKEN_BYTES))
    operations = [
        Create(path, pack_head(path, ChainHead(token))),
        Create(creation_path, pack(creation_path, [_FORMAT_VERSION, token])),
    ]
    backoff = Backoff(rng)
    is_unknown = False
    while True:
        try:
            await store.multi(operations)
        except NodeNotFoundError:
            await _make_parent(store)
            continue
        except OutcomeUnknownError:
            is_unknown = True
        except StoreUnavailableError:
            if not is_unknown:
                raise
        except NodeExistsError:
            if is_unknown and await _is_ours(store, name, token, backoff):
                return
            raise ChainExistsError(name) from None
        else:
            return
        await asyncio.sleep(backoff.next_s())


async def chain_creation_token(store: MetadataStore, name: str) -> UpdateToken:
    """Return the creation token of a chain, by a fresh read; NO_TOKEN if it has none, or if there
    is no such chain. Raises MetadataFormatError.
    """
    path = chain_creation_path(check_chain_name(name))
    stored = await find(store, path)
    if stored is None:
        return NO_TOKEN
    fields = unpack_versioned(path, stored.value, _FORMAT_VERSION, 2)
    try:
        return UpdateToken(bytes_of(fields[1], UPDATE_TOKEN_BYTES))
    except FieldError as error:
        raise MetadataFormatError(path, str(error)) from error


async def _make_parent(store: MetadataStore) -> None:
    try:
        await store.create(CHAINS, b"")
    except (NodeExistsError, OutcomeUnknownError):
        return


async def _is_ours(store: MetadataStore, name: str, token: UpdateToken, backoff: Backoff) -> bool:
    while True:
        try:
            return await chain_creation_token(store, name) == token
        except StoreUnavailableError:
            await asyncio.sleep(backoff.next_s())
