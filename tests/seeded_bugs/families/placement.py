"""Seeded bugs of the placement: two copies of an entry on one host.

Source: protocol rule 3.3.
"""

from tests.seeded_bugs.seeded_bug import (
    SCENARIOS,
    Edit,
    SeededBug,
    hidden_from_model,
    hidden_from_simulation,
    simulation,
    units,
)

SEARCH = "ledger_client/bookies/placement_search.py"
POLICY = "ledger_client/bookies/placement_policy.py"
HOSTS = units("tests/unit/ledger_client/bookies/test_placement_hosts.py", SCENARIOS)
UNIFORM = hidden_from_model("all bookies of the model are alike")
ONE_RACK = hidden_from_simulation(
    "the first bookie of a rack that is tried is on the host used least"
)

BUGS = (
    SeededBug(
        "bookies_of_one_rack_are_alike",
        "The search tries one bookie of each rack, and misses the one on another host.",
        ("3.3",),
        (
            Edit(
                SEARCH,
                "        keyed.sort()\n        return [host for *_, host in keyed]\n",
                "        keyed.sort()\n"
                "        racks_tried = {self._racks[host]: host for *_, host in reversed(keyed)}\n"
                "        return [host for *_, host in keyed if host in racks_tried.values()]\n",
            ),
        ),
        (HOSTS,),
        (UNIFORM, ONE_RACK),
    ),
    SeededBug(
        "hosts_ignored_in_replacements",
        "A replacement is spread over racks alone, and may share the host of a member that stays.",
        ("3.3", "5.1"),
        (
            Edit(
                POLICY,
                "        kept = [None if p in positions else bookie"
                " for p, bookie in enumerate(ensemble)]\n",
                "        kept = [None if p in positions else bookie"
                " for p, bookie in enumerate(ensemble)]\n"
                "        candidates = {\n"
                "            b: replace(each, location=f'{each.place.rack}/{b}')\n"
                "            for b, each in candidates.items()\n"
                "        }\n",
            ),
            Edit(
                POLICY,
                "from dataclasses import dataclass\n",
                "from dataclasses import dataclass, replace\n",
            ),
        ),
        (HOSTS, simulation("changes")),
        (UNIFORM,),
    ),
)
