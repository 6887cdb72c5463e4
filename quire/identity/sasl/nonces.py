"""Nonces of SCRAM.

Leaves their place in messages to `scram_messages`.

Invariant: a nonce has printable characters of ASCII without the comma.

Source: RFC 5802, section 5.1.
"""

import base64
from random import Random
from typing import Final

NONCE_BYTES: Final = 18


def new_nonce(rng: Random) -> str:
    """Return one side's part of a nonce. The rng is a `SystemRandom`, except in tests."""
    return base64.b64encode(rng.randbytes(NONCE_BYTES)).decode()
