"""Credentials for tests of users."""

from quire.identity.sasl.credentials import ITERATIONS_MIN, ScramCredential, ScramMechanism


def credential(mechanism: ScramMechanism, seed: int = 0) -> ScramCredential:
    """Return a credential of a mechanism; other seeds have other keys."""
    keys = [bytes((seed, number)) * (mechanism.key_bytes // 2) for number in range(2)]
    return ScramCredential(mechanism, b"salt%d" % seed, keys[0], keys[1], ITERATIONS_MIN)
