"""Registration of a live broker, and its bytes.

Leaves storing it in the metadata store, and reading all registrations, to `broker_registry.py`.

Source: topics design, "Codec"; protocol rule 2.1.
"""

from dataclasses import dataclass
from typing import Annotated, Final

from metadata.records import NOT_STORED, array, codec_of, row_of, whole
from metadata.topics.topic import BrokerNumber
from quire.addresses import PORT_MAX

_ApiVersion = Annotated[int, whole(0, 2**15 - 1)]


@dataclass(frozen=True, slots=True)
class Listener:
    """Address at which clients of one named listener reach a broker."""

    name: str
    host: str
    port: Annotated[int, whole(1, PORT_MAX)]


@dataclass(frozen=True, slots=True)
class ApiVersions:
    """Lowest and highest version of an API that a broker serves."""

    name: str
    low: _ApiVersion
    high: _ApiVersion


def _check_api(versions: ApiVersions) -> None:
    if versions.high < versions.low:
        raise ValueError(f"the versions {versions.low}..{versions.high} end too early")


@dataclass(frozen=True, slots=True)
class BrokerRegistration:
    """A live broker: its addresses, its versions, and whether it is about to leave and no longer
    wants to lead.

    `incarnation` names the broker's process. It is stored in the node around the registration, and
    is empty until it has been read from there.
    """

    broker_id: BrokerNumber
    listeners: tuple[Listener, ...]
    admin_url: str = ""
    rack: str = ""
    is_leaving: bool = False
    build: str = ""
    apis: Annotated[tuple[ApiVersions, ...], array(row_of(ApiVersions, _check_api))] = ()
    incarnation: Annotated[bytes, NOT_STORED] = b""

    def listener(self, name: str) -> Listener | None:
        """Return the listener with a name, or None."""
        return next((listener for listener in self.listeners if listener.name == name), None)


BROKER_CODEC: Final = codec_of(BrokerRegistration)
