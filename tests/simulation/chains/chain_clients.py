"""Machines of the clients of chains and claims.

Leaves their work to the modules of this folder.
"""

from dataclasses import replace

from tests.simulation.chains.administering import administer_chains
from tests.simulation.chains.claiming import claim_ledgers
from tests.simulation.chains.following import follow_chains
from tests.simulation.chains.publishing import publisher
from tests.simulation.cluster import Cluster
from tests.simulation.nodes import ClientNode

ADMINISTRATORS = 2


def add_chain_clients(cluster: Cluster) -> None:
    """Add them, if the plan has any."""
    work = cluster.plan.chains
    if work is None:
        return
    publishers = [(f"publisher-{number}", publisher(number)) for number in range(work.publishers)]
    others = [
        *[(f"administrator-{number}", administer_chains) for number in range(ADMINISTRATORS)],
        *[(f"follower-{number}", follow_chains) for number in range(work.followers)],
        *[(f"claimer-{number}", claim_ledgers) for number in range(work.claimers)],
    ]
    for name, run in (*publishers, *others):
        node = ClientNode(cluster, name, run)
        if work.has_true_time:
            node.clock = replace(node.clock, skew_s=0.0)
        cluster.clients.append(node)
