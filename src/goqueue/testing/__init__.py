"""A real broker for your own tests: in a process of its own, on free ports, gone afterwards.

>>> from goqueue.testing import running_broker
>>> with running_broker() as broker, broker.client() as client:
...     client.create_topic("orders")

In pytest: ``pytest_plugins = ["goqueue.testing.fixtures"]``, then ask for the fixture ``goqueue_broker``.
"""

from goqueue.testing.process import BrokerProcess, running_broker

__all__ = ["BrokerProcess", "running_broker"]
