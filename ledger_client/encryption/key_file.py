"""Keys of an application in a file.

Leaves their use to `keys`.

Format: TOML.

    current = "2026-11"                 # id of the key for new ledgers; may be left out
    [keys]
    "2026-11" = "<32 bytes in Base64>"  # one line for each key, old ones included

Invariants: a file that users other than its owner may read or write is refused; no part of its
content is in an error.

Source: docs/encryption.md, "Keys".
"""

import base64
import os
import tomllib
from typing import Final

from ledger_client.encryption.keys import Encryption
from ledger_client.encryption.ledger_cipher import KEY_BYTES, require_library
from ledger_client.errors import KeyFileError
from metadata.ledgers.payload_encryption import is_key_id
from quire.identity.errors import SecretError
from quire.identity.secret_files import read_bounded

KEY_FILE_BYTES_MAX: Final = 1024 * 1024
_FIELDS: Final = frozenset(("current", "keys"))

_Keys = tuple[str | None, dict[str, bytes]]
"""Id of the current key, and all keys."""


def read_key_file(path: str | os.PathLike[str], *, reads_plain: bool = False) -> Encryption:
    """Return the keys in a file; `reads_plain` as for `Encryption`. Raises KeyFileError,
    EncryptionUnavailableError.
    """
    require_library()
    name = os.fspath(path)
    found = _read(name)
    if isinstance(found, str):  # raised here, where no local variable holds a key
        raise KeyFileError(name, found)
    current, keys = found
    return Encryption(keys.__getitem__, current, reads_plain=reads_plain)


def _read(name: str) -> _Keys | str:
    """Return the keys, or why the file is refused."""
    try:
        content = read_bounded(name, KEY_FILE_BYTES_MAX, is_private=True)
    except SecretError as error:
        return error.why
    try:
        fields = tomllib.loads(content.decode())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError):
        return "it is not TOML in UTF-8"  # the parser's error shows a part of the content
    return _keys(fields)


def _keys(fields: dict[str, object]) -> _Keys | str:
    if fields.keys() - _FIELDS:
        return "it has an unknown field: there are `current` and the table [keys]"
    listed = fields.get("keys")
    if not isinstance(listed, dict) or not listed:
        return "it has no table [keys] with at least one key"
    keys: dict[str, bytes] = {}
    for number, (key_id, text) in enumerate(listed.items(), 1):
        # By its number: a key and its id may have been mixed up.
        if not is_key_id(key_id):
            return f"the id of key {number} is not printable ASCII without spaces"
        key = _decoded(text)
        if key is None or len(key) != KEY_BYTES:
            return f"key {number} is not {KEY_BYTES} bytes in Base64: openssl rand -base64 32"
        keys[key_id] = key
    current = fields.get("current")
    if current is not None and (not isinstance(current, str) or current not in keys):
        return "`current` is not the id of one of its keys"
    return current, keys


def _decoded(text: object) -> bytes | None:
    if not isinstance(text, str):
        return None
    try:
        return base64.b64decode(text, validate=True)
    except ValueError:
        return None
