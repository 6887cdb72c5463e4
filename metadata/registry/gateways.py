"""Gateways that have served: a record for each, so that one that is away is missed.

Leaves whether a gateway answers to those who ask it. A gateway writes its record when it starts;
the record stays when it stops.

Source: metadata design, "Registration".
"""

from dataclasses import dataclass
from typing import Final

from metadata.paths import GATEWAYS
from metadata.records import codec_of
from metadata.store.records import NodeNames, RecordKind


@dataclass(frozen=True, slots=True)
class GatewayRecord:
    """Where clients reach a gateway."""

    address: str
    admin_url: str = ""
    tls: bool = False
    """Whether it takes only connections with TLS."""


GATEWAY_KIND: Final = RecordKind[str, GatewayRecord](
    GATEWAYS, NodeNames[str](str, str), codec_of(GatewayRecord)
)
