"""Users: names, nodes, changes and the stored form."""

import contextlib

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from metadata.errors import MetadataFormatError
from metadata.security.errors import CredentialNotFoundError, InvalidUserNameError
from metadata.security.users import (
    NAME_CHARACTERS_MAX,
    USER_CODEC,
    UserRecord,
    altered,
    check_user_name,
    name_of_node,
    node_name,
    revoked,
    user_of,
)
from quire.identity.sasl.credentials import ScramCredential, ScramMechanism
from tests.support.metadata.users import credential

SHA_256, SHA_512 = ScramMechanism

names = st.text(st.characters(exclude_categories=["Cc", "Cs", "Zl", "Zp"]), min_size=1, max_size=30)
credentials = st.builds(credential, st.sampled_from(ScramMechanism), st.integers(0, 255))
users = st.builds(user_of, names, st.lists(credentials, min_size=1, max_size=3))


@given(users)
def test_a_user_is_read_as_it_was_stored(user: UserRecord) -> None:
    assert USER_CODEC.unpack("x", USER_CODEC.pack("x", user), name=user.name) == user


@given(st.binary(max_size=200))
def test_any_bytes_are_read_or_refused(value: bytes) -> None:
    with contextlib.suppress(MetadataFormatError):
        assert isinstance(USER_CODEC.unpack("x", value, name="a"), UserRecord)


@pytest.mark.parametrize(
    ("index", "field"),
    [
        (1, 7),
        (1, {}),
        (1, {"PLAIN": credential(SHA_256).text}),
        (1, {"SCRAM-SHA-512": credential(SHA_256).text}),
        (1, {"SCRAM-SHA-256": "salt=,stored_key=,server_key=,iterations=1"}),
        (1, {"SCRAM-SHA-256": 1}),
    ],
)
def test_a_wrong_field_is_refused(index: int, field: object) -> None:
    fields = msgpack.unpackb(USER_CODEC.pack("x", user_of("a", [credential(SHA_256)])))
    fields[index] = field
    with pytest.raises(MetadataFormatError):
        USER_CODEC.unpack("x", msgpack.packb(fields), name="a")


@given(names)
def test_a_node_leads_back_to_its_user(name: str) -> None:
    node = node_name(name)
    assert name_of_node(node) == name
    assert node.isascii()
    assert "/" not in node
    assert not node.startswith(".")


@pytest.mark.parametrize(
    ("name", "node"),
    [
        ("alice", "alice"),
        ("..", "%2E."),
        ("a.b", "a.b"),
        ("a/b", "a%2Fb"),
        ("100%", "100%25"),
        ("é", "%C3%A9"),
    ],
)
def test_nodes_read_as_documented(name: str, node: str) -> None:
    assert node_name(name) == node


@pytest.mark.parametrize("node", ["", "%61", "a b", "%c3%a9", "%FF", "..", "%0A", "a%", "é"])
def test_another_form_of_a_node_is_refused(node: str) -> None:
    with pytest.raises(MetadataFormatError):
        name_of_node(node)


@pytest.mark.parametrize(
    "name", ["", "x" * (NAME_CHARACTERS_MAX + 1), "a\0", "a\n", "\x7f", "\x85", "\ud800", "\u2028"]
)
def test_a_bad_name_is_refused(name: str) -> None:
    with pytest.raises(InvalidUserNameError, match="1 to 255 characters"):
        check_user_name(name)


def test_the_longest_name_is_allowed() -> None:
    name = "\U0001f600" * NAME_CHARACTERS_MAX
    assert name_of_node(node_name(check_user_name(name))) == name


def test_deletions_come_before_upsertions() -> None:
    old, new = credential(SHA_256, 1), credential(SHA_256, 2)
    user = user_of("a", [old])
    assert altered("a", user, [SHA_256], []) is None
    assert altered("a", user, [SHA_256], [new]) == user_of("a", [new])
    assert altered("a", user, [], [new]) == user_of("a", [new])
    both = altered("a", user, [], [credential(SHA_512)])
    assert both is not None
    assert both.mechanisms == (SHA_256, SHA_512)
    assert altered("a", both, [SHA_256], []) == user_of("a", [credential(SHA_512)])
    assert altered("a", None, [], [new]) == user_of("a", [new])
    for known in (user, None):
        with pytest.raises(CredentialNotFoundError, match="no credential of SCRAM-SHA-512"):
            altered("a", known, [SHA_512], [])


def test_what_a_change_revokes() -> None:
    first, second = credential(SHA_256, 1), credential(SHA_512, 1)
    user = user_of("a", [second, first])
    assert revoked(user, user) == frozenset()
    assert revoked(user, None) == {SHA_256, SHA_512}
    assert revoked(user, user_of("a", [first])) == {SHA_512}
    assert revoked(user, user_of("a", [first, credential(SHA_512, 2)])) == {SHA_512}
    assert revoked(user_of("a", [first]), user) == frozenset()


def test_a_user_in_a_log_shows_no_keys() -> None:
    found: ScramCredential = credential(SHA_256, 7)
    text = repr(user_of("a", [found]))
    assert repr(found.stored_key) not in text
    assert repr(found.server_key) not in text
