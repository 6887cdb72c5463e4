"""Filter of DescribeClientQuotas: which entities a description has. Pure.

Leaves the answer to `client_admin`, and entities to `metadata.security.quotas`.

Invariants: each component names another type; a component never selects entities without its type;
a strict filter selects only entities that have no other types.

Source: KIP-546.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple, Protocol

from metadata.security.errors import InvalidQuotaError
from metadata.security.quotas import EntityType, QuotaEntity, entity_type_of


class MatchType(IntEnum):
    """How a component selects entities, with Kafka's numbers."""

    EXACT = 0
    DEFAULT = 1
    SPECIFIED = 2
    """Every entity with the type, the default included."""


class Component(Protocol):
    """A component, as the request has it."""

    entity_type: str
    match_type: int
    match: str | None


class _Match(NamedTuple):
    how: MatchType
    name: str | None

    def selects(self, name: str | None) -> bool:
        """Return whether an entity with this name is selected."""
        return self.how is MatchType.SPECIFIED or self.name == name


@dataclass(frozen=True, slots=True)
class QuotaFilter:
    """The filter of one request. Create it with `filter_of`."""

    _matches: dict[EntityType, _Match]
    _is_strict: bool

    def selects(self, entity: QuotaEntity) -> bool:
        """Return whether an entity is in the description."""
        names = dict(entity.names)
        if self._is_strict and len(names) > len(self._matches):
            return False
        return all(
            kind in names and match.selects(names[kind]) for kind, match in self._matches.items()
        )


def filter_of(components: Iterable[Component], *, is_strict: bool) -> QuotaFilter:
    """Return the filter of a request. Raises InvalidQuotaError."""
    matches: dict[EntityType, _Match] = {}
    for component in components:
        kind = entity_type_of(component.entity_type)
        if kind in matches:
            raise InvalidQuotaError(f"the filter names {kind} twice: name each type once")
        matches[kind] = _match_of(kind, component)
    if EntityType.IP in matches and len(matches) > 1:
        raise InvalidQuotaError(
            "the filter has ip and user or client-id, which no quota has together: use one filter"
            " for each of them"
        )
    return QuotaFilter(matches, is_strict)


def _match_of(kind: EntityType, component: Component) -> _Match:
    try:
        how = MatchType(component.match_type)
    except ValueError:
        raise InvalidQuotaError(
            f"match type {component.match_type} of {kind} is unknown: use 0 for a name, 1 for the"
            " default, or 2 for all"
        ) from None
    if (how is MatchType.EXACT) != (component.match is not None):
        raise InvalidQuotaError(
            f"the filter of {kind} has match type {int(how)}: give a name with match type 0, and"
            " none with the others"
        )
    return _Match(how, component.match)
