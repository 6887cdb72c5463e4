"""Options that servers with access to a cluster have.

Leaves how options are declared and read to `quire.options`.
"""

from collections.abc import Callable
from typing import Final

from metadata.security.client_principals import parse_principals
from metadata.store.interface import SESSION_TIMEOUT_S
from metadata.store.uri import parse_metadata_uri, parse_zookeeper_uri
from quire.identity.client_file import check_client_file
from quire.options import METADATA_VARIABLE, option

METADATA_DEFAULT: Final = "zk://127.0.0.1:2181/quire"


def metadata_option(
    text: str = "the cluster's metadata service",
    parse: Callable[[str], object] = parse_zookeeper_uri,
) -> str:
    """Declare the option `metadata`."""
    return option(
        METADATA_DEFAULT, text, parse=parse, read=_check_client, variable=METADATA_VARIABLE
    )


def session_timeout_option(text: str) -> float:
    """Declare the option `session_timeout_s`."""
    return option(SESSION_TIMEOUT_S, text, low=1, high=300)


def principals_option(text: str) -> str:
    """Declare an option with principals."""
    return option("", f"{text}: User:NAME;User:NAME", parse=parse_principals)


def _check_client(uri: str) -> None:
    """Read the client's file that a URI names. Raises SecurityError."""
    check_client_file(parse_metadata_uri(uri).client_file)
