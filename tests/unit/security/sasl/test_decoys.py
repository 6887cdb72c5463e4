"""What stands for credentials of unknown users."""

import pytest

from security.sasl.credentials import ScramMechanism
from security.sasl.decoys import Decoys

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


def test_it_has_the_form_of_most_users() -> None:
    made = Decoys(SECRET, iterations=8_192, salt_bytes=200).credential("a", SHA_512)
    assert (made.iterations, len(made.salt), len(made.stored_key)) == (8_192, 200, 64)


def test_the_secret_is_not_shown() -> None:
    assert "0123" not in repr(Decoys(SECRET))


@pytest.mark.parametrize(
    ("secret", "iterations", "salt_bytes", "why"),
    [
        (b"short", 4_096, 16, "at least 16 B"),
        (SECRET, 1, 16, "iterations"),
        (SECRET, 4_096, 0, "a salt has"),
        (SECRET, 4_096, 2_000, "a salt has"),
    ],
)
def test_other_parts_are_refused(secret: bytes, iterations: int, salt_bytes: int, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        Decoys(secret, iterations, salt_bytes)
