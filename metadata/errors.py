"""States what can go wrong with coordination, one class per fact.

Leaves the translation into `LedgerError` and `BookieError` to the edges of those packages.

Every class says whether the same call may be repeated (`retriable`).
"""

from typing import ClassVar

from metadata.ids import LedgerId, Version


class MetadataError(Exception):
    """The root of every failure of the metadata service."""

    retriable: ClassVar[bool] = False


class NodeExistsError(MetadataError):
    """A create found the path taken."""

    def __init__(self, path: str) -> None:
        super().__init__(f"{path} exists already")
        self.path = path


class NodeNotFoundError(MetadataError):
    """The path does not exist."""

    def __init__(self, path: str) -> None:
        super().__init__(f"{path} does not exist")
        self.path = path


class NodeNotEmptyError(MetadataError):
    """A delete found children below the path."""

    def __init__(self, path: str) -> None:
        super().__init__(f"{path} still has children")
        self.path = path


class VersionConflictError(MetadataError):
    """A conditional write found another version than the one that it expected (rule 1.2)."""

    def __init__(self, path: str, expected: Version) -> None:
        super().__init__(
            f"{path} is no longer at version {expected}: read it again and decide anew"
        )
        self.path = path
        self.expected = expected


class OutcomeUnknownError(MetadataError):
    """A write was sent and its answer lost: it may have been applied, or may yet be (rule 1.3)."""

    def __init__(self, path: str, why: str) -> None:
        super().__init__(
            f"whether {path} was written is unknown ({why}): read it back before going on"
        )
        self.path = path
        self.why = why


class StoreUnavailableError(MetadataError):
    """The metadata service did not answer within the bound; nothing was written by this call."""

    retriable = True

    def __init__(self, address: str, why: str) -> None:
        super().__init__(
            f"the metadata service at {address} is not available ({why}): "
            "check that it runs and can be reached from here, then try again"
        )
        self.address = address
        self.why = why


class SessionExpiredError(MetadataError):
    """The session that held the ephemeral nodes has ended; they are gone or soon will be."""

    retriable = True

    def __init__(self, address: str) -> None:
        super().__init__(f"the session with the metadata service at {address} has expired")
        self.address = address


class StoreClosedError(MetadataError):
    """The store was used after `aclose`, or in a process forked after it was opened."""


class ValueTooLargeError(MetadataError):
    """A value over the limit was refused before sending: ZooKeeper would drop the connection."""

    def __init__(self, path: str, size: int, limit: int) -> None:
        super().__init__(f"the value of {path} has {size} bytes, more than the {limit} allowed")
        self.path = path
        self.size = size
        self.limit = limit


class MetadataFormatError(MetadataError):
    """Stored bytes are not what this release can read; they are left as they are."""

    def __init__(self, what: str, why: str) -> None:
        super().__init__(f"{what} cannot be read: {why}; nothing was changed")
        self.what = what
        self.why = why


class InvalidTransitionError(MetadataError):
    """A change of ledger metadata that the rules forbid in its present state (rules 1.4-1.5)."""

    def __init__(self, ledger_id: LedgerId, why: str) -> None:
        super().__init__(f"ledger {ledger_id}: {why}")
        self.ledger_id = ledger_id
        self.why = why


class NameHeldError(MetadataError):
    """A path that one live process holds is held by another one (rule 2.1)."""

    def __init__(self, path: str) -> None:
        super().__init__(
            f"{path} is held by another live process: stop that one first, or, if it died just "
            "now, wait for its session to end"
        )
        self.path = path


class InvalidUriError(MetadataError, ValueError):
    """A metadata URI is not of the form `zk://host:port[,host:port...][/chroot]`."""

    def __init__(self, uri: str, why: str) -> None:
        super().__init__(
            f"{uri!r} is no metadata URI ({why}): write zk://host:port[,host:port...][/path]"
        )
        self.uri = uri
        self.why = why


class EmbeddedServerError(MetadataError):
    """A ZooKeeper server of our own could not be started; the message says why and what to do."""


class PortInUseError(EmbeddedServerError):
    """Another program serves the port that was asked for."""

    def __init__(self, host: str, port: int) -> None:
        super().__init__(
            f"port {port} of {host} is served by another program: give another port, or none"
        )
        self.host = host
        self.port = port


class InvalidChainNameError(MetadataError, ValueError):
    """A chain's name has other characters than letters, digits, `.`, `_` and `-`, or too many."""

    def __init__(self, name: str) -> None:
        super().__init__(
            f"{name[:250]!r} is no name of a chain: use 1 to 200 letters, digits, '.', '_' and "
            "'-', not beginning with a dot"
        )
        self.name = name


class ChainExistsError(MetadataError):
    """A chain was to be made under a name that is taken."""

    def __init__(self, name: str) -> None:
        super().__init__(f"there is a chain {name!r} already: append to it, or take another name")
        self.name = name


class ChainNotFoundError(MetadataError):
    """No chain has this name."""

    def __init__(self, name: str) -> None:
        super().__init__(
            f"there is no chain {name!r}: `quire chain list` shows those that there are"
        )
        self.name = name


class LedgersCollectedError(MetadataError):
    """A ledger cannot be linked: it was deleted, or is so old that collecting may have done so."""

    def __init__(self, ledger_id: LedgerId) -> None:
        super().__init__(
            f"ledger {ledger_id} is gone, or so old that it may have been collected: nothing was "
            "published. Run the job again, and collect with a grace period longer than any job "
            "takes"
        )
        self.ledger_id = ledger_id


class InvalidTopicNameError(MetadataError, ValueError):
    """A topic's name is none by Kafka's rules."""

    def __init__(self, name: str) -> None:
        super().__init__(
            f"{name[:250]!r} is no name of a topic: use 1 to 249 letters, digits, '.', '_' and "
            "'-', and neither '.' nor '..'"
        )
        self.name = name


class TopicExistsError(MetadataError):
    """A topic was to be made under a name that is taken."""

    def __init__(self, name: str, *, is_being_deleted: bool = False) -> None:
        super().__init__(
            f"the topic {name!r} is being deleted: wait until its ledgers are gone"
            if is_being_deleted
            else f"there is a topic {name!r} already"
        )
        self.name = name
        self.is_being_deleted = is_being_deleted


class TopicNameHeldError(MetadataError):
    """A topic was to be made whose name differs from another one's in `.` and `_` alone."""

    def __init__(self, name: str, holder: str) -> None:
        super().__init__(f"{name!r} and the topic {holder!r} would have one name in metrics")
        self.name = name
        self.holder = holder


class TopicNotFoundError(MetadataError):
    """No topic has this name."""

    def __init__(self, name: str) -> None:
        super().__init__(
            f"there is no topic {name!r}: `quire topic list` shows those that there are"
        )
        self.name = name


class TooManyPartitionsError(MetadataError, ValueError):
    """A topic was to have more partitions than one value holds."""

    def __init__(self, name: str, count: int, limit: int) -> None:
        super().__init__(f"{count} partitions of topic {name!r} are more than the {limit} allowed")
        self.name = name
        self.count = count
        self.limit = limit


class StaleLeaderEpochError(MetadataError):
    """A partition was to be claimed in an epoch that is not above the last one claimed."""

    def __init__(self, epoch: int, leader_epoch: int) -> None:
        super().__init__(
            f"epoch {epoch} is not above {leader_epoch}, in which the partition was claimed: "
            "another broker leads it, or an earlier life of this one did"
        )
        self.epoch = epoch
        self.leader_epoch = leader_epoch
