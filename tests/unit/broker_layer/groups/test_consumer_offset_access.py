"""Who may commit and fetch the offsets of a KIP-848 group."""

import pytest

from broker_layer.groups.consumer_group import ConsumerGroup
from broker_layer.kafka.error_codes import ErrorCode
from tests.support.broker_layer.consumer_driver import Client, ConsumerDriver

NONE = ErrorCode.NONE


def joined() -> ConsumerGroup:
    """Return a group with a member `a`, in epoch 1."""
    driver = ConsumerDriver()
    driver.send(Client("a"))
    return driver.group


COMMITS = [
    ("", None, -1, False, ErrorCode.UNKNOWN_MEMBER_ID),
    ("", None, -1, True, NONE),
    ("", None, 0, True, ErrorCode.UNKNOWN_MEMBER_ID),
    ("", "i", -1, True, ErrorCode.UNKNOWN_MEMBER_ID),
    ("x", None, -1, True, ErrorCode.UNKNOWN_MEMBER_ID),
    ("x", None, 1, False, ErrorCode.UNKNOWN_MEMBER_ID),
    ("a", None, -1, True, ErrorCode.STALE_MEMBER_EPOCH),
    ("a", None, -1, False, ErrorCode.STALE_MEMBER_EPOCH),
    ("a", None, 0, False, ErrorCode.STALE_MEMBER_EPOCH),
    ("a", None, 2, True, ErrorCode.STALE_MEMBER_EPOCH),
    ("a", None, 1, True, NONE),
    ("a", "i", 1, False, NONE),
]


@pytest.mark.parametrize(("member", "instance", "epoch", "is_transactional", "expected"), COMMITS)
def test_who_may_commit_to_a_group_with_members(
    member: str, instance: str | None, epoch: int, *, is_transactional: bool, expected: ErrorCode
) -> None:
    group = joined()
    found = group.commit_refusal(member, instance, epoch, is_transactional=is_transactional)
    assert found is expected


@pytest.mark.parametrize("is_transactional", [False, True])
def test_who_may_commit_to_an_empty_group(*, is_transactional: bool) -> None:
    group = ConsumerDriver().group
    for member, epoch, expected in [
        ("", -1, NONE),
        ("x", -1, NONE),
        ("", 0, ErrorCode.UNKNOWN_MEMBER_ID),
        ("x", 1, ErrorCode.UNKNOWN_MEMBER_ID),
    ]:
        found = group.commit_refusal(member, None, epoch, is_transactional=is_transactional)
        assert found is expected


@pytest.mark.parametrize(
    ("member", "epoch", "expected"),
    [
        (None, -1, NONE),
        ("", -1, NONE),
        (None, 0, ErrorCode.UNKNOWN_MEMBER_ID),
        ("", 0, ErrorCode.UNKNOWN_MEMBER_ID),
        ("", 1, ErrorCode.UNKNOWN_MEMBER_ID),
        ("x", -1, ErrorCode.UNKNOWN_MEMBER_ID),
        ("a", -1, ErrorCode.STALE_MEMBER_EPOCH),
        ("a", 2, ErrorCode.STALE_MEMBER_EPOCH),
        ("a", 1, NONE),
    ],
)
def test_who_may_fetch_offsets(member: str | None, epoch: int, expected: ErrorCode) -> None:
    assert joined().fetch_refusal(member, epoch) is expected
