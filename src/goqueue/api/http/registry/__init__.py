"""The routes of the schema registry, at the paths that registry clients call."""
