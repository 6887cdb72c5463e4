"""Ways to be wrong about who a bookie is: emptied, old and exchanged disks, reused addresses.

Leaves damage within a disk to `bookie_log`.

Source: protocol section 2; BookKeeper #4812, #2612, #544.
"""

from tests.seeded_bugs.seeded_bug import (
    Edit,
    SeededBug,
    hidden_from_model,
    simulation,
    units,
)

IDENTITY = "bookie/identity.py"
TESTS = "tests/unit/bookie_server/test_identity.py"
NO_IDENTITY = hidden_from_model("the model's bookies are who they are")

BUGS = (
    SeededBug(
        "empty_disk_under_an_old_id",
        "A disk that was emptied, or lost a directory, goes on under the id that it had, and"
        " answers for what it lost.",
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
                "    cluster = await cluster_instance(store, rng)\n    record = CookieRecord(\n",
                "    cluster = await cluster_instance(store, rng)\n"
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
                "bookie/cookie.py",
                "    return found.starts < starts\n",
                "    return found.starts < 0 * starts\n",
            ),
        ),
        (units(TESTS), simulation("damage")),
        (NO_IDENTITY,),
    ),
    SeededBug(
        "another_bookie_at_the_address",
        "A client takes whoever answers at an address for the bookie that it looked up.",
        ("2.3",),
        (
            Edit(
                "bookie/server_context.py",
                "        if hello.bookie_id and hello.bookie_id != self.bookie_id:\n",
                "        if hello.bookie_id and not self.bookie_id:\n",
            ),
        ),
        (
            units(
                "tests/unit/bookie_server/test_connection.py::"
                "test_a_mismatched_hello_is_told_why_and_closed"
            ),
            simulation("damage"),
        ),
        (NO_IDENTITY,),
    ),
)
