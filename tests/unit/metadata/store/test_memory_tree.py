"""The tree of the in-memory metadata service: older states, and changes of all or nothing."""

import pytest

from metadata.errors import MetadataError, NodeNotFoundError, VersionConflictError
from metadata.ids import Version
from metadata.store.interface import Check, CompareAndSet, Create, Delete, Operation
from metadata.store.memory_tree import NO_OWNER, MemoryTree

OWNER = 7


def tree_of(*operations: Operation) -> MemoryTree:
    tree = MemoryTree()
    for operation in operations:
        tree.apply([operation], NO_OWNER)
    return tree


def test_a_node_is_read_as_it_was_some_changes_ago() -> None:
    tree = tree_of(
        Create("/a", b"0"),
        Create("/b", b""),
        CompareAndSet("/a", b"1", Version(0)),
        Delete("/b", Version(0)),
    )
    assert tree.change_count == 4
    assert [tree.get("/a", missed).value for missed in (0, 1, 2, 3)] == [b"1", b"1", b"0", b"0"]
    assert tree.get("/a").value == b"1"
    with pytest.raises(NodeNotFoundError):
        tree.get("/a", 4)
    with pytest.raises(NodeNotFoundError):
        tree.get("/b")
    assert tree.get("/b", 1).version == 0
    assert tree.get("/", 100).version == 0, "no more changes than there were"


def test_names_are_read_as_they_were_some_changes_ago() -> None:
    tree = tree_of(
        Create("/a", b""),
        Create("/a/x", b""),
        Create("/b", b""),
        CompareAndSet("/a/x", b"1", Version(0)),
        Delete("/a/x", Version(1)),
    )
    assert tree.children("/") == ["a", "b"]
    assert tree.children("/a") == []
    assert [tree.children("/a", missed) for missed in (1, 2, 3, 4)] == [["x"], ["x"], ["x"], []]
    assert [tree.children("/", missed) for missed in (2, 3, 5)] == [["a", "b"], ["a"], []]


def test_a_change_that_was_just_made_is_seen_unless_it_is_missed() -> None:
    tree = tree_of(Create("/a", b""))
    assert tree.children("/") == ["a"]
    assert tree.get("/a").value == b""
    assert tree.children("/", 1) == []


def test_operations_apply_all_or_none() -> None:
    tree = tree_of(Create("/a", b"0"), Create("/b", b"0"))
    with pytest.raises(VersionConflictError):
        tree.apply(
            [
                Create("/c", b""),
                CompareAndSet("/a", b"1", Version(0)),
                Delete("/b", Version(0)),
                Check("/a", Version(5)),
            ],
            NO_OWNER,
        )
    assert tree.children("/") == ["a", "b"]
    assert (tree.get("/a").value, tree.get("/a").version) == (b"0", 0)
    assert tree.get("/b").value == b"0"
    assert tree.change_count == 2


def test_a_check_changes_nothing() -> None:
    tree = tree_of(Create("/a", b""))
    versions, changes = tree.apply([Check("/a", Version(0)), Create("/b", b"")], NO_OWNER)
    assert versions == [0, 0]
    assert [change.path for change in changes] == ["/b"]


def test_an_ephemeral_node_has_an_owner_and_no_children() -> None:
    tree = MemoryTree()
    tree.apply([Create("/mine", b"", ephemeral=True), Create("/ours", b"")], OWNER)
    assert tree.get("/mine").ephemeral
    assert not tree.get("/ours").ephemeral
    with pytest.raises(MetadataError, match="ephemeral"):
        tree.apply([Create("/mine/child", b"")], OWNER)
    assert tree.children("/mine") == []
    assert [change.path for change in tree.remove_owned(OWNER)] == ["/mine"]
    assert tree.children("/") == ["ours"]


@pytest.mark.parametrize("path", ["", "a", "/a/", "/a//b"])
def test_a_path_of_another_form_is_a_bug_of_the_caller(path: str) -> None:
    tree = tree_of(Create("/a", b""))
    with pytest.raises(AssertionError):
        tree.get(path)
    with pytest.raises(AssertionError):
        tree.children(path)
    with pytest.raises(AssertionError):
        tree.apply([Create(path, b"")], NO_OWNER)
