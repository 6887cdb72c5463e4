"""The record of the logins that are servers and clients."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from metadata.errors import MetadataFormatError
from metadata.msgpack_fields import pack
from metadata.paths import ALL, CHANGE, COOKIES, LEDGERS, NODE_RIGHTS, REPAIR_KEY, Right
from metadata.security.access_errors import InvalidIdentityError
from metadata.security.rights_record import (
    IDENTITIES_MAX,
    OPEN,
    OPEN_LIST,
    RIGHTS_NODE,
    AccessEntry,
    NodeRights,
    checked_rights,
)
from quire.identity.zookeeper_access import digest_identity

SERVERS = digest_identity("servers:0123456789abcdef")
CLIENTS = digest_identity("clients:0123456789abcdef")
RIGHTS = NodeRights((SERVERS,), (CLIENTS,))


def test_rights_of_nodes() -> None:
    servers = AccessEntry(SERVERS, ALL)
    assert RIGHTS.access_to(LEDGERS) == (AccessEntry(CLIENTS, CHANGE), servers)
    assert RIGHTS.access_to(f"{COOKIES}/b") == (AccessEntry(CLIENTS, Right.READ), servers)
    assert RIGHTS.access_to(REPAIR_KEY) == (servers,)
    assert OPEN.access_to(REPAIR_KEY) == OPEN_LIST
    assert NodeRights((SERVERS,)).access_to(LEDGERS) == (servers,)


@given(
    st.lists(st.integers(0, 9).map(lambda n: f"x509:CN=s{n},O=o"), min_size=1),
    st.lists(st.integers(0, 9).map(lambda n: f"x509:CN=c{n},O=o")),
)
def test_a_record_is_read_as_it_was_written(servers: list[str], clients: list[str]) -> None:
    rights = checked_rights(servers[:IDENTITIES_MAX], clients[:IDENTITIES_MAX])
    assert RIGHTS_NODE.unpack(RIGHTS_NODE.pack(rights)) == rights
    assert RIGHTS_NODE.unpack(RIGHTS_NODE.pack(OPEN)) == OPEN


@pytest.mark.parametrize(
    ("servers", "clients", "why"),
    [
        (["world:anyone"], [], "not the identity"),
        (["digest:servers:password"], [], "not the identity"),
        (["digest:a:b:" + "x" * 27 + "="], [], "not the identity"),
        (["x509:"], [], "not the identity"),
        (["x509:CN=" + "a" * 600], [], "not the identity"),
        ([SERVERS], [SERVERS], "both a server and a client"),
        ([], [CLIENTS], "no servers"),
        ([f"x509:CN={n}" for n in range(17)], [], "at most 16"),
    ],
)
def test_identities_that_cannot_have_rights(
    servers: list[str], clients: list[str], why: str
) -> None:
    with pytest.raises(InvalidIdentityError, match=why):
        checked_rights(servers, clients)
    with pytest.raises(MetadataFormatError, match=NODE_RIGHTS):
        RIGHTS_NODE.unpack(pack(NODE_RIGHTS, [1, list(servers), list(clients)]))


@pytest.mark.parametrize("value", [b"", b"\x91\x01", pack(NODE_RIGHTS, [1, [5], []])])
def test_other_values_are_refused(value: bytes) -> None:
    with pytest.raises(MetadataFormatError):
        RIGHTS_NODE.unpack(value)
