"""Seeded bugs of the store over several ZooKeeper servers: a leader that was replaced, a session
that moves, lost watches and answers, a server that lags or is silent.

Leaves what the modules above the store make of its answers to `metadata`.

Source: protocol section 1; metadata design; kazoo 2.10-2.11.
"""

from tests.seeded_bugs.seeded_bug import (
    SHELL_ONLY,
    Edit,
    SeededBug,
    hidden_from_simulation,
    units,
)

ZOOKEEPER = "metadata/store/zookeeper/store.py"
SESSION = "metadata/store/zookeeper/session.py"
TESTS = "tests/unit/metadata/store"
SERVERS = f"{TESTS}/test_zookeeper_servers.py"
BLIND = (
    SHELL_ONLY,
    hidden_from_simulation("its metadata service is in memory, without ZooKeeper and kazoo"),
)

BUGS = (
    SeededBug(
        "repeated_read_is_not_synced",
        "After a lost connection the store repeats an agreed or fresh read without what goes"
        " before it: the next server, which lags, answers with an older state.",
        ("1.6",),
        (
            Edit(
                ZOOKEEPER,
                "                    except CONNECTION_ERRORS:\n"
                "                        await self._wait_after_loss()\n",
                "                    except CONNECTION_ERRORS:\n"
                "                        fresh = agreed = False\n"
                "                        await self._wait_after_loss()\n",
            ),
        ),
        (units(f"{SERVERS}::test_an_agreed_read_moves_to_a_server_that_has_a_quorum"),),
        BLIND,
    ),
    SeededBug(
        "fresh_reads_together_pass_their_sync",
        "Reads that are asked for together are sent at once, ahead of the syncs that they wait for:"
        " a server that lags answers with an older state.",
        ("1.6",),
        (
            Edit(
                ZOOKEEPER,
                "                        ahead = self._submit_ahead(",
                "                        reading = call()\n"
                "                        await asyncio.sleep(0)\n"
                "                        ahead = self._submit_ahead(",
            ),
            Edit(
                ZOOKEEPER,
                "                        reading = call()\n                        if ahead:\n",
                "                        if ahead:\n",
            ),
        ),
        (units(f"{TESTS}/test_zookeeper_grouped_reads.py"),),
        BLIND,
    ),
    SeededBug(
        "missing_node_shifts_results_of_a_multi_read",
        "The error of a missing node is left out of the results of a request that reads several:"
        " later reads get the values of other nodes.",
        ("1.6",),
        (
            Edit(
                "metadata/store/zookeeper/multi_read.py",
                "                results.append(EXCEPTIONS[code]())\n",
                "",
            ),
            Edit(
                "metadata/store/zookeeper/multi_read.py",
                "        if len(results) != len(self._reads):\n",
                "        results += [EXCEPTIONS[-101]()] * (len(self._reads) - len(results))\n"
                "        if len(results) != len(self._reads):\n",
            ),
        ),
        (units(f"{TESTS}/test_zookeeper_grouped_reads.py"),),
        BLIND,
    ),
    SeededBug(
        "moved_session_counts_as_refused",
        "A request of a session that has moved to another server counts as not applied: a write"
        " that may apply is reported as refused, and a read fails.",
        ("1.3",),
        (
            Edit(
                "metadata/store/zookeeper/calls.py",
                "    kazoo_errors.SessionMovedError,\n",
                "",
            ),
            Edit(
                "metadata/store/zookeeper/calls.py",
                "BUSY_ERRORS: Final = (kazoo_errors.NotReadOnlyCallError,",
                "BUSY_ERRORS: Final = (kazoo_errors.SessionMovedError,"
                " kazoo_errors.NotReadOnlyCallError,",
            ),
        ),
        (units(SERVERS),),
        BLIND,
    ),
    SeededBug(
        "watches_lost_with_a_connection",
        "Watches are armed again for a new session only, not for a new connection of the same one:"
        " changes made meanwhile, and all later ones, are not reported.",
        ("11.7",),
        (
            Edit(
                ZOOKEEPER,
                "        self._session_clock.note_link(event)\n"
                "        if isinstance(event, LinkUp):\n",
                "        known = self._session_clock.session_id\n"
                "        self._session_clock.note_link(event)\n"
                "        if isinstance(event, LinkUp) and event.session_id != known:\n",
            ),
        ),
        (units(f"{TESTS}/test_zookeeper_lost_watches.py"),),
        BLIND,
    ),
    SeededBug(
        "missed_changes_not_reported",
        "Watches that were lost with a connection are armed again, and no callback runs for what"
        " changed meanwhile.",
        ("11.7",),
        (
            Edit(
                "metadata/store/zookeeper/watches.py",
                "        if self._is_live(entry) and entry.reported != found:\n",
                "        if self._is_live(entry) and entry.reported is None:\n"
                "            entry.reported = found\n"
                "        if self._is_live(entry) and entry.reported != found:\n",
            ),
        ),
        (units(f"{TESTS}/test_zookeeper_lost_watches.py"),),
        BLIND,
    ),
    SeededBug(
        "write_without_an_answer_is_sent_again",
        "The store repeats a write whose answer was lost, and reports the conflict with itself.",
        ("1.3",),
        (
            Edit(
                ZOOKEEPER,
                "                sent_s = loop.time()\n"
                "                answer = await call()\n"
                "                self._contacted(sent_s)\n",
                "                sent_s = loop.time()\n"
                "                try:\n"
                "                    answer = await call()\n"
                "                except CONNECTION_ERRORS:\n"
                "                    await self._wait_after_loss()\n"
                "                    await self._wait_until_up()\n"
                "                    answer = await call()\n"
                "                self._contacted(sent_s)\n",
            ),
        ),
        (units(f"{TESTS}/test_zookeeper_lost_answers.py"),),
        BLIND,
    ),
    SeededBug(
        "new_session_drops_what_was_seen",
        "A new session may begin at a server that is behind what the process has read: it reads an"
        " older state.",
        ("1.6",),
        (
            Edit(
                SESSION,
                "            self._client.last_zxid = self._newest_zxid\n",
                "",
            ),
        ),
        (units(f"{SERVERS}::test_a_server_that_is_behind_is_not_used"),),
        BLIND,
    ),
    SeededBug(
        "busy_session_stays_at_a_silent_server",
        "A client that keeps sending requests stays connected to a server that is silent, until"
        " its session has ended.",
        ("9.2",),
        (
            Edit(
                "metadata/store/zookeeper/heartbeat.py",
                "            session.cut()\n",
                "            leaves_s = inf\n",
            ),
        ),
        (units(f"{SERVERS}::test_a_busy_session_leaves_a_silent_server_before_it_ends"),),
        BLIND,
    ),
)
