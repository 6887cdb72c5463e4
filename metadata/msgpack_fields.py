"""Packing and unpacking of versioned msgpack arrays, with a check of every field's type and range.

Leaves the meaning of the fields to the codec of each value.

Invariants: a record that is stored can be read by its decoder; for any bytes, unpacking succeeds or
raises MetadataFormatError; field readers succeed or raise FieldError.

Source: metadata design; CONTRIBUTING.md, "Rules of the code".
"""

from collections.abc import Callable
from math import isfinite
from typing import Final

import msgpack

from metadata.errors import MetadataFormatError

ITEMS_MAX: Final = 10_000
"""Maximum number of items in one array, for example of a ledger's fragments: the unpacker allocates
the announced length.
"""

Packed = int | str | bytes | bool | float | None | list["Packed"] | dict[str, "Packed"]


class FieldError(ValueError):
    """A field does not have the type or range that its format requires."""


def pack(what: str, fields: list[Packed]) -> bytes:
    """Return the msgpack form of an array. Raises MetadataFormatError for text that has no UTF-8
    form.
    """
    try:
        return msgpack.packb(fields)
    except (ValueError, OverflowError) as error:
        raise MetadataFormatError(what, f"it cannot be stored: {error}") from error


def pack_checked(what: str, fields: list[Packed], unpack: Callable[[bytes], object]) -> bytes:
    """Return the msgpack form of a record, which `unpack` can read. Raises MetadataFormatError for
    a record that `unpack` refuses: stored, it would stop all that read it.
    """
    value = pack(what, fields)
    try:
        unpack(value)
    except MetadataFormatError as error:
        raise MetadataFormatError(what, f"it cannot be stored: {error.why}") from error
    return value


def unpack_versioned(what: str, value: bytes, newest: int, field_count: int) -> list[Packed]:
    """Return the array. Its first field is a format version of 1..`newest`; it has `field_count`
    fields.
    """
    try:
        fields = msgpack.unpackb(
            value, strict_map_key=True, unicode_errors="strict", max_array_len=ITEMS_MAX
        )
    except (ValueError, OverflowError, TypeError, msgpack.UnpackException) as error:
        raise MetadataFormatError(what, f"it is not msgpack ({error})") from error
    if not isinstance(fields, list) or not fields:
        raise MetadataFormatError(what, "it is not an array of fields")
    version = fields[0]
    if not isinstance(version, int) or isinstance(version, bool) or version < 1:
        raise MetadataFormatError(what, "it has no format version")
    if version > newest:
        raise MetadataFormatError(
            what,
            f"it has format version {version} and this release reads versions up to {newest}: use "
            "a newer release",
        )
    if len(fields) != field_count:
        raise MetadataFormatError(what, f"it has {len(fields)} fields instead of {field_count}")
    return fields


def int_of(field: Packed, low: int, high: int) -> int:
    """Return an int within `low`..`high`. Raises FieldError."""
    if not isinstance(field, int) or isinstance(field, bool):
        raise FieldError(f"an int is expected, found {type(field).__name__}")
    if not low <= field <= high:
        raise FieldError(f"{field} is outside {low}..{high}")
    return field


def optional_int_of(field: Packed, low: int, high: int) -> int | None:
    """Return an int as `int_of` does, or None for nil."""
    return None if field is None else int_of(field, low, high)


def text_of(field: Packed) -> str:
    """Return a text. Raises FieldError."""
    if not isinstance(field, str):
        raise FieldError(f"text is expected, found {type(field).__name__}")
    return field


def bytes_of(field: Packed, size: int | None = None) -> bytes:
    """Return bytes, of the given number if there is one. Raises FieldError."""
    if not isinstance(field, bytes):
        raise FieldError(f"bytes are expected, found {type(field).__name__}")
    if size is not None and len(field) != size:
        raise FieldError(f"{size} bytes are expected, found {len(field)}")
    return field


def bool_of(field: Packed) -> bool:
    """Return a truth value. Raises FieldError."""
    if not isinstance(field, bool):
        raise FieldError(f"true or false is expected, found {type(field).__name__}")
    return field


def float_of(field: Packed) -> float:
    """Return a finite number. Raises FieldError."""
    if isinstance(field, bool) or not isinstance(field, int | float):
        raise FieldError(f"a number is expected, found {type(field).__name__}")
    number = float(field)
    if not isfinite(number):
        raise FieldError("a finite number is expected")
    return number


def array_of(field: Packed) -> list[Packed]:
    """Return an array. Raises FieldError."""
    if not isinstance(field, list):
        raise FieldError(f"an array is expected, found {type(field).__name__}")
    return field


def map_of(field: Packed) -> dict[str, Packed]:
    """Return a map with text keys. Raises FieldError."""
    if not isinstance(field, dict):
        raise FieldError(f"a map is expected, found {type(field).__name__}")
    for key in field:
        if not isinstance(key, str):
            raise FieldError("a map has a key that is not text")
    return field
