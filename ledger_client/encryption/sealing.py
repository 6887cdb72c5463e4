"""Encryption of a writer's entries, each exactly once.

Leaves the cipher to `ledger_cipher`, and keeping the resulting bytes for resends to
`writing.outbox`.

The nonce of an entry is its id. Two payloads under one key and one id would reveal both, so this
must never happen. It cannot, because:

- Keys differ between ledgers: a key is derived from the creation token, which is drawn for each
  ledger. For a ledger whose key has another token than its creation token, an import, nothing is
  encrypted here: its payloads are ciphertext of an earlier writer.
- A ledger has one writer for life (protocol section 1): the client that created it, or the one
  whose compare-and-set claimed it. Both begin at entry 0, and no other client becomes its writer
  after them, whatever the outcome of their last append is.
- A writer has one `PayloadSealer`, and it accepts each id once. It counts an id before it encrypts,
  so that a failure in between uses the id up.
- A resend, an ensemble change, a recovery, a repair and a copy in in-sync mode send the stored
  bytes. None of them has a key.

Source: docs/encryption.md, "How it works"; protocol rules 1.2, 4.1 and 4.2.
"""

from collections.abc import Sequence

from ledger_client.encryption.ledger_cipher import TAG_BYTES, LedgerCipher
from ledger_client.errors import LedgerError
from metadata.ids import EntryId, LedgerId


class PayloadSealer:
    """Encrypts the entries of one writer in the order of their ids."""

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
