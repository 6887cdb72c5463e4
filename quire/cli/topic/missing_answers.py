"""Remark of `quire topic produce` when brokers acknowledge nothing for some seconds.

Leaves the records, and giving up, to `topic_data`.

Invariant: it only reads; a cluster that cannot be read is one of the reasons that it names.
"""

import argparse
import asyncio
import os
import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final, Generic, Protocol, TypeVar

from ledger_client.bookies.connection_calls import BookieCallError
from ledger_client.bookies.pool import BookiePool
from ledger_client.cluster_access import open_cluster
from metadata.errors import MetadataError
from metadata.ids import BookieId
from metadata.registry.registration import BookieRegistration
from quire.cli.command_line import METADATA_VARIABLE, metadata_address
from quire.identity.errors import SecurityError
from quire.operate.findings import names
from quire.server.overriding import override

QUIET_S: Final = 3.0
"""Time without an acknowledgement after which the reason is looked up."""
LOOK_S: Final = 0.5
PING_S: Final = 1.0
"""Time for the answer of one bookie."""
BOOKIES_ASKED_MAX: Final = 64
LOOK_UP_S: Final = 10.0
"""Maximum time of looking up the reason."""
SEE_LOGS: Final = "the brokers' logs may say why"


class Answer(Protocol):
    """A record on its way: what a producer of kafka-python returns."""

    @property
    def is_done(self) -> bool:
        """Whether it was acknowledged or refused."""


AnswerT = TypeVar("AnswerT", bound=Answer)


class MissingAnswers(threading.Thread, Generic[AnswerT]):
    """Thread that says once why the oldest record is not acknowledged.

    `waiting` are the records on their way, oldest first; `remark` prints a sentence.
    """

    def __init__(
        self,
        waiting: deque[AnswerT],
        find_reason: Callable[[], str],
        remark: Callable[[str], None],
        quiet_s: float = QUIET_S,
    ) -> None:
        super().__init__(name="missing-answers", daemon=True)
        self._waiting = waiting
        self._find_reason = find_reason
        self._remark = remark
        self._quiet_s = quiet_s
        self._ended = threading.Event()
        self.reason = ""
        """The printed reason; empty if none was printed."""

    @override
    def run(self) -> None:
        """Watch until the reason was printed, or until `end`."""
        oldest: AnswerT | None = None
        quiet_s = 0.0
        while not self._ended.wait(LOOK_S):
            first = _first(self._waiting)
            quiet_s = quiet_s + LOOK_S if first is oldest else 0.0
            oldest = first
            if oldest is None or oldest.is_done or quiet_s < self._quiet_s:
                continue
            reason = self._find_reason()
            if not oldest.is_done:
                self.reason = reason
                silence = f"no record was acknowledged for {quiet_s:g} s"
                self._remark(f"{silence}: {reason}; it is still being sent")
            return

    def end(self) -> None:
        """Stop watching."""
        self._ended.set()


def _first(waiting: deque[AnswerT]) -> AnswerT | None:
    try:
        return waiting[0]
    except IndexError:
        return None


def reason_of_silence(arguments: argparse.Namespace) -> str:
    """Return why brokers may acknowledge nothing, as far as the metadata shows it."""
    if arguments.bootstrap and not (arguments.metadata or os.environ.get(METADATA_VARIABLE)):
        return SEE_LOGS
    try:
        return asyncio.run(_read_reason(metadata_address(arguments)))
    except TimeoutError:
        return f"the metadata was not read in {LOOK_UP_S:g} s either"
    except MetadataError as error:
        return f"the metadata cannot be read: {error}"


async def _read_reason(address: str) -> str:
    async with asyncio.timeout(LOOK_UP_S), open_cluster(address) as cluster:
        up = list(cluster.directory.bookies.values())
        pool = cluster.open_pool()
        try:
            asked = up[:BOOKIES_ASKED_MAX]
            answers = await asyncio.gather(*(_answers(pool, each.bookie_id) for each in asked))
        finally:
            await pool.aclose()
    return _reason_of(up, [each for each, answer in zip(asked, answers, strict=True) if not answer])


async def _answers(pool: BookiePool, bookie_id: BookieId) -> bool:
    try:
        await pool.ping(bookie_id, timeout_s=PING_S)
    except (BookieCallError, SecurityError):
        return False
    return True


def _reason_of(up: Sequence[BookieRegistration], silent: Sequence[BookieRegistration]) -> str:
    if not up:
        return "no bookie is up: start bookies (quire bookie run --help)"
    if silent:
        shown = names([each.bookie_id for each in silent])
        return f"{len(silent)} of {len(up)} bookies do not answer ({shown}): see quire bookie list"
    writable = sum(each.writable for each in up)
    if not writable:
        return f"none of {len(up)} bookies takes new entries: quire cluster health says why"
    return f"{writable} bookies take new entries: if a topic needs more, start more; {SEE_LOGS}"
