"""Certificates that a server refuses although an authority signed them: those of stolen keys.

Leaves looking at the file to `quire.identity.server_tls`, and refused connections to
`quire.server.tls_listening`.

Format of the file: text. A line has one serial number in hexadecimal, as `openssl x509 -noout
-serial` prints it (`serial=4D2`), with or without colons; what follows `#` is a comment.

Invariants: a certificate whose number is in the file begins no connection, and open connections of
a number that is added are cut. A file that cannot be read changes nothing: the list before it
stays. A number counts whatever authority signed: too much is refused rather than too little.
"""

import contextlib
from collections.abc import Mapping
from pathlib import Path
from typing import Final, Protocol
from weakref import WeakKeyDictionary

from quire.identity.errors import CertificateError, SecretError
from quire.identity.secret_files import read_bounded

FILE_BYTES_MAX: Final = 4 * 1024 * 1024
PREFIX: Final = "serial="


class Connection(Protocol):
    """What is open to a client: a transport."""

    def abort(self) -> None:
        """End it at once."""


class RefusedCertificates:
    """The list of one server, and its open connections of clients with certificates."""

    def __init__(self, path: str = "") -> None:
        """Read the file; without one nothing is refused. Raises CertificateError."""
        self._path = path
        self._numbers: frozenset[int] = frozenset()
        self._open: WeakKeyDictionary[Connection, int] = WeakKeyDictionary()
        self.load()

    def __len__(self) -> int:
        """Return the number of certificates that are refused."""
        return len(self._numbers)

    @property
    def state(self) -> tuple[int, int, int] | None:
        """What changes when the file is written or replaced; None without one."""
        with contextlib.suppress(OSError):
            if self._path:
                status = Path(self._path).stat()
                return status.st_ino, status.st_mtime_ns, status.st_size
        return None

    def load(self) -> None:
        """Read the file again, and cut the connections that it refuses now. Raises
        CertificateError.
        """
        if not self._path:
            return
        self._numbers = _numbers_in(self._path)
        for connection, number in list(self._open.items()):
            if number in self._numbers:
                connection.abort()

    def refusal(self, connection: Connection, certificate: Mapping[str, object] | None) -> str:
        """Return why the certificate of a client is refused; empty if it is not, or there is none.
        A connection that is not refused is kept, to cut it later.
        """
        if not self._path or not certificate:
            return ""
        number = int(str(certificate["serialNumber"]), 16)
        if number in self._numbers:
            return f"{self._path} refuses the certificate with the serial number {number:X}"
        self._open[connection] = number
        return ""


def _numbers_in(path: str) -> frozenset[int]:
    try:
        text = read_bounded(path, FILE_BYTES_MAX, is_private=False).decode()
    except (SecretError, ValueError) as error:
        raise CertificateError(f"the refused certificates cannot be read: {error}") from error
    found = set[int]()
    for count, line in enumerate(text.splitlines(), start=1):
        words = line.partition("#")[0].strip()
        if not words:
            continue
        try:
            found.add(int(words.removeprefix(PREFIX).replace(":", ""), 16))
        except ValueError:
            raise CertificateError(
                f"line {count} of {path} is not a serial number in hexadecimal, as `openssl x509"
                " -noout -serial` prints it"
            ) from None
    return frozenset(found)
