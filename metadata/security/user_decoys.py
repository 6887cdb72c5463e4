"""Decoys of unknown users, the same on all servers of a cluster.

Leaves the decoys themselves to `quire.identity.sasl.credentials`, and the logins to the servers.

Invariant: their secret is made from the key of repair, which no client can read.
"""

import hashlib
import hmac
from random import Random
from typing import Final

from metadata.repair.repair_key import read_or_create_repair_key
from metadata.store.interface import MetadataStore
from quire.identity.sasl.credentials import CredentialForms, Decoys

DECOY_LABEL: Final = b"decoys of unknown users"


async def read_decoys(store: MetadataStore, rng: Random, forms: CredentialForms) -> Decoys:
    """Read the secret of the decoys, and make it if there is none; `rng` is a `SystemRandom`,
    except in tests. `forms` are those of the users. Raises MetadataError.
    """
    key = await read_or_create_repair_key(store, rng)
    return Decoys(hmac.digest(key, DECOY_LABEL, hashlib.sha256), forms)
