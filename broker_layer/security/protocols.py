"""Security protocols of listeners: whether their clients use TLS and logins. Pure.

Leaves addresses to `server.listeners`, and the files to
`quire.server.server_options`.

Format: `NAME:PROTOCOL`, separated by commas. A listener that is not named here has the protocol
that is its name.

Source: Kafka's `listener.security.protocol.map`.
"""

from collections.abc import Collection, Mapping
from enum import StrEnum


class SecurityProtocol(StrEnum):
    """Whether the clients of a listener use TLS and logins."""

    PLAINTEXT = "PLAINTEXT"
    SSL = "SSL"
    SASL_PLAINTEXT = "SASL_PLAINTEXT"
    SASL_SSL = "SASL_SSL"

    @property
    def uses_tls(self) -> bool:
        """Whether connections begin with a handshake."""
        return self in (SecurityProtocol.SSL, SecurityProtocol.SASL_SSL)

    @property
    def uses_logins(self) -> bool:
        """Whether clients log in before they are served."""
        return self in (SecurityProtocol.SASL_PLAINTEXT, SecurityProtocol.SASL_SSL)


def protocols_of(listeners: Collection[str], text: str) -> Mapping[str, SecurityProtocol]:
    """Return the protocol of each listener. Raises ValueError."""
    given = _parse(text)
    for name in given:
        if name not in listeners:
            raise ValueError(f"{name} is not a listener: add it to listeners, or remove it")
    protocols: dict[str, SecurityProtocol] = {}
    for name in listeners:
        if name not in given and name not in list(SecurityProtocol):
            raise ValueError(
                f"the listener {name} has no protocol: write {name}:PROTOCOL, with one of"
                f" {', '.join(SecurityProtocol)}"
            )
        protocols[name] = given.get(name) or SecurityProtocol(name)
    return protocols


def _parse(text: str) -> dict[str, SecurityProtocol]:
    given: dict[str, SecurityProtocol] = {}
    for part in text.split(",") if text.strip() else ():
        name, colon, protocol = (each.strip() for each in part.partition(":"))
        if not (name and colon) or protocol not in list(SecurityProtocol):
            raise ValueError(
                f"{part.strip()!r} is not NAME:PROTOCOL, with one of {', '.join(SecurityProtocol)}"
            )
        if name in given:
            raise ValueError(f"the listener {name} is given twice")
        given[name] = SecurityProtocol(protocol)
    return given
