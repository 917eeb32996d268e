"""Declaring a pipeline: in YAML or Python, with settings that are checked before anything runs."""
