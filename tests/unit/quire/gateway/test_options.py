"""Options of a gateway: what it refuses to start with."""

import pytest

from bookie.options import BOOKIE
from broker_layer.options import BROKER
from quire.gateway.options import GATEWAY
from quire.options import OptionError


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ('host = "10.0.0.1"', "tls is off|TLS is off"),
        ('admin_host = "10.0.0.1"\nallow_plaintext = true', "admin_token_file"),
        ('tls = "required"', "tls_cert_file"),
        ('super_users = "alice"', "super_users: 'alice' is not a principal"),
        ('metadata = "gateway://other:1"', "must start with zk://"),
        ("watches_max = 0", "from 1"),
        ('log_level = "loud"', "log_level"),
        ("unknown = 1", "unknown option"),
    ],
)
def test_what_is_refused(text: str, why: str) -> None:
    with pytest.raises(OptionError, match=why):
        GATEWAY.load(f"[gateway]\n{text}\n", {}, {})


def test_servers_need_zookeeper_itself() -> None:
    for table in (BOOKIE, BROKER):
        text = f"[{table.name}]\nmetadata = 'gateway://other:1'\n"
        with pytest.raises(OptionError, match="must start with zk://"):
            table.load(text, {}, {})


def test_values_reach_the_limits() -> None:
    options = GATEWAY.load("[gateway]\nwatches_max = 7\n", {"QUIRE_GATEWAY_PORT": "5"}, {})
    assert (options.limits.watches_max, options.port) == (7, 5)
    assert GATEWAY.load(None, {}, {}).port == 2188
