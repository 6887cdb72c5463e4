"""Errors of the metadata service, one class per fact.

Leaves the translation into `LedgerError` and `BookieError` to the edges of those packages.

Every class says whether the same call may be repeated (`retriable`).
"""

from typing import ClassVar

from metadata.ids import BookieId, LedgerId, Version
from quire.copyable import CopyableError


class MetadataError(CopyableError):
    """Root of all errors of the metadata service."""

    retriable: ClassVar[bool] = False


class NodeExistsError(MetadataError):
    """A node with the path to create exists already."""

    def __init__(self, path: str) -> None:
        super().__init__(f"{path} exists already")
        self.path = path


class NodeNotFoundError(MetadataError):
    """The path does not exist."""

    def __init__(self, path: str) -> None:
        super().__init__(f"{path} does not exist")
        self.path = path


class NodeNotEmptyError(MetadataError):
    """The node to delete has children."""

    def __init__(self, path: str) -> None:
        super().__init__(f"{path} still has children")
        self.path = path


class ClusterNotFoundError(MetadataError):
    """No cluster was created at this address of the metadata service."""

    def __init__(self, address: str) -> None:
        super().__init__(
            f"no cluster exists at {address}: check the address and its path, or create the "
            "cluster with `quire cluster init`"
        )
        self.address = address


class RestoreUnfinishedError(MetadataError):
    """A restore of this address's metadata was begun and has not ended: there is no cluster yet."""

    def __init__(self, address: str) -> None:
        super().__init__(
            f"the metadata at {address} is being restored, or a restore of it was interrupted: run "
            "`quire metadata restore` again with the same file, then repeat this"
        )
        self.address = address


class RootNotEmptyError(MetadataError):
    """Metadata is restored only where nothing is stored: something is."""

    def __init__(self, address: str, found: str) -> None:
        super().__init__(
            f"{address} is not empty ({found} exists), and nothing was changed: stop all servers "
            "and clients that use this address, then give an address whose path does not exist "
            "yet; or, if nothing there is needed, remove it first (`deleteall` of ZooKeeper's "
            "zkCli.sh)"
        )
        self.address = address
        self.found = found


class NeverRestoredError(MetadataError):
    """There is no restore to accept."""

    def __init__(self, address: str) -> None:
        super().__init__(
            f"the metadata at {address} was not restored from a dump, or its restore has not "
            "ended: there is nothing to accept. Check the address"
        )
        self.address = address


class RestoreUnacceptedError(MetadataError):
    """Ledgers are not collected while a restore of the metadata is not accepted."""

    def __init__(self, address: str) -> None:
        super().__init__(
            f"the metadata at {address} was restored from a dump, and nothing is collected until "
            "an operator accepts that: compare it with the bookies (`quire metadata compare`), "
            "then run `quire metadata accept-restore`"
        )
        self.address = address


class DumpFormatError(MetadataError):
    """The file is not a complete dump of metadata; nothing was written."""

    def __init__(self, where: str, why: str) -> None:
        super().__init__(
            f"{where}: {why}; nothing was written. Use a complete file of `quire metadata dump`"
        )
        self.where = where
        self.why = why


class NumbersUsedUpError(MetadataError):
    """A counter cannot rise by the margin of a restore."""

    def __init__(self, path: str, number: int) -> None:
        super().__init__(
            f"the next number of {path} is {number}: it cannot rise by a restore's margin. Check "
            "the dump; a cluster does not use so many numbers"
        )
        self.path = path
        self.number = number


class VersionConflictError(MetadataError):
    """A conditional write found another version than the expected one (rule 1.2)."""

    def __init__(self, path: str, expected: Version) -> None:
        super().__init__(
            f"{path} is no longer at version {expected}: read it again and repeat the change"
        )
        self.path = path
        self.expected = expected


class OutcomeUnknownError(MetadataError):
    """A write was sent and its answer was lost: it may have been applied, or may still be (rule
    1.3).
    """

    def __init__(self, path: str, why: str) -> None:
        super().__init__(
            f"it is unknown whether {path} was written ({why}): read it back before you continue"
        )
        self.path = path
        self.why = why


class StoreUnavailableError(MetadataError):
    """The metadata service did not answer in time; this call wrote nothing."""

    retriable = True

    def __init__(self, address: str, why: str) -> None:
        super().__init__(
            f"the metadata service at {address} is not available ({why}): check that it is running "
            "and reachable from this machine, then try again"
        )
        self.address = address
        self.why = why


class StoreRefusedError(MetadataError):
    """The metadata service refused the request: it was not applied, and would be refused again."""

    def __init__(self, path: str, address: str, why: str) -> None:
        super().__init__(
            f"the metadata service at {address} refused a request for {path} ({why}): check its "
            "access rights, quotas and configuration"
        )
        self.path = path
        self.address = address
        self.why = why


class StoreClosedError(MetadataError):
    """The store was used after `aclose`, or in a process forked after it was opened."""


class ValueTooLargeError(MetadataError):
    """A value over the limit was refused before sending: ZooKeeper would drop the connection."""

    def __init__(self, path: str, size: int, limit: int) -> None:
        super().__init__(
            f"the value of {path} has {size} bytes, more than the {limit} allowed: store less in it"
        )
        self.path = path
        self.size = size
        self.limit = limit


class MetadataFormatError(MetadataError):
    """This release cannot read the stored bytes; they are left unchanged."""

    def __init__(self, what: str, why: str) -> None:
        super().__init__(
            f"{what} cannot be read: {why}; nothing was changed. If this release wrote it, report "
            "this as a defect"
        )
        self.what = what
        self.why = why


class InvalidTransitionError(MetadataError):
    """The rules forbid this change of ledger metadata in its current state (rules 1.4-1.5)."""

    def __init__(self, ledger_id: LedgerId, why: str) -> None:
        super().__init__(
            f"ledger {ledger_id}: {why}; read its metadata again before another change"
        )
        self.ledger_id = ledger_id
        self.why = why


class NameHeldError(MetadataError):
    """Another live process holds a path that only one process may hold (rule 2.1)."""

    def __init__(self, path: str) -> None:
        super().__init__(
            f"{path} is held by another live process: stop that one first, or, if it has just "
            "died, wait for its session to end"
        )
        self.path = path


class InvalidUriError(MetadataError, ValueError):
    """A metadata URI has the form neither of ZooKeeper's nor of a gateway's address."""

    def __init__(self, uri: str, why: str) -> None:
        super().__init__(
            f"{uri!r} is not a metadata URI ({why}): write zk://host:port[,host:port...][/path] or "
            "gateway://host:port[,host:port...]"
        )
        self.uri = uri
        self.why = why


class EmbeddedServerError(MetadataError):
    """The embedded ZooKeeper server could not be started; the message says why and what to do."""


class OtherServersDirectoryError(EmbeddedServerError):
    """A data directory belongs to another server of the ensemble."""


class PortInUseError(EmbeddedServerError):
    """Another program uses the wanted port."""

    def __init__(self, host: str, port: int) -> None:
        super().__init__(
            f"port {port} of {host} is in use by another program: choose another port, or none"
        )
        self.host = host
        self.port = port


class InvalidChainNameError(MetadataError, ValueError):
    """A chain's name contains characters other than letters, digits, `.`, `_` and `-`, or is too
    long.
    """

    def __init__(self, name: str) -> None:
        super().__init__(
            f"{name[:250]!r} is not a valid chain name: use 1 to 200 letters, digits, '.', '_' and "
            "'-', and do not begin with a dot"
        )
        self.name = name


class ChainExistsError(MetadataError):
    """A chain with this name exists already."""

    def __init__(self, name: str) -> None:
        super().__init__(f"chain {name!r} exists already: append to it, or choose another name")
        self.name = name


class ChainNotFoundError(MetadataError):
    """No chain has this name."""

    def __init__(self, name: str) -> None:
        super().__init__(f"there is no chain {name!r}: `quire chain list` shows the existing ones")
        self.name = name


class LedgersCollectedError(MetadataError):
    """A ledger cannot be linked: it was deleted, or is so old that garbage collection may have
    deleted it.
    """

    def __init__(self, ledger_id: LedgerId) -> None:
        super().__init__(
            f"ledger {ledger_id} was deleted, or is so old that it may have been collected: "
            "nothing was published. Run the job again, and set the grace period of the collection "
            "longer than any job takes"
        )
        self.ledger_id = ledger_id


class ApplicationTakenError(MetadataError):
    """An application's batches in a chain are numbered by another query."""

    def __init__(self, chain: str, application: str, query: str, batch: int) -> None:
        super().__init__(
            f"application {application!r} of chain {chain!r} belongs to "
            f"{f'query {query}' if query else 'jobs without a query'}, whose last batch is "
            f"{batch}: nothing was published. Another query needs another name"
        )


class InvalidTopicNameError(MetadataError, ValueError):
    """Kafka's rules do not allow this topic name."""

    def __init__(self, name: str) -> None:
        super().__init__(
            f"{name[:250]!r} is not a valid topic name: use 1 to 249 letters, digits, '.', '_' and "
            "'-', and neither '.' nor '..'"
        )
        self.name = name


class TopicExistsError(MetadataError):
    """A topic with this name exists already."""

    def __init__(self, name: str, *, is_being_deleted: bool = False) -> None:
        super().__init__(
            f"topic {name!r} is being deleted: wait until its ledgers are gone"
            if is_being_deleted
            else f"topic {name!r} exists already: choose another name"
        )
        self.name = name
        self.is_being_deleted = is_being_deleted


class TopicNameHeldError(MetadataError):
    """The new topic's name differs from another topic's only in `.` and `_`."""

    def __init__(self, name: str, holder: str) -> None:
        super().__init__(
            f"{name!r} and topic {holder!r} would have one name in metrics: choose another name"
        )
        self.name = name
        self.holder = holder


class TopicNotFoundError(MetadataError):
    """No topic has this name."""

    def __init__(self, name: str) -> None:
        super().__init__(f"there is no topic {name!r}: `quire topic list` shows the existing ones")
        self.name = name


class TooManyPartitionsError(MetadataError, ValueError):
    """A topic would have more partitions than one stored value can hold."""

    def __init__(self, name: str, count: int, limit: int) -> None:
        super().__init__(
            f"topic {name!r} would have {count} partitions, more than the {limit} allowed: use "
            "several topics"
        )
        self.name = name
        self.count = count
        self.limit = limit


class StaleLeaderEpochError(MetadataError):
    """A claim of a partition named an epoch that is not above the last claimed one."""

    def __init__(self, epoch: int, leader_epoch: int) -> None:
        super().__init__(
            f"epoch {epoch} is not above epoch {leader_epoch}, in which the partition was claimed: "
            "another broker leads it, or an earlier process of this broker did"
        )
        self.epoch = epoch
        self.leader_epoch = leader_epoch


class InvalidLifecycleChangeError(MetadataError):
    """A bookie's state does not allow this change (rule 9.1)."""

    def __init__(self, bookie_id: BookieId, state: str, wanted: str, what_next: str) -> None:
        super().__init__(f"bookie {bookie_id} is {state} and cannot become {wanted}: {what_next}")
        self.bookie_id = bookie_id
        self.state = state
        self.wanted = wanted
        self.what_next = what_next


class InvalidRepairSettingError(MetadataError, ValueError):
    """Repair has no setting with this name, or the value is outside its range."""

    def __init__(self, name: str, value: int, why: str) -> None:
        super().__init__(f"repair's setting {name!r} cannot be {value}: {why}; nothing was changed")
        self.name = name
        self.value = value
        self.why = why
