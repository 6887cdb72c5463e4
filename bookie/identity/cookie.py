"""Cookie: the identity stored in each of a bookie's directories, its bytes, and its comparison.

Leaves reading and writing the files to `bookie.identity.identity`, and the cluster's copy to
`metadata.registry.cookies`.

Format: text, so that an operator can read it; one `name value` per line, in this order:

    quire-cookie   1
    bookie-id      bookie-0f3a...
    instance       32 hex digits, made when the bookie was formatted
    cluster        32 hex digits, the cluster's instance
    directory      the directory that this cookie is in: "identity", "log" or "index"
    directories    all directories of the bookie, separated by commas
    created-ms     milliseconds since 1970
    starts         number of the bookie's starts
    crc32c         8 hex digits, over all lines before

Invariant: `starts` in a directory is the metadata service's count, or one more during a start; a
directory with a lower count was copied before the bookie's last start (rule 2.4).

Source: protocol rules 2.1, 2.2, 2.4.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Final

from crc32c import crc32c

from bookie.errors import CookieDamagedError, Difference
from metadata.ids import BookieId, is_bookie_id
from metadata.registry.cluster import INSTANCE_BYTES
from metadata.registry.cookies import CookieRecord

COOKIE_NAME: Final = "cookie"
COOKIE_BYTES_MAX: Final = 4_096
DIRECTORIES: Final = ("identity", "log", "index")
"""Directories below the data directory. Each may be a separate file system, so each has a
cookie.
"""

_FORMAT_VERSION: Final = 1
_NAMES: Final = (
    "quire-cookie",
    "bookie-id",
    "instance",
    "cluster",
    "directory",
    "directories",
    "created-ms",
    "starts",
    "crc32c",
)


@dataclass(frozen=True, slots=True)
class Cookie:
    """Identity of the bookie that owns a directory, as stored in the directory."""

    bookie_id: BookieId
    instance: bytes
    cluster: bytes
    directory: str
    directories: tuple[str, ...]
    created_ms: int
    starts: int


def cookies_of(record: CookieRecord, cluster: bytes, starts: int) -> list[Cookie]:
    """Return the expected cookies of a bookie's directories, one for each."""
    return [
        Cookie(
            record.bookie_id,
            record.instance,
            cluster,
            directory,
            DIRECTORIES,
            record.created_ms,
            starts,
        )
        for directory in DIRECTORIES
    ]


def hash_directories(directories: Sequence[str]) -> bytes:
    """Return the hash of the directories' names, which the metadata service stores."""
    return hashlib.sha256("\n".join(directories).encode()).digest()


def differences(found: Cookie, expected: Cookie) -> list[Difference]:
    """Return the fields in which two cookies differ; `starts` is checked separately."""
    return [
        Difference(field.name, _shown(found, field.name), _shown(expected, field.name))
        for field in fields(Cookie)
        if field.name != "starts" and getattr(found, field.name) != getattr(expected, field.name)
    ]


def is_stale(cookie: Cookie, starts: int) -> bool:
    """Return whether a directory is a copy made before the bookie's last start."""
    return cookie.starts < starts


def is_ahead(cookie: Cookie, starts: int) -> bool:
    """Return whether a directory has more starts than the metadata service can have missed."""
    return cookie.starts > starts + 1


def starts_after_restore(starts: int, counted: Sequence[int]) -> int:
    """Return the count of starts to compare with, of a metadata service that was restored: it does
    not know the starts since its dump. The highest number on the disks may be that of a start that
    was interrupted in the middle of its cookies, so it does not count as finished.
    """
    return max(starts, max(counted, default=0) - 1)


def encode_cookie(cookie: Cookie) -> bytes:
    """Return the content of a cookie's file."""
    values = (
        str(_FORMAT_VERSION),
        cookie.bookie_id,
        cookie.instance.hex(),
        cookie.cluster.hex(),
        cookie.directory,
        ",".join(cookie.directories),
        str(cookie.created_ms),
        str(cookie.starts),
    )
    text = "".join(f"{name} {value}\n" for name, value in zip(_NAMES, values, strict=False))
    return f"{text}crc32c {crc32c(text.encode()):08x}\n".encode()


def decode_cookie(data: bytes, where: str) -> Cookie:
    """Decode the content of a cookie's file. Raises CookieDamagedError."""
    try:
        *lines, rest = data.decode("ascii").split("\n")
        pairs = [line.partition(" ") for line in lines]
    except UnicodeDecodeError:
        raise CookieDamagedError(where, "it is not text") from None
    if not pairs or pairs[0][0] != _NAMES[0]:
        raise CookieDamagedError(where, "it is not a cookie")
    if pairs[0][2] != str(_FORMAT_VERSION):
        raise CookieDamagedError(
            where, f"its format version is {pairs[0][2][:20]}, this release reads {_FORMAT_VERSION}"
        )
    if rest or tuple(name for name, _, _ in pairs) != _NAMES:
        raise CookieDamagedError(where, "its lines are not those of a cookie")
    values = [value for _, _, value in pairs]
    checked = "".join([line + "\n" for line in lines[:-1]])
    if values[-1] != f"{crc32c(checked.encode()):08x}":
        raise CookieDamagedError(where, "its checksum does not match")
    try:
        return _from_values(values)
    except ValueError as error:
        raise CookieDamagedError(where, str(error)) from None


def _from_values(values: Sequence[str]) -> Cookie:
    _, bookie_id, instance, cluster, directory, directories, created, starts, _ = values
    if not is_bookie_id(bookie_id):
        raise ValueError(f"{bookie_id[:70]!r} is not a bookie id")
    numbers = bytes.fromhex(instance), bytes.fromhex(cluster)
    if any(len(number) != INSTANCE_BYTES for number in numbers):
        raise ValueError(f"an instance has {INSTANCE_BYTES} bytes")
    if not created.isdigit() or not starts.isdigit():
        raise ValueError("a count is not a number")
    return Cookie(
        BookieId(bookie_id),
        *numbers,
        directory,
        tuple(directories.split(",")),
        int(created),
        int(starts),
    )


def _shown(cookie: Cookie, name: str) -> str:
    value = getattr(cookie, name)
    if isinstance(value, bytes):
        return value.hex()
    return ",".join(value) if isinstance(value, tuple) else str(value)
