"""When the keys of tokens are read again, and what is used meanwhile."""

import asyncio
from dataclasses import dataclass, field

import pytest

from quire.identity.errors import JwksError
from quire.identity.sasl import jwks as jwks_cache
from quire.identity.sasl.jwks import KEYS_KEPT_S, REFRESH_GAP_S, URL_REFRESH_S, JwksCache
from tests.support.security.token_parts import ec_jwk, jwks


@dataclass
class Issuer:
    """A document that changes, and a clock."""

    document: bytes = jwks(ec_jwk(kid="a"))
    failure: str = ""
    reads: int = 0
    now_s: float = 5.0
    may_answer: asyncio.Event = field(default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        self.may_answer.set()
        self.cache = JwksCache(self.read, lambda: self.now_s)

    async def read(self) -> bytes:
        self.reads += 1
        await self.may_answer.wait()
        if self.failure:
            raise JwksError(self.failure)
        return self.document

    async def has(self, kid: str) -> bool:
        return await self.cache.find(kid, "ES256") is not None


async def test_a_document_is_read_once() -> None:
    issuer = Issuer()
    assert issuer.reads == 0
    assert await issuer.has("a")
    assert await issuer.has("a")
    assert issuer.reads == 1


async def test_keys_are_read_again_after_the_interval() -> None:
    issuer = Issuer()
    await issuer.has("a")
    issuer.now_s += URL_REFRESH_S - 1
    issuer.document = jwks(ec_jwk(kid="b"))
    assert await issuer.has("a")
    issuer.now_s += 1
    assert not await issuer.has("a")
    assert await issuer.has("b")
    assert issuer.reads == 2


async def test_an_unknown_key_is_looked_for_but_not_too_often() -> None:
    issuer = Issuer()
    assert not await issuer.has("b")
    issuer.document = jwks(ec_jwk(kid="a"), ec_jwk(kid="b"))
    issuer.now_s += REFRESH_GAP_S - 1
    for _ in range(100):
        assert not await issuer.has("b")
    assert issuer.reads == 1
    issuer.now_s += 1
    assert await issuer.has("b")
    assert issuer.reads == 2


async def test_many_clients_cause_one_read() -> None:
    issuer = Issuer()
    issuer.may_answer.clear()
    asking = [asyncio.create_task(issuer.has("a")) for _ in range(50)]
    await asyncio.sleep(0)
    issuer.may_answer.set()
    assert all(await asyncio.gather(*asking))
    assert issuer.reads == 1


async def test_a_client_that_leaves_does_not_stop_a_read() -> None:
    issuer = Issuer()
    issuer.may_answer.clear()
    leaving = asyncio.create_task(issuer.has("a"))
    staying = asyncio.create_task(issuer.has("a"))
    await asyncio.sleep(0)
    leaving.cancel()
    await asyncio.sleep(0)
    issuer.may_answer.set()
    assert await staying
    assert leaving.cancelled()
    assert issuer.reads == 1


@pytest.mark.parametrize("document", [b"", b"{}", b'{"keys": []}'])
async def test_a_document_that_cannot_be_used_leaves_the_old_keys(document: bytes) -> None:
    issuer = Issuer()
    await issuer.has("a")
    good, issuer.document = issuer.document, document
    issuer.now_s += URL_REFRESH_S
    assert await issuer.has("a")
    assert "JWKS document" in issuer.cache.failure
    issuer.document = good
    issuer.now_s += REFRESH_GAP_S
    assert await issuer.has("a")
    assert issuer.cache.failure == ""


async def test_old_keys_are_not_used_for_ever() -> None:
    issuer = Issuer()
    await issuer.has("a")
    issuer.failure = "the issuer is away"
    issuer.now_s += KEYS_KEPT_S
    assert await issuer.has("a")
    issuer.now_s += 1
    with pytest.raises(JwksError, match="no keys for tokens: the issuer is away"):
        await issuer.has("a")
    issuer.failure = ""
    issuer.now_s += REFRESH_GAP_S
    assert await issuer.has("a")


async def test_without_a_document_there_are_no_keys() -> None:
    issuer = Issuer(failure="the file is missing")
    for _ in range(3):
        with pytest.raises(JwksError, match="the file is missing"):
            await issuer.has("a")
    assert issuer.reads == 1


async def test_a_read_that_does_not_end_is_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jwks_cache, "READ_S_MAX", 0.0)
    issuer = Issuer()
    issuer.may_answer.clear()
    with pytest.raises(JwksError, match="was not read within"):
        await issuer.has("a")


async def test_closing_stops_a_read() -> None:
    issuer = Issuer()
    await issuer.cache.close()
    issuer.may_answer.clear()
    asking = asyncio.create_task(issuer.has("a"))
    await asyncio.sleep(0)
    await issuer.cache.close()
    with pytest.raises(asyncio.CancelledError):
        await asking
