"""Connections over TLS: to the right bookie, and to one without a trusted certificate (2.3)."""

import shutil
import ssl
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path
from random import Random

import pytest

from bookie.wire.messages import Pong, Status
from ledger_client.bookies.pool import BookieCallError, BookiePool, CallFailure
from ledger_client.bookies.pool_link import BookieAddress
from ledger_client.config import ClientConfig
from quire.identity import tls as renewed_tls
from quire.identity.tls import ContextSource, RenewedContext, fixed
from tests.support.ledger_client.pool_setting import Outcomes, send
from tests.support.ledger_client.scripted_bookie import ScriptedAddresses, ScriptedBookie
from tests.support.security.client_certificates import RenewedFiles

pytestmark = pytest.mark.skipif(
    shutil.which("openssl") is None, reason="needs openssl to make a certificate"
)


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Make a self-signed certificate of 127.0.0.1, and its key."""
    directory = tmp_path_factory.mktemp("tls")
    made, key = directory / "certificate.pem", directory / "key.pem"
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"]
    command += ["-nodes", "-days", "2", "-subj", "/CN=bookie", "-addext"]
    command += ["subjectAltName=IP:127.0.0.1", "-keyout", str(key), "-out", str(made)]
    subprocess.run(command, check=True, capture_output=True)
    return made, key


@pytest.fixture
async def bookie(certificate: tuple[Path, Path]) -> AsyncIterator[ScriptedBookie]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*certificate)
    bookie = ScriptedBookie("bookie-a")
    await bookie.start(context)
    yield bookie
    await bookie.stop()


def pool_over(bookie: ScriptedBookie, contexts: ContextSource, *, tls: bool) -> BookiePool:
    addresses = ScriptedAddresses(bookie)
    addresses.known[bookie.id] = BookieAddress(
        "127.0.0.1", bookie.address.port, is_tls=tls, offers_tls=tls
    )
    return BookiePool(addresses, config=ClientConfig(), rng=Random(1), ssl=contexts)


async def test_calls_and_adds(bookie: ScriptedBookie, certificate: tuple[Path, Path]) -> None:
    pool = pool_over(
        bookie, fixed(ssl.create_default_context(cafile=str(certificate[0]))), tls=True
    )
    assert await pool.ping(bookie.id, timeout_s=5) == Pong(writable=True, append_p99_us=0)
    sink = Outcomes()
    for first in range(20):
        send(pool, bookie, sink, first, size=100_000)
    await sink.wait_for(20)
    assert sink.outcomes == {first: [Status.OK] for first in range(20)}
    await pool.aclose()


async def test_an_untrusted_certificate(bookie: ScriptedBookie) -> None:
    pool = pool_over(bookie, fixed(ssl.create_default_context()), tls=True)
    with pytest.raises(BookieCallError, match="certificate") as caught:
        await pool.ping(bookie.id, timeout_s=5)
    assert caught.value.failure is CallFailure.REFUSED
    await pool.aclose()


async def test_a_client_with_tls_contacts_no_bookie_without_tls(bookie: ScriptedBookie) -> None:
    pool = pool_over(bookie, fixed(ssl.create_default_context()), tls=False)
    with pytest.raises(BookieCallError, match="or the option `ssl`"):
        await pool.ping(bookie.id, timeout_s=5)
    assert bookie.connection_count == 0
    await pool.aclose()


async def test_a_new_connection_presents_a_renewed_certificate(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(renewed_tls, "FILES_CHECK_S", 0.0)
    renewed = RenewedFiles(tmp_path)
    bookie = ScriptedBookie("bookie-a")
    await bookie.start(renewed.server())
    contexts = RenewedContext(renewed.files)
    earlier, later = (pool_over(bookie, contexts, tls=True) for _ in range(2))
    with pytest.raises(BookieCallError):
        await earlier.ping(bookie.id, timeout_s=5)
    renewed.renew()
    assert await later.ping(bookie.id, timeout_s=5) == Pong(writable=True, append_p99_us=0)
    for pool in (earlier, later):
        await pool.aclose()
    await bookie.stop()
