"""Identity of the streaming query that a task belongs to.

Source: measured: PySpark 4.2 and 4.3 set the property in tasks of streaming queries.
"""

from typing import Final

from pyspark import TaskContext

QUERY_ID: Final = "sql.streaming.queryId"
"""Local property with a streaming query's id, which is the same after each restart."""


def query_id_of_task() -> str:
    """Return the id of the task's streaming query; empty in a batch job."""
    context = TaskContext.get()
    return (context.getLocalProperty(QUERY_ID) or "") if context is not None else ""
