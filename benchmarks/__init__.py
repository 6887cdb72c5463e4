"""Benchmarks: one script per question about speed and memory, each of which prints JSON lines (see
README.md here).
"""
