"""Seeded bugs of chains of ledgers, and of claims of ledgers without a writer.

Leaves ledgers themselves to the other families. `reviewed` has one more bug of chains.

Source: protocol rules 1.2, 1.3, 10.1 and 10.2; Spark design, "Writing: exactly once".
"""

from tests.seeded_bugs.seeded_bug import (
    Edit,
    SeededBug,
    hidden_from_model,
    hidden_from_simulation,
    simulation,
    units,
)

STORE = "metadata/ledgers/chain_store.py"
STORE_TESTS = "tests/unit/metadata/ledgers/test_chain_store.py"
LIFE_TESTS = "tests/unit/metadata/ledgers/test_chain_life.py"
NO_CHAINS = hidden_from_model("the model has ledgers, and no chains")

BUGS = (
    SeededBug(
        "batch_published_again",
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
        (units(STORE_TESTS), simulation("metadata")),
        (NO_CHAINS,),
    ),
    SeededBug(
        "unknown_publication_repeated",
        "A publication whose answer was lost is sent again without a look at the link that it may"
        " have stored.",
        ("1.3",),
        (
            Edit(
                STORE,
                "                if outcome is _Outcome.UNKNOWN:\n"
                "                    tried_index = head.next_index\n",
                "",
            ),
        ),
        (units(STORE_TESTS), simulation("metadata")),
        (NO_CHAINS,),
    ),
    SeededBug(
        "change_of_a_deleted_chain",
        "A change that was sent for a deleted chain takes effect on the chain that was created"
        " again under its name.",
        ("1.2", "10.2"),
        (
            Edit(
                STORE,
                "        return await chain_life(self._store, check_chain_name(name))\n",
                "        return ()\n",
            ),
        ),
        (units(LIFE_TESTS),),
        (
            NO_CHAINS,
            hidden_from_simulation(
                "a call for the deleted chain would have to outlast the removal, the next creation"
                " and a publication, which are many more calls"
            ),
        ),
    ),
    SeededBug(
        "creation_token_used_again",
        "A creation whose answer was lost is repeated with the same creation token, although the"
        " chain may have been deleted in between.",
        ("1.3",),
        (
            Edit(
                "metadata/ledgers/chain_creation.py",
                "    while True:\n"
                "        # Another token each time: an earlier chain of ours may have been deleted"
                " by now.\n"
                "        token = UpdateToken(rng.randbytes(UPDATE_TOKEN_BYTES))\n",
                "    token = UpdateToken(rng.randbytes(UPDATE_TOKEN_BYTES))\n    while True:\n",
            ),
        ),
        (units(LIFE_TESTS), simulation("metadata")),
        (NO_CHAINS,),
    ),
    SeededBug(
        "ledgers_linked_without_a_look",
        "A publication does not look whether its ledgers still exist: a ledger that was withdrawn"
        " or collected is linked.",
        ("10.1",),
        (
            Edit(
                STORE,
                "                await self._require_ledgers(link)\n",
                "",
            ),
            Edit(
                "metadata/ledgers/chain.py",
                "            if ledger.created_ms < self.collected_before_ms:\n",
                "            if ledger.created_ms < 0:\n",
            ),
        ),
        (units(STORE_TESTS), simulation("metadata")),
        (NO_CHAINS,),
        masked_by="ledgers that are older than the last collection are refused without a look",
    ),
    SeededBug(
        "claimed_twice",
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
        (units("tests/unit/quire/test_claims.py"), simulation("metadata")),
        (NO_CHAINS,),
    ),
)
