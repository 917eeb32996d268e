"""Pipeline definitions in YAML or Python, with settings that are validated before anything runs."""
