"""Errors of the metadata service as values of a reply, and back. Pure.

Format: an array of a code and the arguments of the error's class, each text or int. An error
without a code is sent as `StoreRefusedError`.

Invariant: the class of an error, and the path in it, are the same at the gateway and at its client.

Source: docs/formats.md, "Connections to a gateway".
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from metadata.errors import (
    MetadataError,
    NodeExistsError,
    NodeNotEmptyError,
    NodeNotFoundError,
    OutcomeUnknownError,
    StoreRefusedError,
    StoreUnavailableError,
    ValueTooLargeError,
    VersionConflictError,
)
from metadata.gateway.errors import GatewayFormatError, GatewayRefusedError
from metadata.msgpack_fields import Packed

TEXT_CHARACTERS_MAX: Final = 4_000
"""Longest text of an error that is sent."""

_KINDS: Final[Mapping[int, tuple[type[MetadataError], tuple[str, ...]]]] = MappingProxyType(
    {
        1: (NodeExistsError, ("path",)),
        2: (NodeNotFoundError, ("path",)),
        3: (NodeNotEmptyError, ("path",)),
        4: (VersionConflictError, ("path", "expected")),
        5: (OutcomeUnknownError, ("path", "why")),
        6: (StoreUnavailableError, ("address", "why")),
        7: (ValueTooLargeError, ("path", "size", "limit")),
        8: (StoreRefusedError, ("path", "address", "why")),
        9: (GatewayRefusedError, ("path", "address", "why")),
    }
)
_CODES: Final[Mapping[type[MetadataError], int]] = MappingProxyType(
    {kind: code for code, (kind, _) in _KINDS.items()}
)
_NUMBERS: Final = frozenset(("expected", "size", "limit"))
_REFUSED: Final = _CODES[StoreRefusedError]


def failure_fields(error: MetadataError) -> list[Packed]:
    """Return the values that stand for an error."""
    code = _CODES.get(type(error))
    if code is None:
        return [_REFUSED, "/", "the metadata service", str(error)[:TEXT_CHARACTERS_MAX]]
    values = (getattr(error, name) for name in _KINDS[code][1])
    return [
        code,
        *(value if isinstance(value, int) else value[:TEXT_CHARACTERS_MAX] for value in values),
    ]


def failure_of(fields: list[Packed]) -> MetadataError:
    """Return the error that values stand for. Raises GatewayFormatError."""
    code, *arguments = fields or [None]
    known = _KINDS.get(code) if isinstance(code, int) else None
    if known is None:
        raise GatewayFormatError(f"no error has the code {code!r}")
    kind, names = known
    if len(arguments) != len(names):
        raise GatewayFormatError(f"{kind.__name__} has {len(names)} values")
    for name, value in zip(names, arguments, strict=True):
        if not isinstance(value, int if name in _NUMBERS else str):
            raise GatewayFormatError(f"{name} of {kind.__name__} has another type")
    return kind(*arguments)
