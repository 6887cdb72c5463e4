"""A short campaign on an ensemble, for machines that test every change: `pytest -m campaign`."""

import json

import pytest

from tests.campaign.runner import Campaign, run_campaign
from tests.campaign.zookeeper.faults import FIRST
from tests.campaign.zookeeper.world import EnsembleWorld

SECONDS = 40.0
LIMIT_S = 600


@pytest.mark.timeout(LIMIT_S)
async def test_sessions_and_writers_survive_a_fault_of_one_server() -> None:
    campaign = Campaign(SECONDS, seed=21, bookies=6, down_max=1, megabytes_per_s=2.0)
    summary = await run_campaign(campaign, EnsembleWorld)
    assert summary["is_well"], json.dumps(summary, indent=2)
    assert summary["acked_entries"] > 0
    assert set(FIRST) & set(summary["faults"])
    assert summary["sessions"]["applied"] > 0
    assert summary["sessions"]["sessions_moved"] > 0
