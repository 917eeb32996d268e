"""Whole brokers on virtual time, a simulated disk and seeded randomness: one seed gives one history.

``python -m goqueue.simulation`` runs schedules of operations and faults and holds what clients were told against what
the broker does afterwards. A failure prints its seed, and a shorter schedule that fails in the same way.
"""
