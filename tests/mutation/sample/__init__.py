"""A module and its tests, by which `test_mutation` checks the verdicts."""
