"""Seeded bugs of a bookie's identity: emptied, old and exchanged disks, copies, limbo.

Leaves damage within a disk to `bookie_log`.

Source: protocol section 2 and rule 9.13; BookKeeper #4812, #2612, #544.
"""

from tests.seeded_bugs.seeded_bug import Edit, SeededBug, model, simulation

IDENTITY = "bookie/identity/identity.py"

BUGS = (
    SeededBug(
        "empty-disk-served-under-an-old-id",
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
                "    record = CookieRecord(\n",
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
        (simulation("damage"),),
    ),
    SeededBug(
        "serving-original-displaced",
        "A start takes over the registration of a process that serves, without sending it a"
        " request.",
        ("2.8",),
        (
            Edit(
                "bookie/identity/original.py",
                "                await _refuse_if_alive("
                "bookie_id, registration, is_counted=is_counted)\n",
                "                return held.incarnation\n",
            ),
        ),
        (simulation("damage"),),
    ),
    SeededBug(
        "first-add-accepted-in-limbo",
        "A bookie that returned on an old copy takes a first add for a ledger that it does not"
        " know: it was fenced there, and is closed.",
        ("2.4", "9.13"),
        (
            Edit(
                "bookie/storage/admission.py",
                "        if state is None and self._switch.may_have_lost_fences:\n",
                "        if state is None and self._switch.may_have_lost_fences and recovery:\n",
            ),
        ),
        (model("trio, recovery, old copy"),),
    ),
)
