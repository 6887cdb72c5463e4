"""Page of every seeded bug: what it breaks, and which searches find it."""

from types import ModuleType
from typing import Final

from tests.reference.markdown import code, first_sentence, page, prose, table
from tests.seeded_bugs.catalogue import BUGS, FAMILIES

INTRODUCTION: Final = """\
A seeded bug is a patch that makes the code wrong in a known way. The exhaustive model and the
simulations must find each of these {count}; `make seeded-bugs` checks it. Bugs that a unit test
finds are left to the [mutants](../assurance.md#mutants). How to search for one:
[simulation.md](../simulation.md#seeded-bugs). Rules are those of [the protocol](../protocol.md),
and Kafka's proposals (KIP). A search is a configuration of the model, or the theme of the seeds
that a simulation runs. Where another rule hides a bug, the patch breaks this rule too."""


def seeded_bugs_page() -> str:
    """Return the page."""
    introduction = INTRODUCTION.format(count=len(BUGS))
    return page("Seeded bugs", introduction, map(_section, FAMILIES))


def _section(family: ModuleType) -> str:
    rows = [
        [
            code(bug.name),
            prose(bug.wrong),
            ", ".join(bug.rules) + (f"; hidden by {prose(bug.masked_by)}" * bool(bug.masked_by)),
            "; ".join(search.description for search in bug.searches),
        ]
        for bug in family.BUGS
    ]
    title = family.__name__.rpartition(".")[2]
    text = prose(first_sentence(family.__doc__))
    return f"## {title}\n\n{text}\n\n" + table(["bug", "what is wrong", "rules", "found by"], rows)
