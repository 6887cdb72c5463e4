"""What every server process of Quire needs: options, log lines, the admin port, signals and an
orderly end.

Leaves what a server serves to `bookie` and `broker_layer`; imports nothing of ours.
"""
