"""Present ends of the ledgers of a query, kept in memory on the driver.

Leaves computing with positions to `positions`. Watches and long polls update the ends in the
background.

The bookies that answer may know an older LAC than those that answered before, for example after a
restart of the driver. So an end that a checkpoint or an option names may be beyond the present LAC.
Then it is waited for. The LAC of an open ledger is never taken for its end.

Invariants: a returned offset stays readable unless its ledger or link is deleted. A micro-batch
ends where its offset says, whatever is known of the ledgers now. An offset is used only with the
ledgers or the chain that it was recorded for.

Source: Spark design, "Reading"; protocol rule 8.5.
"""

import json
import logging
from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from ledger_client import AS_STORED, ChainInfo, LedgerError, LedgerNotFoundError
from ledger_client.sync import LedgerClient, LedgerReader
from metadata.ids import ENTRY_ID_MAX
from spark_io.common_options import EARLIEST, LATEST
from spark_io.errors import (
    ChainTrimmedError,
    DataLostError,
    OffsetError,
    OptionError,
    ReadFailedError,
    RecreatedError,
)
from spark_io.ledgers.options import BOUNDS, NO_BOUNDS, RECOVER_OPEN, ReadOptions
from spark_io.ledgers.positions import (
    ChainPosition,
    LedgerOffsets,
    advance_chain,
    advance_ledgers,
    chain_parts,
    end_of_chain,
    entries_between,
    identities_of,
    ledger_offsets_of,
)
from spark_io.ledgers.reading import log_loss
from spark_io.ledgers.selecting import BEGAN, find_ledgers, read_links
from spark_io.offsets import (
    FollowedSource,
    Identities,
    IdentityCheck,
    MicroBatchLimits,
    Offset,
    check_option,
    separated,
    with_identities,
)
from spark_io.ranges import EntryRange, LinkRanges, PackedRanges

LINKS_PER_BATCH_MAX: Final = 10_000
"""Maximum number of links of a chain in one micro-batch; the next one continues after them."""
SEEN_WAIT_S: Final = 30.0
"""Maximum time to wait for a recorded end of a ledger, in seconds."""
_log = logging.getLogger(__name__)


def check_stream(options: ReadOptions) -> None:
    """Raise OptionError for options that only a batch query has."""
    if options.selection.match:
        text = "a stream reads named ledgers or a chain: name them, or publish them in a chain"
        raise OptionError("match", text)
    if options.bounds != NO_BOUNDS:
        text = f"a stream has no bounds ({', '.join(BOUNDS)}): begin it with startingOffsets"
        raise OptionError("startingOffsets", text)
    if options.recover_open_ledgers:
        text = "a stream recovers nothing: use `quire ledger recover`, or a batch query"
        raise OptionError(RECOVER_OPEN, text)


def follow(client: LedgerClient, options: ReadOptions) -> "FollowedLedgers | FollowedLinks":
    """Begin to follow the ledgers or the chain of the options. Raises LedgerError."""
    if options.selection.chain:
        return FollowedLinks(client, options)
    return FollowedLedgers(client, options)


class OpenLedgers:
    """Open ledgers of one query, updated in the background until they are closed or deleted.

    Invariants: only the first call for a ledger, and the wait for an end, ask bookies; a range up
    to a recorded end is that range, or an error, or, with failOnDataLoss=false and a closed ledger
    that ends before it, a shorter one with a line in the log.
    """

    def __init__(self, client: LedgerClient, options: ReadOptions) -> None:
        self._client = client
        self._password = options.client.password
        self._fail_on_data_loss = options.fail_on_data_loss
        self._readers: dict[int, LedgerReader] = {}

    def now(self, known: EntryRange) -> EntryRange:
        """Return a ledger as it is now; query bookies only at the first call for an open ledger."""
        if not known.is_open:
            return known
        reader = self._reader_of(known)
        if reader.follow_failure is not None:
            return self._gone(known, reader.follow_failure)
        last = reader.info.last_entry_id  # set in the metadata of a closed ledger
        if last is None:
            return replace(known, last=max(known.last, reader.last_confirmed))
        self._readers.pop(known.ledger_id).close()
        return replace(known, last=last, is_open=False)

    def range_to(self, known: EntryRange, first: int, end: int) -> EntryRange:
        """Return the range from an entry up to, not including, a recorded end; wait until the end
        is confirmed. Raises DataLostError, ReadFailedError, LedgerError.
        """
        if first < end and known.end < end:
            known = self._once_known(known, end)
            if known.end < end:
                lost, why = max(first, known.end), f"the ledger ends before entry {known.end}"
                if self._fail_on_data_loss:
                    raise DataLostError(known.ledger_id, lost, end - 1, why)
                log_loss(known.ledger_id, lost, end - 1, why)
                end = known.end
        return known.part(first, end)

    def closed(self, known: EntryRange) -> EntryRange:
        """Return a ledger that a recorded position is behind, and which was closed then; wait until
        its end is known here too. Raises ReadFailedError, LedgerError.
        """
        return self._once_known(known, None)

    def close(self) -> None:
        """Stop following."""
        for ledger_id in list(self._readers):
            self._readers.pop(ledger_id).close()

    def _once_known(self, known: EntryRange, end: int | None) -> EntryRange:
        """Return a ledger once it is closed, or confirmed up to `end`."""
        known = self.now(known)
        if not _is_known(known, end):
            try:
                beyond = ENTRY_ID_MAX if end is None else end - 2
                self._reader_of(known).wait_confirmed(beyond, timeout=SEEN_WAIT_S)
            except LedgerNotFoundError as error:
                return self._gone(known, error)
            known = self.now(known)
        if _is_known(known, end):
            return known
        wanted = "is not closed yet" if end is None else f"is not confirmed before entry {end} yet"
        text = (
            f"the recorded position shows that there are more entries, but the ledger {wanted} for "
            f"the bookies that answered in {SEEN_WAIT_S:.0f} s. Nothing is left out: start the "
            "query again when all bookies run. If the ledger's writer is gone, `quire ledger "
            f"recover {known.ledger_id}` confirms what it wrote"
        )
        raise ReadFailedError(known.ledger_id, known.end, (end or known.end + 1) - 1, text)

    def _reader_of(self, known: EntryRange) -> LedgerReader:
        reader = self._readers.get(known.ledger_id)
        if reader is None:
            reader = self._client.open_ledger(
                known.ledger_id, password=self._password, encryption=AS_STORED
            )
            try:
                reader.learn_last_confirmed()
            except LedgerError:
                reader.close()
                raise
            reader.follow()
            self._readers[known.ledger_id] = reader
        return reader

    def _gone(self, known: EntryRange, why: LedgerError) -> EntryRange:
        """Raise, or end a ledger at its last known end, once it cannot be followed any longer."""
        if self._fail_on_data_loss or not isinstance(why, LedgerNotFoundError):
            raise why
        _log.warning(
            "ledger %d: left out the entries after entry %d: %s",
            known.ledger_id,
            known.last,
            why,
        )
        self._readers.pop(known.ledger_id).close()
        return replace(known, is_open=False)


def _is_known(known: EntryRange, end: int | None) -> bool:
    return not known.is_open or (end is not None and known.end >= end)


class _Followed(FollowedSource):
    """Ledgers that a stream reads, named or by a chain."""

    def __init__(self, client: LedgerClient, options: ReadOptions) -> None:
        self._open = OpenLedgers(client, options)

    @abstractmethod
    def earliest(self) -> Offset:
        """Return the start of what can be read now."""

    @abstractmethod
    def checked(self, stored: Mapping[str, object]) -> Offset:
        """Return a position that a user gave. Raises OffsetError, OptionError."""

    def start(self, text: str) -> Offset:
        if text.lower() == EARLIEST:
            return self.earliest()
        if text.lower() == LATEST:
            return self.latest()
        try:
            stored = json.loads(text)
            if not isinstance(stored, dict):
                raise OffsetError(f"{text!r} is not a JSON object")
            return self.checked(stored)
        except OptionError:
            raise
        except ValueError as error:
            why = f"{text!r} is neither earliest nor latest nor an offset ({error})"
            raise OptionError("startingOffsets", why) from error

    def close(self) -> None:
        self._open.close()


class FollowedLedgers(_Followed):
    """Named ledgers, each open or closed."""

    def __init__(self, client: LedgerClient, options: ReadOptions) -> None:
        super().__init__(client, options)
        password = options.client.password
        known = list(
            find_ledgers(
                client,
                options.selection,
                password,
                fail_on_data_loss=options.fail_on_data_loss,
            )
        )
        self._fail_on_data_loss = options.fail_on_data_loss
        self._known = {entry_range.ledger_id: entry_range for entry_range in known}
        self._check = _check("ledger", identities_of(known), options)

    def earliest(self) -> Offset:
        """Return entry 0 of each."""
        return self._stored(dict.fromkeys(self._known, 0))

    def latest(self) -> Offset:
        """Return the entry after the LAC of each."""
        return self._stored({entry_range.ledger_id: entry_range.end for entry_range in self._now()})

    def checked(self, stored: Mapping[str, object]) -> Offset:
        """Return the offsets, with entry 0 for a ledger that they do not name."""
        positions, recorded = separated(stored)
        offsets = self._named(ledger_offsets_of(positions))
        check_option("startingOffsets", "ledger", recorded, self._check.present)
        return self._stored(dict.fromkeys(self._known, 0) | offsets)

    def advance(self, start: Mapping[str, object], end: Offset, limits: MicroBatchLimits) -> Offset:
        """Give each ledger a share in proportion to its backlog."""
        stop, _ = self._offsets(end)
        begin, _ = self._offsets(start)
        bounded = [replace(part, last=stop[part.ledger_id] - 1) for part in self._now()]
        return self._stored(advance_ledgers(bounded, begin, limits))

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
        return [range_ for range_ in ranges if range_.count > 0]

    def _log_unread(self, start: Mapping[str, object], end: Mapping[str, object]) -> None:
        """Log entries of a micro-batch that are in ledgers that the query no longer reads."""
        first, stop = (ledger_offsets_of(separated(mapping)[0]) for mapping in (start, end))
        for ledger_id, offset in stop.items():
            at = first.get(ledger_id, 0)
            if ledger_id not in self._known and at < offset:
                log_loss(ledger_id, at, offset - 1, "the query does not read this ledger any more")

    def _now(self) -> list[EntryRange]:
        self._known = {key: self._open.now(entry_range) for key, entry_range in self._known.items()}
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


class FollowedLinks(_Followed):
    """A chain: closed ledgers in all links, possibly an open one at the end."""

    def __init__(self, client: LedgerClient, options: ReadOptions) -> None:
        super().__init__(client, options)
        self._client = client
        self._options = options
        self._name = options.selection.chain
        self._chain = client.chain(self._name).follow()
        self.chain_token = token = self._chain.info.creation_token
        self._check = _check("chain", {self._name: token.hex()}, options)
        self._links: dict[int, LinkRanges] = {}
        self._reached: ChainPosition | None = None
        """End of the newest micro-batch."""

    def earliest(self) -> Offset:
        """Return the chain's first link as of now."""
        return self._stored(ChainPosition(self._info().first_index))

    def latest(self) -> Offset:
        """Return the position after the last link, or after the LAC of an open ledger in it. An
        open ledger in an earlier link is handled by `advance`, which ends there.
        """
        info = self._info()
        return self._stored(end_of_chain(self._last_links(info), info.next_index))

    def reported(self) -> Offset:
        """Return the position after the last link with the number of entries up to it, unless the
        query is too far behind to read the links between.
        """
        latest = self.latest()
        end, _ = self._position(latest)
        at = self._reached
        if at is None or end.link > at.link + LINKS_PER_BATCH_MAX:
            return latest
        links = self._read(max(at.link, self._info().first_index), end)
        count = (at.entries or 0) + entries_between(links, at, end)
        return self._stored(replace(end, entries=count))

    def checked(self, stored: Mapping[str, object]) -> Offset:
        """Return the position. Raises OffsetError, OptionError."""
        positions, recorded = separated(stored)
        position = ChainPosition.of_json(positions)
        check_option("startingOffsets", "chain", recorded, self._check.present)
        return self._stored(position)

    def advance(self, start: Mapping[str, object], end: Offset, limits: MicroBatchLimits) -> Offset:
        """Take links in order until the limits are used up, never past an open ledger of any
        link, because it may grow.
        """
        self._reached = self._advance(start, end, limits)
        return self._stored(self._reached)

    def _advance(
        self, start: Mapping[str, object], end: Offset, limits: MicroBatchLimits
    ) -> ChainPosition:
        begin, _ = self._position(start)
        stop, _ = self._position(end)
        stop = min(stop, ChainPosition(begin.link + LINKS_PER_BATCH_MAX))
        if stop <= begin:
            return begin
        links = self._read(self._not_trimmed(begin).link, stop)
        self._drop_below(begin.link)
        stop = max(begin, min(stop, end_of_chain(links, stop.link + 1, begin)))
        return advance_chain(links, begin, stop, limits)

    def ranges(self, start: Mapping[str, object], end: Mapping[str, object]) -> list[EntryRange]:
        """Return the ranges of all ledgers between two positions."""
        begin, changed = self._position(start)
        stop, lost = self._position(end)
        self._check.log([*changed, *lost])
        if stop <= begin:
            return []
        begin = self._not_trimmed(begin)
        ranges = [
            self._open.closed(part.ledger).part(part.first)
            if part.end is None
            else self._open.range_to(part.ledger, part.first, part.end)
            for part in chain_parts(self._read(begin.link, stop), begin, stop)
        ]
        self._drop_below(begin.link)
        return [range_ for range_ in ranges if range_.count > 0]

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

    def _last_links(self, info: ChainInfo) -> list[LinkRanges]:
        """Return only the last link."""
        if info.next_index == info.first_index:
            return []
        return self._read(info.next_index - 1, ChainPosition(info.next_index))

    def _read(self, first: int, end: ChainPosition) -> list[LinkRanges]:
        """Return the links from `first` to that of `end`; a closed link is read only once."""
        wanted = range(first, end.link + (1 if end > ChainPosition(end.link) else 0))
        missing = [index for index in wanted if index not in self._links]
        if missing:
            wanted_part = replace(self._info(), first_index=missing[0], next_index=missing[-1] + 1)
            links = read_links(
                self._client,
                wanted_part,
                self._options.client.password,
                fail_on_data_loss=self._options.fail_on_data_loss,
            )
            self._links |= {link.index: link for link in links}
        return [self._now(index) for index in wanted if index in self._links]

    def _now(self, index: int) -> LinkRanges:
        link = self._links[index]
        if not isinstance(link.ledgers, PackedRanges):  # packed ones are closed
            link = replace(link, ledgers=tuple(self._open.now(ledger) for ledger in link.ledgers))
            self._links[index] = link
        return link

    def _drop_below(self, index: int) -> None:
        for old in [link for link in self._links if link < index]:
            del self._links[old]


def _check(kind: str, present: Identities, options: ReadOptions) -> IdentityCheck:
    return IdentityCheck(kind, present, fail_on_data_loss=options.fail_on_data_loss)
