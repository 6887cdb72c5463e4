"""A position is used only with the chain, ledger or topic that it was recorded for."""

import copy
import json
import pickle

import pytest

from metadata.errors import InvalidChainNameError, InvalidTopicNameError
from metadata.ledgers.chain import check_chain_name
from metadata.topics.topic import check_topic_name
from spark_io.errors import OffsetError, OptionError, RecreatedError
from spark_io.offsets import (
    IDS_KEY,
    IdentityCheck,
    check_option,
    separated,
    with_identities,
)

PRESENT = {"a": "01", "b": "02"}


def check(*, fail_on_data_loss: bool = True) -> IdentityCheck:
    return IdentityCheck("topic", PRESENT, fail_on_data_loss=fail_on_data_loss)


def test_identities_are_stored_beside_the_positions() -> None:
    positions: dict[str, object] = {"link": 3, "entry": 5}
    offset = with_identities(positions, {"b": "02", "a": "01"})
    assert json.dumps(offset) == '{"link": 3, "entry": 5, "$ids": {"a": "01", "b": "02"}}'
    assert separated(json.loads(json.dumps(offset))) == (positions, {"a": "01", "b": "02"})
    assert IDS_KEY in offset, "separated() does not change its argument"


def test_an_offset_of_a_user_may_have_no_identities() -> None:
    assert separated({"17": 5}) == ({"17": 5}, {})


def test_nothing_can_have_the_name_of_the_key() -> None:
    with pytest.raises(InvalidTopicNameError):
        check_topic_name(IDS_KEY)
    with pytest.raises(InvalidChainNameError):
        check_chain_name(IDS_KEY)
    assert not IDS_KEY.isdecimal()


@pytest.mark.parametrize("offset", [[], 5, {IDS_KEY: "a"}, {IDS_KEY: {"a": 1}}, {IDS_KEY: None}])
def test_malformed_offsets_are_refused(offset: object) -> None:
    with pytest.raises(OffsetError):
        separated(offset)


def test_the_same_identities_are_no_change() -> None:
    assert check().recreated(PRESENT, PRESENT) == []


def test_another_identity_is_an_error() -> None:
    with pytest.raises(RecreatedError, match="topic 'b' was deleted and created again") as caught:
        check().recreated({"a": "01", "b": "77"}, ["a", "b"])
    assert (caught.value.kind, caught.value.name) == ("topic", "b")
    assert "new checkpoint" in str(caught.value)
    assert "failOnDataLoss=false" in str(caught.value)


def test_another_identity_is_returned_if_data_loss_is_allowed() -> None:
    lenient = check(fail_on_data_loss=False)
    assert lenient.recreated({"a": "01", "b": "77"}, ["a", "b"]) == ["b"]
    assert lenient.recreated({"a": "01", "b": "77"}, ["a"]) == []


@pytest.mark.parametrize("fail_on_data_loss", [False, True])
def test_a_missing_identity_is_an_error(fail_on_data_loss: bool) -> None:
    with pytest.raises(OffsetError, match=r"topic 'a'.*a new checkpoint"):
        check(fail_on_data_loss=fail_on_data_loss).recreated({}, ["a"])


def test_what_is_not_read_now_is_not_compared() -> None:
    assert check().recreated({"c": "03"}, ["c", "d"]) == []


def test_offsets_of_options_may_have_no_identities() -> None:
    check_option("startingOffsets", "topic", {}, PRESENT)
    check_option("startingOffsets", "topic", {"a": "01"}, PRESENT)


@pytest.mark.parametrize("recorded", [{"a": "77"}, {"a": ""}, {"c": "03"}])
def test_other_identities_in_options_are_refused(recorded: dict[str, str]) -> None:
    with pytest.raises(OptionError, match=r"'startingOffsets'.*names another topic") as caught:
        check_option("startingOffsets", "topic", recorded, PRESENT)
    assert "without $ids" in str(caught.value)


def test_each_change_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    check().log(["a", "b", "a"])
    assert len(caplog.records) == 2
    assert "topic 'a' was deleted and created again" in caplog.text


def test_the_error_can_be_copied() -> None:
    error = RecreatedError("chain", "events", "the query began")
    for again in (pickle.loads(pickle.dumps(error)), copy.copy(error)):
        assert (type(again), str(again), again.name) == (type(error), str(error), "events")
