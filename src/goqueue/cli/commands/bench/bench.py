"""``goqueue bench``: measures the throughput and latency of a running broker from this client."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from goqueue.cli.connection.target import BrokerOptions, YesOption, on_broker
from goqueue.cli.terminal.failures import EXIT_INTERRUPTED
from goqueue.cli.terminal.output import print_json, print_lines
from goqueue.cli.terminal.times import duration_ms
from goqueue.model.errors import InvalidRequest
from goqueue.model.units import parse_size_bytes
from goqueue.observe.logs import escape

if TYPE_CHECKING:
    from goqueue.cli.commands.bench.bench_run import Bench
    from goqueue.cli.commands.bench.bench_stage import Plan
    from goqueue.cli.connection.broker_http import BrokerHttp
    from goqueue.client.keywords import TopicOptions

EXAMPLES = """\b
Examples:
  goqueue bench --messages 20000                         publish and read, on a temporary topic
  goqueue bench --mode latency --rate 500 --for 1s       how long a message takes at a pace
  goqueue bench --mode queue --messages 5000             poll and ack
  goqueue bench --mode consume --topic orders            how fast a topic of yours is read
  goqueue bench --for 500ms --size 1KiB --fsync interval --json
"""

_MESSAGES = 100_000
_LATENCY_RATE = 1_000.0
_LATENCY_FOR_S = 10.0
_MOST_MESSAGES = 1_000_000_000
_LONGEST_MS = 86_400_000
_LEAST_SIZE, _MOST_SIZE = 16, 16 << 20
_MOST_BATCH_BYTES = 64 << 20


Mode = Literal["publish", "consume", "both", "queue", "latency"]

MessagesOption = Annotated[
    int | None,
    typer.Option(
        "--messages", "-n", min=1, max=_MOST_MESSAGES, metavar="N", help="How many messages. [default: 100000]"
    ),
]
ForOption = Annotated[str | None, typer.Option("--for", metavar="TIME", help="Run for this long instead, such as 10s.")]
SizeOption = Annotated[
    str, typer.Option("--size", metavar="SIZE", help="The size of a message's value: 16 bytes to 16MiB.")
]
TopicOption = Annotated[
    str | None,
    typer.Option(
        "--topic",
        metavar="NAME",
        help="A topic that exists; what is published stays in it. Else a temporary one, deleted afterwards.",
    ),
]
PartitionsOption = Annotated[
    int | None,
    typer.Option("--partitions", min=1, max=1_000, metavar="N", help="Partitions of the temporary topic. [default: 3]"),
]
FsyncChoice = Annotated[
    Literal["always", "interval", "never"] | None,
    typer.Option("--fsync", help="Fsync policy of the temporary topic. [default: as the broker is set]"),
]
ModeOption = Annotated[Mode, typer.Option("--mode", help="What to measure.")]
RateOption = Annotated[
    float | None,
    typer.Option(
        "--rate", min=1, max=1_000_000, metavar="N", help="Publish this many a second, each when it is due. [no limit]"
    ),
]
ProducersOption = Annotated[
    int, typer.Option("--producers", min=1, max=64, metavar="N", help="How many producers publish at the same time.")
]
BatchOption = Annotated[
    int, typer.Option("--batch", min=1, max=100_000, metavar="N", help="How many messages a producer sends at once.")
]
LingerOption = Annotated[
    str, typer.Option("--linger", metavar="TIME", help="With a rate: how long a message waits for others in its batch.")
]


@on_broker
def bench(
    options: BrokerOptions,
    messages: MessagesOption = None,
    for_time: ForOption = None,
    mode: ModeOption = "both",
    size: SizeOption = "100",
    topic: TopicOption = None,
    partitions: PartitionsOption = None,
    fsync: FsyncChoice = None,
    rate: RateOption = None,
    producers: ProducersOption = 4,
    batch: BatchOption = 500,
    linger: LingerOption = "5ms",
    yes: YesOption = False,
) -> int:
    """Measure a running broker: throughput, latency, a queue with acks.

    With a rate, or in mode latency, each message is timed from when it was due, so a stall shows in all messages that
    it delays. Without one, everything is published at full speed, and batches are timed. Ctrl-C shows what was measured
    so far; the temporary topic is deleted in any case.
    """
    import asyncio

    from goqueue.cli.commands.bench.bench_run import Bench
    from goqueue.cli.commands.bench.bench_view import result_lines
    from goqueue.cli.connection.target import grpc_address
    from goqueue.client.async_client import AsyncClient

    plan = _make_plan(mode, messages, for_time, size, topic, rate, producers, batch, linger)
    broker = options.broker()
    settings: TopicOptions = {"partitions": partitions or 3}
    if fsync is not None:
        settings["fsync"] = fsync
    if topic is not None:
        _check_topic(broker, plan, topic, is_shaped=partitions is not None or fsync is not None)
        if mode != "consume" and not _confirm_publish(plan, yes, options):
            return 1
    address = grpc_address(options.server, options.timeout)
    version = broker.get("/version")["version"]

    async def run() -> tuple[Bench, bool]:
        async with AsyncClient(address) as client:
            bench_run = Bench(client, plan, settings)
            return bench_run, await bench_run.run()

    done, is_complete = asyncio.run(run())
    facts = _facts(broker, version, plan, done)
    if options.as_json:
        print_json({**facts, "finished": is_complete, "stages": [stage.as_json() for stage in done.stages]})
    elif done.stages:
        print_lines(result_lines(facts, done.stages))
    if not is_complete:
        outcome = "" if plan.is_temporary else "; what was published stays in its topic"
        typer.echo(f"stopped{'; the temporary topic is deleted' if done.is_clean else outcome}", err=True)
    return 0 if is_complete else EXIT_INTERRUPTED


def _make_plan(
    mode: Mode,
    messages: int | None,
    for_time: str | None,
    size: str,
    topic: str | None,
    rate: float | None,
    producers: int,
    batch: int,
    linger: str,
) -> Plan:
    from uuid import uuid4

    from goqueue.cli.commands.bench.bench_run import PREFIX
    from goqueue.cli.commands.bench.bench_stage import Plan

    if messages is not None and for_time is not None:
        raise typer.BadParameter("give --messages or --for, not both", param_hint="--for")
    seconds = None if for_time is None else duration_ms("--for", for_time, least_ms=1, most_ms=_LONGEST_MS) / 1_000
    if mode == "consume" and rate is not None:
        raise typer.BadParameter("--rate is of publishing; mode consume has none of that", param_hint="--rate")
    if mode == "latency":
        rate = rate or _LATENCY_RATE
        if messages is None and seconds is None:
            seconds = _LATENCY_FOR_S
    elif messages is None and seconds is None and not (mode == "consume" and topic is not None):
        messages = _MESSAGES
    linger_ms = duration_ms("--linger", linger, most_ms=60_000)
    size_bytes = _size(size)
    if size_bytes * batch > _MOST_BATCH_BYTES:
        most = _MOST_BATCH_BYTES // size_bytes
        raise typer.BadParameter(
            f"{batch} messages of {size} are more than 64MiB; at most {most}", param_hint="--batch"
        )
    name = topic or PREFIX + uuid4().hex[:12]
    return Plan(name, topic is None, mode, messages, seconds, size_bytes, batch, producers, rate, linger_ms)


def _size(text: str) -> int:
    try:
        found = parse_size_bytes(text)
    except InvalidRequest as error:
        raise typer.BadParameter(str(error), param_hint="--size") from None
    if not _LEAST_SIZE <= found <= _MOST_SIZE:
        raise typer.BadParameter(f"{text} is out of range; 16 bytes to 16MiB", param_hint="--size")
    return found


def _check_topic(broker: BrokerHttp, plan: Plan, topic: str, *, is_shaped: bool) -> None:
    if is_shaped:
        raise typer.BadParameter(
            "--partitions and --fsync are of the temporary topic; a topic of yours has its own", param_hint="--topic"
        )
    broker.send("GET", ["topics", topic])


def _confirm_publish(plan: Plan, yes: bool, options: BrokerOptions) -> bool:
    """Ask before publishing to an existing topic, whose readers will get the messages."""
    from goqueue.cli.connection.confirmation import confirmed

    how_many = "" if plan.messages is None else f"{plan.messages:,} "
    question = f"Publish {how_many}messages of random bytes into {escape(plan.topic)}, to stay there?"
    return confirmed(question, yes, options)


def _facts(broker: BrokerHttp, version: str, plan: Plan, done: Bench) -> dict[str, Any]:
    return {
        "server": broker.server,
        "version": version,
        "shares_machine": shares_machine(broker.server),
        "mode": plan.mode,
        "topic": plan.topic,
        "temporary_topic": plan.is_temporary,
        "partitions": done.partitions,
        "fsync": done.fsync,
        "size_bytes": plan.size_bytes,
        "producers": plan.producers,
        "batch": plan.batch,
        "rate": plan.rate,
        "linger_ms": plan.linger_ms,
    }


def shares_machine(server: str) -> bool:
    """Whether the broker is on this machine: packets to it would then have its own address as their source. None is
    sent."""
    from goqueue.cli.connection.broker_http import host_of

    try:
        for family, kind, protocol, _, address in socket.getaddrinfo(host_of(server), 9, type=socket.SOCK_DGRAM):
            with socket.socket(family, kind, protocol) as probe:
                probe.connect(address)
                if probe.getsockname()[0] == address[0]:
                    return True
    except OSError:
        pass
    return False
