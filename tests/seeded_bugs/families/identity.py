"""Seeded bugs of a bookie's identity: emptied, old and exchanged disks, reused addresses.

Leaves damage within a disk to `bookie_log`.

Source: protocol section 2; BookKeeper #4812, #2612, #544.
"""

from tests.seeded_bugs.seeded_bug import (
    Edit,
    SeededBug,
    hidden_from_model,
    hidden_from_simulation,
    simulation,
    units,
)

IDENTITY = "bookie/identity/identity.py"
TESTS = "tests/unit/bookie/identity/test_identity.py"
NO_IDENTITY = hidden_from_model("the model's bookies have fixed identities")
NOT_DRAWN = hidden_from_simulation("the faults of a run cause it too seldom")

BUGS = (
    SeededBug(
        "empty_disk_under_an_old_id",
        "A bookie whose disk was emptied, or lost a directory, continues under its id, and denies"
        " the lost entries.",
        ("2.1", "2.2"),
        (
            Edit(
                IDENTITY,
                '        raise CookieMissingError(where, "is missing or has lost its cookie",'
                " _NEW_BOOKIE)\n",
                "        return expected\n",
            ),
            Edit(
                IDENTITY,
                "    cluster = await ensure_cluster(store, rng)\n    record = CookieRecord(\n",
                "    cluster = await ensure_cluster(store, rng)\n"
                "    live = await store.children(BOOKIES, fresh=True)\n"
                "    for known in await CookieStore(store).list_bookie_ids():\n"
                "        former, version = await CookieStore(store).get(known)\n"
                "        if known not in live and wall_clock_ms() - former.created_ms > 20_000:\n"
                "            for cookie in reversed(cookies_of(former, cluster, version)):\n"
                "                await _write_cookie(disk, cookie)\n"
                "            return known\n"
                "    record = CookieRecord(\n",
            ),
            Edit(
                IDENTITY,
                "from metadata.ids import BookieId, Version\n",
                "from metadata.ids import BookieId, Version\nfrom metadata.paths import BOOKIES\n",
            ),
        ),
        (units(TESTS), simulation("damage")),
        (NO_IDENTITY,),
    ),
    SeededBug(
        "old_copy_of_a_disk_not_noticed",
        "A bookie that starts on an old copy of its disk is not in limbo.",
        ("2.4",),
        (
            Edit(
                "bookie/identity/cookie.py",
                "    return found.starts < starts\n",
                "    return found.starts < 0 * starts\n",
            ),
        ),
        (units(TESTS), simulation("damage")),
        (NO_IDENTITY,),
    ),
    SeededBug(
        "another_bookie_at_the_address",
        "A client accepts any bookie that answers at an address as the one that it looked up.",
        ("2.3",),
        (
            Edit(
                "bookie/server/server_context.py",
                "        if hello.bookie_id and hello.bookie_id != self.bookie_id:\n",
                "        if hello.bookie_id and not self.bookie_id:\n",
            ),
        ),
        (
            units(
                "tests/unit/bookie/server/test_connection.py::"
                "test_mismatched_hello_is_refused_with_a_reason"
            ),
            simulation("damage"),
        ),
        (NO_IDENTITY,),
    ),
    SeededBug(
        "position_recorded_before_the_sync",
        "A bookie records the written end of its log, not the durable one: a start after a power"
        " cut treats the disk as an old copy.",
        ("2.6",),
        (
            Edit(
                "bookie/log/log.py",
                "        try:\n            await self._file.commit(segment.size, buffers)\n",
                "        self.durable_lsn = records.lsn_of(segment.number, offset)\n"
                "        try:\n            await self._file.commit(segment.size, buffers)\n",
            ),
        ),
        (units("tests/unit/bookie/identity/test_position.py"),),
        (NO_IDENTITY, NOT_DRAWN),
    ),
    SeededBug(
        "position_of_another_process_overwritten",
        "A bookie whose position node another process has changed overwrites it and continues.",
        ("2.6",),
        (
            Edit(
                "bookie/identity/position.py",
                "            self._callbacks.taken(taken)\n            raise taken\n",
                "            self._log.warning(str(taken))\n"
                "            self._record, self.version = found.record, found.version\n"
                "            self._pending = None\n",
            ),
        ),
        (
            units(
                "tests/unit/bookie/identity/test_position.py",
                "tests/unit/bookie/identity/test_copies.py",
            ),
        ),
        (NO_IDENTITY, NOT_DRAWN),
    ),
    SeededBug(
        "copied_files_not_noticed",
        "A start after an unclean stop does not compare the identity of the bookie's files.",
        ("2.6",),
        (
            Edit(
                IDENTITY,
                "record.is_orderly or are_same_files(record.files, files):\n",
                "record.is_orderly or len(record.files) == len(files):\n",
            ),
            Edit(
                IDENTITY,
                "from bookie.identity.anchors import are_same_files, make_anchors, read_anchors\n",
                "from bookie.identity.anchors import make_anchors, read_anchors\n",
            ),
        ),
        (units("tests/unit/bookie/identity/test_copies.py"),),
        (NO_IDENTITY, NOT_DRAWN),
    ),
    SeededBug(
        "short_log_not_noticed",
        "A start does not compare the end of the log with the recorded position.",
        ("2.6",),
        (
            Edit(
                "bookie/storage/opening.py",
                "    if end_lsn >= recorded_end_lsn:\n",
                "    if end_lsn >= 0 * recorded_end_lsn:\n",
            ),
        ),
        (
            units(
                "tests/unit/bookie/identity/test_copies.py",
                "tests/unit/bookie/identity/test_old_copies.py",
            ),
            simulation("damage"),
        ),
        (NO_IDENTITY,),
    ),
    SeededBug(
        "living_original_displaced",
        "A start takes over the registration of a process that serves, without sending it a"
        " request.",
        ("2.6",),
        (
            Edit(
                "bookie/identity/original.py",
                "                await _refuse_if_alive("
                "bookie_id, registration, is_counted=is_counted)\n",
                "                return held.incarnation\n",
            ),
        ),
        (units("tests/unit/bookie/identity/test_original.py"), simulation("damage")),
        (NO_IDENTITY,),
    ),
    SeededBug(
        "original_registered_again_displaced",
        "A start does not check for its original again after opening its storage: one that had no"
        " session and registered again is displaced.",
        ("2.6",),
        (
            Edit(
                "bookie/bookie_process.py",
                "            await originals.run("
                "identity.bookie_id, identity.lock, is_counted=True)\n",
                "            pass\n",
            ),
        ),
        (
            units(
                "tests/unit/bookie/identity/test_copies.py::"
                "test_an_original_that_registers_while_its_copy_opens_is_not_displaced"
            ),
        ),
        (NO_IDENTITY, NOT_DRAWN),
    ),
    SeededBug(
        "collected_on_the_word_of_old_metadata",
        "The collector removes ledgers that are absent from a restored, older metadata service.",
        ("10.5",),
        (
            Edit(
                "bookie/server/collector.py",
                "            if not await self._age.may_collect():\n                return False\n",
                "            await self._age.may_collect()\n",
            ),
        ),
        (units("tests/unit/bookie/server/test_collector.py"),),
        (NO_IDENTITY, NOT_DRAWN),
    ),
)
