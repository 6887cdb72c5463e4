"""Present ends of the ledgers of a stream, kept in memory on the driver.

Leaves computing with positions to `positions`, and Spark's interface to `stream`. Spark requests
the newest offset about a hundred times per second. So no call waits for a bookie or for ZooKeeper
once a stream runs: watches and long polls update the ends in the background.

Invariants: a returned offset stays readable unless its ledger or link is deleted. A micro-batch
ends where its offset says, whatever is known of the ledgers now. An offset is used only with the
ledgers or the chain that it was recorded for.

Source: Spark design, "Reading".
"""

import json
import logging
from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from ledger_client import ChainInfo
from ledger_client.sync import LedgerClient
from spark_io.common_options import EARLIEST, LATEST, refuse_end_of_stream
from spark_io.errors import ChainTrimmedError, OffsetError, OptionError, RecreatedError
from spark_io.identities import Identities, IdentityCheck, check_option, separated, with_identities
from spark_io.ledgers.bounds import BOUNDS, NO_BOUNDS
from spark_io.ledgers.chain_links import BEGAN, read_links
from spark_io.ledgers.open_ledgers import OpenLedgers
from spark_io.ledgers.options import RECOVER_OPEN, ReadOptions
from spark_io.ledgers.positions import (
    ChainPosition,
    LedgerOffsets,
    LinkedLedgers,
    MicroBatchLimits,
    advance_chain,
    advance_ledgers,
    chain_parts,
    end_of_chain,
    identities_of,
    ledger_offsets_of,
)
from spark_io.ledgers.selecting import find_ledgers
from spark_io.ledgers.splits import EntryRange, KnownLedger
from spark_io.ledgers.unreadable import log_loss

LINKS_PER_BATCH_MAX: Final = 10_000
"""Maximum number of links of a chain in one micro-batch; the next one continues after them."""

Offset = dict[str, object]

_log = logging.getLogger(__name__)


def check_stream(options: ReadOptions) -> None:
    """Raise OptionError for options that only a batch query has."""
    refuse_end_of_stream(options.ending_offsets)
    if options.selection.match:
        text = "a stream reads named ledgers or a chain: name them, or publish them in a chain"
        raise OptionError("match", text)
    if options.bounds != NO_BOUNDS:
        text = f"a stream has no bounds ({', '.join(BOUNDS)}): begin it with startingOffsets"
        raise OptionError("startingOffsets", text)
    if options.recover_open_ledgers:
        text = "a stream recovers nothing: use `quire ledger recover`, or a batch query"
        raise OptionError(RECOVER_OPEN, text)


def follow(client: LedgerClient, options: ReadOptions) -> "FollowedSource":
    """Begin to follow the ledgers or the chain of the options. Raises LedgerError."""
    if options.selection.chain:
        return FollowedLinks(client, options)
    return FollowedLedgers(client, options)


class FollowedLedgers:
    """Named ledgers, each open or closed."""

    chain_token: Final = None
    """Identity of the chain that links the ledgers: there is none."""

    def __init__(self, client: LedgerClient, options: ReadOptions) -> None:
        password = options.client.password
        known = list(
            find_ledgers(
                client,
                options.selection,
                password,
                fail_on_data_loss=options.fail_on_data_loss,
            ).ledgers
        )
        self._fail_on_data_loss = options.fail_on_data_loss
        self._known = {each.ledger_id: each for each in known}
        self._check = _check("ledger", identities_of(known), options)
        self._open = OpenLedgers(client, options)

    def earliest(self) -> Offset:
        """Return entry 0 of each."""
        return self._stored(dict.fromkeys(self._known, 0))

    def latest(self) -> Offset:
        """Return the entry after the LAC of each."""
        return self._stored({each.ledger_id: each.end for each in self._now()})

    def checked(self, stored: Mapping[str, object]) -> Offset:
        """Return the offsets, with entry 0 for a ledger that they do not name."""
        positions, recorded = separated(stored)
        offsets = self._named(ledger_offsets_of(positions))
        check_option("startingOffsets", "ledger", recorded, self._check.present)
        return self._stored(dict.fromkeys(self._known, 0) | offsets)

    def advance(
        self, start: Mapping[str, object], end: Offset, allowance: MicroBatchLimits
    ) -> Offset:
        """Give each ledger a share in proportion to its backlog."""
        stop, _ = self._offsets(end)
        begin, _ = self._offsets(start)
        bounded = [replace(each, end=stop[each.ledger_id]) for each in self._now()]
        return self._stored(advance_ledgers(bounded, begin, allowance))

    def ranges(self, start: Mapping[str, object], end: Mapping[str, object]) -> list[EntryRange]:
        """Return a range for each ledger with new entries."""
        first, changed = self._offsets(start)
        stop, lost = self._offsets(end)
        self._check.log([*changed, *lost])
        self._log_unread(start, end)
        ranges = [
            self._open.range_to(known, first.get(key, 0), stop[key])
            for key, known in self._known.items()
            if key in stop
        ]
        return [each for each in ranges if each.count > 0]

    def _log_unread(self, start: Mapping[str, object], end: Mapping[str, object]) -> None:
        """Log entries of a micro-batch that are in ledgers that the query no longer reads."""
        first, stop = (ledger_offsets_of(separated(each)[0]) for each in (start, end))
        for ledger_id, offset in stop.items():
            at = first.get(ledger_id, 0)
            if ledger_id not in self._known and at < offset:
                log_loss(ledger_id, at, offset - 1, "the query does not read this ledger any more")

    def _now(self) -> list[KnownLedger]:
        self._known = {key: self._open.now(each) for key, each in self._known.items()}
        return list(self._known.values())

    def _stored(self, offsets: LedgerOffsets) -> Offset:
        return with_identities(
            {str(key): value for key, value in offsets.items()}, self._check.present
        )

    def _offsets(self, stored: Mapping[str, object]) -> tuple[LedgerOffsets, list[str]]:
        """Return the offsets without those of ledgers that were created again, and the ids of
        these. Raises OffsetError, RecreatedError.
        """
        positions, recorded = separated(stored)
        offsets = self._named(ledger_offsets_of(positions))
        changed = self._check.recreated(recorded, map(str, offsets))
        return {key: value for key, value in offsets.items() if str(key) not in changed}, changed

    def _named(self, offsets: LedgerOffsets) -> LedgerOffsets:
        unknown = [ledger_id for ledger_id in offsets if ledger_id not in self._known]
        if unknown and not self._fail_on_data_loss:
            return {key: value for key, value in offsets.items() if key in self._known}
        if unknown:
            raise OffsetError(
                f"the checkpoint names ledgers {unknown}, which the options do not name: "
                "name them too, or begin with a new checkpoint"
            )
        return offsets


class FollowedLinks:
    """A chain: closed ledgers in all links, possibly an open one at the end."""

    def __init__(self, client: LedgerClient, options: ReadOptions) -> None:
        self._client = client
        self._options = options
        self._name = options.selection.chain
        self._chain = client.chain(self._name).follow()
        self.chain_token = self._chain.info.creation_token
        """Identity of the chain."""
        self._check = _check("chain", {self._name: self.chain_token.hex()}, options)
        self._links: dict[int, LinkedLedgers] = {}
        self._open = OpenLedgers(client, options)

    def earliest(self) -> Offset:
        """Return the chain's first link as of now."""
        return self._stored(ChainPosition(self._info().first_index))

    def latest(self) -> Offset:
        """Return the position after the last link, or after the LAC of an open ledger in it. An
        open ledger in an earlier link is handled by `advance`, which ends there.
        """
        info = self._info()
        return self._stored(end_of_chain(self._last_links(info), info.next_index))

    def checked(self, stored: Mapping[str, object]) -> Offset:
        """Return the position. Raises OffsetError, OptionError."""
        positions, recorded = separated(stored)
        position = ChainPosition.of_json(positions)
        check_option("startingOffsets", "chain", recorded, self._check.present)
        return self._stored(position)

    def advance(
        self, start: Mapping[str, object], end: Offset, allowance: MicroBatchLimits
    ) -> Offset:
        """Take links in order until the allowance is used up, never past an open ledger of any
        link, because it may grow.
        """
        begin, _ = self._position(start)
        stop, _ = self._position(end)
        stop = min(stop, ChainPosition(begin.link + LINKS_PER_BATCH_MAX))
        if stop <= begin:
            return self._stored(begin)
        links = self._read(self._not_trimmed(begin).link, stop)
        self._drop_below(begin.link)
        stop = max(begin, min(stop, end_of_chain(links, stop.link + 1, begin)))
        return self._stored(advance_chain(links, begin, stop, allowance))

    def ranges(self, start: Mapping[str, object], end: Mapping[str, object]) -> list[EntryRange]:
        """Return the ranges of all ledgers between two positions."""
        begin, changed = self._position(start)
        stop, lost = self._position(end)
        self._check.log([*changed, *lost])
        if stop <= begin:
            return []
        begin = self._not_trimmed(begin)
        ranges = [
            self._open.closed(part.ledger).range_from(part.first)
            if part.end is None
            else self._open.range_to(part.ledger, part.first, part.end)
            for part in chain_parts(self._read(begin.link, stop), begin, stop)
        ]
        self._drop_below(begin.link)
        return [each for each in ranges if each.count > 0]

    def _info(self) -> ChainInfo:
        """Return the head as last seen. Raises RecreatedError."""
        info = self._chain.info
        if info.creation_token != self.chain_token:
            raise RecreatedError("chain", self._name, BEGAN)
        return info

    def _stored(self, position: ChainPosition) -> Offset:
        return with_identities(position.as_json(), self._check.present)

    def _position(self, stored: Mapping[str, object]) -> tuple[ChainPosition, list[str]]:
        """Return a position in the present chain. If the chain was created again since it was
        stored, that is the start, and the chain's name is returned too.

        Raises OffsetError, RecreatedError.
        """
        positions, recorded = separated(stored)
        position = ChainPosition.of_json(positions)
        if recorded and self._name not in recorded:
            raise OffsetError(
                f"the checkpoint is of chain {', '.join(recorded)}, and the options name chain "
                f"{self._name}: name the same chain, or begin with a new checkpoint"
            )
        changed = self._check.recreated(recorded, [self._name])
        return ChainPosition(0) if changed else position, changed

    def _not_trimmed(self, begin: ChainPosition) -> ChainPosition:
        first = self._info().first_index
        if begin.link >= first:
            return begin
        if self._options.fail_on_data_loss:
            text = (
                f"chain {self._name!r} begins at link {first} now, but the query was at link "
                f"{begin.link}: the links between were trimmed or replaced"
            )
            raise ChainTrimmedError(text)
        _log.warning(
            "chain %r: left out links %d to %d, which were trimmed",
            self._name,
            begin.link,
            first - 1,
        )
        return ChainPosition(first)

    def _last_links(self, info: ChainInfo) -> list[LinkedLedgers]:
        """Return only the last link."""
        if info.next_index == info.first_index:
            return []
        return self._read(info.next_index - 1, ChainPosition(info.next_index))

    def _read(self, first: int, end: ChainPosition) -> list[LinkedLedgers]:
        """Return the links from `first` to that of `end`; a closed link is read only once."""
        wanted = range(first, end.link + (1 if end > ChainPosition(end.link) else 0))
        missing = [index for index in wanted if index not in self._links]
        if missing:
            wanted_part = ChainInfo(self._name, missing[0], missing[-1] + 1, self.chain_token)
            found = read_links(
                self._client,
                wanted_part,
                self._options.client.password,
                fail_on_data_loss=self._options.fail_on_data_loss,
            )
            for link in found:
                self._links[link.index] = LinkedLedgers(link.index, tuple(link.ledgers))
        return [self._now(index) for index in wanted if index in self._links]

    def _now(self, index: int) -> LinkedLedgers:
        ledgers = tuple(self._open.now(each) for each in self._links[index].ledgers)
        self._links[index] = LinkedLedgers(index, ledgers)
        return self._links[index]

    def _drop_below(self, index: int) -> None:
        for old in [each for each in self._links if each < index]:
            del self._links[old]


FollowedSource = FollowedLedgers | FollowedLinks
"""Source of a stream: named ledgers, or a chain."""


def _check(kind: str, present: Identities, options: ReadOptions) -> IdentityCheck:
    return IdentityCheck(kind, present, fail_on_data_loss=options.fail_on_data_loss)


def starting_offset(source: FollowedSource, text: str) -> Offset:
    """Return the start of a new query: `earliest`, `latest` or a position. Raises OptionError."""
    if text.lower() == EARLIEST:
        return source.earliest()
    if text.lower() == LATEST:
        return source.latest()
    try:
        stored = json.loads(text)
        if not isinstance(stored, dict):
            raise OffsetError(f"{text!r} is not a JSON object")
        return source.checked(stored)
    except OptionError:
        raise
    except ValueError as error:
        why = f"{text!r} is neither earliest nor latest nor an offset ({error})"
        raise OptionError("startingOffsets", why) from error
