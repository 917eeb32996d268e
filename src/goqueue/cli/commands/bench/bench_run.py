"""Runs the stages of ``goqueue bench`` on a temporary topic, which is deleted however the run ends."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator, Coroutine, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING
from uuid import uuid4

import typer

from goqueue.cli.commands.bench import bench_work as work
from goqueue.cli.commands.bench.bench_stage import Plan, Stage
from goqueue.cli.terminal import progress
from goqueue.model.errors import GoQueueError

if TYPE_CHECKING:
    from goqueue.cli.terminal.progress import Bar
    from goqueue.client.async_client import AsyncClient
    from goqueue.client.consumer.consumer import AsyncConsumer
    from goqueue.client.keywords import TopicOptions
    from goqueue.model.group_settings import StartAt

PREFIX = "goqueue-bench-"
"""Prefix of the names of temporary topics and groups."""
_CLEAN_UP_WITHIN_S = 15.0
_NOT_FOUND = 404


class Bench:
    """One run. ``stages`` has what was measured so far, also if it was stopped."""

    def __init__(self, client: AsyncClient, plan: Plan, settings: TopicOptions) -> None:
        self._client = client
        self._plan = plan
        self._settings = settings
        self.stages: list[Stage] = []
        self._is_ending = False
        self._clean_up_s = _CLEAN_UP_WITHIN_S
        self.is_clean = False
        """Whether the temporary topic has been deleted."""
        self.fsync = ""
        self.partitions = 0

    async def run(self) -> bool:
        """Run all stages. False if Ctrl-C or SIGTERM stopped it; temporary topic and group are deleted before it
        returns.

        If the broker does not answer, deleting takes a while: a second signal cancels everything that still waits for
        it.
        """
        task = asyncio.create_task(self._run_stages())
        loop = asyncio.get_running_loop()
        waiting = asyncio.current_task()
        signals = 0

        def stop() -> None:
            nonlocal signals
            signals += 1
            if signals > 1:
                self._clean_up_s = 0.0
                for each in asyncio.all_tasks() - {waiting}:
                    each.cancel()
            elif not self._is_ending:
                task.cancel()

        numbers = (signal.SIGINT, signal.SIGTERM)
        for number in numbers:
            loop.add_signal_handler(number, stop)
        try:
            await asyncio.wait([task])
        finally:
            for number in numbers:
                loop.remove_signal_handler(number)
        if task.cancelled():
            return False
        task.result()
        return not signals

    async def _run_stages(self) -> None:
        plan = self._plan
        if not plan.is_temporary:
            await self._measure()
            return
        try:
            await self._client.create_topic(plan.topic, **self._settings)
            await self._measure()
        finally:
            self._is_ending = True
            self.is_clean = await self._delete("topic", plan.topic, self._client.delete_topic(plan.topic))

    async def _measure(self) -> None:
        info = await self._client.describe_topic(self._plan.topic)
        self.fsync, self.partitions = info.settings["fsync"], len(info.partitions)
        mode = self._plan.mode
        if mode in ("publish", "both"):
            await self._publish("publish")
        if mode == "both":
            await self._consume(self.stages[0].messages)
        elif mode == "consume":
            filled = await self._fill() if self._plan.is_temporary else self._plan.messages
            await self._consume(filled)
        elif mode == "queue":
            await self._queue()
        elif mode == "latency":
            await self._latency()

    async def _publish(self, name: str) -> None:
        plan = self._plan
        if plan.rate is None:
            with self._stage(name, plan.messages) as (stage, bar):
                await work.publish(self._client, plan, stage, bar)
            return
        with self._stage(f"{name} at {plan.rate:,.0f}/s", plan.paced_messages) as (stage, bar):
            await work.publish_at_pace(self._client, plan, stage, bar, work.Values(plan.size_bytes), work.Schedule())

    async def _fill(self) -> int:
        """Publish the messages to be consumed later; this is not measured."""
        plan = self._plan
        filled = Stage("fill", plan.messages)
        with progress.progress_bar("filling the topic", plan.messages) as bar:
            await work.publish(self._client, plan, filled, bar)
        return filled.messages

    async def _consume(self, wanted: int | None) -> None:
        with self._stage("consume", wanted) as (stage, bar):
            await work.consume(self._client, self._plan, stage, bar)

    async def _queue(self) -> None:
        plan = self._plan
        group = PREFIX + uuid4().hex[:12]
        try:
            if plan.rate is None:
                wanted = await self._fill()
                async with self._member(group, "earliest") as consumer:
                    with self._stage("queue, poll and ack", wanted) as (stage, bar):
                        await work.drain(consumer, stage, bar, due_of=lambda _: None)
                return
            values, due = work.Values(plan.size_bytes), work.Schedule()
            wanted = plan.paced_messages

            def due_of(value: bytes) -> float | None:
                number = values.number_in(value)
                return None if number is None else due.at(number)

            async with self._member(group, "latest") as consumer:
                sent = Stage("publish", wanted)
                no_bar = progress.progress_bar("", is_enabled=False)
                with self._stage(f"queue at {plan.rate:,.0f}/s", wanted) as (stage, bar), no_bar as nothing:
                    await work.run_together(
                        work.publish_at_pace(self._client, plan, sent, nothing, values, due),
                        work.drain(consumer, stage, bar, due_of=due_of),
                    )
                    stage.remarks += sent.remarks
        finally:
            await self._delete("group", group, self._client.delete_group(group))

    @asynccontextmanager
    async def _member(self, group: str, start: StartAt) -> AsyncIterator[AsyncConsumer]:
        """A member of a group of its own. A temporary topic is consumed from the beginning: it holds only this run's
        messages."""
        begin: StartAt = "earliest" if self._plan.is_temporary else start
        async with self._client.consumer(group, [self._plan.topic], kind="shared", start=begin) as consumer:
            yield consumer

    async def _latency(self) -> None:
        plan = self._plan
        values, due, ready = work.Values(plan.size_bytes), work.Schedule(), asyncio.Event()
        with self._stage(f"latency at {plan.rate or 0:,.0f}/s", plan.paced_messages) as (stage, bar):

            async def send() -> None:
                await ready.wait()
                stage.begin()
                await work.publish_at_pace(self._client, plan, stage, bar, values, due)

            await work.run_together(work.follow(self._client, plan, stage, values, due, ready), send())

    @contextmanager
    def _stage(self, name: str, wanted: int | None) -> Iterator[tuple[Stage, Bar]]:
        stage = Stage(name, wanted)
        self.stages.append(stage)
        is_done = False
        with progress.progress_bar(name, wanted) as bar:
            stage.begin()
            try:
                yield stage, bar
                is_done = True
            finally:
                stage.end(is_done=is_done)

    async def _delete(self, kind: str, name: str, deleting: Coroutine[None, None, None]) -> bool:
        """Delete a topic or group; True if it is gone. If it cannot be deleted, print the command to do it later."""
        try:
            async with asyncio.timeout(self._clean_up_s):
                await deleting
            return True
        except (GoQueueError, TimeoutError, asyncio.CancelledError) as error:
            if isinstance(error, GoQueueError) and error.http_status == _NOT_FOUND:
                return True
            why = str(error) or "there was no time for it"
            typer.echo(
                f"{kind} {name} is not deleted ({why}); do it later: goqueue {kind} delete {name} --yes", err=True
            )
            if isinstance(error, asyncio.CancelledError):
                raise
            return False
