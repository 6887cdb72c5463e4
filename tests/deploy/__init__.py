"""Checks of the files in `deploy/`, as far as they can be checked without a cluster.

- `commands`: commands and configuration of Quire in these files.
- `compose_file`: the compose file as values.
- `dockerfile`: the Dockerfile's instructions.
- `image_steps`: the steps that make the image, run in a directory; a program.
- `rendering`: the chart as Helm renders it; a program that writes the golden files again.
- `test_chart`, `test_compose`, `test_image`: the chart, the compose file, the image.
- `test_systemd`: units of systemd.
"""
