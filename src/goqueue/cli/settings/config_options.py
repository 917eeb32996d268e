"""Configuration options that are shared by all commands that read the configuration."""

from __future__ import annotations

import os
from typing import Annotated

import typer

from goqueue.cli.settings.config_loader import LoadedConfig, load_config

ConfigOption = Annotated[
    str | None,
    typer.Option("--config", "-c", metavar="FILE", help="A TOML file; else $GOQUEUE_CONFIG, else ./goqueue.toml."),
]
DataOption = Annotated[str | None, typer.Option("--data", metavar="DIR", help="The data folder (storage.path).")]
HostOption = Annotated[
    str | None, typer.Option("--host", metavar="HOST", help="The address to listen on (http.host, grpc.host).")
]
PortOption = Annotated[
    str | None, typer.Option("--port", metavar="N", help="The port; 0 takes a free one (http.port).")
]
GrpcPortOption = Annotated[
    str | None, typer.Option("--grpc-port", metavar="N", help="The port of gRPC; 0 takes a free one (grpc.port).")
]
FsyncOption = Annotated[
    str | None,
    typer.Option("--fsync", metavar="always|interval|never", help="The default fsync policy of topics (topic.fsync)."),
]
LogFormatOption = Annotated[
    str | None, typer.Option("--log-format", metavar="console|json", help="The format of log lines (log.format).")
]
LogLevelOption = Annotated[
    str | None,
    typer.Option("--log-level", metavar="debug|info|warning|error", help="The lowest level to log (log.level)."),
]
SetOption = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="SECTION.FIELD=VALUE", help="Any other setting; may be given many times."),
]


def load(path: str | None, named: dict[str, str | None], assignments: list[str] | None) -> LoadedConfig:
    """Load the configuration: ``named`` holds the flags with names of their own, ``assignments`` those of ``--set``.

    A setting given twice with different values is refused: the order of options does not show which was meant.
    """
    flags: dict[str, object] = {setting: raw for setting, raw in named.items() if raw is not None}
    for assignment in assignments or ():
        setting, separator, raw = assignment.partition("=")
        setting = setting.strip()
        if not separator or not setting:
            raise typer.BadParameter(
                f"{assignment!r} is not SECTION.FIELD=VALUE, such as http.port=9000", param_hint="--set"
            )
        if flags.setdefault(setting, raw) != raw:
            raise typer.BadParameter(
                f"{setting} is given twice, as {flags[setting]!r} and as {raw!r}", param_hint="--set"
            )
    return load_config(path=path, environ=os.environ, flags=flags)


def data_folder(argument: str | None, option: str | None) -> str | None:
    """The data folder of a command that takes it as an argument or by ``--data``; giving both is refused."""
    if argument is not None and option is not None:
        raise typer.BadParameter("DATA and --data name the same thing; use one of them")
    return option if argument is None else argument
