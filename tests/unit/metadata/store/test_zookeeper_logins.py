"""What a store refuses before it connects."""

import random
from pathlib import Path

import pytest

from metadata.store.zookeeper.store import open_store
from quire.identity.errors import ClientFileError, SecretError, SecurityError
from tests.support.metadata.logins import write_login


@pytest.fixture
def rng() -> random.Random:
    return random.Random(1)


async def test_a_password_is_not_sent_to_another_machine(
    tmp_path: Path, rng: random.Random
) -> None:
    uri = write_login(tmp_path, "servers").uri("zk://zk1.invalid/quire")
    with pytest.raises(ClientFileError, match="without TLS"):
        await open_store(uri, rng=rng)


async def test_a_password_that_others_can_read_is_refused(
    tmp_path: Path, rng: random.Random
) -> None:
    login = write_login(tmp_path, "servers")
    login.password_file.chmod(0o604)
    with pytest.raises(SecretError, match="chmod 600") as caught:
        await open_store(login.uri("zk://127.0.0.1:1/quire"), rng=rng)
    assert "the-password-of" not in str(caught.value)


async def test_files_for_tls_that_do_not_exist_are_named(
    tmp_path: Path, rng: random.Random
) -> None:
    file = tmp_path / "client.toml"
    file.write_text('[zookeeper]\ntls = true\nauthorities = "missing.pem"\n')
    with pytest.raises(SecurityError, match=r"missing\.pem"):
        await open_store(f"zk://127.0.0.1:1/quire?client={file}", rng=rng)
