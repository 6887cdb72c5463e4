"""TLS of one server process: its certificate for all its ports, new files, and metrics.

Invariants: the files are looked at each FILES_CHECK_S; files that cannot be used are logged once,
and the server goes on with the certificate that it has.
"""

import asyncio
from collections.abc import Iterator
from typing import Final

from prometheus_client import Metric
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from quire.identity.tls import FILES_CHECK_S, ClientCertificates, ServerTls
from quire.server.admin import AdminAccess
from quire.server.metrics import counter, described_metric
from quire.server.overriding import override
from quire.server.server_log import ServerLog
from quire.server.server_options import CertificateOptions, TlsMode
from quire.server.tls_listening import TlsCounters, TlsListening
from quire.server.token_check import read_token

METRICS: Final = {
    "handshakes": counter("TLS handshakes begun."),
    "handshakes_failed": counter("TLS handshakes that failed, or did not end in time."),
    "handshakes_refused": counter("Connections closed because too many handshakes were under way."),
}


class ServedTls(Collector):
    """TLS of one server process."""

    def __init__(self, kind: str, options: CertificateOptions, log: ServerLog) -> None:
        """Load the files; `kind` is "bookie" or "broker". Raises SecurityError."""
        self._prefix = f"quire_{kind}_tls"
        self._options = options
        self._log = log
        self._tls: ServerTls | None = options.server_tls()
        self._counters = TlsCounters()

    @property
    def listening(self) -> TlsListening | None:
        """How the only address listens; None without TLS. If TLS is optional, it takes both kinds
        of connections.
        """
        if self._tls is None:
            return None
        return self._listening(self._tls, is_required=self._options.tls_mode is TlsMode.REQUIRED)

    def listening_with_certificates(self) -> TlsListening:
        """Return how an address listens whose clients all use TLS."""
        return self._listening(self._loaded, is_required=True)

    def listening_for_logins(self) -> TlsListening:
        """Return how an address listens whose clients use TLS and need no certificate, because they
        log in.
        """
        context = self._loaded.following_context(ClientCertificates.NONE)
        return TlsListening(lambda: context, self._log, self._counters)

    @property
    def _loaded(self) -> ServerTls:
        assert self._tls is not None, "the options name files if an address uses TLS"
        return self._tls

    def _listening(self, tls: ServerTls, *, is_required: bool) -> TlsListening:
        return TlsListening(
            lambda: tls.context,
            self._log,
            self._counters,
            is_required=is_required,
            refused=tls.refused,
        )

    def admin_access(
        self, changers: frozenset[str] | None = None, readers: frozenset[str] | None = None
    ) -> AdminAccess:
        """Return what requests to the admin port need; `changers` are the principals whose
        certificates allow to change something, `readers` others that may read, None those of all.
        Raises SecurityError.
        """
        options = self._options
        token = read_token(options.admin_token_file) if options.admin_token_file else ""
        if self._tls is None or options.tls_mode is not TlsMode.REQUIRED:
            return AdminAccess(token)
        takes = options.takes_certificates
        wanted = ClientCertificates.REQUESTED if takes else ClientCertificates.NONE
        context = self._tls.following_context(wanted)
        rules, refused = options.principal_rules, self._tls.refused
        return AdminAccess(token, context, takes, rules, changers, readers, refused)

    async def watch(self) -> None:
        """Load new files until cancelled."""
        while self._tls is not None:
            await asyncio.sleep(FILES_CHECK_S)
            if not self._tls.reload():
                continue
            if self._tls.failure:
                self._log.warning("certificate not loaded", reason=self._tls.failure)
            else:
                self._log.info("certificate loaded", file=self._options.tls_cert_file)

    @override
    def collect(self) -> Iterator[Metric]:
        """Return every metric; none without TLS."""
        if self._tls is None:
            return
        yield GaugeMetricFamily(
            f"{self._prefix}_certificate_expires_seconds",
            "When the server's certificate expires, in seconds of Unix time.",
            self._tls.expires_s,
        )
        yield GaugeMetricFamily(
            f"{self._prefix}_certificate_unusable",
            "1 while the files have changed and cannot be used, else 0.",
            float(bool(self._tls.failure)),
        )
        for name, described in METRICS.items():
            value = getattr(self._counters, name)
            yield described_metric(f"{self._prefix}_{name}", described, value)
