"""Bytes of encrypted payloads: known values, and every way in which they can be wrong."""

import hashlib
import hmac
import sys

import pytest
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from hypothesis import given
from hypothesis import strategies as st

from ledger_client import DecryptionError, Encryption, EncryptionUnavailableError, LedgerError
from ledger_client.encryption.ledger_cipher import (
    TAG_BYTES,
    LedgerCipher,
    PayloadSealer,
    derived,
    key_check,
)
from metadata.ids import EntryId, LedgerId, UpdateToken

SECRET = bytes(range(32))
TOKEN = UpdateToken(bytes(range(100, 116)))
LEDGER = LedgerId(7)
PAYLOADS = [b"order-1", b"", b"x" * 300]


def cipher(secret: bytes = SECRET, token: UpdateToken = TOKEN, key_id: str = "k1") -> LedgerCipher:
    return LedgerCipher(secret, token, key_id)


def decrypted(sealed: bytes, entry_id: int = 5, by: LedgerCipher | None = None) -> bytes:
    (payload,) = (by or cipher()).decrypt(LEDGER, EntryId(entry_id), [sealed])
    return payload


def hkdf(secret: bytes, salt: bytes, info: bytes, size: int) -> bytes:
    """Return what RFC 5869 says, for at most 32 bytes."""
    extracted = hmac.new(salt, secret, hashlib.sha256).digest()
    return hmac.new(extracted, info + b"\x01", hashlib.sha256).digest()[:size]


def test_derivation_is_that_of_rfc_5869() -> None:
    """Its test case 1, cut to the first 32 bytes."""
    salt, info = bytes(range(13)), bytes(range(0xF0, 0xFA))
    wanted = "3cb25f25faacd57a90434f64d0362f2a2d2d0a90cf1a5a4c5db02d56ecc4c5bf"
    assert derived(b"\x0b" * 22, salt, info, 32).hex() == wanted
    assert hkdf(b"\x0b" * 22, salt, info, 32).hex() == wanted


def test_the_stored_bytes_are_as_documented() -> None:
    """As docs/formats.md says, built from its parts: a release that writes others is broken."""
    key = hkdf(SECRET, TOKEN, b"quire payload key 1\0k1", 32)
    nonce = bytes.fromhex("00000000 0000000000000005")
    associated = b"quire payload 1\0" + TOKEN + b"k1" + bytes.fromhex("0000000000000005")
    wanted = AESGCM(key).encrypt(nonce, b"order-1", associated)
    assert cipher().encrypt(EntryId(5), [b"order-1"]) == [wanted]
    assert wanted.hex() == "69e01bf86e1a3259fabbdd545bee8a2015629b35e9bd22"
    check = hkdf(SECRET, TOKEN, b"quire key check 1\0k1", 8)
    assert key_check(SECRET, TOKEN, "k1") == check
    assert check.hex() == "f3ba4757f78470a4"


def test_a_payload_grows_by_the_tag() -> None:
    sealed = cipher().encrypt(EntryId(0), PAYLOADS)
    assert [len(each) for each in sealed] == [len(payload) + TAG_BYTES for payload in PAYLOADS]


@given(st.lists(st.binary(max_size=200), min_size=1, max_size=20), st.integers(0, 2**62))
def test_payloads_are_read_back(payloads: list[bytes], first: int) -> None:
    sealed = cipher().encrypt(EntryId(first), payloads)
    assert cipher().decrypt(LEDGER, EntryId(first), sealed) == payloads
    assert [decrypted(each, first + i) for i, each in enumerate(sealed)] == payloads


@pytest.mark.parametrize("payload", [b"", b"order-1"])
def test_every_changed_byte_is_noticed(payload: bytes) -> None:
    (sealed,) = cipher().encrypt(EntryId(5), [payload])
    assert decrypted(sealed) == payload
    for offset in range(len(sealed)):
        for bit in (0x01, 0x80):
            damaged = bytearray(sealed)
            damaged[offset] ^= bit
            with pytest.raises(DecryptionError):
                decrypted(bytes(damaged))
    for size in range(len(sealed)):
        with pytest.raises(DecryptionError):
            decrypted(sealed[:size])
    with pytest.raises(DecryptionError):
        decrypted(sealed + b"\0")


def test_an_entry_is_bound_to_its_id_ledger_and_key() -> None:
    (sealed,) = cipher().encrypt(EntryId(5), [b"order-1"])
    others = (cipher(token=UpdateToken(bytes(16))), cipher(key_id="k2"), cipher(bytes(32)))
    for other in others:
        with pytest.raises(DecryptionError):
            decrypted(sealed, by=other)
    for entry_id in (0, 4, 6, 2**40):
        with pytest.raises(DecryptionError) as caught:
            decrypted(sealed, entry_id)
        assert (caught.value.entry_id, caught.value.ledger_id) == (entry_id, 7)


def test_entries_cannot_change_places() -> None:
    first, second = cipher().encrypt(EntryId(0), [b"one", b"two"])
    with pytest.raises(DecryptionError):
        cipher().decrypt(LEDGER, EntryId(0), [second, first])


def test_the_error_names_the_first_bad_entry() -> None:
    sealed = cipher().encrypt(EntryId(0), [b"a", b"b", b"c"])
    sealed[1] = sealed[1][:-1] + bytes([sealed[1][-1] ^ 1])
    with pytest.raises(DecryptionError, match="entry 1 cannot be decrypted") as caught:
        cipher().decrypt(LEDGER, EntryId(0), sealed)
    assert caught.value.entry_id == 1


# -- each id once ----------------------------------------------------------------------------------


def test_a_sealer_accepts_each_id_once() -> None:
    sealer = PayloadSealer(cipher(), LEDGER)
    assert sealer.seal(EntryId(0), [b"a", b"b"]) == cipher().encrypt(EntryId(0), [b"a", b"b"])
    for first in (0, 1, 3):
        with pytest.raises(LedgerError, match="entry 2 is the next one"):
            sealer.seal(EntryId(first), [b"other"])
    sealer.seal(EntryId(2), [b"c"])


def test_a_failed_encryption_uses_its_ids_up() -> None:
    sealer = PayloadSealer(cipher(), LEDGER)
    with pytest.raises(TypeError):
        sealer.seal(EntryId(0), [b"a", 5])  # type: ignore[list-item]
    with pytest.raises(LedgerError, match="no id is encrypted twice"):
        sealer.seal(EntryId(0), [b"b"])


# -- the library -----------------------------------------------------------------------------------


def test_without_the_library_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cryptography.hazmat.primitives.ciphers.aead", None)
    with pytest.raises(
        EncryptionUnavailableError, match=r"pip install 'quire-ledger\[encryption\]'"
    ):
        Encryption(lambda _: SECRET)
