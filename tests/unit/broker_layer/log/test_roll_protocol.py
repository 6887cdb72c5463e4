"""Tests of all reachable states of a log's ledgers against a model that performs the actions.

Leaves the actions of single steps to the transcripts in `tests/scenarios/rolling/`.
"""

from copy import deepcopy
from dataclasses import astuple, dataclass
from typing import Final

import pytest

from broker_layer.errors import TopicError
from broker_layer.kafka.error_codes import ErrorCode
from broker_layer.log import roll_protocol as e
from broker_layer.log.roll_protocol import RollProtocol, Work

REFUSED: Final = e.WorkRefused(TopicError(ErrorCode.KAFKA_STORAGE_ERROR, "test"))
EVENTS: Final = (
    e.LedgerWanted(),
    e.LedgerGrown(0.5, is_next_usable=True),
    e.LedgerGrown(1.0, is_next_usable=True),
    e.LedgerGrown(1.0, is_next_usable=False),
    e.EndRequested(),
    e.Abandoned(),
)
WORK_MAX: Final = 10
"""Maximum number of pieces of work that follow the request of the end, if none is refused."""


@dataclass
class Shell:
    """What the actions of one protocol have done. The ledgers are numbers."""

    protocol: RollProtocol
    is_filling: bool
    work: Work | None = None
    has_next: bool = False
    is_next_listed: bool = False
    is_next_filled: bool = False
    is_open: bool = False
    is_open_listed: bool = False
    is_draining: bool = False
    is_draining_closed: bool = False
    is_change_done: bool = False
    has_ended: bool = False

    def state(self) -> tuple[object, ...]:
        """Return a value that is equal for shells that act alike from now on."""
        protocol = tuple(sorted(vars(self.protocol).items()))
        return (protocol, *astuple(self)[1:])

    def handle(self, event: e.RollEvent) -> list[e.RollAction]:
        work = self.work
        if isinstance(event, e.WorkDone | e.WorkRefused):
            assert work is not None
            self.work = None
        if isinstance(event, e.WorkDone):
            self._complete(work)
        actions = self.protocol.handle(event)
        assert not (self.has_ended and actions), "nothing follows the end"
        is_changing = work is Work.LIST and not isinstance(event, e.WorkRefused)
        may_be_listed = self.is_next_listed or is_changing
        for action in actions:
            self._perform(action, may_be_listed=may_be_listed)
        self.has_ended = self.protocol.has_ended
        assert not self.has_ended or not self.has_next, "no ledger is left behind"
        return actions

    def _complete(self, work: Work | None) -> None:
        match work:
            case Work.CREATE:
                self.has_next = True
            case Work.CLOSE | Work.RECOVER:
                self.is_draining_closed = True
            case Work.LIST:
                self.is_change_done = True
                self.is_next_listed = self.has_next
                self.is_open_listed = self.is_open
            case Work.FILL:
                self.is_next_filled = True
            case Work.PAUSE | None:
                pass

    def _perform(self, action: e.RollAction, *, may_be_listed: bool) -> None:
        match action:
            case e.StartWork(next_work):
                assert self.work is None, "one piece of work is under way"
                self.work = next_work
                self._check_start(next_work)
            case e.UseNext():
                assert self.has_next
                assert not self.is_open
                assert not self.is_filling or self.is_next_filled
                assert self.is_next_listed or self.is_draining
                self.is_open, self.is_open_listed = True, self.is_next_listed
                self._forget_next()
            case e.Complete():
                assert self.is_change_done
                assert self.is_open_listed or not self.is_open
                self.is_draining = self.is_draining_closed = self.is_change_done = False
            case e.DropNext(is_listed):
                assert is_listed or not may_be_listed
                self._forget_next()
            case e.RefuseAppends():
                assert not self.is_open
                assert not self.is_draining
            case e.AbortAll():
                self.work = None
                self.is_open = self.is_draining = False

    def _forget_next(self) -> None:
        self.has_next = self.is_next_listed = self.is_next_filled = False

    def _check_start(self, work: Work) -> None:
        match work:
            case Work.CREATE:
                assert not self.has_next
            case Work.CLOSE:
                assert self.is_open
                assert self.is_open_listed, "its predecessor is closed"
                self.is_open, self.is_draining = False, True
            case Work.RECOVER:
                assert self.is_draining
                assert not self.is_draining_closed
            case Work.LIST:
                assert self.is_draining_closed or not self.is_draining
                assert self.is_draining or self.has_next
            case Work.FILL:
                assert self.is_filling
                assert self.is_next_listed
            case Work.PAUSE:
                assert self.is_open
                assert not self.has_next


def reachable(*, is_filling: bool) -> list[Shell]:
    """Return a shell in each reachable state; every way to it keeps the model's rules."""
    protocol = RollProtocol(early_share=0.5, fills_first=is_filling)
    first = Shell(protocol, is_filling)
    known = {first.state(): first}
    fresh = [first]
    while fresh:
        shell = fresh.pop()
        outcomes = () if shell.work is None else (e.WorkDone(), REFUSED)
        for event in (*EVENTS, *outcomes):
            if event == REFUSED and shell.work in (Work.FILL, Work.PAUSE):
                continue  # the shell fails the log instead
            after = deepcopy(shell)
            after.handle(event)
            if after.state() not in known:
                known[after.state()] = after
                fresh.append(after)
    return list(known.values())


@pytest.mark.parametrize("is_filling", [False, True])
def test_no_state_breaks_the_rules_of_the_ledgers(*, is_filling: bool) -> None:
    assert len(reachable(is_filling=is_filling)) > 30


@pytest.mark.parametrize("is_filling", [False, True])
def test_every_state_ends_when_nothing_is_refused(*, is_filling: bool) -> None:
    for shell in reachable(is_filling=is_filling):
        shell.handle(e.EndRequested())
        for _ in range(WORK_MAX):
            if shell.work is not None:
                shell.handle(e.WorkDone())
        assert shell.has_ended
        assert not shell.is_open
        assert not shell.is_draining


@pytest.mark.parametrize("is_filling", [False, True])
def test_every_state_can_be_abandoned(*, is_filling: bool) -> None:
    for shell in reachable(is_filling=is_filling):
        was_ended, work = shell.has_ended, shell.work
        actions = shell.handle(e.Abandoned())
        is_listed = work in (Work.LIST, Work.FILL)
        assert actions == ([] if was_ended else [e.AbortAll(), e.DropNext(is_listed=is_listed)])
        assert shell.has_ended


@pytest.mark.parametrize("is_filling", [False, True])
def test_refused_work_is_tried_again_or_refuses_appends(*, is_filling: bool) -> None:
    for shell in reachable(is_filling=is_filling):
        if shell.work in (None, Work.FILL, Work.PAUSE) or shell.has_ended:
            continue
        refused, is_written = shell.work, shell.is_open or shell.is_draining
        actions = shell.handle(REFUSED)
        if is_written:
            follows = {Work.CREATE: Work.PAUSE, Work.LIST: Work.LIST}.get(refused, Work.RECOVER)
            assert isinstance(actions[0], e.StartWork)
            assert actions[0].work is follows
            assert 0.1 <= actions[0].after_s <= 2
        else:
            assert actions[-1] == e.RefuseAppends(REFUSED.error)
            assert shell.work is None
