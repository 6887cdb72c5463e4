"""Check of what the client of a Produce may write.

Leaves the decisions to `broker_layer.security`, and answering to `produce`.

Invariants: a topic that is refused is not waited for, and nothing is appended to it; without the
right on the transactional id, all topics are refused; what waited is checked again.

Source: KIP-11, KIP-98; Kafka's KafkaApis.
"""

from collections.abc import Sequence
from typing import NamedTuple

from broker_layer.kafka.error_codes import ErrorCode
from broker_layer.kafka.produce_codec import ProduceRequest, ProduceTopic
from broker_layer.security.rights import Rights
from metadata.security.acls import Operation, ResourceType


class RefusedTopic(NamedTuple):
    """A topic that the client may not write, with the error."""

    topic: ProduceTopic
    code: ErrorCode


class AdmittedProduce(NamedTuple):
    """A request with the topics that the client may write, and the refused ones."""

    request: ProduceRequest
    refused: Sequence[RefusedTopic] = ()


def admit(request: ProduceRequest, rights: Rights | None) -> AdmittedProduce:
    """Return the part of a request that is allowed; all without an authorizer."""
    if rights is None:
        return AdmittedProduce(request)
    name, kind = request.transactional_id, ResourceType.TRANSACTIONAL_ID
    if name is not None and not rights.check(Operation.WRITE, kind, name):
        code = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        refused = [RefusedTopic(topic, code) for topic in request.topics]
        return AdmittedProduce(request._replace(topics=[]), refused)
    allowed, refused = [], []
    for topic in request.topics:
        if rights.check(Operation.WRITE, ResourceType.TOPIC, topic.name):
            allowed.append(topic)
        else:
            refused.append(RefusedTopic(topic, ErrorCode.TOPIC_AUTHORIZATION_FAILED))
    return AdmittedProduce(request._replace(topics=allowed) if refused else request, refused)


def admit_again(asked: AdmittedProduce, rights: Rights | None) -> AdmittedProduce:
    """Return the part of a request that is still allowed after a wait."""
    now = admit(asked.request, rights)
    return now._replace(refused=[*asked.refused, *now.refused])
