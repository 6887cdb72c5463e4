"""Users of brokers, created, changed and shown by operators."""

import io
import json
import sys
from pathlib import Path

import pytest

from metadata.security.errors import (
    InvalidUserNameError,
    UserExistsError,
    UserNotFoundError,
)
from metadata.security.user_store import UserStore
from quire.cli.rights_verbs import PASSWORD_VARIABLE
from quire.cli.rights_verbs import user_parser as parser
from quire.errors import ExitCode, UsageError, exit_code
from quire.identity.errors import SecretError
from quire.identity.sasl.credentials import (
    ITERATIONS_DEFAULT,
    ITERATIONS_MIN,
    SALT_BYTES,
    ScramMechanism,
    credential_of,
    salted_password,
)
from quire.identity.secret_files import SECRET_BYTES_MAX
from tests.support.quire.memory_cluster import MemoryCluster

SHA_256, SHA_512 = ScramMechanism
FAST = ("--iterations", str(ITERATIONS_MIN))


class FakeInput:
    """Standard input with these bytes."""

    def __init__(self, data: bytes, *, is_terminal: bool = False) -> None:
        self.buffer = io.BytesIO(data)
        self._is_terminal = is_terminal

    def isatty(self) -> bool:
        return self._is_terminal


@pytest.fixture
async def cluster(memory_cluster: MemoryCluster) -> MemoryCluster:
    await memory_cluster.create()
    return memory_cluster


@pytest.fixture
def users(cluster: MemoryCluster) -> UserStore:
    return UserStore(cluster.store, cluster.rng)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return written(tmp_path / "password", "pencil\n")


def written(path: Path, text: str, mode: int = 0o600) -> Path:
    path.write_text(text)
    path.chmod(mode)
    return path


async def accepts(users: UserStore, name: str, mechanism: ScramMechanism, password: str) -> bool:
    """Return whether a password fits what is stored."""
    found = (await users.get(name)).find(mechanism)
    assert found is not None
    salted = salted_password(mechanism, password, found.salt, found.iterations)
    return credential_of(mechanism, salted, found.salt, found.iterations) == found


async def test_a_user_from_its_creation_to_its_end(
    cluster: MemoryCluster, users: UserStore, file: Path
) -> None:
    both = [SHA_256.value, SHA_512.value]
    _, row = await cluster.run(parser(), "add", "alice", "--password-file", str(file))
    assert row == {"user": "alice", "mechanisms": both}
    for mechanism in ScramMechanism:
        assert await accepts(users, "alice", mechanism, "pencil")
        assert not await accepts(users, "alice", mechanism, "pencil\n")
    words = ("add", "bob", "--password-file", str(file), "--mechanism", SHA_512.value, *FAST)
    await cluster.run(parser(), *words)
    _, rows = await cluster.run(parser(), "list")
    assert rows == [
        {"user": "alice", "mechanisms": both},
        {"user": "bob", "mechanisms": [SHA_512.value]},
    ]
    _, row = await cluster.run(parser(), "show", "alice")
    assert row == {"user": "alice", "iterations": dict.fromkeys(both, ITERATIONS_DEFAULT)}
    _, row = await cluster.run(parser(), "show", "bob")
    assert row == {"user": "bob", "iterations": {SHA_512.value: ITERATIONS_MIN}}
    _, row = await cluster.run(parser(), "remove", "alice")
    assert row == {"user": "alice", "removed": True}
    assert await users.names() == ["bob"]


async def test_a_new_password_ends_the_old_one(
    cluster: MemoryCluster, users: UserStore, file: Path
) -> None:
    add = ("add", "a", "--password-file", str(file), *FAST)
    await cluster.run(parser(), *add)
    with pytest.raises(UserExistsError) as refused:
        await cluster.run(parser(), *add)
    assert exit_code(refused.value) == ExitCode.REFUSED
    written(file, "crayon")
    words = ("password", "a", "--password-file", str(file), *FAST)
    _, row = await cluster.run(parser(), *words)
    assert row == {"user": "a", "mechanisms": [SHA_256.value, SHA_512.value]}
    for mechanism in ScramMechanism:
        assert await accepts(users, "a", mechanism, "crayon")
    _, row = await cluster.run(parser(), *words, "--mechanism", SHA_256.value)
    assert row["mechanisms"] == [SHA_256.value]
    assert (await users.get("a")).find(SHA_512) is None


async def test_equal_passwords_have_different_salts(
    cluster: MemoryCluster, users: UserStore, file: Path
) -> None:
    for name in ("a", "b"):
        await cluster.run(parser(), "add", name, "--password-file", str(file), *FAST)
    credentials = [
        credential
        for page in [await users.get("a"), await users.get("b")]
        for credential in page.credentials
    ]
    assert len({credential.salt for credential in credentials}) == 4
    assert all(len(credential.salt) == SALT_BYTES for credential in credentials)


async def test_nothing_that_is_printed_holds_a_key(
    cluster: MemoryCluster, users: UserStore, file: Path
) -> None:
    await cluster.run(parser(), "add", "a", "--password-file", str(file), *FAST)
    printed = ""
    for words in (("list",), ("show", "a")):
        printed += json.dumps(await cluster.run(parser(), *words))
        printed += (await cluster.text(parser(), *words))[1]
    assert SHA_256.value in printed
    for credential in (await users.get("a")).credentials:
        for part in credential.text.split(",")[:3]:
            assert part.partition("=")[2] not in printed


async def test_a_password_from_the_standard_input_or_the_environment(
    cluster: MemoryCluster, users: UserStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", FakeInput("grün\r\n".encode()))
    await cluster.run(parser(), "add", "a", "--password-file", "-", *FAST)
    assert await accepts(users, "a", SHA_256, "grün")
    monkeypatch.setenv(PASSWORD_VARIABLE, "pencil")
    await cluster.run(parser(), "add", "b", *FAST)
    assert await accepts(users, "b", SHA_256, "pencil")


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"", "is empty"),
        (b"\n", "is empty"),
        (b"secret\nlines\n", "control character"),
        (b"secret\0", "control character"),
        (b"secret\xff", "not UTF-8"),
        (b"x" * (SECRET_BYTES_MAX + 1), "more than 4096 B"),
    ],
)
async def test_a_bad_password_is_refused_and_not_shown(
    cluster: MemoryCluster,
    users: UserStore,
    monkeypatch: pytest.MonkeyPatch,
    data: bytes,
    text: str,
) -> None:
    monkeypatch.setattr(sys, "stdin", FakeInput(data))
    with pytest.raises(UsageError, match=text) as refused:
        await cluster.run(parser(), "add", "a", "--password-file", "-")
    assert exit_code(refused.value) == ExitCode.USAGE
    assert "secret" not in str(refused.value)
    assert await users.names() == []


async def test_a_password_is_not_typed_where_it_shows(
    cluster: MemoryCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", FakeInput(b"pencil\n", is_terminal=True))
    with pytest.raises(UsageError, match="a terminal"):
        await cluster.run(parser(), "add", "a", "--password-file", "-")


async def test_a_password_must_be_given(
    cluster: MemoryCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(PASSWORD_VARIABLE, raising=False)
    with pytest.raises(UsageError, match="neither --password-file nor QUIRE_USER_PASSWORD"):
        await cluster.run(parser(), "add", "a")
    monkeypatch.setenv(PASSWORD_VARIABLE, "")
    with pytest.raises(UsageError, match="is empty"):
        await cluster.run(parser(), "add", "a")


@pytest.mark.parametrize(
    ("text", "mode", "why"),
    [("pencil", 0o644, "users other than its owner"), ("\n", 0o600, "it is empty")],
)
async def test_a_bad_file_is_refused(
    cluster: MemoryCluster, users: UserStore, tmp_path: Path, text: str, mode: int, why: str
) -> None:
    path = written(tmp_path / "bad", text, mode)
    with pytest.raises(SecretError, match=why) as refused:
        await cluster.run(parser(), "add", "a", "--password-file", str(path))
    assert exit_code(refused.value) == ExitCode.USAGE
    assert await users.names() == []


@pytest.mark.parametrize("name", ["", "a\nb", "\x7f", "x" * 256])
@pytest.mark.parametrize("verb", ["add", "password", "remove", "show"])
async def test_a_bad_name_is_wrong_usage(
    cluster: MemoryCluster, file: Path, verb: str, name: str
) -> None:
    more = ("--password-file", str(file)) if verb in ("add", "password") else ()
    with pytest.raises(InvalidUserNameError) as refused:
        await cluster.run(parser(), verb, name, *more)
    assert exit_code(refused.value) == ExitCode.USAGE


async def test_an_unknown_user_is_not_found(cluster: MemoryCluster, file: Path) -> None:
    password = ("password", "x", "--password-file", str(file), *FAST)
    for words in (("show", "x"), ("remove", "x"), password):
        with pytest.raises(UserNotFoundError, match="quire user list") as missing:
            await cluster.run(parser(), *words)
        assert exit_code(missing.value) == ExitCode.NOT_FOUND


@pytest.mark.parametrize("iterations", ["4095", "16385", "many"])
def test_iterations_have_limits(iterations: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        parser().parse_args(["add", "a", "--iterations", iterations])
    assert ended.value.code == ExitCode.USAGE
    assert iterations in capsys.readouterr().err


def test_a_password_is_no_argument(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parser().parse_args(["add", "a", "--password", "pencil"])
    capsys.readouterr()
