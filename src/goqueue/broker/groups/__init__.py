"""Group membership, subscriptions and committed offsets, behind one service."""
