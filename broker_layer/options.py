"""Options of one broker, each with its default, bounds and meaning.

Leaves opening the file to `quire`, reading values to `quire.server.option_reading`, and most
defaults to the configuration classes of the parts.

Format: the `[broker]` table of a TOML file. The variables `QUIRE_BROKER_<OPTION>` and
`QUIRE_METADATA` override it, and flags override both. Other tables of the file belong to other
servers and are ignored.

Invariant: every value that is returned has its option's type and is within its bounds.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Final

from broker_layer.control.control_config import ControlConfig
from broker_layer.errors import TopicError
from broker_layer.groups.config import GroupsConfig
from broker_layer.log.settings.topic_configs import TopicDefaults, check_configs
from broker_layer.security.authorizer import AuthorizerConfig
from broker_layer.security.login_options import LoginOptions
from broker_layer.security.protocols import SecurityProtocol, protocols_of
from broker_layer.server.config import BrokerLimits
from broker_layer.server.connections.listeners import PORT_MAX, parse_listeners
from broker_layer.transactions.config import TransactionConfig
from metadata.errors import InvalidUriError
from metadata.security.acls import ANY_USER
from metadata.store.interface import SESSION_TIMEOUT_S
from metadata.store.uri import parse_zookeeper_uri
from metadata.topics.topic import BROKER_ID_MAX
from quire.identity.principal import parse_principal
from quire.server.errors import OptionError
from quire.server.option_reading import (
    METADATA_DEFAULT,
    OptionTable,
    Value,
    check_all,
    check_log_level,
    describe_options,
    option,
    read_options,
)
from quire.server.overriding import override
from quire.server.security_options import TlsMode, check_advertised, is_loopback

TABLE: Final = "broker"
MIN_IN_SYNC: Final = "min.insync.replicas"
VARIABLE_PREFIX: Final = "QUIRE_BROKER_"

_GIB: Final = 2**30
_DAY_MS: Final = 24 * 3_600_000
_CONTROL: Final = ControlConfig()
_GROUPS: Final = GroupsConfig()
_LIMITS: Final = BrokerLimits()
_TOPICS: Final = TopicDefaults()


@dataclass(frozen=True, slots=True)
class BrokerOptions(LoginOptions):
    """All options of one broker. Build it with `load_options`."""

    broker_id: int = option(0, "this broker's number in the cluster", low=0, high=BROKER_ID_MAX)
    metadata: str = option(METADATA_DEFAULT, "the cluster's metadata service")
    listeners: str = option(
        "PLAINTEXT://127.0.0.1:9092",
        "NAME://host:port to listen on; several are separated by commas",
    )
    advertised_listeners: str = option(
        "", "addresses that clients receive, under the names of listeners; port 0: the open port"
    )
    listener_security_protocol_map: str = option(
        "",
        "NAME:PROTOCOL of each listener whose name is not its protocol: PLAINTEXT, SSL,"
        " SASL_PLAINTEXT or SASL_SSL",
    )
    inter_broker_listener: str = option(
        "", "the name of the listener that other brokers use; empty: the first one"
    )
    admin_host: str = option("127.0.0.1", "the address of the admin HTTP server")
    admin_port: int = option(
        0, "the port of the admin server; 0: any free port", low=0, high=PORT_MAX
    )
    rack: str = option("", "the rack of this broker; clients get it in Metadata")
    session_timeout_s: float = option(
        SESSION_TIMEOUT_S,
        "time after which the registration of a broker that stopped responding ends",
        low=1,
        high=300,
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
    auto_create_topics: bool = option(
        _CONTROL.creates_topics, "create unknown topics that Metadata requests name"
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
    strict_settings: bool = option(
        _TOPICS.is_strict,
        "refuse topic settings of Kafka that have no effect here, unless they have the default",
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
    authorizer: bool = option(False, "check what clients may do by ACLs")  # noqa: FBT003
    super_users: str = option(
        "", "principals that may do everything: User:NAME; several are separated by semicolons"
    )
    allow_everyone_if_no_acl_found: bool = option(
        False,  # noqa: FBT003
        "allow everything on resources that no ACL names",
    )
    connections_max: int = option(
        _LIMITS.connections_max, "maximum number of open connections", low=1, high=1_000_000
    )
    connections_per_address_max: int = option(
        _LIMITS.connections_per_address_max,
        "maximum number of open connections from one address; 0: no limit",
        low=0,
        high=1_000_000,
    )
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
    drain_timeout_s: float = option(
        _LIMITS.drain_timeout_s,
        "time for which a stopping broker waits for requests in progress",
        low=0,
        high=600,
    )
    die_with_parent: bool = option(False, "stop when standard input ends")  # noqa: FBT003
    log_level: str = option("info", "debug, info, warning or error")

    @property
    def protocols(self) -> Mapping[str, SecurityProtocol]:
        """Protocol of each listener, in their order. Raises ValueError."""
        names = [each.name for each in parse_listeners(self.listeners)]
        return protocols_of(names, self.listener_security_protocol_map)

    @property
    @override
    def tls_mode(self) -> TlsMode:
        """See `CertificateOptions`."""
        modes = {each.uses_tls for each in self.protocols.values()}
        if len(modes) > 1:
            return TlsMode.OPTIONAL
        return TlsMode.REQUIRED if modes == {True} else TlsMode.OFF

    @property
    @override
    def tls_hint(self) -> str:
        """See `CertificateOptions`."""
        return "give every listener the protocol SSL or SASL_SSL"


OPTIONS: Final = describe_options(BrokerOptions())


def load_options(
    file_text: str | None, variables: Mapping[str, str], flags: Mapping[str, Value]
) -> BrokerOptions:
    """Merge the file's text, environment variables and flags, the last with the highest priority.

    Raises OptionError.
    """
    table = OptionTable(TABLE, VARIABLE_PREFIX, OPTIONS)
    values = read_options(table, file_text, variables, flags)
    options = BrokerOptions(**values)  # type: ignore[arg-type]  # each was checked against its own type
    _check_together(options)
    return options


def topic_default_configs(options: BrokerOptions) -> dict[str, str]:
    """Return the default settings of topics. Raises OptionError."""
    configs = {}
    for word in options.topic_defaults.split():
        name, sign, value = word.partition("=")
        if not sign:
            raise OptionError(f"topic_defaults: write NAME=VALUE, not {word}")
        configs[name] = value
    try:
        check_configs(configs, is_strict=options.strict_settings)
    except TopicError as error:
        raise OptionError(f"topic_defaults: {error}") from None
    factor = options.default_replication_factor
    if int(configs.get(MIN_IN_SYNC, 0)) > factor:
        raise OptionError(
            f"topic_defaults: {MIN_IN_SYNC} is {configs[MIN_IN_SYNC]}, more than "
            f"default_replication_factor, {factor}, so each append to a new topic would be "
            "refused: lower the first or raise the second"
        )
    return configs


def authorizer_config(options: BrokerOptions) -> AuthorizerConfig | None:
    """Return the configuration of the authorizer; None for a broker without one.

    Raises OptionError.
    """
    if not options.authorizer:
        for name in ("super_users", "allow_everyone_if_no_acl_found"):
            if getattr(options, name):
                text = f"{name} has no effect without an authorizer: set authorizer = true too"
                raise OptionError(text)
        return None
    users = [each.strip() for each in options.super_users.split(";") if each.strip()]
    try:
        names = [parse_principal(each).text for each in users]
    except ValueError as error:
        raise OptionError(f"super_users: {error}") from None
    if ANY_USER in names:
        raise OptionError("super_users: User:* is not a user: name each user")
    return AuthorizerConfig(
        super_users=frozenset(names),
        allow_everyone_if_no_acl_found=options.allow_everyone_if_no_acl_found,
        broker_listener=_listener_of_brokers_alone(options),
    )


def _listener_of_brokers_alone(options: BrokerOptions) -> str | None:
    """Return the listener whose clients are taken for brokers because they reach it; None if there
    is none. Raises OptionError.

    Where clients prove who they are, brokers are super users instead.
    """
    listener = listener_for_brokers(options)
    if options.protocols[listener] is not SecurityProtocol.PLAINTEXT:
        if not options.super_users:
            raise OptionError(
                f"brokers connect to each other at the listener {listener}, where they prove who"
                " they are: add their principal to super_users"
            )
        return None
    is_separate = len(parse_listeners(options.listeners)) > 1
    return (options.inter_broker_listener or None) if is_separate else None


def listener_for_brokers(options: BrokerOptions) -> str:
    """Return the name of the listener that other brokers use."""
    return options.inter_broker_listener or parse_listeners(options.listeners)[0].name


def _check_together(options: BrokerOptions) -> None:
    def check_listeners() -> None:
        _check_listeners(options)
        _check_security(options)

    check_all(
        check_listeners,
        partial(check_log_level, options.log_level),
        partial(_check_metadata, options),
        partial(topic_default_configs, options),
        partial(
            _check_order, options, "group_session_timeout_min_ms", "group_session_timeout_max_ms"
        ),
        partial(_check_order, options, "frame_bytes_max", "request_bytes_max"),
    )


def _check_listeners(options: BrokerOptions) -> None:
    try:
        listeners = [each.name for each in parse_listeners(options.listeners)]
        advertised = [each.name for each in parse_listeners(options.advertised_listeners)]
    except ValueError as error:
        raise OptionError(f"listeners: {error}") from None
    if not listeners:
        raise OptionError("listeners is empty: name at least one, such as PLAINTEXT://host:port")
    for name in advertised:
        if name not in listeners:
            raise OptionError(
                f"advertised_listeners names {name}, which is not in listeners: add it there"
            )
    inter_broker = options.inter_broker_listener
    if inter_broker and inter_broker not in listeners:
        raise OptionError(f"inter_broker_listener {inter_broker} is not in listeners: add it there")


def _check_metadata(options: BrokerOptions) -> None:
    try:
        parse_zookeeper_uri(options.metadata)
    except InvalidUriError as error:
        raise OptionError(f"metadata: {error}") from None


def _check_order(options: BrokerOptions, low: str, high: str) -> None:
    if getattr(options, low) > getattr(options, high):
        raise OptionError(
            f"{low} is {getattr(options, low)}, more than {high}, {getattr(options, high)}: lower "
            "the first or raise the second"
        )


def _check_security(options: BrokerOptions) -> None:
    try:
        protocols = options.protocols
    except ValueError as error:
        raise OptionError(f"listener_security_protocol_map: {error}") from None
    authorizer_config(options)
    options.check_tls()
    options.check_admin(options.admin_host)
    advertised = {each.name: each.host for each in parse_listeners(options.advertised_listeners)}
    for protocol in protocols.values():
        if protocol.uses_logins:
            options.check_logins(protocol)
    for each in parse_listeners(options.listeners):
        check_advertised("advertised_listeners", advertised.get(each.name, ""), each.host)
        is_open = not protocols[each.name].uses_tls and not is_loopback(each.host)
        if is_open and not options.allow_plaintext:
            raise OptionError(
                f"the listener {each.name} is at {each.host}, where other machines can connect,"
                f" without TLS: give it the protocol {SecurityProtocol.SASL_SSL} or"
                f" {SecurityProtocol.SSL}, or set allow_plaintext to true if the network is closed"
            )
