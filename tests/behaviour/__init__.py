"""What a broker does, whichever way it is reached."""
