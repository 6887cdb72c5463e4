"""Seeded bugs of quotas at bookies: what costs a client nothing, and what waits that must not.

Leaves whom the quotas hold for, and pauses, to `quotas`.

Source: docs/security.md, "Quotas of bookies".
"""

from typing import Final

from tests.seeded_bugs.seeded_bug import CLIENTS_TRUSTED, Edit, SeededBug, units

QUOTAS: Final = "bookie/server/client_quotas.py"
RUNNER: Final = "bookie/server/request_runner.py"
REQUESTS: Final = "bookie/server/ledger_requests.py"
ATTACHED: Final = "bookie/server/attached_requests.py"
CONNECTION: Final = "bookie/server/connection.py"

CLIENTS: Final = (units("tests/unit/bookie/server/test_client_quotas.py"),)
FOLLOWING: Final = (units("tests/unit/bookie/server/test_followed_quotas.py"),)

RULES: Final = ("security.md#quotas-of-bookies",)

BUGS = (
    SeededBug(
        "adds_of_a_recovery_cost_nothing",
        "A client avoids its quota of appends: it marks each as one of a recovery.",
        RULES,
        (Edit(QUOTAS, "if frame.kind is _ADD)", "if frame.kind is _ADD and not frame.flags)"),),
        CLIENTS,
        CLIENTS_TRUSTED,
    ),
    SeededBug(
        "reads_from_memory_cost_nothing",
        "A read that is answered from memory is not counted.",
        RULES,
        (
            Edit(
                REQUESTS,
                "        self._counters.reads_from_memory += 1\n"
                "        self._counters.read_latency.record(self._now() - asked_s)\n"
                "        return self._metered(",
                "        self._counters.reads_from_memory += 1\n"
                "        self._counters.read_latency.record(self._now() - asked_s)\n"
                "        return entries_frame(",
            ),
        ),
        CLIENTS,
        CLIENTS_TRUSTED,
    ),
    SeededBug(
        "reads_that_came_together_run_together",
        "Reads of one client with a quota all run before the first one is counted.",
        RULES,
        (
            Edit(
                RUNNER,
                "self._is_metered_running |= waiting.is_metered",
                "self._is_metered_running |= False",
            ),
        ),
        CLIENTS,
        CLIENTS_TRUSTED,
    ),
    SeededBug(
        "reads_start_during_a_pause",
        "Reads that arrived before a pause are served during it.",
        RULES,
        (Edit(RUNNER, "self._waiting or self._is_throttled or", "self._waiting or"),),
        CLIENTS,
        CLIENTS_TRUSTED,
    ),
    SeededBug(
        "answers_of_any_size_over_the_quota",
        "One answer may be larger than what a short pause can pay for.",
        RULES,
        (Edit(QUOTAS, "bytes_max if per_s is None else max(1,", "bytes_max or max(1,"),),
        CLIENTS,
        CLIENTS_TRUSTED,
    ),
    SeededBug(
        "long_polls_pass_the_quota",
        "A client with a quota of reads gets the entries of any number of long polls.",
        RULES,
        (
            Edit(
                REQUESTS,
                "        if self._quota.limits_reads:\n            return 0\n",
                "",
            ),
        ),
        CLIENTS,
        CLIENTS_TRUSTED,
    ),
    SeededBug(
        "a_fence_waits_for_the_quota",
        "A fence waits behind the reads of a client over its quota.",
        RULES,
        (
            Edit(
                ATTACHED,
                "is_read = isinstance(request, ReadEntries) and not request.fence",
                "is_read = True",
            ),
        ),
        CLIENTS,
        CLIENTS_TRUSTED,
    ),
    SeededBug(
        "a_login_has_the_quota_of_the_certificate",
        "A client that logs in is counted as the principal of its certificate.",
        RULES,
        (Edit(CONNECTION, "guest.proved or self._context.", "self._context."),),
        CLIENTS,
        CLIENTS_TRUSTED,
    ),
    SeededBug(
        "a_bookie_does_not_follow_the_quotas",
        "A bookie never reads the quotas of the cluster.",
        RULES,
        (Edit("bookie/bookie_process.py", "        await quotas.start()\n", ""),),
        FOLLOWING,
        CLIENTS_TRUSTED,
    ),
)
