"""Tests of the files of recorded answers to the script of security."""

import json

from tests.differential.security.golden import (
    EXPECTED,
    expected_answers,
    golden_text,
    recorded_answers,
)
from tests.differential.security.login import final_message, first_message


def test_recorded_answers_of_all_profiles_are_written_and_read() -> None:
    text = golden_text({"login/right": [1], "right/a @ x": 1, "right/a @ y": {"b": 2}})
    found = json.loads(text)
    assert found["login/right"] == [1]
    assert [each["profiles"] for each in found["right/a"]["answers"]] == [["x"], ["y"]]


def test_each_intended_difference_has_a_reason_and_is_none_of_kafkas_answers() -> None:
    golden, own = recorded_answers(), expected_answers()
    assert all(rule["reason"] for rule in json.loads(EXPECTED.read_text()))
    assert [name for name in own if name not in golden or own[name] == golden[name]] == []


def test_the_client_proves_the_password_of_rfc_5802() -> None:
    challenge = b"r=differentialclientserver,s=c2FsdA==,i=4096"
    proof = final_message("user", "pencil", challenge)
    assert first_message("user") == b"n,,n=user,r=differentialclient"
    assert proof.startswith(b"c=biws,r=differentialclientserver,p=")
    assert proof != final_message("user", "other", challenge)
