"""`quire chain ...`: ordered lists of ledgers that jobs publish and readers follow."""

import argparse
from datetime import UTC, datetime

from ledger_client import ChainInfo, LedgerClient
from quire.cli.command_line import (
    Noun,
    add_consent_option,
    metadata_address,
    not_negative,
    require_consent,
)
from quire.cli.output import Output
from quire.errors import ExitCode

GRACE_HOURS_DEFAULT = 24.0


def parser() -> argparse.ArgumentParser:
    """Return the parser of `quire chain`."""
    noun = Noun("chain", "Chains: ordered lists of ledgers that jobs publish.")
    noun.verb("list", _list, "list chains")
    _add_name(noun.verb("show", _show, "print the ledgers of a chain, in order"))
    _add_name(noun.verb("create", _create, "create an empty chain"))
    trim = noun.verb(
        "trim", _trim, "remove the oldest links; `collect` deletes their ledgers", is_audited=True
    )
    _add_name(trim)
    trim.add_argument("first", type=not_negative, help="the first link to keep")
    add_consent_option(trim)
    collect = noun.verb(
        "collect",
        _collect,
        "delete ledgers that jobs wrote for a chain and that are not in it: those of failed jobs "
        "and of trimmed or replaced links",
        is_audited=True,
    )
    _add_name(collect)
    collect.add_argument(
        "--grace-hours",
        type=_hours,
        default=GRACE_HOURS_DEFAULT,
        metavar="N",
        help="keep younger ledgers; longer than any job, because older ones are not published "
        f"(default {GRACE_HOURS_DEFAULT:g})",
    )
    add_consent_option(collect)
    delete = noun.verb(
        "delete", _delete, "delete a chain, but none of its ledgers", is_audited=True
    )
    _add_name(delete)
    add_consent_option(delete)
    return noun.parser


async def _list(arguments: argparse.Namespace, output: Output) -> int:
    async with LedgerClient(metadata_address(arguments)) as client:
        with output.listing("chain", "first_link", "next_link") as listing:
            for name in await client.list_chains():
                listing.add(_as_row(await client.chain(name).info()))
    return ExitCode.DONE


async def _show(arguments: argparse.Namespace, output: Output) -> int:
    columns = ("link", "ledger_id", "entries", "bytes", "published", "application", "batch")
    async with LedgerClient(metadata_address(arguments)) as client:
        chain = client.chain(arguments.chain)
        info = await chain.info()
        with output.listing(*columns) as listing:
            async for index, link in chain.links(info.first_index, info.next_index):
                if link is None:
                    continue
                published = datetime.fromtimestamp(link.published_ms / 1000, UTC)
                for ledger in link.ledgers:
                    last = ledger.last_entry_id
                    listing.add(
                        {
                            "link": index,
                            "ledger_id": ledger.ledger_id,
                            "entries": None if last is None else last + 1,
                            "bytes": ledger.length,
                            "published": published.isoformat(timespec="seconds"),
                            "application": link.application or None,
                            "batch": link.batch if link.application else None,
                        }
                    )
    return ExitCode.DONE


async def _create(arguments: argparse.Namespace, output: Output) -> int:
    async with LedgerClient(metadata_address(arguments)) as client:
        await client.chain(arguments.chain).create()
    output.record({"chain": arguments.chain})
    return ExitCode.DONE


async def _trim(arguments: argparse.Namespace, output: Output) -> int:
    async with LedgerClient(metadata_address(arguments)) as client:
        chain = client.chain(arguments.chain)
        info = await chain.info()
        gone = max(0, min(arguments.first, info.next_index) - info.first_index)
        require_consent(arguments, f"remove {gone} links from chain {arguments.chain!r}")
        output.record(_as_row(await chain.trim(arguments.first)))
    return ExitCode.DONE


async def _collect(arguments: argparse.Namespace, output: Output) -> int:
    async with LedgerClient(metadata_address(arguments)) as client:
        chain = client.chain(arguments.chain)
        await chain.info()
        require_consent(
            arguments,
            f"delete every ledger written for chain {arguments.chain!r} more than "
            f"{arguments.grace_hours:g} hours ago that is not in it",
        )
        count = await chain.collect(arguments.grace_hours * 3600)
    output.record({"chain": arguments.chain, "deleted_ledgers": count})
    return ExitCode.DONE


async def _delete(arguments: argparse.Namespace, output: Output) -> int:
    async with LedgerClient(metadata_address(arguments)) as client:
        chain = client.chain(arguments.chain)
        info = await chain.info()
        count = info.next_index - info.first_index
        require_consent(
            arguments, f"delete chain {arguments.chain!r} of {count} links, but no ledger"
        )
        await chain.delete()
    output.record({"chain": arguments.chain, "deleted": True})
    return ExitCode.DONE


def _as_row(info: ChainInfo) -> dict[str, str | int]:
    return {"chain": info.name, "first_link": info.first_index, "next_link": info.next_index}


def _add_name(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("chain", metavar="NAME")


def _hours(text: str) -> float:
    hours = float(text)
    if not 0 <= hours < 24 * 3650:
        raise argparse.ArgumentTypeError(f"{text} hours is out of range: use 0 to 87,599")
    return hours
