"""Bugs of what is written about administrative acts: at brokers, and by commands.

Leaves refusals to the families of what is refused.
"""

from typing import Final

from tests.seeded_bugs.seeded_bug import CLIENTS_TRUSTED, Edit, SeededBug, units

HANDLERS: Final = "broker_layer/security/audited_handlers.py"
TRAIL: Final = "metadata/security/audit_trail.py"
RECORDING: Final = "quire/cli/audit/recording.py"

HANDLER_TESTS: Final = (units("tests/unit/broker_layer/security/test_audited_handlers.py"),)
TRAIL_TESTS: Final = (units("tests/unit/metadata/security/test_audit_trail.py"),)
RECORDING_TESTS: Final = (units("tests/unit/quire/cli/audit/test_recording.py"),)

RULES: Final = ("security.md#audit-log",)

BUGS: Final = (
    SeededBug(
        "a_line_for_the_first_result_alone",
        "Of the results of one request, only one kind is in the audit log.",
        RULES,
        (
            Edit(
                HANDLERS,
                "            by_code.setdefault(code, [])",
                "            by_code.setdefault(0, [])",
            ),
        ),
        HANDLER_TESTS,
        CLIENTS_TRUSTED,
    ),
    SeededBug(
        "questions_are_audited_as_changes",
        "A request that only asks what would happen is in the audit log as a change.",
        RULES,
        (Edit(HANDLERS, 'getattr(request, "validate_only", False)', "False"),),
        HANDLER_TESTS,
        CLIENTS_TRUSTED,
    ),
    SeededBug(
        "a_record_replaces_those_before",
        "A command removes the records of earlier commands from the audit trail.",
        RULES,
        (Edit(TRAIL, "known if record in known else [*known, record]", "[record]"),),
        TRAIL_TESTS,
        CLIENTS_TRUSTED,
    ),
    SeededBug(
        "address_with_password_recorded",
        "The address of the metadata, with its password, is in the audit trail.",
        RULES,
        (Edit(RECORDING, '"metadata", ', ""),),
        RECORDING_TESTS,
        CLIENTS_TRUSTED,
    ),
)
