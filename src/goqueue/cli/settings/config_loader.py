"""Builds the configuration from its sources. Each overrides the one before: defaults, a TOML file, the environment,
flags.

All problems of all sources are reported in one error, one line each.
"""

from __future__ import annotations

import dataclasses
import difflib
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from goqueue.model.config import Config
from goqueue.model.errors import GoQueueError, InvalidConfiguration
from goqueue.model.fields import FieldSpec, did_you_mean, parse_fields, shown, specs

ENV_PREFIX = "GOQUEUE_"
CONFIG_VARIABLE = "GOQUEUE_CONFIG"
DEFAULT_FILE = Path("goqueue.toml")
SECTIONS: dict[str, type] = {
    section.name: type(getattr(Config(), section.name)) for section in dataclasses.fields(Config)
}
_SECTION_LIKENESS = 0.7


def setting_specs() -> dict[str, FieldSpec]:
    """Every setting, as ``section.field``, in the order of declaration."""
    return {f"{section}.{name}": spec for section, kind in SECTIONS.items() for name, spec in specs(kind).items()}


def env_name(setting: str) -> str:
    """``http.port`` -> ``GOQUEUE_HTTP_PORT``."""
    return ENV_PREFIX + setting.replace(".", "_").upper()


@dataclass(frozen=True, slots=True)
class LoadedConfig:
    """A configuration, and the source of each of its settings.

    ``sources`` maps every ``section.field`` to ``default``, ``file PATH``, ``env NAME`` or ``flag``.
    """

    config: Config
    sources: Mapping[str, str]

    def value(self, setting: str) -> object:
        section, _, name = setting.partition(".")
        return getattr(getattr(self.config, section), name)


def load_config(
    *, path: str | None = None, environ: Mapping[str, str] | None = None, flags: Mapping[str, object] | None = None
) -> LoadedConfig:
    """Build the configuration, or raise ``InvalidConfiguration`` with every problem of every source.

    The file is ``path``, else the one named by ``GOQUEUE_CONFIG``, else ``./goqueue.toml`` if it exists. ``flags`` maps
    ``section.field`` to the text given. Nothing but that file is read.
    """
    builder = _ConfigBuilder()
    _read_file(builder, path, environ or {})
    _read_environment(builder, environ or {})
    _read_flags(builder, flags or {})
    if builder.problems:
        count = len(builder.problems)
        title = "the configuration has a problem" if count == 1 else f"the configuration has {count} problems"
        raise InvalidConfiguration("\n  ".join([f"{title}:", *builder.problems]))
    return builder.build()


class _ConfigBuilder:
    """Values, their sources, and problems collected so far."""

    def __init__(self) -> None:
        self.specs = setting_specs()
        self.values: dict[str, Any] = {}
        self.sources = dict.fromkeys(self.specs, "default")
        self.problems: list[str] = []

    def set(self, setting: str, value: object, source: str) -> None:
        self.values[setting] = value
        self.sources[setting] = source

    def parse(self, setting: str, raw: object, source: str, label: str) -> None:
        try:
            self.set(setting, self.specs[setting].parse(raw), source)
        except GoQueueError as error:
            self.problems.append(f"{label}: {error}")

    def build(self) -> LoadedConfig:
        sections = {
            section: kind(
                **{name: self.values[key] for name in specs(kind) if (key := f"{section}.{name}") in self.values}
            )
            for section, kind in SECTIONS.items()
        }
        return LoadedConfig(config=Config(**sections), sources=self.sources)


def _read_file(builder: _ConfigBuilder, path: str | None, environ: Mapping[str, str]) -> None:
    given = path or environ.get(CONFIG_VARIABLE)
    file = Path(given) if given else DEFAULT_FILE
    try:
        document = tomllib.loads(file.read_text(encoding="utf-8-sig"))
    except FileNotFoundError:
        if given:
            origin = "--config" if path else CONFIG_VARIABLE
            builder.problems.append(f"{file}: there is no such file; {origin} must name a TOML file")
        return
    except OSError as error:
        builder.problems.append(f"{file}: cannot be read: {error.strerror or error}; it must be a readable TOML file")
        return
    except (ValueError, RecursionError) as error:
        builder.problems.append(
            f"{file}: is not TOML: {error}; write it like: [http] on one line, port = 8080 on the next"
        )
        return
    for section, table in document.items():
        _read_section(builder, file, section, table)


def _read_section(builder: _ConfigBuilder, file: Path, section: str, table: object) -> None:
    label = section if section.isidentifier() else shown(section)
    kind = SECTIONS.get(section)
    if kind is None:
        guess = did_you_mean(section, SECTIONS) or _sections_with(section) or f"; there are {', '.join(SECTIONS)}"
        builder.problems.append(f"{file}:{label}: no such section{guess}")
    elif not isinstance(table, dict):
        builder.problems.append(
            f"{file}:{label}: {shown(table)} is not a table; write [{section}], and its settings below"
        )
    else:
        values, problems = parse_fields(kind, table)
        for name, value in values.items():
            builder.set(f"{section}.{name}", value, f"file {file}")
        builder.problems += [f"{file}:{section}.{problem}" for problem in problems]


def _sections_with(name: str) -> str:
    """A hint for a setting that was written outside of its section."""
    homes = [f"[{section}]" for section, kind in SECTIONS.items() if name in specs(kind)]
    return f"; {name} belongs below {' or '.join(homes)}" if homes else ""


def _read_environment(builder: _ConfigBuilder, environ: Mapping[str, str]) -> None:
    known = {env_name(setting): setting for setting in builder.specs}
    for variable in sorted(environ):
        if variable in known:
            builder.parse(known[variable], environ[variable], f"env {variable}", variable)
        elif variable != CONFIG_VARIABLE and _looks_like_a_setting(variable):
            nearest = difflib.get_close_matches(variable[:80], known, n=1, cutoff=0)[0]
            builder.problems.append(f"{variable}: no such setting; the closest is {nearest}")


def _looks_like_a_setting(variable: str) -> bool:
    """Whether a variable was meant for GoQueue; false for ``GOQUEUE_SERVICE_HOST`` and the like, which Kubernetes
    sets."""
    if not variable.startswith(ENV_PREFIX):
        return False
    section = variable.removeprefix(ENV_PREFIX).partition("_")[0].lower()
    return bool(difflib.get_close_matches(section, SECTIONS, n=1, cutoff=_SECTION_LIKENESS))


def _read_flags(builder: _ConfigBuilder, flags: Mapping[str, object]) -> None:
    for setting, raw in flags.items():
        if setting in builder.specs:
            builder.parse(setting, raw, "flag", f"flag {setting}")
        else:
            guess = did_you_mean(setting, builder.specs) or "; 'goqueue config' prints every one"
            label = setting if setting.isprintable() and len(setting) <= 80 else shown(setting)
            builder.problems.append(f"flag {label}: no such setting{guess}")
