"""Each rule of a chain and of a claim that a stored change can break is noticed."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import replace

import pytest

from metadata.ids import LedgerId, UpdateToken, Version
from metadata.ledgers.chain import HEAD_CODEC, LINK_CODEC, ChainHead, ChainLink, LinkedLedger
from metadata.ledgers.chain_store import Published
from metadata.ledgers.ledger_metadata import UNCLAIMED_NAME
from metadata.msgpack_fields import pack
from metadata.paths import CHAINS, chain_creation_path, chain_link_path, chain_path
from metadata.store.interface import CompareAndSet, Create, Delete, Operation
from metadata.store.memory import MemoryMetadataServer
from tests.simulation.chains.answers import ChainAnswers
from tests.simulation.chains.chain_checker import ChainChecker
from tests.simulation.checkers.client_promises import OneWriterChecker
from tests.simulation.loop import SimulationLoop
from tests.simulation.model import Model
from tests.support.metadata.samples import open_ledger

NAME = "orders"
PATH = chain_path(NAME)
LEDGER = 7


def token(number: int) -> UpdateToken:
    return UpdateToken(bytes([number]) * 16)


class Chains:
    """A metadata service, and the checker of its chains."""

    def __init__(self, model: Model) -> None:
        self.model = model
        self._server = MemoryMetadataServer()
        self._session = self._server.open_session(self)
        model.ledger(LEDGER).metadata = open_ledger(LedgerId(LEDGER))
        self.checker = ChainChecker(model, self._server)
        self.answers = ChainAnswers(self.checker)
        self.apply(Create(CHAINS, b""))
        self._version = 0
        self.head = ChainHead(token(1))

    def notice(self, _change: object) -> None:
        """See `Session`."""

    def apply(self, *operations: Operation) -> None:
        self._server.apply(self._session, operations)

    def create(self, creation: int) -> None:
        self._version, self.head = 0, ChainHead(token(creation))
        stored = pack("creation", [1, token(creation)])
        self.apply(
            Create(PATH, HEAD_CODEC.pack(PATH, self.head)),
            Create(chain_creation_path(NAME), stored),
        )

    def change(self, head: ChainHead, *others: Operation) -> None:
        self.head, before = head, self._version
        self._version += 1
        self.apply(CompareAndSet(PATH, HEAD_CODEC.pack(PATH, head), Version(before)), *others)

    def publish(self, batch: int, *, counted: int = 1) -> None:
        index = self.head.next_index
        link = ChainLink((LinkedLedger(LedgerId(LEDGER), 1),), 1, token(9), "query", batch)
        path = chain_link_path(NAME, index)
        above = path.rpartition("/")[0]
        if index == 0:
            parents = [above.rsplit("/", depth)[0] for depth in (2, 1, 0)]
            for parent in parents:
                self.apply(Create(parent, b""))
        head = replace(self.head, next_index=index + counted, token=token(9))
        self.change(head, Create(path, LINK_CODEC.pack(path, link)))

    def delete(self) -> None:
        self.change(self.head.with_deletion(token(8)))
        for path in self._below(PATH):
            self.apply(Delete(path, self._server.tree.get(path).version))

    def _below(self, path: str) -> list[str]:
        names = self._server.tree.children(path)
        return [each for name in names for each in self._below(f"{path}/{name}")] + [path]


@pytest.fixture
def chains() -> Iterator[Chains]:
    with closing(SimulationLoop(1)) as loop:
        chains = Chains(Model(loop))
        chains.create(1)
        yield chains


def texts(chains: Chains) -> Sequence[str]:
    return [violation.text for violation in chains.model.violations]


def test_what_a_chain_may_do_is_no_violation(chains: Chains) -> None:
    chains.publish(0)
    chains.publish(1)
    chains.change(chains.head.with_first_index(1, token(3)))
    chains.apply(Delete(chain_link_path(NAME, 0), Version(0)))
    chains.delete()
    chains.create(2)
    chains.publish(0)
    assert texts(chains) == []


def _come_back(chains: Chains) -> None:
    chains.change(chains.head.with_deletion(token(8)))
    chains.change(replace(chains.head, is_deleted=False))


def _use_a_token_again(chains: Chains) -> None:
    chains.delete()
    chains.create(1)


BREAKS: dict[str, Callable[[Chains], None]] = {
    "after 0": lambda chains: chains.publish(0),
    "skipped links": lambda chains: chains.publish(1, counted=2),
    "went back": lambda chains: chains.change(replace(chains.head, next_index=0)),
    "was removed": lambda chains: chains.apply(Delete(chain_link_path(NAME, 0), Version(0))),
    "creation token": lambda chains: chains.apply(Delete(chain_creation_path(NAME), Version(0))),
    "came back": _come_back,
    "of an earlier chain": _use_a_token_again,
}


@pytest.mark.parametrize("text", BREAKS)
def test_a_broken_rule_is_noticed(chains: Chains, text: str) -> None:
    chains.publish(0)
    BREAKS[text](chains)
    assert text in texts(chains)[0]


def test_a_linked_ledger_must_not_be_deleted(chains: Chains) -> None:
    chains.publish(0)
    ledger = chains.model.ledger(LEDGER)
    before, ledger.metadata = ledger.metadata, None
    chains.checker.on_metadata(ledger, before)
    assert "links it" in texts(chains)[0]


def test_an_answer_is_compared_with_the_links(chains: Chains) -> None:
    chains.publish(0)
    wanted: tuple[tuple[()], str, int] = ((), "query", 0)
    chains.answers.on_published(NAME, 0.0, wanted, Published(0, is_new=False))
    assert texts(chains) == []
    chains.answers.on_published(NAME, 0.0, wanted, Published(0, is_new=True))
    assert "no such link" in texts(chains)[0]


def test_a_ledger_has_one_writer_for_life(chains: Chains) -> None:
    checker, ledger = OneWriterChecker(chains.model), chains.model.ledger(LEDGER)
    claimed = ledger.metadata
    assert claimed is not None
    ledger.metadata = replace(claimed, writer=type(claimed.writer)("another"))
    checker.on_metadata(ledger, replace(claimed, custom={UNCLAIMED_NAME: "1"}))
    assert texts(chains) == []
    checker.on_metadata(ledger, claimed)
    assert "had the writer" in texts(chains)[0]
    chains.answers.on_claimed(LEDGER, "one")
    chains.answers.on_claimed(LEDGER, "two")
    assert "claimed by one" in texts(chains)[1]
