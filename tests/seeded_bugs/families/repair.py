"""Seeded bugs of repair: bookies that count as gone, fenced writers, needs that are missed.

Leaves the copying itself to `in_sync_copies`.

Source: protocol rules 9.1, 9.2, 9.5-9.8 and 9.17.
"""

from tests.seeded_bugs.seeded_bug import (
    Edit,
    SeededBug,
    hidden_from_model,
    hidden_from_simulation,
    simulation,
    units,
)

UNITS = "tests/unit/repair"
ABANDONED = "tests/unit/ledger_client/recovery/test_abandoned_ledgers.py"
RECOVERY = "ledger_client/recovery/abandoned_recovery.py"
STORIES = f"{UNITS}/test_repair_process.py"
WRITERS = "tests/unit/ledger_client/recovery/test_missing_writers.py"
SPREAD = f"{UNITS}/test_spread.py"
NOT_MODELLED = hidden_from_model("the model of repair has bugs of its own: tests/model/repairing")
NOT_SHOWN = hidden_from_simulation("whether the simulation with repair finds it was not tried yet")

BUGS = (
    SeededBug(
        "absence_is_loss",
        "A bookie that is not registered is lost at once, so that each restart is repaired.",
        ("9.5",),
        (
            Edit(
                "repair/departures.py",
                "is_lost = since is not None and now_s - since >= delays.lost_after_s\n",
                "is_lost = since is not None\n",
            ),
        ),
        (units(f"{UNITS}/test_departures.py"),),
        (NOT_MODELLED, NOT_SHOWN),
    ),
    SeededBug(
        "announced_stop_survives_the_start",
        "A start keeps the announcement of the last orderly stop, so that a crash after it waits "
        "the full delay.",
        ("9.5", "9.6"),
        (
            Edit(
                "bookie/identity/position.py",
                "            is_orderly=stopped_ms is not None,\n",
                "            is_orderly=stopped_ms is not None\n"
                "            or (self._record is not None and self._record.is_orderly),\n",
            ),
        ),
        (units("tests/unit/bookie/identity/test_position.py", STORIES),),
        (NOT_MODELLED, NOT_SHOWN),
    ),
    SeededBug(
        "worker_ignores_orderly_stops",
        "An urgent repair also replaces the bookies that stopped in order.",
        ("9.6",),
        (
            Edit(
                "repair/worker.py",
                "        return Standings(not_good, registered=up, stopped=stopped)\n",
                "        return Standings(not_good, registered=up, stopped=frozenset())\n",
            ),
        ),
        (units(STORIES),),
        (NOT_MODELLED, NOT_SHOWN),
    ),
    SeededBug(
        "sources_have_no_ceiling",
        "The ceiling of a source holds for each copy alone, so that several copies exceed it.",
        ("9.3",),
        (
            Edit(
                "repair/pacing/copy_shares.py",
                "target, self._targets, self._sources)\n",
                "target, self._targets, BookieThrottles(SlowBookies()))\n",
            ),
        ),
        (units(f"{UNITS}/pacing/test_copy_shares.py"),),
        (NOT_MODELLED, NOT_SHOWN),
    ),
    SeededBug(
        "backoff_leaves_sources",
        "Repair reads at its full speed from a bookie whose appends are slow: it slows down only "
        "at targets.",
        ("9.3",),
        (
            Edit(
                "repair/pacing/copy_shares.py",
                "        self._sources = BookieThrottles(self._slow)\n",
                "        self._sources = BookieThrottles(SlowBookies())\n",
            ),
        ),
        (units(f"{UNITS}/pacing/test_copy_shares.py"),),
        (NOT_MODELLED, NOT_SHOWN),
    ),
    SeededBug(
        "backoff_has_no_end",
        "The part of its limits that a slow bookie keeps halves without an end: repair stops.",
        ("9.3",),
        (
            Edit(
                "repair/pacing/slow_bookies.py",
                "max(PART_MIN, part / 2) if is_slow",
                "part / 2 if is_slow",
            ),
        ),
        (units(f"{UNITS}/pacing/test_slow_bookies.py"),),
        (NOT_MODELLED, NOT_SHOWN),
    ),
    SeededBug(
        "repair_backs_off_from_itself",
        "A bookie counts the adds of repair as appends of clients, so that repair slows itself.",
        ("9.3",),
        (
            Edit(
                "bookie/server/connection.py",
                "            if not is_recovery:\n                self",
                "            if counters:\n                self",
            ),
        ),
        (units("tests/unit/bookie/server/test_connection.py"),),
        (NOT_MODELLED, NOT_SHOWN),
    ),
    SeededBug(
        "live_writer_is_fenced",
        "Repair recovers an open ledger although the node of its writer's client exists.",
        ("9.2",),
        (
            Edit(
                "ledger_client/recovery/missing_writers.py",
                "        if is_registered:\n",
                "        if is_registered and ledger.state is LedgerState.CLOSED:\n",
            ),
        ),
        (units(WRITERS, STORIES),),
        (NOT_MODELLED, NOT_SHOWN),
    ),
    SeededBug(
        "one_look_at_a_writer",
        "Repair recovers an open ledger at the first look that misses its writer's node.",
        ("9.2",),
        (
            Edit(
                "ledger_client/recovery/missing_writers.py",
                "        if now_s - known.since_s < self._wait_s:\n",
                "        if now_s < known.since_s:\n",
            ),
        ),
        (units(WRITERS),),
        (NOT_MODELLED, NOT_SHOWN),
    ),
    SeededBug(
        "old_looks_at_a_writer_count",
        "A look that missed a writer's node counts for ever: the writer may have been there since.",
        ("9.2",),
        (
            Edit(
                "ledger_client/recovery/missing_writers.py",
                "            if now_s - each.seen_s <= self._apart_s\n",
                "            if now_s >= each.seen_s\n",
            ),
        ),
        (units(WRITERS),),
        (NOT_MODELLED, NOT_SHOWN),
    ),
    SeededBug(
        "short_session_shortens_the_wait_for_a_writer",
        "A client with a short session recovers ledgers of writers that may only be cut off.",
        ("9.2",),
        (
            Edit(
                RECOVERY,
                "        session_s = max(SESSION_TIMEOUT_S, services.config.session_timeout_s)\n",
                "        session_s = services.config.session_timeout_s\n",
            ),
        ),
        (units(ABANDONED),),
        (NOT_MODELLED, hidden_from_simulation("its clients recover without a wait")),
    ),
    SeededBug(
        "no_look_before_each_recovery",
        "A writer that registers while other ledgers are recovered is fenced.",
        ("9.2",),
        (
            Edit(
                RECOVERY,
                " in await self._unclosed(some) if each.is_abandoned]\n",
                " in await self._unclosed(some)]\n",
            ),
        ),
        (units(ABANDONED),),
        (NOT_MODELLED, hidden_from_simulation("its clients recover without a wait")),
    ),
    SeededBug(
        "recovery_on_restored_metadata",
        "A client recovers abandoned ledgers on members that the metadata had at a dump.",
        ("10.6",),
        (
            Edit(
                RECOVERY,
                "            if is_old:\n",
                "            if is_old and not ledger_ids:\n",
            ),
        ),
        (units(ABANDONED),),
        (NOT_MODELLED, hidden_from_simulation("its clients recover without a wait")),
    ),
    SeededBug(
        "open_in_sync_ledger_names_its_last_members",
        "A bookie is drained although an open in-sync ledger names it in an earlier fragment.",
        ("9.8",),
        (
            Edit(
                "repair/ledger_index.py",
                "*(ledger.fragments[:-1] if is_left_to_writer else ()))\n",
                "*(ledger.fragments[:0] if is_left_to_writer else ()))\n",
            ),
        ),
        (units(f"{UNITS}/test_ledger_index.py"),),
        (NOT_MODELLED, NOT_SHOWN),
    ),
    SeededBug(
        "open_in_sync_ledger_is_repaired",
        "Repair copies fragments of an open in-sync ledger, whose writer copies them too.",
        ("11.2",),
        (
            Edit(
                "repair/needs.py",
                "    return () if ledger.quorum.is_in_sync else ledger.fragments[:-1]\n",
                "    return ledger.fragments[:-1]\n",
            ),
        ),
        (units(f"{UNITS}/test_needs.py"),),
        (NOT_MODELLED, NOT_SHOWN),
    ),
    SeededBug(
        "draining_copies_do_not_count",
        "Copies on a bookie that drains count as gone: a drain looks like a loss.",
        ("9.6",),
        (
            Edit(
                "repair/standing.py",
                "        return self.of(bookie_id) not in (Standing.UNPROVEN, Standing.GONE)\n",
                "        return self.of(bookie_id) is Standing.GOOD\n",
            ),
        ),
        (units(f"{UNITS}/test_needs.py"),),
        (NOT_MODELLED, NOT_SHOWN),
    ),
    SeededBug(
        "one_gone_member_is_enough",
        "A fragment with two members that are gone gets one replacement.",
        ("9.7",),
        (
            Edit(
                "repair/needs.py",
                "                needs.append(Need(first, bookie_id, cause, bookie_id in lost))\n",
                "                needs.append(Need(first, bookie_id, cause, bookie_id in lost))\n"
                "                if cause is Cause.GONE:\n"
                "                    return needs\n",
            ),
        ),
        (units(f"{UNITS}/test_needs.py"),),
        (NOT_MODELLED, NOT_SHOWN),
    ),
    SeededBug(
        "drained_while_it_is_named",
        "A bookie that drains is drained at once, although ledgers name it.",
        ("9.8",),
        (
            Edit(
                "repair/unnamed_bookies.py",
                "            if state in EMPTIED and not self._index.count_naming(each)\n",
                "            if state in EMPTIED\n",
            ),
            Edit(
                "repair/auditor.py",
                "            if not self._index.count_naming(change.bookie_id)"
                " and not self._pass.unreadable_count:\n",
                "            if not self._pass.unreadable_count:\n",
            ),
        ),
        (units(STORIES), simulation()),
        (NOT_MODELLED,),
    ),
    SeededBug(
        "mark_of_a_dead_worker_stays",
        "A mark that a dead worker left on a closed ledger keeps its bookie from being drained.",
        ("9.1", "9.8"),
        (
            Edit(
                "repair/ledger_repair.py",
                "                ledger, version = await self._remove_marks(ledger, version)\n",
                "                pass\n",
            ),
        ),
        (units(f"{STORIES}::test_a_mark_that_a_dead_worker_left_does_not_keep_its_bookie"),),
        (NOT_MODELLED, NOT_SHOWN),
    ),
    SeededBug(
        "returned_bookie_stays_lost",
        "A lost bookie that is registered again stays lost.",
        ("9.5",),
        (
            Edit(
                "repair/departures.py",
                "            elif state is Lifecycle.LOST and since is None:\n",
                "            elif state is Lifecycle.LOST and since is None and is_lost:\n",
            ),
        ),
        (units(f"{UNITS}/test_departures.py"),),
        (NOT_MODELLED, NOT_SHOWN),
    ),
    SeededBug(
        "new_ledgers_have_higher_ids",
        "The auditor looks for new ledgers only above the highest id that it knows.",
        ("9.1",),
        (
            Edit(
                "repair/ledger_pass.py",
                "        unread = listed if is_known_read else [each for each in listed"
                " if each not in known]\n",
                "        ids = self._index.known_between(FIRST_LEDGER_ID, None)\n"
                "        unread = listed if is_known_read else [each for each in listed"
                " if each > max(ids, default=-1)]\n",
            ),
        ),
        (units(f"{UNITS}/test_ledger_pass.py"),),
        (NOT_MODELLED, NOT_SHOWN),
    ),
    SeededBug(
        "idle_writer_keeps_a_draining_bookie",
        "A writer does not replace a member that drains, so that the bookie is never drained.",
        ("5.8",),
        (
            Edit(
                "ledger_client/writing/writer_watch.py",
                "        may_go = news.drains(bookie_id) and ",
                "        may_go = not members and news.drains(bookie_id) and ",
            ),
        ),
        (units(f"{STORIES}::test_an_idle_writer_replaces_a_member_that_drains"),),
        (NOT_MODELLED, NOT_SHOWN),
    ),
    SeededBug(
        "moves_without_a_gain",
        "Copies also move to a place that is as good as the one before, again and again.",
        ("9.17",),
        (
            Edit(
                "repair/spread.py",
                "    return after != before and all(",
                "    return all(",
            ),
        ),
        (units(SPREAD),),
        (NOT_MODELLED, NOT_SHOWN),
    ),
    SeededBug(
        "rack_given_up_for_a_host",
        "A move to another host may bring two copies into one rack.",
        ("9.17",),
        (
            Edit(
                "repair/spread.py",
                "all(new >= old for new, old in zip(after, before, strict=True))",
                "all(new[1] >= old[1] for new, old in zip(after, before, strict=True))",
            ),
        ),
        (units(SPREAD),),
        (NOT_MODELLED, NOT_SHOWN),
    ),
    SeededBug(
        "absent_member_is_misplaced",
        "While a rack is away, the other copies move, as if its copies were none.",
        ("9.17",),
        (
            Edit(
                "repair/spread.py",
                "    if any(each not in places.known for each in ensemble):\n        return None\n",
                "    places = Places({**dict.fromkeys(ensemble, Place('', '')), **places.known},"
                " places.usable)\n",
            ),
        ),
        (units(SPREAD),),
        (NOT_MODELLED, NOT_SHOWN),
    ),
)
