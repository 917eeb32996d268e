"""Programs that end without tidying up: what they sent arrives, and they end quietly and at once."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from textwrap import dedent

import pytest

from goqueue.testing import BrokerProcess, running_broker

START = """
import logging, sys, threading
# In development mode asyncio warns of callbacks that are slow, as all are on a busy machine. What is wrong is an error.
logging.getLogger("asyncio").setLevel(logging.ERROR)
from goqueue import Client
address, topic = sys.argv[1:]
client = Client(address)
"""


def run(script: str, broker: BrokerProcess, topic: str, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-W", "error", "-X", "dev", "-c", START + dedent(script), broker.address, topic]
    environment |= os.environ
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, env=environment)


def run_forking(script: str, broker: BrokerProcess, topic: str) -> subprocess.CompletedProcess[str]:
    """``child()`` of the script runs in a child; what it printed and its exit status are printed by the parent."""
    script = dedent(script) + dedent(
        """
        import os
        pid = os.fork()
        if pid == 0:
            child()
            sys.exit(0)
        print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
        """
    )
    # gRPC tells on stderr that it was at work during the fork, so nothing is said of that here.
    command = [sys.executable, "-W", "error", "-c", START + script + "after()", broker.address, topic]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


def values(broker: BrokerProcess, topic: str) -> list[bytes]:
    with broker.client() as client:
        return [record.value for record in client.read(topic)]


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        pytest.param(
            """
            producer = client.producer(linger_ms=60_000)
            for number in range(5):
                producer.send(topic, str(number))
            """,
            [b"0", b"1", b"2", b"3", b"4"],
            id="sent-and-forgotten",
        ),
        pytest.param(
            """
            def work():
                Client(address).producer(linger_ms=60_000).send(topic, "from a function")
            work()
            """,
            [b"from a function"],
            id="nobody-holds-the-client",
        ),
        pytest.param(
            """
            def work():
                client.producer(linger_ms=60_000).send(topic, "from a thread")
            threading.Thread(target=work).start()
            """,
            [b"from a thread"],
            id="in-a-thread-that-outlives-the-main-one",
        ),
        pytest.param(
            """
            client.producer().send(topic, "v").result()
            records = client.read(topic, follow=True)
            next(records)
            """,
            [b"v"],
            id="a-reader-half-way",
        ),
        pytest.param(
            """
            client.producer().send(topic, "v").result()
            records = client.read(topic, follow=True)
            next(records)
            threading.Thread(target=lambda: next(records, None), daemon=True).start()
            """,
            [b"v"],
            id="a-reader-that-waits-in-a-daemon-thread",
        ),
        pytest.param(
            """
            client.producer(linger_ms=60_000).send(topic, "v")
            sys.exit(0)
            """,
            [b"v"],
            id="sys-exit",
        ),
        pytest.param(
            """
            import asyncio
            from goqueue import AsyncClient

            async def main():
                client = AsyncClient(address)
                await (await client.producer().send(topic, "v"))
                records = client.read(topic, follow=True)
                await anext(records)
                waiting = asyncio.create_task(anext(client.read(topic, 0, "latest", follow=True)))
                await client.list_topics()

            asyncio.run(main())
            """,
            [b"v"],
            id="a-loop-that-ends-under-its-readers",
        ),
        pytest.param(
            """
            with client, client.producer() as producer:
                producer.send(topic, "v")
            client.close()
            """,
            [b"v"],
            id="tidy",
        ),
    ],
)
def test_a_program_that_does_not_tidy_up_loses_nothing_and_ends_quietly(
    broker: BrokerProcess, topic: str, script: str, expected: list[bytes]
) -> None:
    ended = run(script, broker, topic)
    assert (ended.returncode, ended.stderr, ended.stdout) == (0, "", "")
    assert values(broker, topic) == expected


def test_a_program_that_fails_still_delivers_what_it_sent(broker: BrokerProcess, topic: str) -> None:
    ended = run('client.producer(linger_ms=60_000).send(topic, "v")\nraise ZeroDivisionError("mine")', broker, topic)
    assert ended.returncode == 1
    assert ended.stderr.splitlines()[-1] == "ZeroDivisionError: mine"
    assert ended.stderr.count("Traceback") == 1
    assert values(broker, topic) == [b"v"]


@pytest.mark.parametrize(
    "waits",
    [
        "for record in client.read(topic, follow=True): print(record.value.decode(), flush=True)",
        "client.producer().send(topic, 'w').result(); print('go', flush=True); threading.Event().wait()",
    ],
    ids=["reading", "elsewhere"],
)
def test_ctrl_c_ends_a_program_with_nothing_but_the_interrupt(broker: BrokerProcess, topic: str, waits: str) -> None:
    with broker.client() as client, client.producer() as producer:
        producer.send(topic, "go").result()
    script = START + f"with client:\n    {waits}"
    command = [sys.executable, "-W", "error", "-c", script, broker.address, topic]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as program:
        assert program.stdout is not None
        assert program.stdout.readline() == "go\n"
        program.send_signal(signal.SIGINT)
        _, stderr = program.communicate(timeout=60)
    assert program.returncode == -signal.SIGINT
    assert stderr.splitlines()[-1] == "KeyboardInterrupt"
    assert "During handling" not in stderr
    assert "ignored" not in stderr


def test_one_loop_after_the_other_leaves_nothing_behind_for_the_next(broker: BrokerProcess, topic: str) -> None:
    ended = run(
        """
        import asyncio
        from goqueue import AsyncClient

        async def work():
            async with AsyncClient(address) as client, client.producer(linger_ms=0) as producer:
                for number in range(20):
                    await (await producer.send(topic, b"x"))
                async for record in client.read(topic, follow=True):
                    break
                async for record in client.read(topic):
                    break

        for _ in range(6):
            asyncio.run(work())
        for _ in range(6):
            with Client(address) as another:
                for record in another.read(topic):
                    break
                next(iter(another.read(topic)))
        """,
        broker,
        topic,
    )
    assert (ended.returncode, ended.stderr) == (0, "")


def test_a_forked_child_ends_at_once_and_its_parent_goes_on(broker: BrokerProcess, topic: str) -> None:
    ended = run_forking(
        """
        from goqueue.model.errors import ClientClosed
        producer = client.producer(linger_ms=60_000)
        producer.send(topic, "before")
        records = client.read(topic)

        def child():
            try:
                client.list_topics()
            except ClientClosed as error:
                print(error, flush=True)
            producer.close()
            client.close()

        def after():
            producer.send(topic, "after")
        """,
        broker,
        topic,
    )
    assert ended.stdout.splitlines() == ["made before a fork; make a client in the child", "0"], ended.stderr
    assert ended.returncode == 0
    assert values(broker, topic) == [b"before", b"after"]


def test_a_forked_child_may_make_its_own_client_if_none_was_at_work(broker: BrokerProcess, topic: str) -> None:
    ended = run_forking(
        """
        def child():
            Client(address).producer(linger_ms=60_000).send(topic, "child")

        def after():
            client.producer().send(topic, "parent").result()
        """,
        broker,
        topic,
    )
    assert (ended.returncode, ended.stdout) == (0, "0\n"), ended.stderr
    assert values(broker, topic) == [b"child", b"parent"]


def test_a_client_made_in_a_child_works_and_over_grpc_is_refused_and_does_not_hang(
    broker: BrokerProcess, topic: str
) -> None:
    ended = run_forking(
        """
        from goqueue.model.errors import ClientError
        client.list_topics()

        def child():
            try:
                print(len(Client(address).list_topics()) > 0, flush=True)
            except ClientError as error:
                print("use 'spawn'" if "spawn" in str(error) else error, flush=True)

        def after():
            client.list_topics()
        """,
        broker,
        topic,
    )
    told = "use 'spawn'" if broker.protocol == "grpc" else "True"
    assert (ended.returncode, ended.stdout) == (0, f"{told}\n0\n"), ended.stderr


def test_a_program_does_not_wait_long_at_exit_for_a_broker_that_is_gone_and_says_what_it_gave_up() -> None:
    with running_broker() as broker:
        with broker.client() as client:
            client.create_topic("t", partitions=2)
        ended = run(
            """
            import logging, os, signal
            handler = logging.StreamHandler(sys.stdout)
            handler.setFormatter(logging.Formatter("%(message)s"))
            logging.getLogger("goqueue.client.async_client").addHandler(handler)
            logging.getLogger("goqueue").propagate = False
            logging.getLogger("goqueue").addHandler(logging.NullHandler())
            client = Client(address, exit_timeout_ms=200)
            producer = client.producer()
            producer.send_many(topic, ["stored"])
            os.kill(int(os.environ["BROKER"]), signal.SIGKILL)
            for number in range(5):
                producer.send(topic, "lost", partition=number % 2)
            """,
            broker,
            "t",
            BROKER=str(broker.process.pid),
        )
    assert (ended.returncode, ended.stderr) == (0, "")
    assert ended.stdout == "messages given up at exit messages=5 exit_timeout_ms=200\n"
