"""Comparisons of ways to replicate, on real processes and in a model of months."""
