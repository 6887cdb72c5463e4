"""Bytes of a chain's owner."""

import pytest

from metadata.errors import MetadataFormatError
from metadata.ledgers.chain_owner import OWNER_CODEC
from metadata.msgpack_fields import pack


def test_an_owner_is_read_as_it_was_written() -> None:
    value = OWNER_CODEC.pack("it", "User:alice")
    assert value == bytes.fromhex("9201aa") + b"User:alice"
    assert OWNER_CODEC.unpack("it", value) == "User:alice"


@pytest.mark.parametrize(
    "value",
    [b"", b"x", pack("it", [2, "User:alice"]), pack("it", [1, "alice"]), pack("it", [1, 5])],
)
def test_what_is_no_owner(value: bytes) -> None:
    with pytest.raises(MetadataFormatError):
        OWNER_CODEC.unpack("it", value)
