"""Search for secrets in what processes write and show.

Leaves starting the processes to the tests.

Invariant: a secret is found as it is, in hexadecimal, and in Base64 at each of the three positions
that it can have in an encoded text.
"""

import base64
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final
from urllib.parse import quote_from_bytes

_PROCESSES: Final = Path("/proc")
_BASE64_POSITIONS: Final = 3
"""Base64 encodes groups of three bytes."""


@dataclass(frozen=True, slots=True)
class SecretSearch:
    """Secrets by their names, and the outputs in which none may be."""

    secrets: Mapping[str, bytes]
    outputs: list[tuple[str, bytes]] = field(default_factory=list)

    def add(self, name: str, output: bytes) -> bytes:
        """Add an output to search; return it."""
        self.outputs.append((name, output))
        return output

    def add_files(self, directory: Path) -> None:
        """Add every file below a directory."""
        for path in sorted(directory.rglob("*")):
            if path.is_file():
                self.add(str(path), path.read_bytes())

    def add_processes(self, parent: int) -> int:
        """Add the command line and the environment of every process below `parent`; return how
        many there are.
        """
        children = _descendants(parent)
        for pid in children:
            for name in ("cmdline", "environ"):
                try:
                    self.add(f"{name} of {pid}", (_PROCESSES / str(pid) / name).read_bytes())
                except OSError:
                    continue  # the process has ended
        return len(children)

    def findings(self) -> list[str]:
        """Return which secrets are in which outputs, in which form; never the secret itself."""
        return [
            f"{secret} in {output}, {form}"
            for secret, value in self.secrets.items()
            for form, pattern in forms_of(value).items()
            for output, content in self.outputs
            if pattern in content
        ]


def forms_of(secret: bytes) -> dict[str, bytes]:
    """Return the forms in which a secret may be shown."""
    forms = {
        "as it is": secret,
        "in hexadecimal": secret.hex().encode(),
        "in upper hexadecimal": secret.hex().upper().encode(),
        "in a URL": quote_from_bytes(secret).encode(),
        "in Python": repr(secret)[2:-1].encode(),
        "in JSON": json.dumps(secret.decode("latin-1"))[1:-1].encode(),
    }
    for position in range(_BASE64_POSITIONS):
        for name, encode in (("", base64.b64encode), (" of URLs", base64.urlsafe_b64encode)):
            encoded = encode(bytes(position) + secret).rstrip(b"=")
            # The first characters hold what stands before the secret, and the last what follows.
            first = (position * 8 + 5) // 6
            last = (position + len(secret)) * 8 // 6
            forms[f"in Base64{name} at position {position}"] = encoded[first:last]
    return forms


def _descendants(parent: int) -> list[int]:
    """Return the processes below one, by their ids."""
    parents = {}
    for path in _PROCESSES.glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except OSError:
            continue  # the process has ended
        parents[int(path.parent.name)] = int(fields[1])
    found, count = {parent}, 0
    while len(found) > count:
        count = len(found)
        found |= {pid for pid, above in parents.items() if above in found}
    return sorted(found - {parent})
