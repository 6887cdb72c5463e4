"""Live brokers, and the election of their controller."""
