"""Consumer groups: members, assignments of partitions, and committed offsets.

Leaves the topics themselves to the logs, and the durability of group state to `state_log`.
"""
