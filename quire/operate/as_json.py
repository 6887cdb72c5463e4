"""Conversion of metadata values to JSON values."""

import base64
from collections.abc import Sequence
from typing import Final

from bookie.storage.writability import reasons_of
from metadata.ledgers.ledger_metadata import Fragment, LedgerMetadata, QuorumSpec
from metadata.ledgers.lost_entries import LostRange
from metadata.ledgers.payload_encryption import PayloadEncryption
from metadata.registry.registration import BookieRegistration
from metadata.repair.lifecycle import Lifecycle
from quire.operate.fields import Json

UP: Final = "up"
READ_ONLY: Final = "read-only"
DOWN: Final = "down"


def state_of(
    registration: BookieRegistration | None, lifecycle: Lifecycle = Lifecycle.ACTIVE
) -> str:
    """Return the state of a bookie in a word: how it is registered if it is active, otherwise its
    lifecycle.
    """
    if lifecycle is not Lifecycle.ACTIVE:
        return str(lifecycle)
    if registration is None:
        return DOWN
    return UP if registration.writable else READ_ONLY


def registration_as_json(registration: BookieRegistration) -> dict[str, Json]:
    """Return the fields of a registered bookie."""
    return {
        "id": registration.bookie_id,
        "address": registration.address,
        "state": state_of(registration),
        "conditions": [reason.value for reason in reasons_of(registration.features)],
        "admin_url": registration.admin_url or None,
        "location": registration.location,
        "host": registration.place.host,
        "capacity_bytes": registration.capacity_bytes,
        "free_bytes": registration.free_bytes,
        "weight": registration.weight,
        "is_writable": registration.writable,
        "tls": registration.tls,
        "build": registration.build,
        "wire_versions": list(registration.wire_versions),
        "disk_versions": list(registration.disk_versions),
        "features": list(registration.features),
    }


def metadata_as_json(ledger: LedgerMetadata) -> dict[str, Json]:
    """Return a ledger's fields as they are stored."""
    encryption = ledger.encryption
    return {
        "ledger_id": ledger.ledger_id,
        "state": str(ledger.state),
        "last_entry_id": ledger.last_entry_id,
        "length": ledger.length,
        "quorum": quorum_as_json(ledger.quorum),
        "digest": str(ledger.digest),
        "created_ms": ledger.created_ms,
        "writer": ledger.writer,
        "owner": ledger.owner or None,
        "metadata": {name: text_or_base64(value) for name, value in ledger.custom.items()},
        "fragments": fragments_as_json(ledger.fragments),
        "given_up": fragments_as_json(ledger.given_up),
        "lost": lost_as_json(ledger.lost),
        "encryption": None if encryption is None else encryption_as_json(encryption),
    }


def quorum_as_json(quorum: QuorumSpec) -> dict[str, Json]:
    """Return how a ledger is replicated."""
    return {
        "mode": str(quorum.mode),
        "ensemble": quorum.ensemble_size,
        "write": quorum.write_quorum,
        "ack": quorum.ack_quorum,
        "stripe_entries": quorum.stripe_entries,
        "min_in_sync": quorum.min_in_sync if quorum.is_in_sync else None,
    }


def encryption_as_json(encryption: PayloadEncryption) -> dict[str, Json]:
    """Return how payloads are encrypted; nothing of it is secret."""
    return {
        "cipher": str(encryption.cipher),
        "key_id": encryption.key_id,
        "key_token": encryption.key_token.hex(),
    }


def text_or_base64(value: str | bytes) -> Json:
    """Return a value of custom metadata."""
    if isinstance(value, str):
        return value
    return {"base64": base64.b64encode(value).decode("ascii")}


def data_as_json(name: str, data: bytes) -> dict[str, Json]:
    """Return bytes as the field `name` if they are UTF-8, otherwise as `name`_base64."""
    try:
        return {name: data.decode()}
    except UnicodeDecodeError:
        return {f"{name}_base64": base64.b64encode(data).decode("ascii")}


def lost_as_json(lost: Sequence[LostRange]) -> list[dict[str, Json]]:
    """Return the ranges of entries whose loss was accepted; `last` is null in a range after the
    end.
    """
    return [
        {
            "first": lost_range.first_entry_id,
            "last": None if lost_range.is_after_the_end else lost_range.last_entry_id,
            "accepted_ms": lost_range.accepted_ms,
        }
        for lost_range in lost
    ]


def fragments_as_json(fragments: Sequence[Fragment]) -> list[dict[str, Json]]:
    """Return a ledger's fragments."""
    return [
        {
            "first_entry_id": fragment.first_entry_id,
            "ensemble": list(fragment.ensemble),
            "incoming": list(fragment.incoming),
        }
        for fragment in fragments
    ]
