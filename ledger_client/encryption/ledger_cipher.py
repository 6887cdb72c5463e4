"""AES-256-GCM for the payloads of one ledger, with a key that is derived for it.

Leaves the application's keys to `keys`, and keeping encrypted payloads for resends to
`writing.outbox`.

Format of a payload: ciphertext of the same size, then the tag of 16 bytes.

    key               HKDF-SHA256(application's key, salt = token of the key,
                      info = "quire payload key 1", a zero byte, key id), 32 bytes
    check of the key  the same with "quire key check 1", 8 bytes
    nonce             4 zero bytes, entry id as u64 big-endian
    associated data   "quire payload 1", a zero byte, token of the key (16 bytes), key id, entry id
                      as u64 big-endian

Invariants: a payload is returned only if its tag is valid for this key, token, key id and entry id;
no key is part of a `repr`, an error or a log line.

Source: docs/encryption.md, "How it works"; protocol rules 1.2, 4.1 and 4.2.
"""

import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Final

from bookie.wire.batch import BatchHeader, Buffer
from ledger_client.batches import EntryBatch
from ledger_client.errors import DecryptionError, EncryptionUnavailableError, LedgerError
from metadata.ids import EntryId, LedgerId, UpdateToken
from metadata.ledgers.payload_encryption import KEY_CHECK_BYTES

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM


KEY_BYTES: Final = 32
TAG_BYTES: Final = 16
_KEY_LABEL: Final = b"quire payload key 1\0"
_CHECK_LABEL: Final = b"quire key check 1\0"
_PAYLOAD_LABEL: Final = b"quire payload 1\0"
_NONCE_START: Final = bytes(4)
_ENTRY_ID_BYTES: Final = 8


class LedgerCipher:
    """Encrypts and decrypts payloads with the key of one ledger."""

    __slots__ = ("_aead", "_associated")

    def __init__(self, secret: bytes, key_token: UpdateToken, key_id: str) -> None:
        """Derive the ledger's key."""
        key = derived(secret, key_token, _KEY_LABEL + key_id.encode("ascii"), KEY_BYTES)
        self._aead = _aes_gcm(key)
        self._associated = _PAYLOAD_LABEL + key_token + key_id.encode("ascii")

    def encrypt(self, first_entry_id: EntryId, payloads: Sequence[bytes]) -> list[bytes]:
        """Return the ciphertexts of consecutive entries. The caller ensures that no entry id is
        ever encrypted with two payloads.
        """
        encrypt, associated = self._aead.encrypt, self._associated
        return [
            encrypt(_NONCE_START + number, payload, associated + number)
            for number, payload in zip(_numbers(first_entry_id, payloads), payloads, strict=True)
        ]

    def decrypt(
        self, ledger_id: LedgerId, first_entry_id: EntryId, ciphertexts: Sequence[Buffer]
    ) -> list[bytes]:
        """Return the payloads of consecutive entries. Raises DecryptionError."""
        decrypt, associated = self._aead.decrypt, self._associated
        payloads: list[bytes] = []
        numbers = _numbers(first_entry_id, ciphertexts)
        for number, ciphertext in zip(numbers, ciphertexts, strict=True):
            try:
                payloads.append(decrypt(_NONCE_START + number, ciphertext, associated + number))
            except _invalid_tag():
                break
        if len(payloads) < len(ciphertexts):
            failed = EntryId(first_entry_id + len(payloads))
            payloads.clear()  # a traceback with local variables must not show them
            raise DecryptionError(ledger_id=ledger_id, entry_id=failed)
        return payloads


@dataclass(frozen=True, slots=True, repr=False)
class OpenedBatch:
    """Payloads in place of those of a batch. A `PayloadView`."""

    header: BatchHeader
    lengths: Sequence[int]
    payload: memoryview

    @property
    def packed_lengths(self) -> bytes:
        """Payload size of each entry, in 4 bytes each, little-endian."""
        return struct.pack(f"<{len(self.lengths)}I", *self.lengths)


def opened(batch: EntryBatch, cipher: LedgerCipher) -> EntryBatch:
    """Return the shown entries of a batch with decrypted payloads. Raises DecryptionError."""
    first = batch.first_entry_id
    joined, offsets = batch.buffers()
    ciphertexts = [joined[a:b] for a, b in pairwise(offsets)]
    payloads = cipher.decrypt(batch.ledger_id, first, ciphertexts)
    payload = b"".join(payloads)
    header = batch.header_of_shown(len(payload))
    view = OpenedBatch(header, [len(part) for part in payloads], memoryview(payload))
    return EntryBatch(view, first, batch.last_entry_id)


class PayloadSealer:
    """Encrypts the entries of one writer in the order of their ids.

    The nonce of an entry is its id. Two payloads under one key and one id would reveal both, so
    this must never happen. It cannot, because:

    - Keys differ between ledgers: a key is derived from the creation token, which is drawn for each
      ledger. For a ledger whose key has another token than its creation token, an import, nothing
      is encrypted here: its payloads are ciphertext of an earlier writer.
    - A ledger has one writer for life (protocol section 1): the client that created it, or the one
      whose compare-and-set claimed it. Both begin at entry 0, and no other client becomes its
      writer after them, whatever the outcome of their last append is.
    - A writer has one `PayloadSealer`, and it accepts each id once. It counts an id before it
      encrypts, so that a failure in between uses the id up.
    - A resend, an ensemble change, a recovery, a repair and a copy in in-sync mode send the stored
      bytes. None of them has a key.
    """

    __slots__ = ("_cipher", "_ledger_id", "_next")

    def __init__(self, cipher: LedgerCipher, ledger_id: LedgerId) -> None:
        self._cipher = cipher
        self._ledger_id = ledger_id
        self._next = EntryId(0)

    @property
    def overhead_bytes(self) -> int:
        """Number of bytes that encryption adds to each entry."""
        return TAG_BYTES

    def seal(self, first_entry_id: EntryId, payloads: Sequence[bytes]) -> list[bytes]:
        """Return the ciphertexts of the next entries. Raises LedgerError for an entry id that is
        not the next one: it may have been encrypted before.
        """
        if first_entry_id != self._next:
            raise LedgerError(
                f"entry {first_entry_id} cannot be encrypted: entry {self._next} is the next one, "
                "and no id is encrypted twice. An earlier append failed inside the client: "
                "continue in a new ledger",
                ledger_id=self._ledger_id,
            )
        self._next = EntryId(first_entry_id + len(payloads))
        return self._cipher.encrypt(first_entry_id, payloads)


def require_library() -> None:
    """Check that payloads can be encrypted here; called before there is a key that a traceback
    could show. Raises EncryptionUnavailableError.
    """
    try:
        import cryptography.hazmat.primitives.ciphers.aead  # noqa: F401, PLC0415 - an extra
    except ImportError as error:
        raise EncryptionUnavailableError from error


def key_check(secret: bytes, key_token: UpdateToken, key_id: str) -> bytes:
    """Return the value by which another key with the same id is recognized."""
    return derived(secret, key_token, _CHECK_LABEL + key_id.encode("ascii"), KEY_CHECK_BYTES)


def derived(secret: bytes, salt: bytes, info: bytes, size: int) -> bytes:
    """Return `size` bytes of HKDF-SHA256."""
    from cryptography.hazmat.primitives.hashes import SHA256  # noqa: PLC0415 - an extra
    from cryptography.hazmat.primitives.kdf.hkdf import HKDF  # noqa: PLC0415

    return HKDF(algorithm=SHA256(), length=size, salt=salt, info=info).derive(secret)


def _aes_gcm(key: bytes) -> "AESGCM":
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM  # noqa: PLC0415 - an extra

    return AESGCM(key)


def _invalid_tag() -> type[Exception]:
    from cryptography.exceptions import InvalidTag  # noqa: PLC0415 - an extra

    return InvalidTag


def _numbers(first_entry_id: EntryId, entries: Sequence[object]) -> Iterable[bytes]:
    ids = range(first_entry_id, first_entry_id + len(entries))
    return [id_.to_bytes(_ENTRY_ID_BYTES, "big") for id_ in ids]
