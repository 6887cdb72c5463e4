"""No secret is in a log, an error, a metric, an answer, a command line or the stored data."""

import asyncio
import base64
import json
import os
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import aiohttp
import pytest

from metadata.store.embedded_ports import free_port
from quire.identity.client_file import read_client_file
from quire.local.local_server import LocalBookie, LocalBroker
from quire.local.secure_directory import SecureDirectory
from quire.local_cluster import LocalCluster
from tests.integration.quire.command import run_quire
from tests.support.security.files_with_secrets import SecretFiles, make_files, search_for
from tests.support.security.secret_search import SecretSearch, forms_of
from tests.until import until, within

PROCESSES_MIN: Final = 4
"""ZooKeeper, a bookie, its repair, and a broker."""
GET_ROUTES: Final = (
    "livez",
    "readyz",
    "metrics",
    "config",
    "api/v1/state",
    "api/v1/ledgers",
    "api/v1/ledgers/0/entries",
    "api/v1/config",
    "none",
)
POST_ROUTES: Final = (
    "api/v1/clean",
    "api/v1/checkpoint",
    "api/v1/read-only",
    "api/v1/accept-metadata",
)
NO_CLUSTER: Final = "zk://127.0.0.1:1/quire"
OWN_ID: Final = "7777777777"
LEDGER: Final = ("--ensemble", "1", "--write", "1", "--ack", "1")


@pytest.fixture
def files(tmp_path: Path) -> SecretFiles:
    return make_files(tmp_path / "secrets")


@asynccontextmanager
async def running(tmp_path: Path, files: SecretFiles) -> AsyncIterator[LocalCluster]:
    """Run a bookie with its repair, and a broker, that log all that they can."""
    directory = SecureDirectory(files.directory)
    token = str(files.directory / "admin-token")
    files.write("client.toml", client_file("client", "admin-token"))
    options = {
        "tls": "required",
        **directory.certificate_options("bookie"),
        "admin_token_file": token,
        "log_level": "debug",
    }
    data, logs = tmp_path / "data", tmp_path / "logs"
    async with LocalCluster(0, data) as cluster:
        uri = cluster.metadata_uri.partition("?")[0]
        own = f"{uri}?client={directory.client_file('bookie')}"
        bookie = LocalBookie("bookie-1", data / "bookie-1", logs / "bookie-1.log", own, options)
        await bookie.start()
        cluster.bookies.append(bookie)
        own = f"{uri}?client={directory.client_file('broker')}"
        debug = {"log_level": "debug"}
        broker = LocalBroker(1, logs / "broker-1.log", own, {"PLAINTEXT": free_port()}, 1, debug)
        await broker.start()
        cluster.brokers.append(broker)
        yield cluster


def client_file(name: str, token: str, key: str = "") -> str:
    """Return the text of a client's file."""
    return (
        f'[tls]\ncertificate = "{name}.pem"\nkey = "{key or name}-key.pem"\nauthorities = "ca.pem"'
        f'\n[admin]\ntoken_file = "{token}"\n'
    )


async def call(
    search: SecretSearch, uri: str | None, *words: str, stdin: bytes = b"", fails: bool | None
) -> bytes:
    """Run a command that logs all that it can, and keep its output. With `fails` None its status
    may be any.
    """
    verbose = [*words, "-v"]
    done = await asyncio.to_thread(run_quire, *verbose, metadata=uri, stdin=stdin)
    shown = search.add(" ".join(words), done.stdout + b"\n" + done.stderr)
    assert fails is None or (done.returncode != 0) == fails, shown
    assert b"Traceback" not in shown, shown
    return done.stdout


async def use_ledger(search: SecretSearch, uri: str, files: SecretFiles) -> None:
    """Use an encrypted ledger with a password, rightly and wrongly."""

    def given(password: str, keys: str) -> list[str]:
        directory = files.directory
        names = ["--password-file", str(directory / password), "--key-file"]
        return [*names, str(directory / keys)]

    right = given("password", "keys.toml")
    made = await call(
        search, uri, "ledger", "append", *LEDGER, *right, "-o", "json", stdin=b"a\n", fails=False
    )
    ledger = str(json.loads(made.splitlines()[0])["ledger_id"])
    await call(search, uri, "ledger", "read", ledger, *right, fails=False)
    await call(search, uri, "ledger", "show", ledger, "-o", "json", fails=False)
    wrong = (given("other-password", "keys.toml"), given("password", "other-keys.toml"))
    # A file of another kind in the place of each.
    mixed = (given("keys.toml", "keys.toml"), given("password", "admin-token"))
    missing = (given("none", "keys.toml"), given("password", "none"), given("", "keys.toml"))
    open_to_all = str(files.directory / "open-keys.toml")
    files.write("open-keys.toml", files.read("keys.toml"), mode=0o644)
    for words in (*wrong, *mixed, *missing, [*right[:3], open_to_all]):
        await call(search, uri, "ledger", "read", ledger, *words, "-o", "json", fails=True)
    await call(search, uri, "ledger", "create", *LEDGER, *right, "--id", OWN_ID, fails=False)
    await call(search, uri, "ledger", "append", OWN_ID, *wrong[0], stdin=b"a\n", fails=None)
    words = ["--password-file", wrong[0][1], "--yes"]
    await call(search, uri, "ledger", "recover", OWN_ID, *words, fails=None)
    Path(open_to_all).unlink()


async def use_wrong_clients(search: SecretSearch, uri: str, files: SecretFiles) -> None:
    """Connect with client's files that are wrong, or that are other secrets."""
    plain, bookie = uri.partition("?")[0], "bookie-1"
    texts = {
        "no-token.toml": client_file("client", "none"),
        "wrong-token.toml": client_file("client", "other-token"),
        "other-key.toml": client_file("client", "admin-token", key="bookie"),
        "untrusted.toml": client_file("other/client", "admin-token"),
        "swapped.toml": client_file("client-key", "admin-token", key="client"),
        "key-as-authority.toml": '[tls]\nauthorities = "client-key.pem"\n',
        "token-as-key.toml": client_file("client", "admin-token").replace(
            '"client-key.pem"', '"admin-token"'
        ),
    }
    named = [files.write(name, text) for name, text in texts.items()]
    named += [str(files.directory / each) for each in ("admin-token", "keys.toml", "ca-key.pem")]
    for path in named:
        words = ["bookie", "info", bookie, "-o", "json"]
        done = await asyncio.to_thread(run_quire, *words, "-v", metadata=f"{plain}?client={path}")
        search.add(f"bookie info with {path}", done.stdout + done.stderr)
        assert b"Traceback" not in done.stderr, done.stderr


async def use_wrong_addresses(search: SecretSearch, files: SecretFiles) -> None:
    """Give a password in the cluster's address, where it cannot be."""
    password, place = files.read("password").strip(), NO_CLUSTER.removeprefix("zk://")
    for wrong in (
        f"zk://user:{password}@{place}",
        f"zk://{place}?password={password}",
        f"zk://a,user:{password}@{place}?client=none",
        f"{password}@{place}",
    ):
        await call(search, wrong, "bookie", "list", "-o", "json", fails=True)


def good_options(files: SecretFiles, uri: str) -> dict[str, str]:
    """Return the options of a bookie whose files are right."""
    return SecureDirectory(files.directory).certificate_options("bookie") | {
        "tls": "required",
        "admin_token_file": str(files.directory / "admin-token"),
        "metadata": uri,
        "data_dir": str(files.directory / "no-data"),
        "log_level": "debug",
    }


async def start_wrongly(search: SecretSearch, uri: str, files: SecretFiles) -> None:
    """Start bookies whose files are wrong, or are other secrets."""
    good, token = good_options(files, uri), files.read("admin-token").strip()
    key = str(files.directory / "bookie-key.pem")
    bad_token = files.directory / "bad-token"
    bad_token.write_bytes(token.encode() + b"\xff")
    bad_token.chmod(0o600)
    wrong = [
        {"tls_key_file": str(files.directory / "client-key.pem")},
        {"tls_key_file": good["admin_token_file"]},
        {"tls_cert_file": key},
        {"tls_ca_file": key},
        {"admin_token_file": files.write("open-token", token, mode=0o644)},
        {"admin_token_file": str(bad_token)},
        {"admin_token_file": str(files.directory)},
    ]
    for number, options in enumerate(wrong):
        path = files.write(f"wrong-{number}.toml", table("bookie", good | options))
        words = ["bookie", "run", "--config", path, "--format-if-empty", f"wrong-{number}"]
        await call(search, None, *words, fails=True)
        assert b"cannot be used" in search.outputs[-1][1], search.outputs[-1]


async def use_wrong_configurations(search: SecretSearch, files: SecretFiles) -> None:
    """Show a right configuration, and use wrong ones with secrets in them."""
    good, token = good_options(files, NO_CLUSTER), files.read("admin-token").strip()
    path = files.write("bookie.toml", table("bookie", good))
    for verb in (("config", "show", "--config", path), ("config", "check", path)):
        for form in ("json", "table"):
            await call(search, None, *verb, "-o", form, fails=False)
    # Secrets in the place of names of files, and of the whole configuration.
    texts = [
        table("bookie", good | {"admin_token": token}),
        table("bookie", {}) + f'admin_token_file = ["{token}"]\n',
        table("bookie", {}) + f'admin_token_file = {{ secret = "{token}" }}\n',
        f'[bookie]\nadmin_token = "{token}\n',
        f"[bookie]\n{token}\n",
        files.read("admin-token"),
        files.read("keys.toml"),
        files.read("bookie-key.pem"),
    ]
    for number, text in enumerate(texts):
        path = files.write(f"mixed-{number}.toml", text)
        for verb in (("config", "check", path), ("bookie", "run", "--config", path)):
            await call(search, None, *verb, "-o", "json", fails=True)


def table(name: str, options: dict[str, str]) -> str:
    return f"[{name}]\n" + "".join(f"{key} = {json.dumps(options[key])}\n" for key in options)


async def ask_admin_ports(search: SecretSearch, cluster: LocalCluster, files: SecretFiles) -> None:
    """Send tokens, right and wrong, in right and wrong ways."""
    token, other = (files.read(name).strip() for name in ("admin-token", "other-token"))
    directory = SecureDirectory(files.directory)
    contexts = (
        read_client_file(directory.client_file("client")).context,
        ssl.create_default_context(cafile=str(files.directory / "ca.pem")),
    )
    headers: tuple[dict[str, str], ...] = (
        {},
        {"Authorization": f"Bearer {token}"},
        {"Authorization": f"Bearer {other}"},
        {"Authorization": f"Basic {base64.b64encode(other.encode()).decode()}"},
        {"Authorization": token},
        {"Authorization": f"Bearer {token}\xff"},
        {"X-Token": token, "Origin": "http://example.org", "Cookie": f"token={token}"},
    )
    url = cluster.bookies[0].admin_url
    async with aiohttp.ClientSession() as session:
        for context in contexts:
            for fields in headers:
                for method, routes in (("GET", GET_ROUTES), ("POST", POST_ROUTES)):
                    for route in routes:
                        address = f"{url}/{route}?token={token}"
                        body = token if method == "POST" else None
                        answer = session.request(
                            method, address, headers=fields, data=body, ssl=context or False
                        )
                        async with answer as got:
                            search.add(f"{method} {route}", await got.read())
                            search.add(f"{method} {route}", repr(got.headers).encode())
                            assert got.status != 500, f"{method} {route} {[*fields]}"
        for route in (*GET_ROUTES, "health", "ready", "partitions", "api/v1/partitions"):
            async with session.get(f"{cluster.brokers[0].admin_url}/{route}") as got:
                search.add(f"GET {route} of the broker", await got.read())
    await send_broken_requests(search, url, token, contexts)


async def send_broken_requests(
    search: SecretSearch, url: str, token: str, contexts: tuple[ssl.SSLContext | None, ...]
) -> None:
    """Send what is not HTTP, or not TLS, with a token in it."""
    host, _, port = url.rpartition("//")[2].rstrip("/").partition(":")
    broken = (
        f"GET /metrics HTTP/1.1\r\nAuthorization\0: Bearer {token}\r\n\r\n",
        f"GET /metrics HTTP/1.1\r\nHost: a\r\nAuthorization Bearer {token}\r\n\r\n",
        f"GET /metrics\r\nAuthorization: Bearer {token}\r\n\r\n",
        f"{token} {token} {token}\r\n\r\n",
        f"GET /metrics HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer {token}\xff\r\n\r\n",
        f"GET /{token}\0 HTTP/1.1\r\n\r\n",
        f"POST /api/v1/clean HTTP/1.1\r\nHost: a\r\nContent-Length: {token}\r\n\r\n",
        f"POST /api/v1/clean HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer {token}\r\n"
        f"Transfer-Encoding: chunked\r\n\r\n{token}\r\n",
    )
    for context in (*contexts, None):
        for text in broken:
            try:
                reader, writer = await asyncio.open_connection(
                    host, int(port), ssl=context, server_hostname=host if context else None
                )
                writer.write(text.encode("latin-1"))
                if writer.can_write_eof():
                    writer.write_eof()
                await within(reader.read(65_536))  # for the sender alone, and may quote it
                writer.close()
            except OSError:
                continue


async def exchange_certificates(cluster: LocalCluster, files: SecretFiles) -> None:
    """Replace the server's key by one that does not fit, and wait until the server has seen it."""
    key = files.directory / "bookie-key.pem"
    own = key.read_bytes()
    log = cluster.bookies[0]
    context = read_client_file(SecureDirectory(files.directory).client_file("client")).context
    assert context is not None
    files.write("bookie-key.pem", files.read("client-key.pem"))
    try:
        await until(lambda: "cannot be used" in log.log_tail())
    finally:
        key.write_bytes(own)


@pytest.fixture
def has_command_lines() -> None:
    if not Path("/proc/self/cmdline").exists():
        pytest.skip("command lines of processes are read from /proc")


@pytest.mark.long
@pytest.mark.usefixtures("has_command_lines", "starts_of_a_user")
async def test_no_secret_is_shown_or_stored(tmp_path: Path, files: SecretFiles) -> None:
    search = search_for(files)
    async with running(tmp_path, files) as cluster:
        client = SecureDirectory(files.directory).client_file("client")
        uri = f"{cluster.metadata_uri.partition('?')[0]}?client={client}"
        for words in (("bookie", "list"), ("bookie", "info", cluster.bookies[0].id)):
            await call(search, uri, *words, "-o", "json", fails=False)
        await use_ledger(search, uri, files)
        await use_wrong_clients(search, uri, files)
        own = SecureDirectory(files.directory).client_file("bookie")
        await start_wrongly(search, f"{uri.partition('?')[0]}?client={own}", files)
        await ask_admin_ports(search, cluster, files)
        await exchange_certificates(cluster, files)
        await call(search, uri, "cluster", "health", "-o", "json", fails=False)
        await call(search, uri, "metadata", "dump", fails=False)
        assert search.add_processes(os.getpid()) >= PROCESSES_MIN
    search.add_files(tmp_path / "data")
    search.add_files(tmp_path / "logs")
    assert search.findings() == []
    logs = (tmp_path / "logs" / "bookie-1.log").read_text()
    assert '"event": "audit"' in logs  # the refusals were logged


@pytest.mark.long
async def test_no_secret_is_in_the_error_of_a_wrong_configuration(files: SecretFiles) -> None:
    search = search_for(files)
    await use_wrong_addresses(search, files)
    await use_wrong_configurations(search, files)
    assert search.findings() == []


@pytest.mark.parametrize("secret", [b"\x00\xffsecret\n", b"Geheim_0123"])
def test_each_form_of_a_secret_is_found(secret: bytes) -> None:
    shown = [
        b"<" + secret + b">",
        secret.hex().encode(),
        repr(secret).encode(),
        *(base64.b64encode(b"x" * count + secret + b"yz") for count in range(4)),
        *(base64.urlsafe_b64encode(b"Bearer:"[:count] + secret) for count in range(8)),
    ]
    for text in shown:
        search = SecretSearch({"it": secret}, [("there", text)])
        assert search.findings(), text
    assert SecretSearch({"it": secret}, [("there", b"other text, secret")]).findings() == []
    assert all(len(form) > len(secret) - 2 for form in forms_of(secret).values())
