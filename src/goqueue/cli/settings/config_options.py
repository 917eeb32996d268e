"""Configuration options that are shared by all commands that read the configuration."""

from __future__ import annotations

import os
from collections.abc import Callable
from inspect import Parameter, signature
from typing import Annotated, Any, Concatenate

import typer

from goqueue.cli.settings.config_loader import LoadedConfig, load_config
from goqueue.cli.terminal.failures import reported_as

ConfigOption = Annotated[
    str | None,
    typer.Option("--config", "-c", metavar="FILE", help="A TOML file; else $GOQUEUE_CONFIG, else ./goqueue.toml."),
]
_DATA = typer.Option("--data", metavar="DIR", help="The data folder (storage.path).")
DataOption = Annotated[str | None, _DATA]
SetOption = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="SECTION.FIELD=VALUE", help="Any other setting; may be given many times."),
]
_NAMED: dict[str, tuple[tuple[str, ...], Any]] = {
    "data": (("storage.path",), _DATA),
    "host": (
        ("http.host", "grpc.host", "native.host"),
        typer.Option("--host", metavar="HOST", help="The address to listen on (http.host, grpc.host, native.host)."),
    ),
    "port": (("http.port",), typer.Option("--port", metavar="N", help="The port; 0 takes a free one (http.port).")),
    "grpc_port": (
        ("grpc.port",),
        typer.Option("--grpc-port", metavar="N", help="The port of gRPC; 0 takes a free one (grpc.port)."),
    ),
    "fsync": (
        ("topic.fsync",),
        typer.Option(
            "--fsync", metavar="always|interval|never", help="The default fsync policy of topics (topic.fsync)."
        ),
    ),
    "log_format": (
        ("log.format",),
        typer.Option("--log-format", metavar="console|json", help="The format of log lines (log.format)."),
    ),
    "log_level": (
        ("log.level",),
        typer.Option("--log-level", metavar="debug|info|warning|error", help="The lowest level to log (log.level)."),
    ),
}
"""Options that have a name of their own, by parameter: the settings that each sets, and its declaration."""


def configured(command: Callable[Concatenate[LoadedConfig, ...], int]) -> Callable[..., None]:
    """``reported`` for a command that reads the configuration: adds the options for it to its own, and passes what they
    make as its first argument."""

    def run(config: str | None, assign: list[str] | None, **given: Any) -> int:
        named = {setting: given[name] for name, (settings, _) in _NAMED.items() for setting in settings}
        own = {name: value for name, value in given.items() if name not in _NAMED}
        return command(load(config, named, assign), **own)

    named_options = {name: Annotated[str | None, option] for name, (_, option) in _NAMED.items()}
    options = {"config": ConfigOption, **named_options, "assign": SetOption}
    _, *own = signature(command, eval_str=True).parameters.values()
    added = [
        Parameter(name, Parameter.POSITIONAL_OR_KEYWORD, default=None, annotation=each)
        for name, each in options.items()
    ]
    return reported_as(command, run, [*added, *own])


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
