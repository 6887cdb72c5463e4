"""A read is repeated until the store answers, and no longer."""

import random

import pytest

from metadata.backoff import until_answered
from metadata.errors import NodeNotFoundError, StoreUnavailableError


async def test_a_read_is_repeated_while_the_store_is_away(rng: random.Random) -> None:
    away = StoreUnavailableError("a read", "no session")
    outcomes: list[Exception | None] = [away, away, None]

    async def read() -> int:
        outcome = outcomes.pop(0)
        if outcome is not None:
            raise outcome
        return 7

    assert await until_answered(rng, read) == 7
    assert not outcomes


async def test_another_error_of_a_read_is_raised(rng: random.Random) -> None:
    async def read() -> int:
        raise NodeNotFoundError("/a")

    with pytest.raises(NodeNotFoundError):
        await until_answered(rng, read)
