"""Facts that a ledger's metadata keeps about the encryption of its payloads. Pure.

Leaves keys and the cipher itself to `ledger_client.encryption`: nothing here is secret.

Invariants: the key of a ledger is derived from the token that is stored here. It is the creation
token of the ledger for which the payloads were encrypted. A ledger with another creation token is a
copy: its payloads are ciphertext that was made before, and nothing is ever encrypted for it.

Source: docs/formats.md, "One ledger".
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from metadata.ids import UPDATE_TOKEN_BYTES, UpdateToken

KEY_ID_CHARACTERS_MAX: Final = 128
KEY_CHECK_BYTES: Final = 8


class Cipher(StrEnum):
    """Way in which payloads are encrypted."""

    AES_256_GCM = "aes-256-gcm"


@dataclass(frozen=True, slots=True)
class PayloadEncryption:
    """Encryption of one ledger's payloads. Raises ValueError for fields out of range."""

    key_id: str
    """Name of the application's key: 1 to 128 printable ASCII characters without spaces."""
    key_token: UpdateToken
    """Token from which the ledger's key was derived: the creation token of the ledger that was
    written; an imported ledger keeps that of the exported one.
    """
    key_check: bytes
    """Value derived from the key: it shows that another key has the same id."""
    cipher: Cipher = Cipher.AES_256_GCM

    def __post_init__(self) -> None:
        if not is_key_id(self.key_id):
            raise ValueError(
                f"{self.key_id!r} is not a key id: use 1 to {KEY_ID_CHARACTERS_MAX} printable "
                "ASCII characters without spaces"
            )
        if len(self.key_token) != UPDATE_TOKEN_BYTES:
            raise ValueError(f"the token of a key has {UPDATE_TOKEN_BYTES} bytes")
        if len(self.key_check) != KEY_CHECK_BYTES:
            raise ValueError(f"the check of a key has {KEY_CHECK_BYTES} bytes")


def is_key_id(text: str) -> bool:
    """Return whether a text may name a key."""
    is_printable = text.isascii() and text.isprintable() and " " not in text
    return 1 <= len(text) <= KEY_ID_CHARACTERS_MAX and is_printable
