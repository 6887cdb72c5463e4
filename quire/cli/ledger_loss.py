"""`quire ledger accept-loss`: finds entries that no bookie returns, and records their loss.

Source: protocol rules 9.9-9.11; docs/repair.md, "An entry has no copy left".
"""

import argparse
import asyncio
import contextlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from ledger_client import LedgerClient, RecoveryUndecidedError
from ledger_client.bookies.pool import BookiePool
from ledger_client.cluster_access import (
    Cluster,
    open_cluster,
    open_pool,
    read_ledger,
    wall_clock_ms,
)
from ledger_client.digest import LedgerKeys
from ledger_client.recovery.missing_writers import SESSIONS
from metadata.ids import LedgerId, Version
from metadata.ledgers.entry_ranges import Range, describe_ranges, entry_count
from metadata.ledgers.ledger_metadata import LedgerMetadata, LedgerState
from metadata.paths import client_path
from metadata.store.interface import SESSION_TIMEOUT_S, find
from quire.cli.command_line import metadata_address
from quire.cli.ledger import password_of
from quire.cli.output import Output
from quire.cli.progress import Progress
from quire.errors import CommandError, ExitCode, NeedsConsentError, UsageError
from quire.operate.as_json import lost_as_json
from quire.operate.fields import Json
from quire.repair.losses import LossAcceptance, LossParts, LossReport, LossSurvey
from quire.repair.undecided_end import EndReport, UndecidedEnd

WRITER_AWAY_S: Final = SESSIONS * SESSION_TIMEOUT_S
"""Time for which the node of a writer must be missing before its ledger is closed, in seconds, as
for a recovery by repair (rule 9.2).
"""
WRITER_LOOKS: Final = 10
"""Number of looks at the node in that time."""


class LossUndecidedError(CommandError):
    """Entries cannot be read now, and bookies that are not known to be lost may return them."""

    code = ExitCode.UNAVAILABLE


@dataclass(frozen=True, slots=True)
class _Search:
    """One search, with the parts of the cluster that it uses."""

    arguments: argparse.Namespace
    cluster: Cluster
    pool: BookiePool
    keys: LedgerKeys
    survey: LossSurvey

    @property
    def parts(self) -> LossParts:
        cluster = self.cluster
        return LossParts(cluster.store, cluster.ledgers, cluster.rng, wall_clock_ms)

    @property
    def of_closed(self) -> LossAcceptance:
        gives_up = self.arguments.even_if_unreachable
        return LossAcceptance(self.parts, self.survey, gives_up_unknown=gives_up)

    @property
    def of_end(self) -> UndecidedEnd:
        gives_up = self.arguments.even_if_unreachable
        return UndecidedEnd(
            self.parts, self.pool, self.keys, self.survey, gives_up_unknown=gives_up
        )


async def accept_loss(arguments: argparse.Namespace, output: Output) -> int:
    """Find the lost entries of a ledger. With --yes, close the ledger if that is necessary, and
    store them; otherwise, change nothing.
    """
    address, ledger_id = metadata_address(arguments), LedgerId(arguments.ledger)
    async with open_cluster(address) as cluster:
        ledger, version = await read_ledger(cluster, ledger_id)
        keys = LedgerKeys.of(ledger, password_of(arguments))
        count = (ledger.last_entry_id or 0) + 1
        with Progress(output, "read", "entries", count) as progress:
            async with open_pool(cluster, keys) as pool:
                survey = LossSurvey(pool, keys, progress.advance)
                search = _Search(arguments, cluster, pool, keys, survey)
                if ledger.state is LedgerState.CLOSED:
                    closed, report = await _of_closed(search, ledger)
                    row = _row(closed, report, arguments)
                else:
                    row, report = await _of_open(search, ledger, version)
    _print(row, report, output)
    return _conclude(ledger, report, arguments, output)


async def _of_closed(search: _Search, ledger: LedgerMetadata) -> tuple[LedgerMetadata, LossReport]:
    if search.arguments.yes:
        return await search.of_closed.accept(ledger.ledger_id)
    return ledger, await search.of_closed.search(ledger)


async def _of_open(
    search: _Search, ledger: LedgerMetadata, version: Version
) -> tuple[dict[str, Json], LossReport]:
    """Close a ledger whose recovery is undecided; without --yes, find out where it would end."""
    ledger_id, arguments = ledger.ledger_id, search.arguments
    if ledger.quorum.is_in_sync:
        raise UsageError(
            f"ledger {ledger_id} is in in-sync mode and not closed: its unclean recovery gives up "
            "what is lost",
            try_next=f"quire ledger recover {ledger_id} --unclean",
        )
    await _require_no_writer(search, ledger)
    if not arguments.yes:
        end = await search.of_end.search(ledger, version, fence=False)
        return _row(ledger, end.losses, arguments) | _end_row(end), end.losses
    async with LedgerClient(search.cluster.address) as client:
        with contextlib.suppress(RecoveryUndecidedError):
            await client.recover_ledger(ledger_id, password=password_of(arguments))
    closed, closed_at = await search.of_end.close(ledger_id)
    if closed_at is None:  # the recovery was possible
        closed, report = await search.of_closed.accept(ledger_id)
        return _row(closed, report, arguments), report
    return _row(closed, closed_at.losses, arguments) | _end_row(closed_at), closed_at.losses


async def _require_no_writer(search: _Search, ledger: LedgerMetadata) -> None:
    """Raise if the writer may be running. With --yes, it must be away for WRITER_AWAY_S: a writer
    that was cut off from the metadata service for a moment registers again.
    """
    if ledger.state is not LedgerState.OPEN:
        return
    looks = WRITER_LOOKS if search.arguments.yes else 1
    for number in range(looks):
        if number:
            await asyncio.sleep(WRITER_AWAY_S / (WRITER_LOOKS - 1))
        if await find(search.cluster.store, client_path(ledger.writer), fresh=True) is None:
            continue
        raise CommandError(
            f"ledger {ledger.ledger_id} is open, and its writer, {ledger.writer}, is running: it "
            "may reach bookies that do not answer here, and what they acknowledge would be lost",
            try_next="stop the writer, and wait until its session has ended",
        )


def _row(
    ledger: LedgerMetadata, report: LossReport, arguments: argparse.Namespace
) -> dict[str, Json]:
    count, last = entry_count(report.lost), ledger.last_entry_id
    size = None
    if ledger.length is not None and last is not None and last >= 0:
        size = round(ledger.length * count / (last + 1))
    return {
        "ledger_id": ledger.ledger_id,
        "state": str(ledger.state),
        "last_entry_id": last,
        "is_accepted": bool(arguments.yes),
        "lost_entries": count,
        "lost_bytes_about": size,
        "lost": _as_json(report.lost),
        "unknown": _as_json(report.unknown),
        "accepted": lost_as_json(ledger.lost),
        "bookies": [
            {"id": answer.bookie_id, "what": said}
            for answer in report.answers
            if (said := report.standing_of(answer))
        ],
    }


def _end_row(report: EndReport) -> dict[str, Json]:
    given_up = [*report.gone.items(), *report.silent.items()]
    return {
        "last_entry_id": report.end.last_entry_id,
        "is_end_proved": report.end.is_proved,
        "given_up": [{"id": bookie, "what": why} for bookie, why in given_up],
    }


def _as_json(ranges: Sequence[Range]) -> list[Json]:
    return [[first, last] for first, last in ranges]


def _print(row: dict[str, Json], report: LossReport, output: Output) -> None:
    if output.as_json:
        output.record(row)
        return
    tables = [(name, row.pop(name, None)) for name in ("bookies", "given_up")]
    row.pop("accepted")
    row["lost"] = describe_ranges(report.lost) or None
    row["unknown"] = describe_ranges(report.unknown) or None
    output.record(row)
    for name, rows in tables:
        if isinstance(rows, list) and rows:
            output.line("")
            with output.listing(name, "what") as listing:
                for item in rows:
                    assert isinstance(item, dict), "a table has rows"
                    listing.add({name: item["id"], "what": item["what"]})


def _conclude(
    ledger: LedgerMetadata, report: LossReport, arguments: argparse.Namespace, output: Output
) -> int:
    """Return the status, or raise the error that says what to do next."""
    ledger_id = ledger.ledger_id
    names = ", ".join(report.unsure_bookies)
    is_closed = ledger.state is LedgerState.CLOSED
    if arguments.even_if_unreachable and names:
        output.remark(
            f"WARNING: {names} gave no certain answer, and may hold the only copies. What they "
            "hold is lost for ever once this is accepted, also if they return"
        )
    if not arguments.yes and (report.lost or not is_closed):
        option = " --even-if-unreachable" if arguments.even_if_unreachable else ""
        plan = []
        if not is_closed:
            plan.append(
                f"ledger {ledger_id} would be closed at the end shown above, and a writer that "
                "only lost its session is fenced"
            )
        if ledger.state is LedgerState.OPEN:
            plan.append(f"its writer must stay away for {WRITER_AWAY_S:g} s more")
        if report.lost:
            lost = describe_ranges(report.lost)
            plan.append(f"the loss of entries {lost} of ledger {ledger_id} would be accepted")
        raise NeedsConsentError(
            f"{', and '.join(plan)}: nothing returns lost entries any more, and the end never "
            "moves again; nothing was changed",
            try_next=f"quire ledger accept-loss {ledger_id}{option} --yes",
        )
    if report.unknown:
        raise LossUndecidedError(
            f"entries {describe_ranges(report.unknown)} of ledger {ledger_id} cannot be read, and "
            f"are not known to be lost: {names} may have them",
            try_next="bring these bookies back; if they never return, add --even-if-unreachable; "
            "one that is up is never given up: try again, or stop it",
        )
    return ExitCode.DONE
