"""Groups of the classic protocol: members, rebalances and their requests."""
