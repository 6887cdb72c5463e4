"""Conversion of production objects into comparable values, and copies of these objects.

Leaves the meaning of the objects to `protocols`. No class of the protocol is named here: an object
is its class and its fields, so a field added later is included without a change.

Invariants: equal values have equal futures. Only fields that the code uses for membership tests
alone count as unordered.
"""

import enum
from collections import deque
from collections.abc import Hashable, Mapping
from dataclasses import is_dataclass
from functools import cache
from typing import Generic, TypeVar, cast

from metadata.ledgers.ledger_metadata import LedgerMetadata

UNORDERED = ("stored_at", "known_positions")
"""Lists of bookies in the order of their answers, which the code uses for membership tests only."""
IGNORED = ("_unknown", "_reason", "reason")
"""Texts of errors, which no decision uses."""
PLAIN = (int, str, bytes, bool, float, type(None), enum.Enum, type)
ValueT = TypeVar("ValueT", bound=Hashable)


class Pool(Generic[ValueT]):
    """Numbers for values, from 0, in the order in which they occur."""

    def __init__(self) -> None:
        self.values: list[ValueT] = []
        self._numbers: dict[ValueT, int] = {}

    def number(self, value: ValueT) -> int:
        """Return the value's number."""
        found = self._numbers.get(value)
        if found is None:
            found = self._numbers[value] = len(self.values)
            self.values.append(value)
        return found


class MetadataPool:
    """Numbers for metadata; a `LedgerMetadata` itself has no hash."""

    def __init__(self) -> None:
        self.values: list[LedgerMetadata] = []
        self._numbers: dict[Hashable, int] = {}

    def number(self, metadata: LedgerMetadata) -> int:
        """Return the number of a ledger's metadata."""
        key = (metadata.state, metadata.fragments, metadata.last_entry_id, metadata.length)
        whole = (*key, metadata.update_token)
        found = self._numbers.get(whole)
        if found is None:
            found = self._numbers[whole] = len(self.values)
            self.values.append(metadata)
        return found


@cache
def fields_of(kind: type) -> tuple[str, ...] | None:
    """Return the field names of a slotted class; None if its instances have a dict."""
    names: list[str] = []
    for each in reversed(kind.__mro__):
        slots = each.__dict__.get("__slots__")
        if slots is None:
            if each is not object:
                return None
            continue
        names += [slots] if isinstance(slots, str) else list(slots)
    return tuple(names)


def names_of(value: object) -> tuple[str, ...]:
    """Return the names of an object's fields."""
    return fields_of(cast("Hashable", type(value))) or tuple(sorted(vars(value)))


def freeze(value: object, pool: MetadataPool) -> Hashable:
    """Return a value that is equal for equal objects."""
    if isinstance(value, PLAIN):
        return value
    if isinstance(value, LedgerMetadata):
        return "metadata", pool.number(value)
    if isinstance(value, tuple | list | deque):
        return tuple([freeze(each, pool) for each in value])
    if isinstance(value, Mapping):
        pairs = [(key, freeze(each, pool)) for key, each in value.items()]
        return tuple(sorted(pairs, key=lambda pair: pair[0]))
    if isinstance(value, BaseException):
        return type(value).__name__
    frozen: list[Hashable] = [type(value).__name__]
    for name in names_of(value):
        if name in IGNORED:
            continue
        each = getattr(value, name)
        if name in UNORDERED:
            frozen.append(tuple(sorted(dict.fromkeys(each))))
        else:
            frozen.append(freeze(each, pool))
    return tuple(frozen)


def clone(value: object, known: dict[int, object]) -> object:
    """Copy an object and all mutable objects below it; shared objects stay shared in the copy."""
    if isinstance(value, PLAIN) or _is_frozen(cast("Hashable", type(value))):
        return value
    found = known.get(id(value))
    if found is not None:
        return found
    if isinstance(value, tuple):
        return tuple([clone(each, known) for each in value])
    if isinstance(value, list | deque):
        copied: list[object] | deque[object] = type(value)()
        known[id(value)] = copied
        copied.extend([clone(each, known) for each in value])
        return copied
    if isinstance(value, dict):
        pairs: dict[object, object] = {}
        known[id(value)] = pairs
        pairs.update({key: clone(each, known) for key, each in value.items()})
        return pairs
    kind = type(value)
    made: object = kind.__new__(kind)
    known[id(value)] = made
    for name in names_of(value):
        object.__setattr__(made, name, clone(getattr(value, name), known))
    return made


@cache
def _is_frozen(kind: type) -> bool:
    parameters = getattr(kind, "__dataclass_params__", None)
    frozen = is_dataclass(kind) and parameters is not None and parameters.frozen
    return frozen or issubclass(kind, BaseException)
