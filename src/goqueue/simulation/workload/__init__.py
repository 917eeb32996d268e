"""What simulated clients and operators do: each operation tells the model what it asks for, and what it was told."""
