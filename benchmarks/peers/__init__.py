"""Comparison of Quire, Apache BookKeeper and Apache Kafka: the same work, interleaved on one
machine.
"""
