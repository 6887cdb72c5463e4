"""What a session's ephemeral nodes are while writes are under way, in each order of the answers."""

import pytest

from metadata.ids import Version
from metadata.store.ephemeral import HeldNode, pack_held
from metadata.store.interface import CompareAndSet, Create, Delete, Stored
from quire.gateway.sessions import OwnNodes

PATH = "/clients/client-1"
OWN_SESSION, OTHER_SESSION = 7, 8
VALUE = pack_held(HeldNode(b"i" * 16, OWN_SESSION, b"own"))
OTHER = pack_held(HeldNode(b"i" * 16, OTHER_SESSION, b"other"))
CREATE, DELETE = Create(PATH, VALUE, ephemeral=True), Delete(PATH, Version(0))


@pytest.fixture
def nodes() -> OwnNodes:
    return OwnNodes()


def test_only_an_answer_gives_the_right(nodes: OwnNodes) -> None:
    sent = nodes.begin([CREATE])
    assert not nodes.has(PATH)
    nodes.note_done(sent)
    assert nodes.has(PATH)
    nodes.note_failed(nodes.begin([CREATE]))
    assert nodes.has(PATH)


def test_a_failed_creation_leaves_nothing(nodes: OwnNodes) -> None:
    nodes.note_failed(nodes.begin([CREATE]))
    assert (len(nodes), nodes.values_of(PATH)) == (0, [])


def test_a_sent_deletion_takes_the_right_until_it_failed(nodes: OwnNodes) -> None:
    nodes.note_done(nodes.begin([CREATE]))
    first, second = nodes.begin([DELETE]), nodes.begin([DELETE])
    assert not nodes.has(PATH)
    nodes.note_failed(second)
    assert not nodes.has(PATH)
    nodes.note_failed(first)
    assert nodes.has(PATH)


def test_a_second_deletion_that_fails_gives_nothing_back(nodes: OwnNodes) -> None:
    nodes.note_done(nodes.begin([CREATE]))
    first, second = nodes.begin([DELETE]), nodes.begin([DELETE])
    nodes.note_done(first)
    nodes.note_failed(second)
    assert not nodes.has(PATH)
    assert len(nodes) == 0


@pytest.mark.parametrize("is_created_first", [False, True])
def test_a_deletion_says_nothing_about_a_later_creation(
    nodes: OwnNodes, *, is_created_first: bool
) -> None:
    nodes.note_done(nodes.begin([CREATE]))
    deletion, creation = nodes.begin([DELETE]), nodes.begin([CREATE])
    if is_created_first:
        nodes.note_done(creation)
        nodes.note_done(deletion)
        assert nodes.has(PATH)
    else:
        nodes.note_done(deletion)
        assert not nodes.has(PATH)
        assert nodes.wrote(PATH, Stored(VALUE, Version(0), ephemeral=True), OWN_SESSION)
        nodes.note_done(creation)
        assert nodes.has(PATH)


def test_a_change_replaces_older_values(nodes: OwnNodes) -> None:
    nodes.note_done(nodes.begin([CREATE]))
    lost = nodes.begin([CompareAndSet(PATH, b"1", Version(0))])
    done = nodes.begin([CompareAndSet(PATH, b"2", Version(0))])
    assert nodes.values_of(PATH) == [VALUE, b"1", b"2"]
    nodes.note_failed(lost)
    nodes.note_done(done)
    assert nodes.values_of(PATH) == [b"2"]


def test_a_creation_without_an_answer_proves_no_value_of_another_session(nodes: OwnNodes) -> None:
    nodes.begin([Create(PATH, OTHER, ephemeral=True)])
    assert not nodes.wrote(PATH, Stored(OTHER, Version(0), ephemeral=True), OWN_SESSION)
    nodes.begin([Create(PATH, b"no held node", ephemeral=True)])
    stored = Stored(b"no held node", Version(0), ephemeral=True)
    assert not nodes.wrote(PATH, stored, OWN_SESSION)
