"""A complete cluster on this machine, for tests and first steps: real ZooKeeper, bookies and
brokers.

Leaves one server to `quire.local.local_server`, ZooKeeper to `metadata.store.embedded`, and
listening to the servers: a port that is free here may be taken before its server starts, which then
ends with that error.

Format of the data directory: `zookeeper/`, one `bookie-<n>/` for each bookie, `bookie-<n>.port` and
`broker-<n>.port`, the same with `.admin-port`, `console.port`, `logs/`, `lock`; `tls/` if it is
secure.

Invariants: every started process is stopped at the end, also when the start failed; a given data
directory is kept, and the next cluster on it has the same bookies, and the same ports if they are
free; one cluster at a time uses a directory.
"""

import asyncio
import contextlib
import fcntl
import os
import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from random import Random, SystemRandom
from typing import IO, Final, Self

import ledger_client.own_packages  # noqa: F401 - fails if one of Quire's packages is hidden
from metadata.registry.cluster import create_cluster, open_cluster_store
from metadata.security.user_store import UserStore
from metadata.store.embedded import START_TIMEOUT_S, EmbeddedZooKeeper
from metadata.store.embedded_ports import HOST, free_port, is_free
from quire.addresses import join_address
from quire.errors import LocalClusterError, UnusableDirectoryError
from quire.identity.sasl.credentials import ScramMechanism, new_credential
from quire.identity.secret_files import read_secret
from quire.local.local_server import (
    CONSOLE_NAME,
    LocalBookie,
    LocalBroker,
    LocalConsole,
    LocalServer,
)
from quire.local.secure_directory import CLIENT_NAME, SecureDirectory
from quire.local.starting import scaled_s, start_all

BOOKIES_DEFAULT: Final = 4
BOOKIES_MAX: Final = 64
BROKERS_MAX: Final = 16
BOOKIE_PREFIX: Final = "bookie-"
BROKER_PREFIX: Final = "broker-"
CHROOT: Final = "/quire"
PORT_NAME: Final = "port"
ADMIN_PORT_NAME: Final = "admin-port"
TLS_DIRECTORY: Final = "tls"
PRINCIPALS: Final = {
    "tls_principal_rules": "RULE:^CN=([^,]+),.*$/$1/",
    "super_users": f"User:broker;User:{CLIENT_NAME}",
}
"""Options of the servers of a secure cluster: other principals than these need rights."""
BOOKIE_SECURITY: Final = {"tls": "required", "authorizer": "enforce", **PRINCIPALS}
BROKER_SECURITY: Final = {"authorizer": "true", **PRINCIPALS}
LISTENERS: Final = (("PLAINTEXT", PORT_NAME),)
"""Protocol of each listener of a broker, and the end of the name of the file with its port."""
SECURE_LISTENERS: Final = (("SSL", PORT_NAME), ("SASL_SSL", f"login-{PORT_NAME}"))
"""Clients with a certificate and other brokers use the first one, clients with a password the
second.
"""


class LocalCluster:
    """ZooKeeper, bookies and brokers, each as a separate process; `async with` starts and stops
    them.

    `bookies` is the minimum number of bookies: all those found in `data_dir` are started. `broker`
    is the number of brokers. `bookie_options` and `broker_options` are further options of
    `quire bookie run` and `quire broker run`. `report` gets a line about each step of the start.
    Without `data_dir` the data is temporary. A `secure` cluster makes certificates in its data
    directory, and its servers take only clients that have one; its console needs a token.
    """

    def __init__(
        self,
        bookies: int | None = BOOKIES_DEFAULT,
        data_dir: str | os.PathLike[str] | None = None,
        broker: int = 0,
        *,
        zookeeper_port: int = 0,
        bookie_options: Mapping[str, str] | None = None,
        broker_options: Mapping[str, str] | None = None,
        secure: bool = False,
        report: Callable[[str], None] | None = None,
    ) -> None:
        if not 0 <= broker <= BROKERS_MAX:
            raise LocalClusterError(f"{broker} brokers: use 0 to {BROKERS_MAX}")
        if bookies is not None and not 0 <= bookies <= BOOKIES_MAX:
            raise LocalClusterError(f"{bookies} bookies: use 0 to {BOOKIES_MAX}")
        self.keeps_data = data_dir is not None
        self._given_dir = None if data_dir is None else Path(data_dir).absolute()
        self._wanted = bookies
        self._zookeeper_port = zookeeper_port
        self._bookie_options = dict(bookie_options or {})
        self._broker_options = dict(broker_options or {})
        self._is_secure = secure
        self._report = report or (lambda _: None)
        self._data_dir: Path | None = None
        self._zookeeper: EmbeddedZooKeeper | None = None
        self._lock: IO[bytes] | None = None
        self.bookies: list[LocalBookie] = []
        self._wanted_brokers = broker
        self.brokers: list[LocalBroker] = []
        self.console: LocalConsole | None = None

    @property
    def metadata_uri(self) -> str:
        """Address of the cluster's metadata, for clients."""
        return self._uri_for(CLIENT_NAME)

    def _uri_for(self, name: str) -> str:
        """Return the address for a client, or for the clients of a server role."""
        uri = f"zk://{join_address(HOST, self._zookeeper_port)}{CHROOT}"
        return f"{uri}?client={self.certificates.client_file(name)}" if self._is_secure else uri

    @property
    def is_secure(self) -> bool:
        """Whether it has certificates."""
        return self._is_secure

    @property
    def certificates(self) -> SecureDirectory:
        """Directory of the certificates of a secure cluster."""
        return SecureDirectory(self.data_dir / TLS_DIRECTORY)

    @property
    def properties_file(self) -> str:
        """Settings of Kafka's tools for a login at a secure cluster."""
        return self.certificates.properties_file(CLIENT_NAME)

    @property
    def certificate_properties_file(self) -> str:
        """Settings of Kafka's tools for the client's certificate of a secure cluster."""
        return self.certificates.certificate_properties_file(CLIENT_NAME)

    @property
    def zookeeper(self) -> EmbeddedZooKeeper:
        """ZooKeeper of a started cluster."""
        assert self._zookeeper is not None, "the cluster was not started"
        return self._zookeeper

    @property
    def data_dir(self) -> Path:
        """Directory of all data."""
        assert self._data_dir is not None, "the cluster was not started"
        return self._data_dir

    async def start(self) -> None:
        """Start ZooKeeper, then all bookies, then all brokers; return once all are ready.

        The limits of the starts grow with the servers and the load for each core of the machine.
        `report` gets a line about each step, and every 5 seconds what is still waited for. Raises
        LocalClusterError with the end of the log of the process that did not start.
        """
        assert self._data_dir is None, "a cluster is started once"
        self._take_directory()
        if self._is_secure:
            self.certificates.fill()
        zookeeper_dir = self.data_dir / "zookeeper"
        self._zookeeper_port = self._zookeeper_port or kept_port(zookeeper_dir / PORT_NAME)
        self._zookeeper = EmbeddedZooKeeper(
            zookeeper_dir,
            port=self._zookeeper_port,
            start_timeout_s=scaled_s(START_TIMEOUT_S, started_count=1),
        )
        try:
            numbers = range(1, self._bookie_count() + 1)
            self.bookies = [self._make_bookie(number) for number in numbers]
            self._report(f"Starting ZooKeeper in {self.data_dir} ...")
            # A bookie waits for ZooKeeper for some seconds only, so it starts afterwards.
            await start_all({"ZooKeeper": self._zookeeper.start()}, self._report)
            await create_cluster(self.metadata_uri, Random(os.urandom(16)))
            await self._start_servers(self.bookies, "bookie")
            if self._is_secure and self._wanted_brokers:
                await self._add_user()
            numbers = range(1, self._wanted_brokers + 1)
            self.brokers = [self._make_broker(number) for number in numbers]
            await self._start_servers(self.brokers, "broker")
        except BaseException:
            await self.aclose()
            raise

    async def _start_servers(self, servers: Sequence[LocalServer], noun: str) -> None:
        if servers:
            self._report(f"Starting {_counted(len(servers), noun)} ...")
            count = len(servers)
            starts = {server.name: server.start(started_count=count) for server in servers}
            await start_all(starts, self._report)

    async def _add_user(self) -> None:
        """Give the client's user of a secure cluster its password."""
        password = read_secret(self.certificates.password_file(CLIENT_NAME))
        rng = SystemRandom()
        store = await open_cluster_store(self.metadata_uri, rng=rng)
        try:
            credentials = [new_credential(mechanism, password, rng) for mechanism in ScramMechanism]
            await UserStore(store, rng).alter(CLIENT_NAME, (), credentials)
        finally:
            await store.aclose()

    async def add_bookie(self) -> LocalBookie:
        """Start one more bookie, in a separate directory."""
        bookie = self._make_bookie(len(self.bookies) + 1)
        await bookie.start()
        self.bookies.append(bookie)
        return bookie

    async def add_broker(self) -> LocalBroker:
        """Start one more broker."""
        broker = self._make_broker(len(self.brokers) + 1)
        await broker.start()
        self.brokers.append(broker)
        return broker

    async def add_console(self, options: Mapping[str, str]) -> LocalConsole:
        """Start a console with these options of `quire console`, at its last port if it is free."""
        self._report("Starting the console ...")
        if self._is_secure:
            options = {"admin_token_file": self.certificates.console_token_file(), **options}
        port = kept_port(self.data_dir / f"{CONSOLE_NAME}.{PORT_NAME}")
        log_path = self.data_dir / "logs" / f"{CONSOLE_NAME}.log"
        self.console = LocalConsole(log_path, self.metadata_uri, port, options)
        await self.console.start()
        return self.console

    async def aclose(self) -> None:
        """Stop all processes, ZooKeeper last; remove temporary data."""
        if self.console is not None:
            await self.console.stop()
        await asyncio.gather(*(broker.stop() for broker in self.brokers), return_exceptions=True)
        await asyncio.gather(*(bookie.stop() for bookie in self.bookies), return_exceptions=True)
        if self._zookeeper is not None:
            await self._zookeeper.stop()
        if self._lock is not None:
            self._lock.close()
            self._lock = None
        if not self.keeps_data and self._data_dir is not None:
            shutil.rmtree(self._data_dir, ignore_errors=True)

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    def _take_directory(self) -> None:
        if self._given_dir is None:
            self._data_dir = Path(tempfile.mkdtemp(prefix="quire-"))
        else:
            self._data_dir = self._given_dir
        try:
            self._data_dir.mkdir(parents=True, exist_ok=True)
            self._lock = (self._data_dir / "lock").open("ab")
        except OSError as error:
            raise UnusableDirectoryError(
                f"no cluster can be kept in {self._data_dir}: {error.strerror}",
                try_next="give --data a directory that you may write to",
            ) from error
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            self._lock.close()
            raise LocalClusterError(
                f"{self._data_dir} is in use by another local cluster: stop that one first"
            ) from error

    def _bookie_count(self) -> int:
        names = [path.name for path in self.data_dir.glob(f"{BOOKIE_PREFIX}*") if path.is_dir()]
        numbers = [name.removeprefix(BOOKIE_PREFIX) for name in names]
        highest = max((int(number) for number in numbers if number.isdecimal()), default=0)
        wanted = self._wanted
        if wanted is None:
            wanted = 0 if highest else BOOKIES_DEFAULT
        return max(highest, wanted)

    def _make_bookie(self, number: int) -> LocalBookie:
        name = f"{BOOKIE_PREFIX}{number}"
        log_path = self.data_dir / "logs" / f"{name}.log"
        options = self._bookie_options
        if self._is_secure:
            secure = self.certificates.certificate_options("bookie")
            options = {**secure, **BOOKIE_SECURITY, **options}
        ports = {"port": PORT_NAME, "admin_port": ADMIN_PORT_NAME}
        options = {**self._ports(name, ports), **options}
        uri = self._uri_for("bookie")
        return LocalBookie(name, self.data_dir / name, log_path, uri, options)

    def _ports(self, name: str, suffixes: Mapping[str, str]) -> dict[str, str]:
        """Return the ports of a server as options: those of the last run if they are free."""
        paths = {key: self.data_dir / f"{name}.{suffix}" for key, suffix in suffixes.items()}
        return {key: str(kept_port(path)) for key, path in paths.items()}

    def _make_broker(self, number: int) -> LocalBroker:
        name = f"{BROKER_PREFIX}{number}"
        ports = dict[str, int]()
        for listener, suffix in SECURE_LISTENERS if self._is_secure else LISTENERS:
            ports[listener] = kept_port(self.data_dir / f"{name}.{suffix}")
        log_path = self.data_dir / "logs" / f"{name}.log"
        options = self._broker_options
        if self._is_secure:
            secure = self.certificates.certificate_options("broker")
            options = {**secure, **BROKER_SECURITY, **options}
        options = {**self._ports(name, {"admin_port": ADMIN_PORT_NAME}), **options}
        uri = self._uri_for("broker")
        return LocalBroker(number, log_path, uri, ports, len(self.bookies), options)


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def kept_port(path: Path) -> int:
    """Return the port in a file if it is free, or else any free port, which the file then has."""
    with contextlib.suppress(OSError, ValueError):
        last = int(path.read_text())
        if last > 0 and is_free(last):
            return last
    port = free_port()
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"{port}\n")
    return port
