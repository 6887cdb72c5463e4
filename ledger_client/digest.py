"""Derives a ledger's seed and keys from its identity and password, and checks batches with them.

Leaves the bytes to `bookie.wire.batch`, and what to do about a bad batch (ask the next replica) to
the readers.

Invariants: the password itself is never sent nor kept; a MAC key and a master key are derived under
different labels, so that a bookie, which is told the master key, cannot forge a MAC. The creation
token salts both: equal passwords of two ledgers give different keys.

Source: protocol rules 4.2 and 8.2; storage design, "The batch".
"""

import hashlib
import hmac
from dataclasses import dataclass, field
from typing import Final

from crc32c import crc32c

from bookie.wire.batch import BatchView
from bookie.wire.errors import BatchError
from metadata.ids import LedgerId, UpdateToken
from metadata.ledgers.ledger_metadata import DigestType, LedgerMetadata

_LEDGER_ID_BYTES: Final = 8
_MASTER_KEY_LABEL: Final = b"quire master key\0"
_MAC_KEY_LABEL: Final = b"quire mac key\0"


@dataclass(frozen=True, slots=True)
class LedgerKeys:
    """What is needed to write, check and present one ledger."""

    ledger_id: LedgerId
    seed: int
    """Where the entry digests start: binds ledger id and creation token."""
    mac_key: bytes | None = field(repr=False)
    """The key of the MACs; None for a ledger without."""
    master_key: bytes = field(repr=False)
    """What bookies compare before they serve the ledger."""

    @classmethod
    def derive(
        cls, ledger_id: LedgerId, creation_token: UpdateToken, digest: DigestType, password: bytes
    ) -> "LedgerKeys":
        """Return the keys of a ledger with these properties."""
        identity = ledger_id.to_bytes(_LEDGER_ID_BYTES, "little")
        seed = crc32c(identity, crc32c(creation_token))
        master_key = _derive(password, _MASTER_KEY_LABEL, identity + creation_token)
        mac_key = None
        if digest is DigestType.HMAC_SHA256:
            mac_key = _derive(password, _MAC_KEY_LABEL, identity + creation_token)
        return cls(ledger_id, seed, mac_key, master_key)

    @classmethod
    def of(cls, metadata: LedgerMetadata, password: bytes) -> "LedgerKeys":
        """Return the keys of a stored ledger."""
        return cls.derive(metadata.ledger_id, metadata.creation_token, metadata.digest, password)


def verify(batch: BatchView, keys: LedgerKeys) -> None:
    """Check that a batch is of this ledger and undamaged. Raises BatchError.

    A whole batch is checked by its one CRC, a slice also by its writer's entry digests, a keyed one
    also by its MAC. That it holds the entries that were asked for is the caller's to check.
    """
    header = batch.header
    if header.ledger_id != keys.ledger_id:
        raise BatchError(f"{batch.describe()}: a batch of another ledger than {keys.ledger_id}")
    if header.is_keyed and keys.mac_key is None:
        raise BatchError(f"{batch.describe()}: a batch with a MAC, in a ledger without")
    batch.verify_crc()
    if keys.mac_key is not None:
        batch.verify_mac(keys.mac_key)
    elif header.is_slice:
        batch.verify_digests(keys.seed)


def _derive(password: bytes, label: bytes, identity: bytes) -> bytes:
    return hmac.new(password, label + identity, hashlib.sha256).digest()
