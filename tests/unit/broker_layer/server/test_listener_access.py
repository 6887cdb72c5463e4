"""How a listener takes connections: who their clients are, and whether others can read them."""

import asyncio
import ssl
from pathlib import Path
from typing import Any

import pytest
from typing_extensions import override  # `typing` has it from 3.12 on

from broker_layer.server.access import ListenerAccess
from quire.identity.principal import ANONYMOUS, DEFAULT_RULES, Principal, parse_mapping_rules
from quire.local.secure_directory import SecureDirectory
from quire.server.served_tls import ServedTls
from quire.server.server_log import ServerLog
from quire.server.server_options import SecurityOptions, TlsMode
from quire.server.tls_listening import TlsListening
from tests.support.broker_layer.login_setting import LoginSetting

RULES = parse_mapping_rules(DEFAULT_RULES)
SUBJECT = ((("organizationName", "example"),), (("commonName", "alice"),))


class Certified(asyncio.Transport):
    """A transport whose peer has a certificate."""

    @override
    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return {"subject": SUBJECT} if name == "peercert" else default


@pytest.fixture
def tls(tmp_path: Path) -> TlsListening:
    directory = SecureDirectory(tmp_path)
    directory.fill()
    files = directory.certificate_options("bookie")
    options = SecurityOptions(tls=TlsMode.REQUIRED, **files)  # type: ignore[arg-type]
    listening = ServedTls("broker", options, ServerLog(lambda: 0.0)).listening
    assert listening is not None
    assert isinstance(listening.context(), ssl.SSLContext)
    return listening


def test_a_certificate_counts_only_where_clients_do_not_log_in(tls: TlsListening) -> None:
    logins = LoginSetting().logins
    known = ListenerAccess("A", tls, RULES).principal_of(Certified())
    assert known == Principal("CN=alice,O=example")
    assert ListenerAccess("B", None, RULES).principal_of(Certified()) == ANONYMOUS
    assert ListenerAccess("C", tls, RULES, logins).principal_of(Certified()) == ANONYMOUS


@pytest.mark.parametrize(
    ("host", "is_private"), [("127.0.0.1", True), ("::1", True), ("10.0.0.1", False), ("", False)]
)
def test_without_tls_only_this_machine_is_private(
    tls: TlsListening, host: str, *, is_private: bool
) -> None:
    assert ListenerAccess("A").is_private(host) == is_private
    assert ListenerAccess("A", tls).is_private(host)
