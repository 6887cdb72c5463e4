"""Groups of the classic protocol: members, rebalances and their requests.

- `classic_group`: life of one group: joins, syncs, heartbeats, time-outs.
- `classic_phases`: phases of a rebalance.
- `membership_handlers`: JoinGroup, SyncGroup, Heartbeat and LeaveGroup.
- `consumer_protocol`: topics in the metadata that members send.
"""
