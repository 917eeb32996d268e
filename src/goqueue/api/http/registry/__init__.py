"""The routes of the schema registry."""
