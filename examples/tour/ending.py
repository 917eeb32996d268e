"""The end: what there was in all, and where to go on."""

from __future__ import annotations

from examples.tour.shop import Shop
from examples.tour.workers import stop_workers


def show(shop: Shop) -> None:
    shop.stage.chapter("Closing time", "Everybody is told to stop, and stops in good order.")
    shop.check_log()
    shop.shipments.check(set(shop.orders))
    ended = stop_workers(shop)
    shop.close_client()
    ended.append(shop.broker.stop())
    shop.stage.so(
        not any(ended),
        f"{len(shop.orders):,} orders, as many shipments; {len(ended) - 1} workers and the broker have ended",
        f"they ended with {ended}",
    )
