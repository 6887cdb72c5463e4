"""Keys of an application, in memory and in a file, and the choice of the key for one ledger.

Leaves the cipher to `ledger_cipher`.

Format of a file of keys: TOML.

    current = "2026-11"                 # id of the key for new ledgers; may be left out
    [keys]
    "2026-11" = "<32 bytes in Base64>"  # one line for each key, old ones included

Invariants: a key is used only to derive keys of ledgers; it is in no `repr`, error or log line; the
key that a ledger was written with is recognized before anything is encrypted or decrypted. A file
that users other than its owner may read or write is refused.

Source: docs/encryption.md, "Keys".
"""

import base64
import hmac
import os
import tomllib
from collections.abc import Callable
from enum import Enum
from random import Random, SystemRandom
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
    KeyFileError,
    LedgerError,
    PlainLedgerError,
)
from metadata.ids import UPDATE_TOKEN_BYTES, LedgerId, UpdateToken
from metadata.ledgers.ledger_metadata import LedgerMetadata
from metadata.ledgers.payload_encryption import PayloadEncryption, is_key_id
from quire.identity.errors import SecretError
from quire.identity.secret_files import read_bounded


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
            key: object = self._key_of(key_id)
        except LedgerError:
            raise
        except Exception as error:
            raise EncryptionKeyError(
                f"the key {key_id!r} was not found ({type(error).__name__}): add it to the keys; "
                "the data of its ledgers cannot be read without it",
                key_id=key_id,
                ledger_id=ledger_id,
            ) from error
        if not isinstance(key, bytes) or len(key) != KEY_BYTES:
            kind = f"{len(key)} bytes" if isinstance(key, bytes) else type(key).__name__
            del key  # a traceback with local variables must not show a part of a key
            raise EncryptionKeyError(
                f"the key {key_id!r} is {kind}: a key is {KEY_BYTES} random bytes",
                key_id=key_id,
                ledger_id=ledger_id,
            )
        return NamedKey(key_id, key, self._rng)


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


KEY_FILE_BYTES_MAX: Final = 1024 * 1024
_FIELDS: Final = frozenset(("current", "keys"))

_Keys = tuple[str | None, dict[str, bytes]]
"""Id of the current key, and all keys."""


def read_key_file(path: str | os.PathLike[str], *, reads_plain: bool = False) -> Encryption:
    """Return the keys in a file; `reads_plain` as for `Encryption`. Raises KeyFileError,
    EncryptionUnavailableError.
    """
    require_library()
    name = os.fspath(path)
    content = _read(name)
    if isinstance(content, str):  # raised here, where no local variable holds a key
        raise KeyFileError(name, content)
    current, keys = content
    return Encryption(keys.__getitem__, current, reads_plain=reads_plain)


def _read(name: str) -> _Keys | str:
    """Return the keys, or why the file is refused."""
    try:
        content = read_bounded(name, KEY_FILE_BYTES_MAX, is_private=True)
    except SecretError as error:
        return error.why
    try:
        fields = tomllib.loads(content.decode())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError):
        return "it is not TOML in UTF-8"  # the parser's error shows a part of the content
    return _keys(fields)


def _keys(fields: dict[str, object]) -> _Keys | str:
    if fields.keys() - _FIELDS:
        return "it has an unknown field: there are `current` and the table [keys]"
    listed = fields.get("keys")
    if not isinstance(listed, dict) or not listed:
        return "it has no table [keys] with at least one key"
    keys: dict[str, bytes] = {}
    for number, (key_id, text) in enumerate(listed.items(), 1):
        # By its number: a key and its id may have been mixed up.
        if not is_key_id(key_id):
            return f"the id of key {number} is not printable ASCII without spaces"
        key = _decoded(text)
        if key is None or len(key) != KEY_BYTES:
            return f"key {number} is not {KEY_BYTES} bytes in Base64: openssl rand -base64 32"
        keys[key_id] = key
    current = fields.get("current")
    if current is not None and (not isinstance(current, str) or current not in keys):
        return "`current` is not the id of one of its keys"
    return current, keys


def _decoded(text: object) -> bytes | None:
    if not isinstance(text, str):
        return None
    try:
        return base64.b64decode(text, validate=True)
    except ValueError:
        return None
