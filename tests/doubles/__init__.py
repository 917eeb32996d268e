"""Stand-ins for the outside world, and builders of what tests need over and over."""
