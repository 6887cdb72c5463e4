"""The answer of a comparison: which configuration serves which need, and by which figure.

- `needs`: what people need from replication, as values.
- `evidence`: figures of one scenario, by configuration.
- `recommendation`: the choice for each need.
- `advice`: the choice in words.
"""
