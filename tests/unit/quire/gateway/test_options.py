"""Options of a gateway: what it refuses to start with."""

import pytest

from bookie.options import load_options as load_bookie
from broker_layer.options import load_options as load_broker
from quire.gateway.options import load_options
from quire.server.errors import OptionError


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
        load_options(f"[gateway]\n{text}\n", {}, {})


def test_servers_need_zookeeper_itself() -> None:
    for load, table in ((load_bookie, "[bookie]\ndata_dir = 'x'"), (load_broker, "[broker]")):
        with pytest.raises(OptionError, match="must start with zk://"):
            load(f"{table}\nmetadata = 'gateway://other:1'\n", {}, {})


def test_values_reach_the_limits() -> None:
    options = load_options("[gateway]\nwatches_max = 7\n", {"QUIRE_GATEWAY_PORT": "5"}, {})
    assert (options.limits.watches_max, options.port) == (7, 5)
    assert load_options(None, {}, {}).port == 2188
