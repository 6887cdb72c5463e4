"""Brokers for one page, and the coordinators of groups and transactions.

Invariant: brokers that are away make a notice of the page, no failure of it.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from enum import IntEnum
from typing import Final

from aiohttp import web

from broker_layer.kafka.error_codes import ErrorCode
from broker_layer.kafka.messages import FindCoordinatorRequest, FindCoordinatorResponse
from broker_layer.peer import PeerAddress
from quire.console.access import READING
from quire.console.context import ConsoleContext, Handler
from quire.errors import ExitCode
from quire.operate.brokers import (
    CHECK_LOGS,
    BrokerAccess,
    NoBrokerError,
    TopicRefusedError,
    open_registered,
)
from quire.operate.watch import registered_brokers

CLIENT_NAME: Final = "quire-console"
ANSWER_S: Final = 4.0
"""Time for one answer of one broker."""
PAGE_S: Final = 8.0
"""Time for all answers of one page."""
COORDINATORS_MAX: Final = 1_000
"""Maximum number of groups or transactional ids whose coordinators a page looks for."""

BrokerHandler = Callable[[web.Request, BrokerAccess], Awaitable[web.StreamResponse]]


class KeyType(IntEnum):
    """What a coordinator is looked for."""

    GROUP = 0
    TRANSACTION = 1


@asynccontextmanager
async def cluster_brokers(context: ConsoleContext) -> AsyncIterator[BrokerAccess]:
    """Find the brokers of the cluster. Raises NoBrokerError, MetadataError."""
    cluster = context.cluster
    registrations = await registered_brokers(cluster.store, cluster.rng)
    async with open_registered(
        CLIENT_NAME, registrations, context.identity, cluster.rng, timeout_s=ANSWER_S
    ) as brokers:
        yield brokers


@asynccontextmanager
async def page_brokers(context: ConsoleContext) -> AsyncIterator[BrokerAccess]:
    """Find the brokers for one page, which they may delay by PAGE_S. Raises NoBrokerError; raises
    HTTPNotFound for a topic, group or id that does not exist, HTTPConflict for another refusal.
    """
    try:
        async with asyncio.timeout(PAGE_S), cluster_brokers(context) as brokers:
            yield brokers
    except TimeoutError as error:
        text = f"the brokers did not answer within {PAGE_S:.0f} s"
        raise NoBrokerError(text, try_next=CHECK_LOGS) from error
    except TopicRefusedError as error:
        if error.code is ExitCode.NOT_FOUND:
            raise web.HTTPNotFound(text=str(error)) from error
        raise web.HTTPConflict(text=str(error)) from error


def with_brokers(context: ConsoleContext, title: str, handler: BrokerHandler) -> Handler:
    """Return the handler of a page that needs brokers; while they are away, a notice."""

    async def handle(request: web.Request) -> web.StreamResponse:
        try:
            async with page_brokers(context) as brokers:
                return await handler(request, brokers)
        except NoBrokerError as error:
            is_read = request.method in READING
            return context.page(
                request,
                "brokers_away.html",
                status=200 if is_read else 503,
                title=title,
                text=str(error),
                try_next=error.try_next,
            )

    return handle


async def coordinators_of(
    brokers: BrokerAccess, keys: Sequence[str], kind: KeyType
) -> dict[str, PeerAddress]:
    """Return the coordinators of groups or transactional ids, without those that have none now."""
    request = FindCoordinatorRequest(
        key_type=kind, coordinator_keys=list(dict.fromkeys(keys))[:COORDINATORS_MAX]
    )
    answer = await brokers.ask(request, FindCoordinatorResponse)
    return {
        coordinator.key: PeerAddress(coordinator.node_id, coordinator.host, coordinator.port)
        for coordinator in answer.coordinators
        if coordinator.error_code == ErrorCode.NONE
    }


async def coordinator_of(brokers: BrokerAccess, key: str, kind: KeyType) -> PeerAddress:
    """Return the coordinator of a group or a transactional id. Raises NoBrokerError."""
    address = (await coordinators_of(brokers, [key], kind)).get(key)
    if address is None:
        text = f"no broker coordinates {key!r} now"
        raise NoBrokerError(text, try_next=CHECK_LOGS)
    return address
