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
                "    return applied.batch >= wanted.batch\n",
                "    return applied.batch > wanted.batch\n",
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
                "quire/operate/appends.py",
                "            _require_unclaimed(stored)\n            custom =",
                "            if stored.state is not LedgerState.OPEN:\n"
                "                _require_unclaimed(stored)\n"
                "            custom =",
            ),
        ),
        (simulation("metadata"),),
    ),
)
