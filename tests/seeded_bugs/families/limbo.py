"""Seeded bugs of bookies in limbo: copies that are not proven, and a limbo that ends.

Leaves limbo itself, as a bookie enters it and answers in it, to `bookie_log`.

Source: protocol rule 9.13.
"""

from tests.seeded_bugs.seeded_bug import (
    Edit,
    SeededBug,
    hidden_from_model,
    hidden_from_simulation,
    model,
    units,
)

UNITS = "tests/unit/repair"
NEEDS = f"{UNITS}/test_needs.py"
STORIES = f"{UNITS}/test_limbo_story.py"
ADMISSION = "tests/unit/bookie/storage/test_admission.py"
OLD_COPY = "trio, recovery, old copy"
NOT_MODELLED = hidden_from_model("in the model a bookie in limbo is not repaired, and stays in it")
NOT_SHOWN = hidden_from_simulation("whether the simulation with repair finds it was not tried yet")
HIDDEN = (NOT_MODELLED, NOT_SHOWN)

BUGS = (
    SeededBug(
        "limbo_copies_count_at_a_removal",
        "Copies on a bookie in limbo count as good when another bookie is lost or removed.",
        ("9.6", "9.13"),
        (
            Edit(
                "repair/standing.py",
                "        return self.of(bookie_id) not in (Standing.UNPROVEN, Standing.GONE)\n",
                "        return self.of(bookie_id) is not Standing.GONE\n",
            ),
        ),
        (units(NEEDS),),
        HIDDEN,
    ),
    SeededBug(
        "limbo_copies_stay",
        "A bookie in limbo keeps its copies: nothing makes them again elsewhere.",
        ("9.13",),
        (
            Edit(
                "repair/departures.py",
                "        case Lifecycle.LIMBO:\n            return Standing.UNPROVEN\n",
                "        case Lifecycle.LIMBO:\n            return Standing.GOOD\n",
            ),
        ),
        (units(f"{UNITS}/test_departures.py", STORIES),),
        HIDDEN,
    ),
    SeededBug(
        "limbo_is_not_noticed",
        "The auditor leaves a bookie that registers in limbo active.",
        ("9.13",),
        (
            Edit(
                "repair/departures.py",
                "            if is_in_limbo and state in TRUSTED:\n",
                "            if is_in_limbo and state not in Lifecycle:\n",
            ),
        ),
        (units(f"{UNITS}/test_departures.py", STORIES),),
        HIDDEN,
    ),
    SeededBug(
        "limbo_is_a_loss",
        "Entries that only a bookie in limbo has count as lost, so that nothing copies them.",
        ("9.13",),
        (
            Edit(
                "repair/needs.py",
                "if all(standings.of(each) is Standing.GONE for each in members)\n",
                "if not any(standings.has_copy(each) for each in members)\n",
            ),
        ),
        (units(NEEDS, STORIES),),
        HIDDEN,
    ),
    SeededBug(
        "limbo_ends_without_the_fences",
        "An operator makes a drained bookie active, and its limbo ends: it takes a late add to a"
        " ledger whose fence it lost.",
        ("2.4", "9.13"),
        (
            Edit(
                "bookie/identity/own_lifecycle.py",
                "            case Lifecycle.ACTIVE | Lifecycle.LOST:\n"
                "                self._cancel_grace()\n",
                "            case Lifecycle.ACTIVE | Lifecycle.LOST:\n"
                "                self._cancel_grace()\n"
                "                writability.end(Reason.LIMBO)\n"
                "                writability.end(Reason.FENCES_LOST)\n",
            ),
            Edit(
                "bookie/storage/admission.py",
                "        if state is None and self._switch.may_have_lost_fences:\n",
                "        if (\n"
                "            state is None\n"
                "            and self._switch.may_have_lost_fences\n"
                "            and not self._switch.is_writable\n"
                "        ):\n",
            ),
        ),
        (units(f"{STORIES}::test_an_old_copy_of_a_fenced_bookie_completes_no_ack_quorum"),),
        HIDDEN,
    ),
    SeededBug(
        "limbo_takes_first_adds",
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
        (units(ADMISSION, STORIES), model(OLD_COPY)),
        (NOT_SHOWN,),
    ),
)
