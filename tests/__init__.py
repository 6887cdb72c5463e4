"""Tests of Quire; never installed."""
