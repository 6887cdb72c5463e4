"""Seeded bugs of chains of ledgers, and of claims of ledgers without a writer.

Leaves ledgers themselves to the other families.

Source: protocol rules 1.2, 1.3, 10.1 and 10.2; Spark design, "Writing: exactly once".
"""

from tests.seeded_bugs.seeded_bug import Edit, SeededBug, simulation

STORE = "metadata/ledgers/chain_store.py"

BUGS = (
    SeededBug(
        "batch-published-twice",
        "A batch is published although its application published it before: two writers of one"
        " application publish it twice.",
        ("1.2",),
        (
            Edit(
                STORE,
                "                if applied is not None and applied[0].batch >= link.batch:\n",
                "                if applied is not None and applied[0].batch > link.batch:\n",
            ),
        ),
        (simulation("metadata"),),
    ),
    SeededBug(
        "ledger-claimed-twice",
        "A client whose claim meets another one claims the ledger all the same: it has two"
        " writers.",
        ("1.2",),
        (
            Edit(
                "quire/claims.py",
                "            _require_unclaimed(found)\n            custom =",
                "            if found.state is not LedgerState.OPEN:\n"
                "                _require_unclaimed(found)\n"
                "            custom =",
            ),
        ),
        (simulation("metadata"),),
    ),
    SeededBug(
        "ledger-collected-while-it-is-published",
        "A collection lists the links of a chain before it refuses older ledgers: it deletes a"
        " ledger that is published in between.",
        ("10.1",),
        (
            Edit(
                "ledger_client/chains.py",
                "        async with self._call(services, timeout):\n"
                "            head = await services.chains.refuse_older(self.name, before_ms)\n"
                "        linked = await self._linked_ids("
                "head.first_index, head.next_index, timeout)\n",
                "        known = await self.info(timeout=timeout)\n"
                "        linked = await self._linked_ids("
                "known.first_index, known.next_index, timeout)\n"
                "        async with self._call(services, timeout):\n"
                "            head = await services.chains.refuse_older(self.name, before_ms)\n",
            ),
        ),
        (simulation("metadata"),),
    ),
)
