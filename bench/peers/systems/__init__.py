"""How each system is installed, started and stopped."""
