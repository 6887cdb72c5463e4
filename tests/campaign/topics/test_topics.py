"""Short campaigns on topics, for machines that test every change: `pytest -m campaign`."""

import json

import pytest

from tests.campaign.topics.clients import Load
from tests.campaign.topics.runner import Campaign, run_campaign

SECONDS = 60.0
LIMIT_S = 900


@pytest.mark.timeout(LIMIT_S)
@pytest.mark.parametrize("seed", [21, 22])
async def test_every_guarantee_is_kept(seed: int) -> None:
    summary = await run_campaign(Campaign(SECONDS, Load(seed)))
    assert summary["is_well"], json.dumps(summary, indent=2)
    assert summary["acked_records"] > 0
    assert summary["tokens_committed"] > 0
    assert summary["faults"]
