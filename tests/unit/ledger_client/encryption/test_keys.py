"""Keys of an application: which one a ledger gets, and that none is ever shown."""

import sys
import traceback
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from ledger_client import (
    AS_STORED,
    EncryptedLedgerError,
    Encryption,
    EncryptionKeyError,
    KeyFileError,
    LedgerError,
    PlainLedgerError,
    read_key_file,
)
from ledger_client.encryption.keys import KEY_FILE_BYTES_MAX, cipher_to_read, sealer_to_write
from metadata.ids import EntryId, LedgerId, UpdateToken
from metadata.ledgers.ledger_metadata import (
    LedgerMetadata,
    QuorumSpec,
)
from metadata.ledgers.payload_encryption import PayloadEncryption
from tests.support.sample_ledgers import ledger_of

OLD, NEW = Random(1).randbytes(32), Random(2).randbytes(32)
KEYS = {"2025-07": OLD, "2026-11": NEW}
TOKEN = UpdateToken(bytes(range(16)))
GOOD = """
current = "2026-11"
[keys]
"2026-11" = "MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE="
"2025-07" = "YWJjZGVmZ2hpamFiY2RlZmdoaWphYmNkZWZnaGlqYWI="
"""
SECRETS = ("0123456789", "MDEyMzQ1", "abcdefghij", "YWJjZGVm")


def keys(current: str | None = "2026-11", *, reads_plain: bool = False) -> Encryption:
    return Encryption(KEYS.__getitem__, current, reads_plain=reads_plain, rng=Random(3))


def ledger(encryption: PayloadEncryption | None, token: UpdateToken = TOKEN) -> LedgerMetadata:
    made = ledger_of((0, "a"), quorum=QuorumSpec(1, 1, 1))
    return replace(made, creation_token=token, encryption=encryption)


def encrypted(key_id: str = "2026-11") -> LedgerMetadata:
    return ledger(keys().key(key_id).encryption_of(TOKEN))


# -- choosing a key --------------------------------------------------------------------------------


def test_new_ledgers_get_the_current_key() -> None:
    key = keys().current_key()
    stored = key.encryption_of(TOKEN)
    assert (stored.key_id, stored.key_token, len(stored.key_check)) == ("2026-11", TOKEN, 8)
    assert NEW not in (stored.key_check, stored.key_token)
    tokens = [key.draw_token() for _ in range(3)]
    assert len({*tokens}) == 3
    assert Encryption(KEYS.__getitem__, "2026-11").current_key().draw_token() not in tokens


def test_old_ledgers_are_read_with_their_key() -> None:
    for key_id in KEYS:
        sealer = sealer_to_write(encrypted(key_id), keys().key(key_id))
        cipher = cipher_to_read(encrypted(key_id), keys(current=None))
        assert sealer is not None
        assert cipher is not None
        sealed = sealer.seal(EntryId(0), [b"order-1"])
        assert cipher.decrypt(LedgerId(7), EntryId(0), sealed) == [b"order-1"]


def test_a_writer_needs_a_current_key() -> None:
    with pytest.raises(EncryptionKeyError, match="no key is named for new ledgers"):
        keys(current=None).current_key()
    with pytest.raises(ValueError, match="not a key id"):
        keys(current="two words")


def test_a_reader_needs_a_key() -> None:
    why = "encrypted with the key '2026-11', and no key was given: open it with encryption="
    with pytest.raises(EncryptedLedgerError, match=why) as caught:
        cipher_to_read(encrypted(), None)
    assert (caught.value.key_id, caught.value.ledger_id) == ("2026-11", 7)
    with pytest.raises(EncryptedLedgerError):
        sealer_to_write(encrypted(), None)


def test_ciphertext_needs_no_key() -> None:
    stored = encrypted().encryption
    assert cipher_to_read(encrypted(), AS_STORED) is None
    assert cipher_to_read(ledger(None), AS_STORED) is None
    assert sealer_to_write(encrypted(), stored) is None


def test_plain_ledgers_are_refused_unless_that_is_allowed() -> None:
    with pytest.raises(PlainLedgerError, match="reads_plain=True"):
        cipher_to_read(ledger(None), keys())
    assert cipher_to_read(ledger(None), keys(reads_plain=True)) is None
    assert cipher_to_read(ledger(None), None) is None
    assert sealer_to_write(ledger(None), None) is None
    with pytest.raises(PlainLedgerError, match="created without encryption"):
        sealer_to_write(ledger(None), keys(reads_plain=True).current_key())


def test_nothing_is_encrypted_for_a_copy() -> None:
    copy = ledger(encrypted().encryption, token=UpdateToken(bytes(16)))
    assert cipher_to_read(copy, keys()) is not None
    with pytest.raises(LedgerError, match="a copy of an encrypted ledger"):
        sealer_to_write(copy, keys().current_key())


def test_another_key_with_the_same_id_is_refused() -> None:
    other = Encryption(lambda _: OLD, "2026-11")
    with pytest.raises(EncryptionKeyError, match="not the one that the ledger was written with"):
        cipher_to_read(encrypted(), other)
    with pytest.raises(EncryptionKeyError):
        sealer_to_write(encrypted(), other.current_key())


def test_an_unknown_key_is_named() -> None:
    with pytest.raises(EncryptionKeyError, match=r"'2024-01' was not found \(KeyError\)") as caught:
        keys().key("2024-01", LedgerId(7))
    assert (caught.value.key_id, caught.value.ledger_id) == ("2024-01", 7)


def test_an_error_of_the_client_is_not_hidden() -> None:
    def fails(_: str) -> bytes:
        raise KeyFileError("/keys", "it is gone")

    with pytest.raises(KeyFileError):
        Encryption(fails).key("a")


@pytest.mark.parametrize(
    ("key", "what"),
    [(b"secret", "6 bytes"), (b"s" * 33, "33 bytes"), ("s" * 32, "str"), (None, "NoneType")],
)
def test_a_key_has_32_bytes(key: bytes, what: str) -> None:
    with pytest.raises(EncryptionKeyError, match=f"the key 'a' is {what}: a key is 32"):
        Encryption(lambda _: key).key("a")


# -- files -----------------------------------------------------------------------------------------


def key_file(folder: Path, text: str | bytes = GOOD, mode: int = 0o600) -> Path:
    path = folder / "keys.toml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    path.chmod(mode)
    return path


def test_keys_are_read_from_a_file(tmp_path: Path) -> None:
    found = read_key_file(key_file(tmp_path))
    by_hand = Encryption({"2026-11": b"01234567890123456789012345678901"}.__getitem__, "2026-11")
    assert found.current == "2026-11"
    assert found.current_key().encryption_of(TOKEN) == by_hand.current_key().encryption_of(TOKEN)
    assert found.key("2025-07").key_id == "2025-07"
    assert read_key_file(key_file(tmp_path), reads_plain=True).reads_plain
    only_old = read_key_file(key_file(tmp_path, GOOD.replace("current", "# current")))
    assert only_old.current is None


@pytest.mark.skipif(sys.platform == "win32", reason="files have no such modes")
@pytest.mark.parametrize("mode", [0o604, 0o644, 0o620, 0o602, 0o610, 0o777])
def test_a_file_that_others_may_use_is_refused(tmp_path: Path, mode: int) -> None:
    with pytest.raises(KeyFileError, match=rf"\(mode {mode:o}\): run chmod 600") as caught:
        read_key_file(key_file(tmp_path, mode=mode))
    assert caught.value.path == str(tmp_path / "keys.toml")
    assert read_key_file(key_file(tmp_path, mode=0o400)).current == "2026-11"


BAD_FILES: dict[str, tuple[str | bytes, str]] = {
    "not toml": ("current = 0123456789 MDEyMzQ1", "is not TOML"),
    "not text": (b"\xff\xfeabcdefghij", "is not TOML"),
    "deep": ("a = " + "[" * 5000, "is not TOML"),
    "no keys": ('current = "a"', "no table"),
    "empty keys": ("[keys]", "no table"),
    "keys is a text": ('keys = "MDEyMzQ1"', "no table"),
    "unknown field": (GOOD.replace("current", "0123456789"), "unknown field"),
    "current is unknown": (
        GOOD.replace('current = "2026-11"', 'current = "0123456789"'),
        "current",
    ),
    "current is a list": (
        GOOD.replace('current = "2026-11"', 'current = ["abcdefghij"]'),
        "current",
    ),
    "no id": (GOOD.replace('"2025-07"', '""'), "the id of key 2"),
    "id with spaces": (GOOD.replace('"2025-07"', '"abcdefghij 0123456789"'), "the id of key 2"),
    "short": ('[keys]\na = "MDEyMzQ1"', "key 1 is not 32 bytes"),
    "not base64": ('[keys]\na = "MDEyMzQ1*"', "key 1 is not 32 bytes"),
    "not a text": ("[keys]\na = 123456", "key 1 is not 32 bytes"),
    "dotted id": ('[keys]\n2025.a = "MDEyMzQ1"', "key 1 is not 32 bytes"),
    "long": ("#" * (KEY_FILE_BYTES_MAX + 1), "more than 1048576 B"),
}


@pytest.mark.parametrize("case", BAD_FILES)
def test_a_bad_file_is_refused_without_its_content(tmp_path: Path, case: str) -> None:
    text, why = BAD_FILES[case]
    path = key_file(tmp_path, text)
    shown = shown_by(lambda: read_key_file(path), KeyFileError)
    assert why in shown
    assert not [secret for secret in SECRETS if secret in shown]


def test_a_missing_file_and_a_folder_are_refused(tmp_path: Path) -> None:
    for path in (tmp_path / "none", tmp_path):
        with pytest.raises(KeyFileError, match="cannot be read"):
            read_key_file(path)


# -- secrets ---------------------------------------------------------------------------------------


def shown_by(call: Callable[[], object], kind: type[LedgerError]) -> str:
    """Return all that a report of the call's error can show, local variables included."""
    with pytest.raises(kind) as caught:
        call()
    shown = []
    error: BaseException | None = caught.value
    while error is not None:
        told = traceback.TracebackException.from_exception(error, capture_locals=True)
        # The frames of this test hold what it wrote.
        frames = [str(summary.locals) for summary in told.stack if "tests" not in summary.filename]
        shown += [str(error), repr(error), *frames]
        error = error.__cause__ or error.__context__
    return "".join(shown)


def test_no_representation_shows_a_key(tmp_path: Path) -> None:
    encryption = read_key_file(key_file(tmp_path))
    key = encryption.current_key()
    metadata = ledger(key.encryption_of(TOKEN))
    parts = [encryption, key, cipher_to_read(metadata, encryption), sealer_to_write(metadata, key)]
    shown = "".join(map(repr, [*parts, metadata, metadata.encryption]))
    assert "0123456789" not in shown
    assert "Encryption(current='2026-11')" in shown
    assert "NamedKey('2026-11')" in shown


def test_no_error_shows_a_key(tmp_path: Path) -> None:
    encryption = read_key_file(key_file(tmp_path))
    metadata = ledger(encryption.current_key().encryption_of(TOKEN))
    other = Encryption(lambda _: b"0123456789" * 3 + b"xx", "2026-11")
    short = Encryption(lambda _: b"0123456789")
    calls: list[Callable[[], object]] = [
        lambda: cipher_to_read(metadata, other),
        lambda: sealer_to_write(metadata, other.current_key()),
        lambda: short.key("a"),
        lambda: encryption.key("none"),
    ]
    for call in calls:
        assert "0123456789" not in shown_by(call, EncryptionKeyError)
