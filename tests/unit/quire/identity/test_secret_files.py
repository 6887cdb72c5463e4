"""Secrets in files."""

import contextlib
import os
import traceback
from pathlib import Path

import pytest

from quire.identity.errors import SecretError
from quire.identity.secret_files import SECRET_BYTES_MAX, read_ledger_password, read_secret


def test_a_secret_is_read_without_the_end_of_its_line(tmp_path: Path) -> None:
    path = tmp_path / "secret"
    path.touch(0o600)
    path.write_text("two words \r\n")
    assert read_secret(str(path)) == "two words "


@pytest.mark.parametrize(
    ("content", "mode", "why"),
    [
        (b"a", 0o644, "chmod 600"),
        (b"a", 0o620, "chmod 600"),
        (b"\n", 0o600, "is empty"),
        (b"Geheim \xff", 0o600, "not UTF-8"),
        (b"a" * (SECRET_BYTES_MAX + 1), 0o600, "more than"),
    ],
)
def test_other_files_are_refused_without_their_content(
    tmp_path: Path, content: bytes, mode: int, why: str
) -> None:
    path = tmp_path / "secret"
    path.write_bytes(content)
    path.chmod(mode)
    with pytest.raises(SecretError, match=why) as caught:
        read_secret(str(path))
    shown = "".join(traceback.format_exception(caught.value))
    assert "Geheim" not in shown
    assert "UnicodeDecodeError" not in shown, "it holds the content"


@pytest.mark.parametrize(
    ("owner", "mode", "is_taken"),
    [
        (0, 0o640, True),
        (0, 0o440, True),
        (0, 0o444, False),
        (0, 0o660, False),
        (0, 0o650, False),
        (10_001, 0o640, False),
    ],
)
def test_the_group_may_read_a_file_of_root(
    tmp_path: Path, owner: int, mode: int, *, is_taken: bool
) -> None:
    path = tmp_path / "secret"
    path.write_text("secret")
    path.chmod(mode)
    try:
        os.chown(path, owner, -1)
    except PermissionError:
        pytest.skip("only root gives files away")
    with contextlib.nullcontext() if is_taken else pytest.raises(SecretError, match="chmod 600"):
        assert read_secret(str(path)) == "secret"


def test_a_missing_secret_is_named(tmp_path: Path) -> None:
    with pytest.raises(SecretError, match="cannot be read"):
        read_secret(str(tmp_path / "missing"))


def test_the_password_of_a_ledger_is_all_bytes_but_the_last_newline(tmp_path: Path) -> None:
    file = tmp_path / "password"
    for content, password in ((b"\xff \n", b"\xff "), (b"a\n\n", b"a\n"), (b"", b"")):
        file.write_bytes(content)
        file.chmod(0o600)
        assert read_ledger_password(str(file)) == password
    file.chmod(0o604)
    with pytest.raises(SecretError, match="chmod 600"):
        read_ledger_password(str(file))
    file.chmod(0o600)
    file.write_bytes(bytes(SECRET_BYTES_MAX + 1))
    with pytest.raises(SecretError, match="more than"):
        read_ledger_password(str(file))
    with pytest.raises(SecretError, match="cannot be read"):
        read_ledger_password(str(tmp_path / "none"))
