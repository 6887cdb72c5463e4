"""Keys differ wherever they must, and no damaged or foreign batch is accepted."""

from dataclasses import replace

import pytest
from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st

from bookie.wire.batch import BatchView, build_batch
from bookie.wire.errors import BatchError
from ledger_client.digest import LedgerKeys, verify
from metadata.ids import EntryId, LedgerId, UpdateToken
from metadata.ledgers.ledger_metadata import (
    DigestType,
    LedgerMetadata,
    QuorumSpec,
)
from tests.support.sample_ledgers import ledger_of

TOKEN = UpdateToken(bytes(range(16)))


def keys(
    ledger_id: int = 7, digest: DigestType = DigestType.CRC32C, password: bytes = b"secret"
) -> LedgerKeys:
    return LedgerKeys.derive(LedgerId(ledger_id), TOKEN, digest, password)


def batch_of(of: LedgerKeys, payloads: list[bytes]) -> bytearray:
    return build_batch(of.ledger_id, EntryId(100), EntryId(99), 1000, payloads, of.seed, of.mac_key)


def test_the_seed_binds_ledger_and_token() -> None:
    assert keys().seed == crc32c(TOKEN + (7).to_bytes(8, "little"))
    assert keys().seed != keys(8).seed


def test_keys_are_separate() -> None:
    keyed = keys(digest=DigestType.HMAC_SHA256)
    assert keys().mac_key is None
    assert keyed.mac_key != keyed.master_key
    assert len(keyed.master_key) == 32
    others = [keys(8), keys(password=b""), keys(password=b"other")]
    assert len({keys().master_key, *[other.master_key for other in others]}) == 4
    other_token = UpdateToken(bytes(16))
    elsewhere = LedgerKeys.derive(LedgerId(7), other_token, DigestType.CRC32C, b"secret")
    assert elsewhere.master_key != keys().master_key


def test_keys_do_not_show_in_messages() -> None:
    keyed = keys(digest=DigestType.HMAC_SHA256)
    assert "key" not in repr(keyed)


@pytest.mark.parametrize("digest", list(DigestType))
def test_a_good_batch_passes(digest: DigestType) -> None:
    of = keys(digest=digest)
    verify(BatchView(batch_of(of, [b"a", b"", b"ccc"])), of)


@given(st.data(), st.sampled_from(list(DigestType)))
def test_no_flipped_bit_passes(data: st.DataObject, digest: DigestType) -> None:
    of = keys(digest=digest)
    damaged = batch_of(of, [b"one", b"two", b"three"])
    bit = data.draw(st.integers(0, len(damaged) * 8 - 1))
    damaged[bit // 8] ^= 1 << bit % 8
    with pytest.raises(BatchError):
        verify(BatchView(damaged), of)


def test_another_ledger_is_refused() -> None:
    with pytest.raises(BatchError, match="does not belong to ledger 7"):
        verify(BatchView(batch_of(keys(8), [b"a"])), keys(7))


def test_the_wrong_password_is_refused() -> None:
    stored = batch_of(keys(digest=DigestType.HMAC_SHA256), [b"a"])
    with pytest.raises(BatchError, match="wrong password"):
        verify(BatchView(stored), keys(digest=DigestType.HMAC_SHA256, password=b"other"))


def test_a_keyed_ledger_takes_no_batch_without_mac() -> None:
    keyed, plain = keys(digest=DigestType.HMAC_SHA256), keys()
    with pytest.raises(BatchError, match="no MAC"):
        verify(BatchView(batch_of(plain, [b"a"])), keyed)
    with pytest.raises(BatchError, match="the ledger uses none"):
        verify(BatchView(batch_of(keyed, [b"a"])), plain)


def test_a_slice_is_checked_by_the_writers_digests() -> None:
    of = keys()
    whole = BatchView(batch_of(of, [b"one", b"two", b"three"]))
    piece = BatchView(whole.cut(EntryId(101), EntryId(102)))
    assert piece.header.is_slice
    verify(piece, of)
    # The bookie that cut it writes a new CRC, so only the digests show that a payload changed.
    forged = BatchView(
        build_batch(of.ledger_id, EntryId(100), EntryId(99), 0, [b"one", b"XXX"], of.seed + 1)
    )
    with pytest.raises(BatchError, match="fails its digest"):
        verify(BatchView(forged.cut(EntryId(101), EntryId(101))), of)


# -- keys without the password ---------------------------------------------------------------------


def metadata_with(digest: DigestType) -> LedgerMetadata:
    ledger = ledger_of((0, "a"), quorum=QuorumSpec(1, 1, 1), digest=digest)
    return replace(ledger, creation_token=TOKEN)


def repair_keys(digest: DigestType) -> LedgerKeys:
    master_key = keys(digest=digest).master_key
    return LedgerKeys.with_master_key(metadata_with(digest), master_key)


def test_of_a_ledger_without_macs_the_master_key_is_all() -> None:
    assert repair_keys(DigestType.CRC32C) == keys()


def test_of_a_ledger_with_macs_only_the_mac_key_is_missing() -> None:
    complete, found = keys(digest=DigestType.HMAC_SHA256), repair_keys(DigestType.HMAC_SHA256)
    assert (found.seed, found.master_key) == (complete.seed, complete.master_key)
    assert (found.mac_key, found.lacks_mac_key, found.have_macs) == (None, True, True)
    assert (complete.lacks_mac_key, complete.have_macs) == (False, True)
    assert not keys().have_macs


@given(st.data(), st.sampled_from(list(DigestType)))
def test_without_the_password_no_flipped_bit_passes_either(
    data: st.DataObject, digest: DigestType
) -> None:
    batch = batch_of(keys(digest=digest), [b"one", b"two", b"three"])
    verify(BatchView(batch), repair_keys(digest))
    bit = data.draw(st.integers(0, len(batch) * 8 - 1))
    batch[bit // 8] ^= 1 << bit % 8
    with pytest.raises(BatchError):
        verify(BatchView(batch), repair_keys(digest))


def test_without_the_password_entries_are_checked_by_the_writers_digests() -> None:
    complete, found = keys(digest=DigestType.HMAC_SHA256), repair_keys(DigestType.HMAC_SHA256)
    foreign = replace(complete, seed=complete.seed + 1)  # its CRC and its MAC are valid
    verify(BatchView(batch_of(foreign, [b"a"])), complete)
    with pytest.raises(BatchError, match="fails its digest"):
        verify(BatchView(batch_of(foreign, [b"a"])), found)


def test_without_the_password_the_mac_is_not_checked_but_required() -> None:
    forged = keys(digest=DigestType.HMAC_SHA256, password=b"other")
    found = repair_keys(DigestType.HMAC_SHA256)
    verify(BatchView(batch_of(forged, [b"a"])), found)
    plain = batch_of(keys(), [b"one", b"two"])
    part = BatchView(plain).cut(EntryId(101), EntryId(101))
    for without_mac in (plain, part):
        with pytest.raises(BatchError, match="has no MAC, but the ledger uses them"):
            verify(BatchView(without_mac), found)
