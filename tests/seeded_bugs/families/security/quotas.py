"""Seeded bugs of quotas at brokers and bookies: which quota holds, what is used, and the pause.

Source: docs/security.md, "Quotas".
"""

from typing import Final

from tests.seeded_bugs.seeded_bug import CLIENTS_TRUSTED, Edit, SeededBug, units

RULES_FILE: Final = "metadata/security/rates/quota_rules.py"
BUCKETS: Final = "metadata/security/rates/rate_buckets.py"
RATE: Final = "metadata/security/rates/rate_quota.py"
TABLE: Final = "metadata/security/quota_table.py"
BROKER: Final = "broker_layer/server/quotas/client_quotas.py"
BOOKIE: Final = "bookie/server/client_quotas.py"
MUTATIONS: Final = "broker_layer/administration/mutation_quota.py"

PRECEDENCE: Final = (units("tests/unit/metadata/security/rates/test_quota_rules.py"),)
RATES: Final = (units("tests/unit/metadata/security/rates/test_rate_buckets.py"),)
FOLLOWING: Final = (units("tests/unit/metadata/security/test_quota_store.py"),)
SERVED: Final = (units("tests/unit/broker_layer/server/quotas/test_served_quotas.py"),)
CHANGES: Final = (units("tests/unit/broker_layer/administration/test_mutation_quota.py"),)
BOOKIES: Final = (
    units(
        "tests/unit/bookie/server/test_client_quotas.py",
        "tests/unit/bookie/server/test_quota_rates.py",
        "tests/unit/bookie/server/test_quota_pauses.py",
    ),
)

RULES: Final = ("security.md#quotas",)
OF_BOOKIES: Final = ("security.md#quotas-of-bookies",)

BUGS = (
    SeededBug(
        "a_default_holds_before_a_name",
        "The quota of the default client id holds for a client id that has its own.",
        RULES,
        (
            Edit(
                RULES_FILE,
                "for client_name in (client_id, None):\n            names",
                "for client_name in (None, client_id):\n            names",
            ),
        ),
        PRECEDENCE,
        CLIENTS_TRUSTED,
    ),
    SeededBug(
        "a_default_is_one_rate_for_all",
        "All users that have the quota of the default user share one rate.",
        RULES,
        (
            Edit(
                RULES_FILE,
                "yield QuotaEntity((of_user,)), (user, None)",
                "yield QuotaEntity((of_user,)), (user_name, None)",
            ),
        ),
        PRECEDENCE,
        CLIENTS_TRUSTED,
    ),
    SeededBug(
        "addresses_have_no_default",
        "An address without a quota of its own may connect at any rate.",
        RULES,
        (Edit(RULES_FILE, "for name in (address, None):", "for name in (address,):"),),
        PRECEDENCE,
        CLIENTS_TRUSTED,
    ),
    SeededBug(
        "a_rate_never_refills",
        "What a client owes does not shrink with time.",
        RULES,
        (Edit(BUCKETS, "max(0.0, owed - (now_s - since_s) * per_s)", "owed"),),
        RATES,
        CLIENTS_TRUSTED,
    ),
    SeededBug(
        "time_without_requests_is_saved",
        "A client that was idle for long may use the rate of all that time at once.",
        RULES,
        (
            Edit(
                BUCKETS,
                "max(0.0, owed - (now_s - since_s) * per_s)",
                "owed - (now_s - since_s) * per_s",
            ),
        ),
        RATES,
        CLIENTS_TRUSTED,
    ),
    SeededBug(
        "what_is_taken_is_not_counted",
        "New connections within the burst are not counted.",
        RULES,
        (Edit(BUCKETS, "owed + count if is_within else owed", "owed"),),
        RATES,
        CLIENTS_TRUSTED,
    ),
    SeededBug(
        "the_last_active_client_is_forgotten",
        "With too many clients, what the last active one owes is dropped first.",
        RULES,
        (Edit(BUCKETS, "next(iter(self._owed))", "next(reversed(self._owed))"),),
        RATES,
        CLIENTS_TRUSTED,
    ),
    SeededBug(
        "a_changed_quota_holds_for_new_clients_alone",
        "A client keeps the limit that it had when it first came.",
        RULES,
        (Edit(RATE, "        self._limits.clear()\n        self.is", "        self.is"),),
        RATES,
        CLIENTS_TRUSTED,
    ),
    SeededBug(
        "a_removed_quota_holds_on",
        "A server keeps a quota that was removed, until it is restarted.",
        RULES,
        (Edit(TABLE, "            self.set.remove(entity)", "            pass"),),
        FOLLOWING,
        CLIENTS_TRUSTED,
    ),
    SeededBug(
        "a_producer_is_not_paused",
        "Bytes of Produce are counted, and their pause is dropped.",
        RULES,
        (
            Edit(
                BROKER,
                "exchange, exchange.size)\n        return max(moved_s, self.record_work(exchange))",
                "exchange, exchange.size)\n        return min(moved_s, self.record_work(exchange))",
            ),
        ),
        SERVED,
        CLIENTS_TRUSTED,
    ),
    SeededBug(
        "changes_over_the_quota_are_made",
        "Topics are created and deleted although the quota of changes is used up.",
        RULES,
        (Edit(MUTATIONS, "if throttle_s and is_strict", "if throttle_s < 0 and is_strict"),),
        CHANGES,
        CLIENTS_TRUSTED,
    ),
    SeededBug(
        "super_users_have_quotas_at_bookies",
        "A bookie holds up a broker that is a super user.",
        OF_BOOKIES,
        (Edit(BOOKIE, "is_repair or who.text in self._quotas.exempt", "is_repair"),),
        BOOKIES,
        CLIENTS_TRUSTED,
    ),
    SeededBug(
        "repair_has_a_quota",
        "A bookie holds up repair.",
        OF_BOOKIES,
        (
            Edit(
                BOOKIE,
                "is_repair or who.text in self._quotas.exempt",
                "who.text in self._quotas.exempt",
            ),
        ),
        BOOKIES,
        CLIENTS_TRUSTED,
    ),
    SeededBug(
        "a_default_holds_for_clients_that_proved_nothing",
        "The default quota of bookies holds for brokers without a login or certificate.",
        OF_BOOKIES,
        (
            Edit(
                RULES_FILE,
                "has_defaults = key not in OF_BOOKIES or user != ANONYMOUS.name",
                "has_defaults = True",
            ),
        ),
        BOOKIES,
        CLIENTS_TRUSTED,
    ),
    SeededBug(
        "a_pause_at_a_bookie_without_limit",
        "A bookie does not read a client over its quota for so long that it is taken for dead.",
        OF_BOOKIES,
        (Edit(BOOKIE, "PAUSE_S_MAX: Final = 1.0", "PAUSE_S_MAX: Final = 1_000.0"),),
        BOOKIES,
        CLIENTS_TRUSTED,
    ),
    SeededBug(
        "appends_over_the_quota_are_not_paused",
        "A bookie counts appended bytes, and drops the pause.",
        OF_BOOKIES,
        (
            Edit(
                BOOKIE,
                "self._pause_for(self._quotas.record_append(self._user, byte_count))",
                "self._quotas.record_append(self._user, byte_count)",
            ),
        ),
        BOOKIES,
        CLIENTS_TRUSTED,
    ),
    SeededBug(
        "reads_over_the_quota_are_not_paused",
        "A bookie counts read bytes, and drops the pause.",
        OF_BOOKIES,
        (
            Edit(
                BOOKIE,
                "self._pause_for(self._quotas.record_read(self._user, byte_count))",
                "self._quotas.record_read(self._user, byte_count)",
            ),
        ),
        BOOKIES,
        CLIENTS_TRUSTED,
    ),
)
