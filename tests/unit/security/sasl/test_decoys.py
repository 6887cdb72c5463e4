"""What stands for credentials of unknown users."""

import re

import pytest

from security.sasl.credentials import (
    ITERATIONS_DEFAULT,
    ITERATIONS_MIN,
    SALT_BYTES,
    ScramMechanism,
)
from security.sasl.decoys import Decoys, SaltForm

SECRET = b"0123456789abcdef"
SHA_256, SHA_512 = ScramMechanism


def test_a_user_has_the_same_decoy_each_time() -> None:
    assert Decoys(SECRET).credential("a", SHA_256) == Decoys(SECRET).credential("a", SHA_256)


def test_secret_user_and_mechanism_decide() -> None:
    salts = [
        Decoys(SECRET).credential("a", SHA_256).salt,
        Decoys(SECRET).credential("b", SHA_256).salt,
        Decoys(SECRET).credential("a", SHA_512).salt,
        Decoys(bytes(16)).credential("a", SHA_256).salt,
    ]
    assert len(set(salts)) == 4


def test_it_has_the_iterations_of_most_users() -> None:
    made = Decoys(SECRET, iterations=8_192).credential("a", SHA_512)
    assert (made.iterations, len(made.stored_key)) == (8_192, 64)


@pytest.mark.parametrize(
    ("form", "sizes"),
    [
        (SaltForm.QUIRE, {16}),
        (SaltForm.KAFKA_PYTHON, {24}),
        (SaltForm.LIBRDKAFKA, {64}),
        (SaltForm.KAFKA, {24, 25, 26}),
    ],
)
def test_its_salt_looks_like_those_of_a_tool(form: SaltForm, sizes: set[int]) -> None:
    decoys = Decoys(SECRET, salt_forms=[form])
    salts = [decoys.credential(f"user-{each}", SHA_256).salt for each in range(200)]
    assert len(set(salts)) == 200
    assert {len(salt) for salt in salts} <= sizes
    is_text = all(re.fullmatch(rb"[0-9a-z]+", salt) for salt in salts)
    assert is_text == (form is SaltForm.KAFKA)


def test_users_have_every_form_and_each_keeps_its_own() -> None:
    decoys = Decoys(SECRET)
    sizes = {}
    for user in map(str, range(100)):
        first, second = (len(decoys.credential(user, each).salt) for each in ScramMechanism)
        assert first == second or {first, second} <= {24, 25, 26}
        sizes[first] = user
    assert {16, 24, 25, 64} <= set(sizes)


def test_the_iterations_are_those_of_the_tool_that_makes_such_salts() -> None:
    """Otherwise 4,096 iterations would show that a user is not one of `quire user`."""
    decoys = Decoys(SECRET)
    seen = set()
    for user in map(str, range(100)):
        for mechanism in ScramMechanism:
            made = decoys.credential(user, mechanism)
            seen.add((len(made.salt) == SALT_BYTES, made.iterations))
    assert seen == {(True, ITERATIONS_DEFAULT), (False, ITERATIONS_MIN)}


def test_the_secret_is_not_shown() -> None:
    assert "0123" not in repr(Decoys(SECRET))


@pytest.mark.parametrize(
    ("secret", "iterations", "forms", "why"),
    [
        (b"short", 4_096, [SaltForm.QUIRE], "at least 16 B"),
        (SECRET, 1, [SaltForm.QUIRE], "iterations"),
        (SECRET, 4_096, [], "need a form"),
    ],
)
def test_other_parts_are_refused(
    secret: bytes, iterations: int, forms: list[SaltForm], why: str
) -> None:
    with pytest.raises(ValueError, match=why):
        Decoys(secret, iterations, forms)
