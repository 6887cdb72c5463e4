"""Options of one process of repair."""

from dataclasses import dataclass
from typing import Final

from metadata.server_options import metadata_option
from metadata.store.interface import SESSION_TIMEOUT_S
from metadata.store.uri import parse_metadata_uri
from quire.options import OptionTable, option, switch
from quire.server.server_options import ServerOptions


@dataclass(frozen=True, slots=True)
class RepairOptions(ServerOptions):
    """Options of one process of repair. Read them with REPAIR."""

    metadata: str = metadata_option(parse=parse_metadata_uri)
    session_timeout_s: float = option(
        SESSION_TIMEOUT_S,
        "session timeout, at least the longest of any client: an open ledger is recovered after its"
        " writer was gone for two of them",
        low=1,
        high=86_400,
    )
    audit: bool = switch("be a candidate for the auditor too; `run-auditor` always is one")


REPAIR: Final = OptionTable("repair", RepairOptions)
