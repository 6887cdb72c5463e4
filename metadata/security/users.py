"""A user and its credentials as an immutable value, the allowed changes, and its bytes. Pure.

Leaves storing it to `user_store.py`, and credentials to `quire.identity.sasl.credentials`.

Format: the name of the node is the user's name in UTF-8. Every byte but ASCII letters, digits, `_`,
`-` and `~` is written as `%` and two hexadecimal digits; a dot is too, unless it follows another
character.

Invariants: a user has at least one credential, and at most one of each mechanism; different names
have different nodes.

Source: KIP-554.
"""

import unicodedata
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Annotated, Final
from urllib.parse import quote, unquote

from metadata.errors import MetadataFormatError
from metadata.msgpack_fields import FieldError, Packed, text_of
from metadata.records import NOT_STORED, TABLE, codec_of, translated
from metadata.security.errors import CredentialNotFoundError, InvalidUserNameError
from quire.identity.sasl.credentials import ScramCredential, ScramMechanism, parse_credential

NAME_CHARACTERS_MAX: Final = 255
USERS_MAX: Final = 100_000
"""Maximum number of users of a cluster. Creations at the same time can exceed it by their number.
"""

_REFUSED_CATEGORIES: Final = frozenset(("Cc", "Cs", "Zl", "Zp"))
"""Unicode's categories of control characters, halves of characters, and ends of lines."""


def _ordered(credentials: Iterable[ScramCredential]) -> tuple[ScramCredential, ...]:
    named = {credential.mechanism: credential for credential in credentials}
    return tuple(named[mechanism] for mechanism in ScramMechanism if mechanism in named)


def _read_credentials(texts: dict[str, Packed]) -> tuple[ScramCredential, ...]:
    if not texts:
        raise FieldError("the user has no credential")
    return _ordered(
        parse_credential(ScramMechanism(mechanism), text_of(text))
        for mechanism, text in texts.items()
    )


_CREDENTIALS: Final = translated(
    TABLE,
    lambda credentials: {credential.mechanism.value: credential.text for credential in credentials},
    _read_credentials,
    "{mechanism str: text of the credential str}",
)


@dataclass(frozen=True, slots=True)
class UserRecord:
    """One user. Create it with `user_of`."""

    name: Annotated[str, NOT_STORED]
    credentials: Annotated[tuple[ScramCredential, ...], _CREDENTIALS]
    """In the order of the mechanisms, at most one of each."""

    def find(self, mechanism: ScramMechanism) -> ScramCredential | None:
        """Return the credential of a mechanism; None if there is none."""
        return next((login for login in self.credentials if login.mechanism is mechanism), None)

    @property
    def mechanisms(self) -> tuple[ScramMechanism, ...]:
        """Mechanisms that the user has a credential of."""
        return tuple(credential.mechanism for credential in self.credentials)


USER_CODEC: Final = codec_of(UserRecord)


def user_of(name: str, credentials: Iterable[ScramCredential]) -> UserRecord:
    """Return a user with these credentials; of two of one mechanism, the last one counts.

    Raises InvalidUserNameError.
    """
    ordered = _ordered(credentials)
    assert ordered, "a user has a credential"
    return UserRecord(check_user_name(name), ordered)


def altered(
    name: str,
    user: UserRecord | None,
    deletions: Collection[ScramMechanism],
    upsertions: Sequence[ScramCredential],
) -> UserRecord | None:
    """Delete some credentials of a user, then add or replace others. None is a user that does not
    exist. Raises CredentialNotFoundError, InvalidUserNameError.
    """
    kept = {} if user is None else {login.mechanism: login for login in user.credentials}
    for mechanism in deletions:
        if kept.pop(mechanism, None) is None:
            raise CredentialNotFoundError(name, mechanism)
    credentials = [*kept.values(), *upsertions]
    return user_of(name, credentials) if credentials else None


def revoked(before: UserRecord, after: UserRecord | None) -> frozenset[ScramMechanism]:
    """Return the mechanisms whose credential before is gone or replaced after."""
    return frozenset(
        credential.mechanism
        for credential in before.credentials
        if after is None or after.find(credential.mechanism) != credential
    )


def check_user_name(name: str) -> str:
    """Return the name. Raises InvalidUserNameError unless it has 1 to NAME_CHARACTERS_MAX
    characters, none of them a control character.
    """
    if not 0 < len(name) <= NAME_CHARACTERS_MAX:
        raise InvalidUserNameError(name)
    if any(unicodedata.category(character) in _REFUSED_CATEGORIES for character in name):
        raise InvalidUserNameError(name)
    return name


def node_name(name: str) -> str:
    """Return the name of a user's node. Raises InvalidUserNameError."""
    escaped = quote(check_user_name(name), safe="")
    return f"%2E{escaped[1:]}" if escaped.startswith(".") else escaped


def name_of_node(node: str) -> str:
    """Return the name of the user that a node belongs to. Raises MetadataFormatError."""
    try:
        name = unquote(node, errors="strict")
        if node_name(name) == node:
            return name
    except (UnicodeDecodeError, InvalidUserNameError):
        pass
    raise MetadataFormatError(f"the name {node[:250]!r} of a user's node", "it has another form")
