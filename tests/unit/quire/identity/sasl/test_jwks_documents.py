"""Reads of JWKS documents: from files, and from a server with TLS."""

import asyncio
import ssl
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from aiohttp import web

from quire.identity.errors import JwksError
from quire.identity.sasl import jwks as jwks_documents
from quire.identity.sasl.jwks import DOCUMENT_BYTES_MAX, check_url, fetch_jwks, read_jwks_file
from quire.identity.tls import ClientCertificates, TlsFiles, client_context, server_context
from quire.local.development_certificates import DevelopmentAuthority

DOCUMENT = b'{"keys": []}'


def test_a_file_is_read(tmp_path: Path) -> None:
    path = tmp_path / "jwks.json"
    path.write_bytes(DOCUMENT)
    assert read_jwks_file(str(path)) == DOCUMENT


def test_a_file_that_is_missing_or_too_long_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "jwks.json"
    with pytest.raises(JwksError, match="cannot be read"):
        read_jwks_file(str(path))
    path.write_bytes(bytes(DOCUMENT_BYTES_MAX + 1))
    with pytest.raises(JwksError, match="more than 262144 B"):
        read_jwks_file(str(path))


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("http://a.example/jwks", "begins with https"),
        ("file:///etc/passwd", "begins with https"),
        ("https://", "begins with https"),
        ("https://user:secret@a.example/jwks", "no user"),
        ("https://a.example/jwks#x", "fragment"),
        ("https://[a/jwks", "begins with https"),
        ("https://a.example/other", "not one of the allowed ones"),
        ("https://a.example.evil/jwks", "not one of the allowed ones"),
        ("https://a.example/jwks?x", "not one of the allowed ones"),
    ],
)
def test_urls_that_are_refused(url: str, why: str) -> None:
    with pytest.raises(JwksError, match=why) as caught:
        check_url(url, ["https://a.example/jwks"])
    assert "secret" not in str(caught.value)


def test_an_allowed_url_without_tls_is_refused() -> None:
    with pytest.raises(JwksError, match="begins with https"):
        check_url("http://a.example/jwks", ["http://a.example/jwks"])


@pytest.fixture
def files(tmp_path: Path) -> TlsFiles:
    authority = DevelopmentAuthority(tmp_path)
    own = authority.issue("server")
    return TlsFiles(str(own.certificate), str(own.key), str(authority.files.certificate))


@pytest.fixture
async def server(files: TlsFiles) -> AsyncIterator[str]:
    """Return the address of a server with TLS."""

    async def answer(_request: web.Request) -> web.Response:
        return web.Response(body=DOCUMENT)

    async def move(_request: web.Request) -> web.Response:
        raise web.HTTPFound("/jwks")

    async def answer_much(_request: web.Request) -> web.Response:
        return web.Response(body=bytes(DOCUMENT_BYTES_MAX + 1))

    async def answer_packed(_request: web.Request) -> web.Response:
        response = web.Response(body=bytes(100 * DOCUMENT_BYTES_MAX))
        response.enable_compression(web.ContentCoding.gzip)
        return response

    async def send_bytes_slowly(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(b"{")
        await asked_to_stop.wait()
        return response

    asked_to_stop = asyncio.Event()
    app = web.Application()
    for path, handler in (
        ("/jwks", answer),
        ("/moved", move),
        ("/much", answer_much),
        ("/packed", answer_packed),
        ("/slow", send_bytes_slowly),
    ):
        app.router.add_get(path, handler)
    runner = web.AppRunner(app)
    await runner.setup()
    context = server_context(files, ClientCertificates.NONE)
    site = web.TCPSite(runner, "localhost", 0, ssl_context=context)
    await site.start()
    port = runner.addresses[0][1]
    yield f"https://localhost:{port}"
    asked_to_stop.set()
    await runner.cleanup()


async def fetch(url: str, files: TlsFiles) -> bytes:
    context = client_context(TlsFiles(authorities=files.authorities))
    return await fetch_jwks(url, [url], context)


async def test_a_document_is_fetched(server: str, files: TlsFiles) -> None:
    assert await fetch(f"{server}/jwks", files) == DOCUMENT


@pytest.mark.parametrize(
    ("path", "why"),
    [
        ("/moved", "status 302"),
        ("/missing", "status 404"),
        ("/much", "more than 262144 B"),
    ],
)
async def test_answers_that_are_refused(server: str, files: TlsFiles, path: str, why: str) -> None:
    with pytest.raises(JwksError, match=why):
        await fetch(f"{server}{path}", files)


async def test_what_is_packed_is_not_unpacked(server: str, files: TlsFiles) -> None:
    fetched = await fetch(f"{server}/packed", files)
    assert len(fetched) < DOCUMENT_BYTES_MAX


async def test_a_slow_server_is_left(
    server: str, files: TlsFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jwks_documents, "FETCH_S_MAX", 0.5)
    with pytest.raises(JwksError, match="does not answer within"):
        await fetch(f"{server}/slow", files)


async def test_a_server_of_another_authority_is_refused(server: str) -> None:
    url = f"{server}/jwks"
    with pytest.raises(JwksError, match="cannot be read"):
        await fetch_jwks(url, [url], ssl.create_default_context())


async def test_a_server_that_is_away_is_an_error(files: TlsFiles) -> None:
    with pytest.raises(JwksError, match="cannot be read"):
        await fetch("https://localhost:1/jwks", files)


async def test_a_url_that_is_not_allowed_is_not_asked(server: str, files: TlsFiles) -> None:
    context = client_context(TlsFiles(authorities=files.authorities))
    with pytest.raises(JwksError, match="not one of the allowed ones"):
        await fetch_jwks(f"{server}/jwks", [f"{server}/other"], context)
