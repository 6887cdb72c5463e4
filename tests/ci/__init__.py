"""Continuous integration: its stages, what a red test must prove, and the report at the end."""
