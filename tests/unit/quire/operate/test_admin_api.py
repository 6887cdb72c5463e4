"""Where the command line sends the token of admin ports."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from quire.identity.client_file import ClientFile, parse_client_file
from quire.operate.admin_api import AdminApiError, get_json

ANSWER = b"HTTP/1.0 200 OK\r\n\r\n{}"


class Listener:
    """A port that a registration may name; keeps what is sent to it."""

    def __init__(self) -> None:
        self.heads: list[bytes] = []
        self.url = ""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.heads.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(ANSWER)
        writer.close()


@pytest.fixture
async def listener() -> AsyncIterator[Listener]:
    made = Listener()
    server = await asyncio.start_server(made.serve, "127.0.0.1", 0)
    made.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    yield made
    server.close()


def identity(directory: Path, text: str) -> ClientFile:
    token = directory / "token"
    token.touch(0o600)
    token.write_text("a secret of an admin port")
    return parse_client_file(f'{text}[admin]\ntoken_file = "token"\n', directory)


@pytest.mark.parametrize("tls", ["", "[tls]\n"])
async def test_a_port_of_this_machine_without_tls_gets_no_token(
    listener: Listener, tmp_path: Path, tls: str
) -> None:
    with pytest.raises(AdminApiError, match="token is not sent there"):
        await get_json(listener.url, identity(tmp_path, tls))
    assert listener.heads == []
    assert await get_json(listener.url) == {}, "without a token there is nothing to keep"


async def test_it_gets_the_token_if_the_file_says_so(listener: Listener, tmp_path: Path) -> None:
    own = identity(tmp_path, "")
    allowed = ClientFile(admin_token_file=own.admin_token_file, may_show_token=True)
    assert await get_json(listener.url, allowed) == {}
    assert b"Bearer a secret" in listener.heads[0]
    with pytest.raises(AdminApiError, match="token is not sent there"):
        await get_json("http://192.0.2.1:8080", allowed)


async def test_a_server_that_no_authority_vouches_for_gets_no_token(
    listener: Listener, tmp_path: Path
) -> None:
    with pytest.raises(AdminApiError, match=r"add \[tls\]"):
        await get_json(listener.url.replace("http:", "https:"), identity(tmp_path, ""))
    assert listener.heads == []
