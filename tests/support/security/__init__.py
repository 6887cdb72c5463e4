"""Support of tests of security."""
