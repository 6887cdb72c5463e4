"""Keys of an application, and the choice of the key for one ledger.

Leaves reading a file of keys to `key_file`, and the cipher to `ledger_cipher`.

Invariants: a key is used only to derive keys of ledgers; it is in no `repr`, error or log line; the
key that a ledger was written with is recognized before anything is encrypted or decrypted.

Source: docs/encryption.md, "Keys".
"""

import hmac
from collections.abc import Callable
from enum import Enum
from random import Random, SystemRandom  # noqa: TID251 - what it draws makes keys differ
from typing import Final

from ledger_client.encryption.ledger_cipher import (
    KEY_BYTES,
    LedgerCipher,
    PayloadSealer,
    key_check,
    require_library,
)
from ledger_client.errors import (
    EncryptedLedgerError,
    EncryptionKeyError,
    LedgerError,
    PlainLedgerError,
)
from metadata.ids import UPDATE_TOKEN_BYTES, LedgerId, UpdateToken
from metadata.ledgers.ledger_metadata import LedgerMetadata
from metadata.ledgers.payload_encryption import PayloadEncryption, is_key_id


class StoredPayloads(Enum):
    """Type of `AS_STORED`."""

    AS_STORED = "as stored"


AS_STORED: Final = StoredPayloads.AS_STORED
"""Argument of `open_ledger` that returns payloads as the bookies hold them: ciphertext, if the
ledger is encrypted. Needs no key.
"""


class NamedKey:
    """One key of the application, with its id."""

    __slots__ = ("_rng", "_secret", "key_id")

    def __init__(self, key_id: str, secret: bytes, rng: Random) -> None:
        self.key_id = key_id
        self._secret = secret
        self._rng = rng

    def __repr__(self) -> str:  # type: ignore[explicit-override]
        return f"NamedKey({self.key_id!r})"

    def draw_token(self) -> UpdateToken:
        """Return a creation token for a new ledger: equal tokens would mean equal keys, so it does
        not come from the client's generator, which a copy of a virtual machine repeats.
        """
        return UpdateToken(self._rng.randbytes(UPDATE_TOKEN_BYTES))

    def encryption_of(self, creation_token: UpdateToken) -> PayloadEncryption:
        """Return what the metadata of a new ledger keeps."""
        check = key_check(self._secret, creation_token, self.key_id)
        return PayloadEncryption(self.key_id, creation_token, check)

    def cipher_of(self, ledger_id: LedgerId, encryption: PayloadEncryption) -> LedgerCipher:
        """Return the cipher of a stored ledger. Raises EncryptionKeyError if another key with this
        id was used.
        """
        check = key_check(self._secret, encryption.key_token, self.key_id)
        if not hmac.compare_digest(check, encryption.key_check):
            raise EncryptionKeyError(
                f"the given key {self.key_id!r} is not the one that the ledger was written with: "
                "find the earlier key of this id; its data cannot be read without it",
                key_id=self.key_id,
                ledger_id=ledger_id,
            )
        return LedgerCipher(self._secret, encryption.key_token, self.key_id)


class Encryption:
    """Keys with which a client encrypts the payloads of new ledgers and decrypts those of stored
    ones.
    """

    def __init__(
        self,
        key_of: Callable[[str], bytes],
        current: str | None = None,
        *,
        reads_plain: bool = False,
        rng: Random | None = None,
    ) -> None:
        """Use the keys that `key_of` returns: 32 random bytes for each key id. It is called on the
        event loop whenever a ledger is created or opened, and raises KeyError for an unknown id.

        New ledgers get the key `current`. With `reads_plain`, ledgers without encryption can be
        opened too; otherwise opening one raises PlainLedgerError. `rng` draws the creation tokens
        of new ledgers: only for tests, by default it is the system's. Raises ValueError if
        `current` is not a key id, EncryptionUnavailableError.
        """
        require_library()
        if current is not None and not is_key_id(current):
            raise ValueError(f"{current!r} is not a key id: use printable ASCII without spaces")
        self._key_of = key_of
        self._rng = SystemRandom() if rng is None else rng
        self.current: Final = current
        self.reads_plain: Final = reads_plain

    def __repr__(self) -> str:  # type: ignore[explicit-override]
        return f"Encryption(current={self.current!r})"

    def current_key(self) -> NamedKey:
        """Return the key for new ledgers. Raises EncryptionKeyError."""
        if self.current is None:
            raise EncryptionKeyError(
                "no key is named for new ledgers: give Encryption a `current` key id", key_id=""
            )
        return self.key(self.current)

    def key(self, key_id: str, ledger_id: LedgerId | None = None) -> NamedKey:
        """Return the key with an id. Raises EncryptionKeyError."""
        try:
            found: object = self._key_of(key_id)
        except LedgerError:
            raise
        except Exception as error:
            raise EncryptionKeyError(
                f"the key {key_id!r} was not found ({type(error).__name__}): add it to the keys; "
                "the data of its ledgers cannot be read without it",
                key_id=key_id,
                ledger_id=ledger_id,
            ) from error
        if not isinstance(found, bytes) or len(found) != KEY_BYTES:
            kind = f"{len(found)} bytes" if isinstance(found, bytes) else type(found).__name__
            del found  # a traceback with local variables must not show a part of a key
            raise EncryptionKeyError(
                f"the key {key_id!r} is {kind}: a key is {KEY_BYTES} random bytes",
                key_id=key_id,
                ledger_id=ledger_id,
            )
        return NamedKey(key_id, found, self._rng)


def cipher_to_read(
    metadata: LedgerMetadata, encryption: Encryption | StoredPayloads | None
) -> LedgerCipher | None:
    """Return the cipher for reading a ledger; None if its payloads are returned as they are.

    Raises EncryptedLedgerError without a key, PlainLedgerError, EncryptionKeyError.
    """
    stored, ledger_id = metadata.encryption, metadata.ledger_id
    if isinstance(encryption, StoredPayloads):
        return None
    if stored is None:
        if encryption is not None and not encryption.reads_plain:
            raise PlainLedgerError(
                "its payloads are not encrypted, and only encrypted ledgers are to be read: open "
                "it without keys, or allow it with Encryption(reads_plain=True)",
                ledger_id=ledger_id,
            )
        return None
    if encryption is None:
        raise EncryptedLedgerError(key_id=stored.key_id, ledger_id=ledger_id)
    return encryption.key(stored.key_id, ledger_id).cipher_of(ledger_id, stored)


def sealer_to_write(
    metadata: LedgerMetadata, key: NamedKey | PayloadEncryption | None
) -> PayloadSealer | None:
    """Return what encrypts the entries of a ledger's writer, which has appended nothing; None if
    its payloads are stored as they are: a plain ledger, or one that is given its ciphertext.

    Raises EncryptedLedgerError without a key, PlainLedgerError, EncryptionKeyError.
    """
    stored, ledger_id = metadata.encryption, metadata.ledger_id
    if stored is None:
        if key is not None:
            text = "it was created without encryption: append without keys, or use a new ledger"
            raise PlainLedgerError(text, ledger_id=ledger_id)
        return None
    if key is None:
        raise EncryptedLedgerError(key_id=stored.key_id, ledger_id=ledger_id)
    if isinstance(key, PayloadEncryption):
        return None
    if stored.key_token != metadata.creation_token:
        text = "it is a copy of an encrypted ledger: append to a new ledger"
        raise LedgerError(text, ledger_id=ledger_id)
    return PayloadSealer(key.cipher_of(ledger_id, stored), ledger_id)
