"""Clients' files with logins to ZooKeeper."""

from dataclasses import dataclass
from pathlib import Path

from quire.identity.client_file import zookeeper_access_of


@dataclass(frozen=True, slots=True)
class Login:
    """A client's file with a user and a password."""

    file: Path

    @property
    def identity(self) -> str:
        """Its identity in access lists."""
        return zookeeper_access_of(str(self.file)).identity

    @property
    def password_file(self) -> Path:
        """The file with its password."""
        return self.file.with_suffix(".secret")

    def uri(self, uri: str) -> str:
        """Return a metadata URI with this login."""
        return f"{uri}?client={self.file}"


def write_login(directory: Path, user: str, password: str = "") -> Login:
    """Write a client's file, and the file with its password."""
    login = Login(directory / f"{user}.toml")
    login.password_file.touch(0o600)
    login.password_file.write_text((password or f"the-password-of-{user}") + "\n")
    login.file.write_text(
        f'[zookeeper]\nuser = "{user}"\npassword_file = "{login.password_file.name}"\n'
    )
    return login
