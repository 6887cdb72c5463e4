"""Options of one broker.

Leaves how options are declared and read to `quire.options`, and most defaults to the configuration
classes of the parts.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from broker_layer.control.control_config import ControlConfig
from broker_layer.errors import TopicError
from broker_layer.groups.values import GroupsConfig
from broker_layer.log.topic_configs import TopicDefaults, check_configs
from broker_layer.security.authorizer import AuthorizerConfig
from broker_layer.security.login_options import LoginOptions, SecurityProtocol, protocols_of
from broker_layer.server.listeners import ListenerAddress, parse_listeners
from broker_layer.server.server_limits import BrokerLimits
from broker_layer.transactions.values import TransactionConfig
from metadata.security.acls import ANY_USER
from metadata.server_options import metadata_option, session_timeout_option
from metadata.topics.topic import BROKER_ID_MAX
from quire.addresses import is_loopback
from quire.identity.principal import parse_principal
from quire.options import OptionError, OptionTable, option, switch
from quire.server.overriding import override
from quire.server.server_options import (
    Listener,
    TlsMode,
    admin_host_option,
    admin_port_option,
    connections_option,
    connections_per_address_option,
    drain_timeout_option,
    unreachable,
)

MIN_IN_SYNC: Final = "min.insync.replicas"

_GIB: Final = 2**30
_DAY_MS: Final = 24 * 3_600_000
_CONTROL: Final = ControlConfig()
_GROUPS: Final = GroupsConfig()
_LIMITS: Final = BrokerLimits()
_TOPICS: Final = TopicDefaults()


def _check_some_listeners(text: str) -> None:
    if not parse_listeners(text):
        raise ValueError("it is empty: name at least one, such as PLAINTEXT://host:port")


def _parse_super_users(text: str) -> frozenset[str]:
    users = (part.strip() for part in text.split(";") if part.strip())
    names = frozenset(parse_principal(user).text for user in users)
    if ANY_USER in names:
        raise ValueError("User:* is not a user: name each user")
    return names


@dataclass(frozen=True, slots=True)
class BrokerOptions(LoginOptions):
    """All options of one broker. Read them with BROKER."""

    broker_id: int = option(0, "this broker's number in the cluster", low=0, high=BROKER_ID_MAX)
    metadata: str = metadata_option()
    listeners: str = option(
        "PLAINTEXT://127.0.0.1:9092",
        "NAME://host:port to listen on; several are separated by commas",
        parse=_check_some_listeners,
    )
    advertised_listeners: str = option(
        "",
        "addresses that clients receive, under the names of listeners; port 0: the open port",
        parse=parse_listeners,
    )
    listener_security_protocol_map: str = option(
        "",
        "NAME:PROTOCOL of each listener whose name is not its protocol: PLAINTEXT, SSL,"
        " SASL_PLAINTEXT or SASL_SSL",
    )
    inter_broker_listener: str = option(
        "", "the name of the listener that other brokers use; empty: the first one"
    )
    admin_host: str = admin_host_option()
    admin_port: int = admin_port_option()
    rack: str = option("", "the rack of this broker; clients get it in Metadata")
    session_timeout_s: float = session_timeout_option(
        "time after which the registration of a broker that stopped responding ends"
    )
    offsets_topic_partitions: int = option(
        _CONTROL.offsets_partitions,
        "partitions of __consumer_offsets when it is created",
        low=1,
        high=1_000,
    )
    transaction_topic_partitions: int = option(
        _CONTROL.transaction_state_partitions,
        "partitions of __transaction_state when it is created",
        low=1,
        high=1_000,
    )
    default_partitions: int = option(
        _TOPICS.partitions, "default partitions of a new topic", low=1, high=10_000
    )
    auto_create_topics: bool = switch(
        "create unknown topics that Metadata requests name", is_on=_CONTROL.creates_topics
    )
    default_replication_factor: int = option(
        _TOPICS.replication_factor,
        "default replication factor: bookies of each ledger of a topic",
        low=1,
        high=16,
    )
    topic_defaults: str = option(
        "", "default topic settings: NAME=VALUE; several are separated by spaces"
    )
    strict_settings: bool = switch(
        "refuse topic settings of Kafka that have no effect here, unless they have the default",
        is_on=_TOPICS.is_strict,
    )
    group_initial_rebalance_delay_ms: int = option(
        _GROUPS.group_initial_rebalance_delay_ms,
        "time for which a group's first rebalance waits for more members",
        low=0,
        high=300_000,
    )
    group_session_timeout_min_ms: int = option(
        _GROUPS.group_session_timeout_min_ms,
        "minimum session timeout of a group's members",
        low=1,
        high=3_600_000,
    )
    group_session_timeout_max_ms: int = option(
        _GROUPS.group_session_timeout_max_ms,
        "maximum session timeout of a group's members",
        low=1,
        high=_DAY_MS,
    )
    offsets_retention_ms: int = option(
        _GROUPS.offsets_retention_ms,
        "time for which the offsets of an empty group are kept",
        low=1,
        high=3_650 * _DAY_MS,
    )
    offsets_retention_check_interval_ms: int = option(
        _GROUPS.offsets_retention_check_interval_ms,
        "time between two searches for expired offsets",
        low=1,
        high=_DAY_MS,
    )
    transaction_timeout_max_ms: int = option(
        TransactionConfig().timeout_ms_max,
        "maximum timeout that a transactional producer may request",
        low=1,
        high=_DAY_MS,
    )
    authorizer: bool = switch("check what clients may do by ACLs")
    super_users: str = option(
        "",
        "principals that may do everything: User:NAME; several are separated by semicolons",
        parse=_parse_super_users,
    )
    allow_everyone_if_no_acl_found: bool = switch("allow everything on resources that no ACL names")
    connections_max: int = connections_option(_LIMITS.connections_max, 1_000_000)
    connections_per_address_max: int = connections_per_address_option(1_000_000)
    idle_s_max: float = option(
        _LIMITS.idle_s_max, "idle time after which a connection is closed", low=1, high=86_400
    )
    frame_bytes_max: int = option(
        _LIMITS.frame_bytes_max, "maximum size of one request", low=64 * 2**10, high=_GIB
    )
    request_bytes_max: int = option(
        _LIMITS.request_bytes_max,
        "maximum bytes of requests in memory; above it, no request is read",
        low=2**20,
        high=64 * _GIB,
    )
    fetch_bytes_max: int = option(
        _LIMITS.fetch_bytes_max, "maximum size of the answer to one Fetch", low=2**16, high=_GIB
    )
    produce_bytes_per_s: int = option(
        _LIMITS.produce_bytes_per_s,
        "produce quota of each client id without a quota in the metadata; 0: none",
        low=0,
        high=1024 * _GIB,
    )
    fetch_bytes_per_s: int = option(
        _LIMITS.fetch_bytes_per_s,
        "fetch quota of each client id without a quota in the metadata; 0: none",
        low=0,
        high=1024 * _GIB,
    )
    drain_timeout_s: float = drain_timeout_option(_LIMITS.drain_timeout_s, "broker")

    @property
    def protocols(self) -> Mapping[str, SecurityProtocol]:
        """Protocol of each listener, in their order. Raises ValueError."""
        names = [listener.name for listener in parse_listeners(self.listeners)]
        return protocols_of(names, self.listener_security_protocol_map)

    @property
    @override
    def tls_mode(self) -> TlsMode:
        """See `CertificateOptions`."""
        modes = {protocol.uses_tls for protocol in self.protocols.values()}
        if len(modes) > 1:
            return TlsMode.OPTIONAL
        return TlsMode.REQUIRED if modes == {True} else TlsMode.OFF

    @property
    @override
    def tls_hint(self) -> str:
        """See `CertificateOptions`."""
        return "give every listener the protocol SSL or SASL_SSL"

    @property
    def topic_configs(self) -> dict[str, str]:
        """Default settings of topics. Raises OptionError."""
        configs = {}
        for word in self.topic_defaults.split():
            name, sign, value = word.partition("=")
            if not sign:
                raise OptionError(f"topic_defaults: write NAME=VALUE, not {word}")
            configs[name] = value
        try:
            check_configs(configs, is_strict=self.strict_settings)
        except TopicError as error:
            raise OptionError(f"topic_defaults: {error}") from None
        factor = self.default_replication_factor
        if int(configs.get(MIN_IN_SYNC, 0)) > factor:
            raise OptionError(
                f"topic_defaults: {MIN_IN_SYNC} is {configs[MIN_IN_SYNC]}, more than "
                f"default_replication_factor, {factor}, so each append to a new topic would be "
                "refused: lower the first or raise the second"
            )
        return configs

    @property
    def peer_listener(self) -> str:
        """The name of the listener that other brokers use."""
        return self.inter_broker_listener or parse_listeners(self.listeners)[0].name

    @property
    def authorizer_config(self) -> AuthorizerConfig | None:
        """The configuration of the authorizer; None for a broker without one."""
        if not self.authorizer:
            return None
        return AuthorizerConfig(
            super_users=_parse_super_users(self.super_users),
            allow_everyone_if_no_acl_found=self.allow_everyone_if_no_acl_found,
            broker_listener=self._listener_of_brokers_alone,
        )

    @property
    def _listener_of_brokers_alone(self) -> str | None:
        """The listener whose clients are taken for brokers because they reach it; None if there is
        none. Where clients prove who they are, brokers are super users instead.
        """
        is_plain = self.protocols[self.peer_listener] is SecurityProtocol.PLAINTEXT
        is_separate = len(self.protocols) > 1
        return (self.inter_broker_listener or None) if is_plain and is_separate else None

    @override
    def addresses(self) -> Iterable[Listener]:
        """See `ServerOptions`."""
        for listener in parse_listeners(self.listeners):
            yield Listener("listeners", listener.host, listener.port)
        yield Listener("admin_port", self.admin_host, self.admin_port)

    @override
    def contradictions(self) -> Iterator[str]:
        """See `Options`."""
        yield from self._wrong_listeners()
        yield from self._wrong_defaults()
        for low, high in (
            ("group_session_timeout_min_ms", "group_session_timeout_max_ms"),
            ("frame_bytes_max", "request_bytes_max"),
        ):
            least, most = getattr(self, low), getattr(self, high)
            if least > most:
                yield (
                    f"{low} is {least}, more than {high}, {most}: lower the first or raise the"
                    " second"
                )
        if not self.authorizer:
            for name in ("super_users", "allow_everyone_if_no_acl_found"):
                if getattr(self, name):
                    yield f"{name} has no effect without an authorizer: set authorizer = true too"

    def _wrong_defaults(self) -> Iterator[str]:
        try:
            self.topic_configs  # noqa: B018 - it checks itself
        except OptionError as error:
            yield str(error)

    def _wrong_listeners(self) -> Iterator[str]:
        listeners = {listener.name: listener for listener in parse_listeners(self.listeners)}
        advertised = {bind.name: bind.host for bind in parse_listeners(self.advertised_listeners)}
        for name in advertised:
            if name not in listeners:
                yield f"advertised_listeners names {name}, which is not in listeners: add it there"
        inter_broker = self.inter_broker_listener
        if inter_broker and inter_broker not in listeners:
            yield f"inter_broker_listener {inter_broker} is not in listeners: add it there"
            return
        try:
            protocols = self.protocols
        except ValueError as error:
            yield f"listener_security_protocol_map: {error}"
            return
        yield from LoginOptions.contradictions(self)
        yield from self.open_admin(self.admin_host)
        for bind in listeners.values():
            yield from unreachable("advertised_listeners", advertised.get(bind.name, ""), bind.host)
            yield from self._insecure_listener(bind, protocols[bind.name])
        peers = protocols[self.peer_listener]
        if self.authorizer and peers is not SecurityProtocol.PLAINTEXT and not self.super_users:
            yield (
                f"brokers connect to each other at the listener {self.peer_listener}, where they"
                " prove who they are: add their principal to super_users"
            )

    def _insecure_listener(
        self, listener: ListenerAddress, protocol: SecurityProtocol
    ) -> Iterator[str]:
        if protocol.uses_logins:
            yield from self.wrong_logins(protocol)
        is_open = not protocol.uses_tls and not is_loopback(listener.host)
        if is_open and not self.allow_plaintext:
            yield (
                f"listeners: {listener.name} is at {listener.host}, where other machines can"
                " connect, without TLS: give it the protocol"
                f" {SecurityProtocol.SASL_SSL} or {SecurityProtocol.SSL}, or set allow_plaintext to"
                " true if the network is closed"
            )


BROKER: Final = OptionTable("broker", BrokerOptions)
