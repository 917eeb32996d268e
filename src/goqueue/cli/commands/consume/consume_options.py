"""Options of ``goqueue consume``."""

from __future__ import annotations

from typing import Annotated

import typer

from goqueue.cli.connection.target import complete_groups, complete_lanes

_MAX_LIMIT = 1 << 62
_MAX_PARTITION = (1 << 31) - 1

FromOption = Annotated[
    str | None,
    typer.Option(
        "--from",
        metavar="WHERE",
        help="Begin at earliest (unless given), latest, an offset, an instant, -N (the last N of each partition), "
        "or PARTITION:OFFSET,….",
    ),
]
SinceOption = Annotated[str | None, typer.Option("--since", metavar="TIME", help="Begin 10m, 2h or 1d ago.")]
UntilOption = Annotated[
    str | None, typer.Option("--until", metavar="WHERE", help="End before an offset, or an instant.")
]
PartitionOption = Annotated[
    list[int] | None,
    typer.Option("--partition", "-p", min=0, max=_MAX_PARTITION, metavar="N", help="Only this partition. Repeatable."),
]
LimitOption = Annotated[
    int | None, typer.Option("--limit", "-n", min=1, max=_MAX_LIMIT, metavar="N", help="End after this many messages.")
]
FollowOption = Annotated[bool, typer.Option("--follow", "-f", help="Wait for new messages, until Ctrl-C.")]
GroupOption = Annotated[
    str | None,
    typer.Option(
        "--group",
        "-g",
        metavar="NAME",
        help="Consume as a member of this group; a new group is a queue.",
        autocompletion=complete_groups,
    ),
]
AckOption = Annotated[
    bool, typer.Option("--ack/--no-ack", help="With --group: ack printed messages, or give them back at the end.")
]
WaitOption = Annotated[
    str, typer.Option("--wait", metavar="TIME", help="With --group: end after this long without a message.")
]
KeyOption = Annotated[
    list[str] | None, typer.Option("--key", "-k", metavar="KEY", help="Only this key. Repeatable: any of them.")
]
KeyPrefixOption = Annotated[
    str | None, typer.Option("--key-prefix", metavar="TEXT", help="Only keys with this prefix.")
]
HeaderOption = Annotated[
    list[str] | None,
    typer.Option("--header", "-H", metavar="NAME[=VALUE]", help="Only with this header. Repeatable: all of them."),
]
PriorityOption = Annotated[
    str | None,
    typer.Option("--priority", metavar="LANE", help="Only of this lane.", autocompletion=complete_lanes),
]
WhereOption = Annotated[
    list[str] | None,
    typer.Option(
        "--where",
        metavar="CONDITION",
        help="Only JSON values like that: 'total > 10', 'customer.city == Oslo', 'items[0].sku exists', "
        "'name ~ ada'. Repeatable: all of them.",
    ),
]
GrepOption = Annotated[str | None, typer.Option("--grep", metavar="TEXT", help="Only values that contain this text.")]
TemplateOption = Annotated[
    str | None,
    typer.Option("--template", metavar="TEXT", help="Print a line like '{partition} {offset} {key} {value.total}'."),
]
HeadersOption = Annotated[bool, typer.Option("--headers", help="Show headers in lines as well.")]
DecodeOption = Annotated[bool, typer.Option("--decode", help="Show values that have a schema as JSON.")]
UncommittedOption = Annotated[
    bool, typer.Option("--read-uncommitted", help="Include messages of open and aborted transactions.")
]
