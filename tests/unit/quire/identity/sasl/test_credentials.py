"""What is stored of a password for SCRAM."""

import base64

import pytest

from quire.identity.sasl.credentials import (
    ScramCredential,
    ScramMechanism,
    credential_of,
    parse_credential,
    salted_password,
)

SALT = base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")


def made(mechanism: ScramMechanism = ScramMechanism.SHA_256) -> ScramCredential:
    salted = salted_password(mechanism, "pencil", SALT, 4_096)
    return credential_of(mechanism, salted, SALT, 4_096)


def test_the_keys_are_those_of_rfc_7677() -> None:
    """The RFC gives the proofs of this password, which tests of `scram` check. These two values are
    those that other implementations test with.
    """
    credential = made()
    assert base64.b64encode(credential.stored_key) == (
        b"WG5d8oPm3OtcPnkdi4Uo7BkeZkBFzpcXkuLmtbsT4qY="
    )
    assert base64.b64encode(credential.server_key) == (
        b"wfPLwcE6nTWhTAmQ7tl2KeoiWGPlZqQxSrmfPwDl2dU="
    )


@pytest.mark.parametrize("mechanism", list(ScramMechanism))
def test_a_credential_is_read_as_it_was_written(mechanism: ScramMechanism) -> None:
    credential = made(mechanism)
    assert parse_credential(mechanism, credential.text) == credential


def test_the_keys_are_not_shown() -> None:
    shown = repr(made())
    assert shown == (
        "ScramCredential(mechanism=<ScramMechanism.SHA_256: 'SCRAM-SHA-256'>, iterations=4096)"
    )


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "has the fields"),
        ("salt=AA==,stored_key=AA==,server_key=AA==", "has the fields"),
        ("salt=AA==,stored_key=AA==,server_key=AA==,iterations=4096,x=1", "has the fields"),
        ("salt=A,stored_key=AA==,server_key=AA==,iterations=4096", "not base64"),
        ("salt=AA==,stored_key=AA==,server_key=AA==,iterations=many", "not a number"),
        ("salt=AA==,stored_key=AA==,server_key=AA==,iterations=4096", "has 32 B"),
        ("salt=,stored_key=AA==,server_key=AA==,iterations=4096", "1 to 1024 B"),
    ],
)
def test_other_texts_are_refused(text: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        parse_credential(ScramMechanism.SHA_256, text)


@pytest.mark.parametrize("iterations", [0, 4_095, 16_385])
def test_too_few_and_too_many_iterations_are_refused(iterations: int) -> None:
    with pytest.raises(ValueError, match="use 4096 to 16384 iterations"):
        credential_of(ScramMechanism.SHA_256, bytes(32), SALT, iterations)


def test_a_salted_password_of_another_mechanism_is_refused() -> None:
    with pytest.raises(ValueError, match="has 64 B"):
        credential_of(ScramMechanism.SHA_512, bytes(32), SALT, 4_096)
