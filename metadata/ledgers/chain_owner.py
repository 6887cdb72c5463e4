"""Owner of a chain: the principal that created it through a gateway. Pure.

Leaves what an owner may do to the gateway, which creates the node. Other creators of chains make
none: such a chain has no owner.

Format: the value of `/chains/<name>/owner` is a msgpack array [1, principal str].

Invariants: the node is created in one multi with the chain's head, and never changes; the removal
of a chain removes it.

Source: docs/security.md, "A gateway for clients".
"""

from functools import partial
from typing import Final

from metadata.errors import MetadataFormatError
from metadata.ledgers.ledger_owner import is_owner
from metadata.msgpack_fields import FieldError, pack_checked, text_of, unpack_versioned

_FORMAT_VERSION: Final = 1


def pack_chain_owner(what: str, principal: str) -> bytes:
    """Return the stored form."""
    return pack_checked(what, [_FORMAT_VERSION, principal], partial(unpack_chain_owner, what))


def unpack_chain_owner(what: str, value: bytes) -> str:
    """Read a stored form. Raises MetadataFormatError for anything else."""
    fields = unpack_versioned(what, value, _FORMAT_VERSION, 2)
    try:
        principal = text_of(fields[1])
    except FieldError as error:
        raise MetadataFormatError(what, str(error)) from error
    if not is_owner(principal):
        raise MetadataFormatError(what, "it names no principal")
    return principal
