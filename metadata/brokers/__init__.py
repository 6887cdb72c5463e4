"""Brokers that are up, and the election of their controller."""
