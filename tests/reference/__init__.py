"""Generator of the pages in docs/reference/, and the test that no page is stale."""
