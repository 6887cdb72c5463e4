"""Seed and keys of a ledger, derived from its identity and password, and batch verification with
them.

Leaves the bytes to `bookie.wire.batch`, and the reaction to a bad batch (read from the next
replica) to the readers.

Invariants: the password itself is never sent or kept; the MAC key and the master key are derived
under different labels, so that a bookie, which receives the master key, cannot forge a MAC. The
creation token salts both: equal passwords of two ledgers give different keys. Keys made of the
master key never make a batch of a ledger with MACs.

Format of a master key: the creation token, then 16 bytes of an HMAC-SHA256. So a bookie's copy says
what its digests are made of, also when the metadata is lost.

Source: protocol rules 4.2 and 8.2; storage design, "The batch".
"""

import hashlib
import hmac
from dataclasses import dataclass, field, replace
from typing import Final

from crc32c import crc32c

from bookie.wire.batch import BatchView
from bookie.wire.errors import BatchError
from bookie.wire.messages import MASTER_KEY_BYTES
from metadata.ids import UPDATE_TOKEN_BYTES, LedgerId, UpdateToken
from metadata.ledgers.ledger_metadata import DigestType, LedgerMetadata

_LEDGER_ID_BYTES: Final = 8
_MASTER_KEY_LABEL: Final = b"quire master key\0"
_MAC_KEY_LABEL: Final = b"quire mac key\0"


@dataclass(frozen=True, slots=True)
class LedgerKeys:
    """Keys for writing, verifying and accessing one ledger."""

    ledger_id: LedgerId
    seed: int
    """Start value of the entry digests: binds ledger id and creation token."""
    mac_key: bytes | None = field(repr=False)
    """Key of the MACs; None for a ledger without MACs."""
    master_key: bytes = field(repr=False)
    """Key that bookies check before they serve the ledger."""
    lacks_mac_key: bool = field(default=False, repr=False)
    """Whether the ledger has MACs that these keys can neither check nor make."""

    @classmethod
    def derive(
        cls, ledger_id: LedgerId, creation_token: UpdateToken, digest: DigestType, password: bytes
    ) -> "LedgerKeys":
        """Return the keys of a ledger with these properties."""
        identity = ledger_id.to_bytes(_LEDGER_ID_BYTES, "little")
        seed = crc32c(identity, crc32c(creation_token))
        secret = _derive(password, _MASTER_KEY_LABEL, identity + creation_token)
        master_key = (creation_token + secret)[:MASTER_KEY_BYTES]
        mac_key = None
        if digest is DigestType.HMAC_SHA256:
            mac_key = _derive(password, _MAC_KEY_LABEL, identity + creation_token)
        return cls(ledger_id, seed, mac_key, master_key)

    @classmethod
    def of(cls, metadata: LedgerMetadata, password: bytes) -> "LedgerKeys":
        """Return the keys of a stored ledger."""
        return cls.derive(metadata.ledger_id, metadata.creation_token, metadata.digest, password)

    @classmethod
    def with_master_key(cls, metadata: LedgerMetadata, master_key: bytes) -> "LedgerKeys":
        """Return the keys of a stored ledger for repair, which has the master key and not the
        password. Batches with a MAC can be sent on unchanged, and their readers check it.
        """
        keys = cls.of(metadata, b"")
        lacks_mac_key = metadata.digest is DigestType.HMAC_SHA256
        return replace(keys, mac_key=None, master_key=master_key, lacks_mac_key=lacks_mac_key)

    @classmethod
    def of_copy(
        cls, ledger_id: LedgerId, master_key: bytes, password: bytes, *, is_keyed: bool
    ) -> "LedgerKeys":
        """Return the keys of a ledger without metadata, by the master key that a bookie stores, and
        whether its batches have MACs. They are checked if the password is the ledger's.
        """
        digest = DigestType.HMAC_SHA256 if is_keyed else DigestType.CRC32C
        keys = cls.derive(ledger_id, creation_token_in(master_key), digest, password)
        if keys.master_key == master_key:
            return keys
        return replace(keys, mac_key=None, master_key=master_key, lacks_mac_key=is_keyed)

    @property
    def have_macs(self) -> bool:
        """Whether each batch of the ledger has a MAC."""
        return self.mac_key is not None or self.lacks_mac_key


def creation_token_in(master_key: bytes) -> UpdateToken:
    """Return the creation token of the ledger that a master key belongs to."""
    return UpdateToken(master_key[:UPDATE_TOKEN_BYTES])


def verify(batch: BatchView, keys: LedgerKeys) -> None:
    """Check that a batch belongs to this ledger and is undamaged. Raises BatchError.

    A complete batch is checked by its one CRC, a slice also by its writer's entry digests, a keyed
    batch, which is always complete, also by its MAC. Without the key of the MAC, the writer's entry
    digests are checked instead: they detect damage, but everyone who reads the metadata can make
    them. The caller must check that the batch contains the requested entries.
    """
    header = batch.header
    if header.ledger_id != keys.ledger_id:
        raise BatchError(f"{batch.describe()}: it does not belong to ledger {keys.ledger_id}")
    if header.is_keyed and not keys.have_macs:
        raise BatchError(f"{batch.describe()}: it has a MAC, but the ledger uses none")
    if keys.lacks_mac_key and not header.is_keyed:
        raise BatchError(f"{batch.describe()}: it has no MAC, but the ledger uses them")
    batch.verify_crc()
    if keys.mac_key is not None:
        batch.verify_mac(keys.mac_key)
    elif header.is_slice or keys.lacks_mac_key:
        batch.verify_digests(keys.seed)


def _derive(password: bytes, label: bytes, identity: bytes) -> bytes:
    return hmac.new(password, label + identity, hashlib.sha256).digest()
