"""Brokers that are up, and the election of their controller.

- `broker_registration`: what a live broker says about itself, and its bytes.
- `broker_registry`: registers this broker, and shows which are up.
- `election`: elects one broker as the controller.
"""
