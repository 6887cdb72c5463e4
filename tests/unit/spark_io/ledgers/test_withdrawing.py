"""Ledgers of an attempt are deleted only if the chain of now does not link them."""

from types import SimpleNamespace
from typing import Any, cast

import pytest

pytest.importorskip("pyspark", reason="needs the extra `spark`")

from ledger_client import LinkedLedger
from metadata.ids import LedgerId
from spark_io.ledgers import write
from spark_io.ledgers.options import WriteOptions
from spark_io.ledgers.write import WrittenLedgers, withdraw

THEN, NOW = b"\1" * 16, b"\2" * 16


@pytest.mark.parametrize(("token", "since_index"), [(THEN, 5), (NOW, 0)])
def test_links_of_a_chain_created_again_are_all_looked_at(
    token: bytes, since_index: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A number of the chain of before says nothing about the links of the chain of now."""
    asked: list[tuple[list[int], int]] = []
    chain = SimpleNamespace(
        info=lambda: SimpleNamespace(creation_token=token),
        withdraw=lambda ids, *, since_index: asked.append((ids, since_index)),
    )
    client = SimpleNamespace(chain=lambda _: chain)
    monkeypatch.setattr(write, "client_of", lambda _: cast("Any", client))
    options = WriteOptions.of({"metadata": "zk://127.0.0.1:2181/quire", "chain": "events"})
    messages = [
        WrittenLedgers((LinkedLedger(LedgerId(number), 1, None, None),), 5 + number, THEN, "")
        for number in (0, 1)
    ]
    withdraw(messages, options)
    assert asked == [([0, 1], since_index)]
