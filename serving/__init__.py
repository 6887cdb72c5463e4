"""Parts common to all server processes of Quire: options, log, admin port, signals and a clean
stop.

Leaves the services to `bookie` and `broker_layer`; imports no other package of Quire.
"""
