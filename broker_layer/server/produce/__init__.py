"""Produce: checks, verification, and appends that wait for their acknowledgement.

- `produce`: checks each batch, appends it, and answers when all are committed.
- `produce_checks`: judges the batch for one partition as Kafka does.
- `produce_verification`: confirmation of a transaction before its first batch.
- `produce_rights`: what the client may write.
- `produce_room`: connections that are not read while their partitions have no room.
- `pending_produce`: results of one Produce, partition by partition.
"""
