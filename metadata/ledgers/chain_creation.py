"""Creation of a chain, with the token that identifies it among the chains of its name.

Leaves changes of a chain to `chain_store.py`, and its life to `chain_life.py`. The token that a
head holds differs after every change; this one never changes.

Invariant: the token is created in one multi with the head, and is removed with the chain.

Source: protocol rule 1.3; Spark design, "Reading".
"""

import asyncio
from collections.abc import Sequence
from random import Random
from typing import Final

from metadata.backoff import Backoff
from metadata.errors import (
    ChainExistsError,
    NodeExistsError,
    NodeNotFoundError,
    OutcomeUnknownError,
    StoreUnavailableError,
)
from metadata.ids import UPDATE_TOKEN_BYTES, UpdateToken
from metadata.ledgers.chain import HEAD_CODEC, ChainHead, check_chain_name
from metadata.ledgers.chain_life import life_created, remove_deleted
from metadata.paths import CHAINS, chain_creation_path, chain_path
from metadata.records import codec_of_one, sized
from metadata.store.interface import Create, MetadataStore, Operation, find

NO_TOKEN: Final = UpdateToken(b"")
"""Stands for the creation token of a chain that does not exist."""

CREATION_CODEC: Final = codec_of_one("token", sized(UPDATE_TOKEN_BYTES))


async def create_chain(store: MetadataStore, name: str, rng: Random) -> None:
    """Create an empty chain, after the rest of a deletion of an earlier one. Raises
    ChainExistsError, InvalidChainNameError, and StoreUnavailableError when nothing was written.
    """
    path, backoff = chain_path(check_chain_name(name)), Backoff(rng)
    sent: list[UpdateToken] = []
    while True:
        # Another token each time: an earlier chain of ours may have been deleted by now.
        token = UpdateToken(rng.randbytes(UPDATE_TOKEN_BYTES))
        try:
            await store.multi(_creation(name, token))
        except NodeNotFoundError:
            await _make_parent(store)
            continue
        except OutcomeUnknownError:
            sent.append(token)
        except StoreUnavailableError:
            if not sent:
                raise
        except NodeExistsError:
            if await _is_ours(store, name, sent, backoff):
                return
            if not await _is_being_deleted(store, path):
                raise ChainExistsError(name) from None
            await remove_deleted(store, name, rng)
            continue
        else:
            return
        await asyncio.sleep(backoff.next_s())


async def chain_creation_token(store: MetadataStore, name: str) -> UpdateToken:
    """Return the creation token of a chain, by a fresh read; NO_TOKEN if there is no such chain.
    Raises MetadataFormatError.
    """
    path = chain_creation_path(check_chain_name(name))
    stored = await find(store, path)
    if stored is None:
        return NO_TOKEN
    return UpdateToken(CREATION_CODEC.unpack(path, stored.value))


def _creation(name: str, token: UpdateToken) -> list[Operation]:
    path, creation_path = chain_path(name), chain_creation_path(name)
    return [
        Create(path, HEAD_CODEC.pack(path, ChainHead(token))),
        Create(creation_path, CREATION_CODEC.pack(creation_path, token)),
        life_created(name, token),
    ]


async def _is_being_deleted(store: MetadataStore, path: str) -> bool:
    stored = await find(store, path)
    return stored is None or HEAD_CODEC.unpack(path, stored.value).is_deleted


async def _make_parent(store: MetadataStore) -> None:
    try:
        await store.create(CHAINS, b"")
    except (NodeExistsError, OutcomeUnknownError):
        return


async def _is_ours(
    store: MetadataStore, name: str, sent: Sequence[UpdateToken], backoff: Backoff
) -> bool:
    while sent:
        try:
            return await chain_creation_token(store, name) in sent
        except StoreUnavailableError:
            await asyncio.sleep(backoff.next_s())
    return False
