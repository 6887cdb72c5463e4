"""The packages that a release installs: their lock file, and known vulnerabilities of them."""
