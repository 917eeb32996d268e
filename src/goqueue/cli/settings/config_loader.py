"""Builds the configuration from its sources; a later one wins: defaults, a TOML file, the environment, flags.

Everything that is wrong, in whichever source, is reported in one error, a line each.
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
    """Every setting there is, as ``section.field``, in the order of the tree."""
    return {f"{section}.{name}": spec for section, kind in SECTIONS.items() for name, spec in specs(kind).items()}


def env_name(setting: str) -> str:
    """``http.port`` -> ``GOQUEUE_HTTP_PORT``."""
    return ENV_PREFIX + setting.replace(".", "_").upper()


@dataclass(frozen=True, slots=True)
class LoadedConfig:
    """A configuration, and where each of its settings came from.

    ``sources`` has every ``section.field``: ``default``, ``file PATH``, ``env NAME`` or ``flag``.
    """

    config: Config
    sources: Mapping[str, str]

    def value(self, setting: str) -> object:
        section, _, name = setting.partition(".")
        return getattr(getattr(self.config, section), name)


def load_config(
    *,
    path: str | None = None,
    environ: Mapping[str, str] | None = None,
    flags: Mapping[str, object] | None = None,
) -> LoadedConfig:
    """Build the configuration, or raise ``InvalidConfiguration`` with every problem of every source.

    The file is ``path``, else the one that ``GOQUEUE_CONFIG`` names, else ``./goqueue.toml`` if there is one.
    ``flags`` maps ``section.field`` to what was written. Nothing but that file is read.
    """
    found = _Found()
    _take_file(found, path, environ or {})
    _take_environment(found, environ or {})
    _take_flags(found, flags or {})
    if found.problems:
        count = len(found.problems)
        title = "the configuration has a problem" if count == 1 else f"the configuration has {count} problems"
        raise InvalidConfiguration("\n  ".join([f"{title}:", *found.problems]))
    return found.build()


class _Found:
    """What the sources said so far, good and bad."""

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


def _take_file(found: _Found, path: str | None, environ: Mapping[str, str]) -> None:
    named = path or environ.get(CONFIG_VARIABLE)
    file = Path(named) if named else DEFAULT_FILE
    try:
        document = tomllib.loads(file.read_text(encoding="utf-8-sig"))
    except FileNotFoundError:
        if named:
            origin = "--config" if path else CONFIG_VARIABLE
            found.problems.append(f"{file}: there is no such file; {origin} must name a TOML file")
        return
    except OSError as error:
        found.problems.append(f"{file}: cannot be read: {error.strerror or error}; it must be a readable TOML file")
        return
    except (ValueError, RecursionError) as error:
        found.problems.append(
            f"{file}: is not TOML: {error}; write it like: [http] on one line, port = 8080 on the next"
        )
        return
    for section, table in document.items():
        _take_section(found, file, section, table)


def _take_section(found: _Found, file: Path, section: str, table: object) -> None:
    label = section if section.isidentifier() else shown(section)
    kind = SECTIONS.get(section)
    if kind is None:
        guess = did_you_mean(section, SECTIONS) or _sections_with(section) or f"; there are {', '.join(SECTIONS)}"
        found.problems.append(f"{file}:{label}: no such section{guess}")
    elif not isinstance(table, dict):
        found.problems.append(
            f"{file}:{label}: {shown(table)} is not a table; write [{section}], and its settings below"
        )
    else:
        values, problems = parse_fields(kind, table)
        for name, value in values.items():
            found.set(f"{section}.{name}", value, f"file {file}")
        found.problems += [f"{file}:{section}.{problem}" for problem in problems]


def _sections_with(name: str) -> str:
    """A setting that was written outside of its section."""
    homes = [f"[{section}]" for section, kind in SECTIONS.items() if name in specs(kind)]
    return f"; {name} belongs below {' or '.join(homes)}" if homes else ""


def _take_environment(found: _Found, environ: Mapping[str, str]) -> None:
    known = {env_name(setting): setting for setting in found.specs}
    for variable in sorted(environ):
        if variable in known:
            found.parse(known[variable], environ[variable], f"env {variable}", variable)
        elif variable != CONFIG_VARIABLE and _looks_like_a_setting(variable):
            nearest = difflib.get_close_matches(variable[:80], known, n=1, cutoff=0)[0]
            found.problems.append(f"{variable}: no such setting; the closest is {nearest}")


def _looks_like_a_setting(variable: str) -> bool:
    """Whether a variable was meant for us; not so ``GOQUEUE_SERVICE_HOST`` and its kin, which Kubernetes sets."""
    if not variable.startswith(ENV_PREFIX):
        return False
    section = variable.removeprefix(ENV_PREFIX).partition("_")[0].lower()
    return bool(difflib.get_close_matches(section, SECTIONS, n=1, cutoff=_SECTION_LIKENESS))


def _take_flags(found: _Found, flags: Mapping[str, object]) -> None:
    for setting, raw in flags.items():
        if setting in found.specs:
            found.parse(setting, raw, "flag", f"flag {setting}")
        else:
            guess = did_you_mean(setting, found.specs) or "; 'goqueue config' prints every one"
            label = setting if setting.isprintable() and len(setting) <= 80 else shown(setting)
            found.problems.append(f"flag {label}: no such setting{guess}")
