"""Consumer groups: who is a member, who reads which partition, and how far each group has read.

Leaves the topics themselves to the logs, and durability of its own state to `state_log`.
"""
