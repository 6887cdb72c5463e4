"""Codec of one ledger's metadata.

Leaves storing the bytes to `metadata.ledgers.ledger_store`.

Format: one msgpack array; each bookie id is stored once and referred to by its index.

    index  field            msgpack type
    0      format version   int, 1
    1      ledger id        int
    2      state            str
    3      quorum           [mode str, E, WQ, AQ, stripe_entries, min_in_sync,
                            replica_lag_time_max_ms]
    4      bookie ids       [str], in order of first mention
    5      fragments        [[first entry id, [index], [index of incoming]]]; the last field is
                            left out when nothing is incoming
    6      digest type      str
    7      created          int, milliseconds since 1970
    8      creation token   bin, 16 bytes
    9      update token     bin, 16 bytes
    10     writer           str, client id
    11     last entry id    int or nil
    12     length           int or nil
    13     custom           {str: str or bin}
    14     given up         fragments as in 5
    15     lost             [[first, last, accepted, milliseconds since 1970]]
    16     encryption       [cipher str, key id str, token of the key bin, check of the key bin], or
                            nil when payloads are plain
    17     owner            str, the principal that created the ledger; empty when there is none

Invariants: for any bytes, decoding returns `LedgerMetadata` or raises MetadataFormatError; a newer
format version is refused.

Source: protocol rules 1.1 and 9.9; metadata design, "Ledgers".
"""

from collections.abc import Mapping
from functools import partial
from itertools import pairwise
from types import MappingProxyType
from typing import Final

from metadata.errors import MetadataFormatError, ValueTooLargeError
from metadata.ids import (
    ENTRY_ID_MAX,
    LEDGER_ID_MAX,
    NO_ENTRY,
    UPDATE_TOKEN_BYTES,
    BookieId,
    ClientId,
    EntryId,
    LedgerId,
    UpdateToken,
    is_bookie_id,
)
from metadata.ledgers.ledger_metadata import (
    DigestType,
    Fragment,
    LedgerMetadata,
    LedgerState,
    QuorumMode,
    QuorumSpec,
)
from metadata.ledgers.ledger_owner import NO_OWNER, is_owner
from metadata.ledgers.lost_entries import LostRange, why_invalid
from metadata.ledgers.payload_encryption import Cipher, PayloadEncryption
from metadata.msgpack_fields import (
    FieldError,
    Packed,
    array_of,
    bytes_of,
    int_of,
    map_of,
    optional_int_of,
    pack_checked,
    text_of,
    unpack_versioned,
)
from metadata.store.interface import VALUE_BYTES_MAX

FORMAT_VERSION: Final = 1
_FIELD_COUNT: Final = 18
_ENCRYPTION_FIELD_COUNT: Final = 4
_QUORUM_FIELD_COUNT: Final = 7
_FRAGMENT_FIELD_COUNT: Final = 2
_LOST_FIELD_COUNT: Final = 3
_INT64_MAX: Final = 2**63 - 1


def encode_ledger_metadata(metadata: LedgerMetadata) -> bytes:
    """Return the stored form. Raises ValueTooLargeError above VALUE_BYTES_MAX, MetadataFormatError
    for metadata that could not be read back.
    """
    what = f"the metadata of ledger {metadata.ledger_id}"
    indexes: dict[BookieId, int] = {}
    fragments = [_packed_fragment(fragment, indexes) for fragment in metadata.fragments]
    given_up = [_packed_fragment(fragment, indexes) for fragment in metadata.given_up]
    custom: dict[str, Packed] = dict(metadata.custom)
    return pack_checked(
        what,
        [
            FORMAT_VERSION,
            metadata.ledger_id,
            str(metadata.state),
            _packed_quorum(metadata.quorum),
            list(indexes),
            fragments,
            str(metadata.digest),
            metadata.created_ms,
            metadata.creation_token,
            metadata.update_token,
            metadata.writer,
            metadata.last_entry_id,
            metadata.length,
            custom,
            given_up,
            [[lost.first_entry_id, lost.last_entry_id, lost.accepted_ms] for lost in metadata.lost],
            _packed_encryption(metadata.encryption),
            metadata.owner,
        ],
        partial(_require_readable, what),
    )


def decode_ledger_metadata(value: bytes, what: str = "ledger metadata") -> LedgerMetadata:
    """Read a stored form; `what` names it in the error. Raises MetadataFormatError for anything
    else.
    """
    fields = unpack_versioned(what, value, FORMAT_VERSION, _FIELD_COUNT)
    try:
        return _metadata_of(fields)
    except ValueError as error:
        raise MetadataFormatError(what, str(error)) from error


def _require_readable(what: str, value: bytes) -> None:
    if len(value) > VALUE_BYTES_MAX:
        raise ValueTooLargeError(what, len(value), VALUE_BYTES_MAX)
    decode_ledger_metadata(value, what)


def _metadata_of(fields: list[Packed]) -> LedgerMetadata:
    state = LedgerState(text_of(fields[2]))
    last_entry_id = optional_int_of(fields[11], NO_ENTRY, ENTRY_ID_MAX)
    length = optional_int_of(fields[12], 0, _INT64_MAX)
    closed = state is LedgerState.CLOSED
    if closed != (last_entry_id is not None) or closed != (length is not None):
        raise FieldError(
            "a last entry id and a length are present exactly when the ledger is closed"
        )
    quorum = _quorum_of(array_of(fields[3]))
    bookie_ids = _bookie_ids_of(array_of(fields[4]))
    fragments = _fragments_of(array_of(fields[5]), bookie_ids)
    if not fragments or fragments[0].first_entry_id != 0:
        raise FieldError("the first fragment does not start at entry 0")
    given_up = _fragments_of(array_of(fields[14]), bookie_ids)
    if given_up and (last_entry_id is None or given_up[0].first_entry_id != last_entry_id + 1):
        raise FieldError("fragments that were given up begin after the end of a closed ledger")
    lost = tuple(_lost_range_of(array_of(item)) for item in array_of(fields[15]))
    if why := why_invalid(lost, None if last_entry_id is None else EntryId(last_entry_id)):
        raise FieldError(why)
    owner = text_of(fields[17])
    if owner != NO_OWNER and not is_owner(owner):
        raise FieldError("the owner is not a principal")
    for fragment in (*fragments, *given_up):
        _check_size(fragment, quorum)
    return LedgerMetadata(
        ledger_id=LedgerId(int_of(fields[1], 0, LEDGER_ID_MAX)),
        state=state,
        quorum=quorum,
        fragments=fragments,
        digest=DigestType(text_of(fields[6])),
        created_ms=int_of(fields[7], 0, _INT64_MAX),
        creation_token=UpdateToken(bytes_of(fields[8], UPDATE_TOKEN_BYTES)),
        update_token=UpdateToken(bytes_of(fields[9], UPDATE_TOKEN_BYTES)),
        writer=ClientId(text_of(fields[10])),
        last_entry_id=None if last_entry_id is None else EntryId(last_entry_id),
        length=length,
        custom=_custom_of(fields[13]),
        given_up=given_up,
        lost=lost,
        encryption=_encryption_of(fields[16]),
        owner=owner,
    )


def _packed_encryption(encryption: PayloadEncryption | None) -> Packed:
    if encryption is None:
        return None
    return [
        str(encryption.cipher),
        encryption.key_id,
        encryption.key_token,
        encryption.key_check,
    ]


def _encryption_of(field: Packed) -> PayloadEncryption | None:
    if field is None:
        return None
    parts = array_of(field)
    if len(parts) != _ENCRYPTION_FIELD_COUNT:
        raise FieldError(f"the encryption has 4 fields, found {len(parts)}")
    return PayloadEncryption(
        cipher=Cipher(text_of(parts[0])),
        key_id=text_of(parts[1]),
        key_token=UpdateToken(bytes_of(parts[2])),
        key_check=bytes_of(parts[3]),
    )


def _lost_range_of(fields: list[Packed]) -> LostRange:
    if len(fields) != _LOST_FIELD_COUNT:
        raise FieldError(f"a range of lost entries has 3 fields, found {len(fields)}")
    first, last = (EntryId(int_of(field, 0, ENTRY_ID_MAX)) for field in fields[:2])
    return LostRange(first, last, int_of(fields[2], 0, _INT64_MAX))


def _check_size(fragment: Fragment, quorum: QuorumSpec) -> None:
    size, wanted = len(fragment.ensemble), quorum.ensemble_size
    if size > wanted or (size < wanted and not quorum.is_in_sync):
        raise FieldError(f"an ensemble has {size} bookies, the quorum needs {wanted}")


def _packed_fragment(fragment: Fragment, indexes: dict[BookieId, int]) -> Packed:
    ensemble = _interned(fragment.ensemble, indexes)
    if not fragment.incoming:
        return [fragment.first_entry_id, ensemble]
    return [fragment.first_entry_id, ensemble, _interned(fragment.incoming, indexes)]


def _interned(bookie_ids: tuple[BookieId, ...], indexes: dict[BookieId, int]) -> list[Packed]:
    return [indexes.setdefault(bookie_id, len(indexes)) for bookie_id in bookie_ids]


def _packed_quorum(quorum: QuorumSpec) -> list[Packed]:
    return [
        str(quorum.mode),
        quorum.ensemble_size,
        quorum.write_quorum,
        quorum.ack_quorum,
        quorum.stripe_entries,
        quorum.min_in_sync,
        quorum.replica_lag_time_max_ms,
    ]


def _quorum_of(fields: list[Packed]) -> QuorumSpec:
    if len(fields) != _QUORUM_FIELD_COUNT:
        raise FieldError(f"a quorum has {_QUORUM_FIELD_COUNT} fields, found {len(fields)}")
    numbers = [int_of(field, 0, _INT64_MAX) for field in fields[1:]]
    return QuorumSpec(
        ensemble_size=numbers[0],
        write_quorum=numbers[1],
        ack_quorum=numbers[2],
        stripe_entries=numbers[3],
        mode=QuorumMode(text_of(fields[0])),
        min_in_sync=numbers[4],
        replica_lag_time_max_ms=numbers[5],
    )


def _bookie_ids_of(fields: list[Packed]) -> list[BookieId]:
    texts = [text_of(field) for field in fields]
    for text in texts:
        if not is_bookie_id(text):
            raise FieldError(f"{text!r} is not a bookie id")
    if len(set(texts)) != len(texts):
        raise FieldError("the table of bookie ids repeats one")
    return [BookieId(text) for text in texts]


def _fragments_of(fields: list[Packed], bookie_ids: list[BookieId]) -> tuple[Fragment, ...]:
    fragments = tuple(_fragment_of(array_of(field), bookie_ids) for field in fields)
    firsts = [fragment.first_entry_id for fragment in fragments]
    if any(a >= b for a, b in pairwise(firsts)):
        raise FieldError("the first entry ids of the fragments do not increase")
    return fragments


def _fragment_of(fields: list[Packed], bookie_ids: list[BookieId]) -> Fragment:
    if len(fields) not in (_FRAGMENT_FIELD_COUNT, _FRAGMENT_FIELD_COUNT + 1):
        raise FieldError(f"a fragment has 2 or 3 fields, found {len(fields)}")
    ensemble = _members_of(fields[1], bookie_ids)
    if not ensemble:
        raise FieldError("a fragment has no bookies")
    repaired = len(fields) > _FRAGMENT_FIELD_COUNT
    incoming = _members_of(fields[2], bookie_ids) if repaired else ()
    return Fragment(EntryId(int_of(fields[0], 0, ENTRY_ID_MAX)), ensemble, incoming)


def _members_of(field: Packed, bookie_ids: list[BookieId]) -> tuple[BookieId, ...]:
    members = tuple(bookie_ids[int_of(i, 0, len(bookie_ids) - 1)] for i in array_of(field))
    if len(set(members)) != len(members):
        raise FieldError("a fragment names a bookie twice")
    return members


def _custom_of(field: Packed) -> Mapping[str, str | bytes]:
    custom: dict[str, str | bytes] = {}
    for name, value in map_of(field).items():
        if not isinstance(value, str | bytes):
            raise FieldError(f"the custom metadata {name!r} is neither text nor bytes")
        custom[name] = value
    return MappingProxyType(custom)
