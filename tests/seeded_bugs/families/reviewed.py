"""Seeded bugs that a review planted and no test noticed, until tests were written for their class.

Leaves the others to the families of their areas. docs/seeded-bugs.md names the class of each.

Source: protocol rules 3.2, 4.1, 5.1, 8.1, 8.4, 9.2 and 10.1.
"""

from tests.seeded_bugs.seeded_bug import (
    SCENARIOS,
    SHELL_ONLY,
    Edit,
    SeededBug,
    hidden_from_model,
    hidden_from_simulation,
    simulation,
    units,
)

WINDOW_TESTS = "tests/unit/ledger_client/writing/test_window.py"
READER_TESTS = "tests/unit/ledger_client/reading/test_followed_ledger.py"
NO_READERS = hidden_from_model("the model has no readers that are not recoveries")

BUGS = (
    SeededBug(
        "dies_at_its_second_change",
        "A writer ends with an error at its second ensemble change, as if its ledger had too many"
        " fragments.",
        ("5.1",),
        (
            Edit(
                "ledger_client/protocol/append.py",
                "        if is_new and len(metadata.fragments) >= FRAGMENTS_MAX:\n",
                "        if is_new and len(metadata.fragments) >= 2:\n",
            ),
        ),
        (units(SCENARIOS), simulation()),
        (hidden_from_model("a writer that ends with an error breaks no rule of safety"),),
    ),
    SeededBug(
        "cancelled_caller_keeps_the_turn",
        "A caller that is cancelled in the loop iteration in which it gets the turn to append does"
        " not pass it on: all callers after it wait for ever.",
        ("4.1",),
        (
            Edit(
                "ledger_client/writing/window.py",
                "                self._pass_turn()"
                "  # it got the turn in the loop iteration of the cancellation\n",
                "                pass\n",
            ),
        ),
        (units(WINDOW_TESTS), simulation("changes")),
        (SHELL_ONLY,),
    ),
    SeededBug(
        "caller_passes_the_line",
        "An append that finds room is admitted before callers that wait: it takes an id in the"
        " middle of the range of an append_many.",
        ("4.1",),
        (
            Edit(
                "ledger_client/writing/window.py",
                "        return not self._in_line and self.has_room(payload_bytes)\n",
                "        return self.has_room(payload_bytes)\n",
            ),
        ),
        (units(WINDOW_TESTS), simulation("changes")),
        (SHELL_ONLY,),
    ),
    SeededBug(
        "news_during_a_read_dropped",
        "A reader that reads changed metadata drops the changes that are reported during the read.",
        ("8.4",),
        (
            Edit(
                "ledger_client/reading/followed_ledger.py",
                "            self._rereads_wanted -= wanted\n",
                "            self._rereads_wanted = 0\n",
            ),
        ),
        (units(f"{READER_TESTS}::test_a_change_during_the_read_of_another_one_is_read_too"),),
        (
            NO_READERS,
            hidden_from_simulation("the close, which follows every change, is reported later"),
        ),
    ),
    SeededBug(
        "lac_of_the_first_answer",
        "A read of the LAC ends with the first bookie that answers, though an ack quorum of others"
        " may know a newer one.",
        ("3.2", "8.1"),
        (
            Edit(
                "ledger_client/reading/lac_reading.py",
                "            if covers(quorum, known):\n",
                "            if known:\n",
            ),
        ),
        (units(f"{READER_TESTS}::test_the_lac_is_as_fresh_as_an_ack_quorum"),),
        (NO_READERS, hidden_from_simulation("an old LAC is true: no checker asks how old it is")),
    ),
    SeededBug(
        "collected_while_it_is_published",
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
        (units("tests/unit/ledger_client/test_chain_collection.py"), simulation("metadata")),
        (hidden_from_model("the model has ledgers, and no chains"),),
    ),
    SeededBug(
        "lease_counted_from_the_answer",
        "The lease of a new session counts from the server's answer, not from the request: a client"
        " counts on a session that the server has ended.",
        ("9.2",),
        (
            Edit(
                "metadata/store/zookeeper/session.py",
                "            contacted_s = self._loop.time()\n"
                "            try:\n"
                "                timeouts = plain_connect(host, address, port)\n",
                "            try:\n"
                "                timeouts = plain_connect(host, address, port)\n"
                "                contacted_s = self._loop.time()\n",
            ),
        ),
        (units("tests/unit/metadata/store/test_zookeeper_session.py"),),
        (
            hidden_from_model("the model's metadata service has no sessions"),
            hidden_from_simulation("the simulation has a store of its own in place of ZooKeeper's"),
        ),
    ),
)
