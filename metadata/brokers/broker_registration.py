"""Registration of a live broker, and its bytes.

Leaves storing it in the metadata store, and reading all registrations, to `broker_registry.py`.

Format: a msgpack array [1, broker id int, [[listener name str, host str, port int]], admin url str,
rack str, is leaving bool, build str, [[API name str, lowest version int, highest version int]]].

Invariants: for any bytes, decoding returns a registration or raises MetadataFormatError.

Source: topics design, "Codec"; protocol rule 2.1.
"""

from dataclasses import dataclass
from functools import partial
from typing import Final

from metadata.errors import MetadataFormatError
from metadata.msgpack_fields import (
    FieldError,
    Packed,
    array_of,
    bool_of,
    int_of,
    pack_checked,
    text_of,
    unpack_versioned,
)
from metadata.topics.topic import BROKER_ID_MAX

_FORMAT_VERSION: Final = 1
_FIELD_COUNT: Final = 8
_LISTENER_FIELD_COUNT: Final = 3
_API_FIELD_COUNT: Final = 3
_API_VERSION_MAX: Final = 2**15 - 1
_PORT_MAX: Final = 65_535


@dataclass(frozen=True, slots=True)
class Listener:
    """Address at which clients of one named listener reach a broker."""

    name: str
    host: str
    port: int


@dataclass(frozen=True, slots=True)
class ApiVersions:
    """Lowest and highest version of an API that a broker serves."""

    name: str
    low: int
    high: int


@dataclass(frozen=True, slots=True)
class BrokerRegistration:
    """A live broker: its addresses, its versions, and whether it is about to leave and no longer
    wants to lead.

    `incarnation` names the broker's process. It is stored in the node around the registration, and
    is empty until it has been read from there.
    """

    broker_id: int
    listeners: tuple[Listener, ...]
    admin_url: str = ""
    rack: str = ""
    is_leaving: bool = False
    build: str = ""
    apis: tuple[ApiVersions, ...] = ()
    incarnation: bytes = b""

    def listener(self, name: str) -> Listener | None:
        """Return the listener with a name, or None."""
        return next((each for each in self.listeners if each.name == name), None)


def pack_broker(registration: BrokerRegistration) -> bytes:
    """Return the stored form, without the incarnation."""
    listeners: list[Packed] = [[each.name, each.host, each.port] for each in registration.listeners]
    apis: list[Packed] = [[each.name, each.low, each.high] for each in registration.apis]
    what = f"the registration of broker {registration.broker_id}"
    return pack_checked(
        what,
        [
            _FORMAT_VERSION,
            registration.broker_id,
            listeners,
            registration.admin_url,
            registration.rack,
            registration.is_leaving,
            registration.build,
            apis,
        ],
        partial(unpack_broker, what, incarnation=registration.incarnation),
    )


def unpack_broker(what: str, value: bytes, incarnation: bytes) -> BrokerRegistration:
    """Read a stored form. Raises MetadataFormatError for anything else."""
    fields = unpack_versioned(what, value, _FORMAT_VERSION, _FIELD_COUNT)
    try:
        return BrokerRegistration(
            broker_id=int_of(fields[1], 0, BROKER_ID_MAX),
            listeners=tuple(_listener_of(each) for each in array_of(fields[2])),
            admin_url=text_of(fields[3]),
            rack=text_of(fields[4]),
            is_leaving=bool_of(fields[5]),
            build=text_of(fields[6]),
            apis=tuple(_api_of(each) for each in array_of(fields[7])),
            incarnation=incarnation,
        )
    except FieldError as error:
        raise MetadataFormatError(what, str(error)) from error


def _listener_of(field: Packed) -> Listener:
    fields = array_of(field)
    if len(fields) != _LISTENER_FIELD_COUNT:
        raise FieldError(f"a listener has {len(fields)} fields instead of 3")
    return Listener(text_of(fields[0]), text_of(fields[1]), int_of(fields[2], 1, _PORT_MAX))


def _api_of(field: Packed) -> ApiVersions:
    fields = array_of(field)
    if len(fields) != _API_FIELD_COUNT:
        raise FieldError(f"an API has {len(fields)} fields instead of {_API_FIELD_COUNT}")
    low = int_of(fields[1], 0, _API_VERSION_MAX)
    return ApiVersions(text_of(fields[0]), low, int_of(fields[2], low, _API_VERSION_MAX))
