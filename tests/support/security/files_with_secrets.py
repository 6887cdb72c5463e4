"""Files with random secrets, as servers and clients read them.

Leaves the search for the secrets to `secret_search`.
"""

import base64
import secrets
from dataclasses import dataclass
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from quire.local.secure_directory import SecureDirectory
from tests.support.security.secret_search import SecretSearch


def text_secret() -> str:
    """Return random text that looks like no other."""
    return f"Geheim_{secrets.token_hex(16)}"


@dataclass(frozen=True, slots=True)
class SecretFiles:
    """Files with secrets, as servers and clients read them."""

    directory: Path

    def write(self, name: str, text: str, mode: int = 0o600) -> str:
        """Write a file; return its path."""
        path = self.directory / name
        path.write_text(text)
        path.chmod(mode)
        return str(path)

    def read(self, name: str) -> str:
        return (self.directory / name).read_text()


def make_files(directory: Path) -> SecretFiles:
    """Make tokens, passwords, keys and certificates, and those of another authority."""
    directory.mkdir()
    made = SecretFiles(directory)
    for name in ("admin-token", "other-token", "password", "other-password"):
        made.write(name, f"{text_secret()}\n")
    for name in ("keys", "other-keys"):
        key = base64.b64encode(secrets.token_bytes(32)).decode()
        made.write(f"{name}.toml", f'current = "one"\n[keys]\none = "{key}"\n')
    SecureDirectory(directory).fill()
    other = directory / "other"
    other.mkdir()
    SecureDirectory(other).fill()
    return made


def search_for(files: SecretFiles) -> SecretSearch:
    """Return a search for all secrets of the files."""
    found = dict[str, bytes]()
    for name in ("admin-token", "other-token", "password", "other-password"):
        found[name] = files.read(name).strip().encode()
    for name in ("keys", "other-keys"):
        encoded = files.read(f"{name}.toml").split('"')[-2]
        found[f"{name} as text"] = encoded.encode()
        found[name] = base64.b64decode(encoded)
    for path in sorted(files.directory.rglob("*-key.pem")):
        name = str(path.relative_to(files.directory))
        key = load_pem_private_key(path.read_bytes(), None)
        assert isinstance(key, ec.EllipticCurvePrivateKey)
        found[name] = key.private_numbers().private_value.to_bytes(32)
        found[f"a line of {name}"] = path.read_bytes().splitlines()[2]
    return SecretSearch(found)
