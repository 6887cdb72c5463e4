"""Log lines about the conditions in which a bookie takes no entries, or may have lost some.

Leaves the conditions to `bookie.storage.writability`.
"""

from bookie.storage.writability import ADVICE, ConditionChange, Writability
from quire.server.server_log import ServerLog


def report_conditions(writability: Writability, log: ServerLog) -> None:
    """Log the active conditions, and from now on each condition that begins or ends."""

    def report(change: ConditionChange) -> None:
        condition, lasted_s = change.condition, change.lasted_s
        name = "read-only" if condition.turns_away else "limbo"
        values = {"reason": condition.reason.value, "writable": writability.is_writable}
        if condition.where:
            values["where"] = condition.where
        if lasted_s is None:
            advice = ADVICE[condition.reason]
            log.warning(name, **values, detail=condition.text, try_next=advice)
        else:
            ended = f"{name} ended"
            log.info(ended, **values, lasted_s=round(lasted_s, 1))

    for condition in writability.conditions():
        report(ConditionChange(condition, None))
    writability.on_change(report)
