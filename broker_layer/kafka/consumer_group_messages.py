"""Messages of the newer consumer groups (KIP-848), which kafka-python lacks.

Leaves encoding to kafka-python, which reads the schemas in `kafka/schemas` like its own, and the
registry of messages to `kafka.messages`.

Source: KIP-848, KIP-1082 (version 1: the member chooses its id, and may subscribe with a pattern),
KIP-1099 (version 1 of the description states the type of a member).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kafka.protocol.api_message import ApiMessage

if TYPE_CHECKING:
    import uuid

    from kafka.protocol.data_container import DataContainer

SCHEMAS: Final = "broker_layer.kafka.schemas"


class ConsumerGroupHeartbeatRequest(ApiMessage, load_json=SCHEMAS):
    """A member joins, stays alive, reports the partitions that it owns, or leaves."""

    if TYPE_CHECKING:

        class TopicPartitions(DataContainer):
            """Some partitions of a topic."""

            topic_id: uuid.UUID | None
            partitions: list[int]

        group_id: str
        member_id: str
        member_epoch: int
        instance_id: str | None
        rack_id: str | None
        rebalance_timeout_ms: int
        subscribed_topic_names: list[str] | None
        subscribed_topic_regex: str | None
        server_assignor: str | None
        topic_partitions: list[TopicPartitions] | None


class ConsumerGroupHeartbeatResponse(ApiMessage, load_json=SCHEMAS):
    """The member's epoch, the heartbeat interval, and the member's assignment if it changed."""

    if TYPE_CHECKING:

        class Assignment(DataContainer):
            """The partitions assigned to a member."""

            class TopicPartitions(DataContainer):
                """Some partitions of a topic."""

                topic_id: uuid.UUID | None
                partitions: list[int]

            topic_partitions: list[TopicPartitions]

        throttle_time_ms: int
        error_code: int
        error_message: str | None
        member_id: str | None
        member_epoch: int
        heartbeat_interval_ms: int
        assignment: Assignment | None


class ConsumerGroupDescribeRequest(ApiMessage, load_json=SCHEMAS):
    """The groups to describe."""

    if TYPE_CHECKING:
        group_ids: list[str]
        include_authorized_operations: bool


class ConsumerGroupDescribeResponse(ApiMessage, load_json=SCHEMAS):
    """Groups with their members; both assignments of a member are required."""

    if TYPE_CHECKING:

        class DescribedGroup(DataContainer):
            """One group, or the error why it is not described."""

            class Member(DataContainer):
                """One member."""

                class Assignment(DataContainer):
                    """The partitions assigned to a member."""

                    class TopicPartitions(DataContainer):
                        """Some partitions of a topic."""

                        topic_id: uuid.UUID | None
                        topic_name: str
                        partitions: list[int]

                    topic_partitions: list[TopicPartitions]

                member_id: str
                instance_id: str | None
                rack_id: str | None
                member_epoch: int
                client_id: str
                client_host: str
                subscribed_topic_names: list[str]
                subscribed_topic_regex: str | None
                assignment: Assignment
                target_assignment: Assignment
                member_type: int

            error_code: int
            error_message: str | None
            group_id: str
            group_state: str
            group_epoch: int
            assignment_epoch: int
            assignor_name: str
            members: list[Member]
            authorized_operations: int

        throttle_time_ms: int
        groups: list[DescribedGroup]
