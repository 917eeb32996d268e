"""Loading of pipelines from files: strictly parsed YAML, and Python modules that define ``PIPELINE``."""

from __future__ import annotations

import re
import runpy
from collections.abc import Iterator, Mapping
from dataclasses import replace
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

from goqueue.model.errors import GoQueueError
from goqueue.model.fields import did_you_mean, shown
from goqueue.spark.pipelines import builtin
from goqueue.spark.pipelines.definitions.definition import Pipeline
from goqueue.spark.pipelines.definitions.flow import flow_of
from goqueue.spark.pipelines.definitions.keys import unknown_key
from goqueue.spark.pipelines.definitions.problems import InvalidPipeline, PipelineProblems, problem_list
from goqueue.spark.pipelines.definitions.settings import LARGEST, Kind, Setting, Settings
from goqueue.spark.pipelines.definitions.yaml_lines import lines_of, with_lines

if TYPE_CHECKING:
    import yaml

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_KEYS = ("name", "summary", "settings", "source", "steps", "quality", "sink", "trigger", "checkpoint")
_SETTING_KEYS = ("kind", "doc", "default", "required", "min", "max", "choices", "may_change")
_SUFFIXES = (".yaml", ".yml", ".py")
_PATH_END = re.compile(r"[.:\[]")
_STAND_IN_VALUE = "\N{WHITE SQUARE}"
"""Stand-in for a setting without a value; a character that no pipeline contains."""


def find_pipeline(name_or_file: str) -> Pipeline:
    """The built-in pipeline with this name, or the one in this file."""
    if name_or_file in builtin.NAMES:
        return builtin.builtin(name_or_file)
    file = Path(name_or_file)
    if file.suffix.lower() in _SUFFIXES or file.exists():
        return load(file)
    suffixes = [suffix for suffix in _SUFFIXES if Path(name_or_file + suffix).exists()]
    there_are = f"; there are {', '.join(builtin.NAMES)}, or name a file that ends in .yaml or .py"
    guess = (
        f"; did you mean the file {name_or_file}{suffixes[0]}?"
        if suffixes
        else did_you_mean(name_or_file, builtin.NAMES)
    )
    raise InvalidPipeline(f"there is no pipeline {shown(name_or_file)}{guess or there_are}")


def load(file: Path) -> Pipeline:
    """Load the pipeline in a file, validated as far as possible without values for its settings."""
    try:
        text = file.read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        raise InvalidPipeline(f"{file}: there is no such file; 'goqueue pipeline new NAME' makes one") from None
    except (OSError, UnicodeError) as error:
        raise InvalidPipeline(f"{file}: cannot be read: {getattr(error, 'strerror', None) or error}") from None
    return _from_python(file) if file.suffix.lower() == ".py" else from_yaml(text, str(file))


def _from_python(file: Path) -> Pipeline:
    try:
        names = runpy.run_path(str(file), run_name="goqueue_pipeline")
    except GoQueueError:
        raise
    except Exception as error:
        line = _line_in(file, error)
        raise InvalidPipeline(f"{file}{line}: cannot be run: {type(error).__name__}: {error}") from error
    pipeline = names.get("PIPELINE")
    if not isinstance(pipeline, Pipeline):
        raise InvalidPipeline(
            f"{file}: it has no PIPELINE; write 'from goqueue.spark.pipelines import Pipeline', "
            "and 'PIPELINE = Pipeline(name=…, …)' at its end"
        )
    problems = list(_name_problems(pipeline.name))
    if (pipeline.run is None) == (pipeline.source is None):
        problems.append("a pipeline has one of run (a function) and source (with steps and a sink)")
    if problems:
        raise problem_list(str(file), problems)
    return pipeline


def _line_in(file: Path, error: Exception) -> str:
    """The line of the file that raised the error, as ``:LINE``; empty if it is not in the file."""
    line = error.lineno if isinstance(error, SyntaxError) else None
    trace = error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == str(file):
            line = trace.tb_lineno
        trace = trace.tb_next
    return f":{line}" if line else ""


def from_yaml(text: str, file: str) -> Pipeline:
    """Parse a pipeline in YAML. Unknown and duplicate keys raise ``PipelineProblems`` or ``InvalidPipeline``."""
    document = _parse_yaml(text, file)
    if not isinstance(document, Mapping):
        raise InvalidPipeline(f"{file}: it is not a pipeline; it begins with 'name: …', 'source: …' and 'sink: …'")
    line_of = lines_of(text)
    problems = [unknown_key(key, _KEYS) for key in document if key not in _KEYS]
    problems += _name_problems(document.get("name"))
    for key in ("summary", "checkpoint"):
        if key in document and not isinstance(document[key], str):
            problems.append(f"{key}: {shown(document[key])} is not a text")
    settings = _parse_settings(document.get("settings"), problems)
    if problems:
        raise problem_list(file, with_lines([*problems, *_further_problems(document, settings)], line_of))
    return Pipeline(**{"source": {}, **_present_keys(document), "settings": settings, "file": file, "line_of": line_of})


def _present_keys(document: Mapping[Any, Any]) -> dict[str, Any]:
    return {key: document[key] for key in _KEYS if key in document and document[key] is not None}


def _further_problems(document: Mapping[Any, Any], settings: tuple[Setting, ...]) -> Iterator[str]:
    """Further problems in a file that has some already, so that all can be corrected at once.

    A mistyped key is replaced by the nearest known one. Settings without a value get a stand-in; problems that are
    caused by it are left out.
    """
    missing = [key for key in _KEYS if key not in document]
    meant = dict(document)
    written: dict[str, str] = {}
    for key in document:
        if key not in _KEYS and (near := get_close_matches(str(key)[:80], missing, n=1)):
            meant[near[0]] = document[key]
            written[near[0]] = str(key)
            missing.remove(near[0])
    declared = {each.name: each for each in settings}
    names = meant["settings"] if isinstance(meant.get("settings"), Mapping) else {}
    stand_ins = {
        name: Setting(name, "", default=_STAND_IN_VALUE)
        for name in map(str, names)
        if name not in declared or declared[name].default is None
    }
    fields = {**_present_keys(meant), "name": "unnamed", "settings": [*{**declared, **stand_ins}.values()]}
    try:
        flow_of(Pipeline(**{"source": {}, **fields}), Settings(fields["settings"], {}))
    except PipelineProblems as error:
        for problem in error.problems:
            if _STAND_IN_VALUE not in problem:
                key, *rest = _PATH_END.split(problem, maxsplit=1)
                yield problem.replace(key, written.get(key, key), 1) if rest else problem


def _parse_yaml(text: str, file: str) -> Any:
    import yaml

    try:
        return yaml.load(text, Loader=_strict_loader())
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        where = f":{mark.line + 1}:{mark.column + 1}" if mark else ""
        raise InvalidPipeline(f"{file}{where}: it is not YAML: {error.problem or error.context}") from None
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        raise InvalidPipeline(f"{file}: it is not YAML: {error}") from None


def _strict_loader() -> type[yaml.SafeLoader]:
    import yaml

    class Strict(yaml.SafeLoader):
        """Rejects duplicate keys in a mapping: which of the two values is meant is unknown."""

        def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
            seen = set()
            for key, _ in node.value:
                if key.value in seen and isinstance(key.value, str):
                    raise yaml.constructor.ConstructorError(None, None, f"{key.value} is there twice", key.start_mark)
                seen.add(key.value if isinstance(key.value, str) else id(key))
            return super().construct_mapping(node, deep=deep)

    return Strict


def _name_problems(name: object) -> Iterator[str]:
    if not isinstance(name, str) or not NAME.fullmatch(name):
        problem = f"{shown(name)} is not a name" if name is not None else "it is missing"
        yield f"name: {problem}; use 1 to 100 ASCII letters, digits, '.', '_' or '-'"


def _parse_settings(raw: object, problems: list[str]) -> tuple[Setting, ...]:
    if raw is None:
        return ()
    if not isinstance(raw, Mapping):
        problems.append(f"settings: {shown(raw)} is not a table; write 'topic: orders' below it")
        return ()
    made = []
    for name, declared in raw.items():
        try:
            made.append(_parse_setting(str(name), declared))
        except GoQueueError as error:
            problems.append(f"settings.{name}: {error}")
    return tuple(made)


def _parse_setting(name: str, raw: object) -> Setting:
    """A setting, declared in short form (its default) or in long form (a table)."""
    declared: dict[str, Any] = dict(raw) if isinstance(raw, Mapping) else {"default": raw}
    wrong = [unknown_key(key, _SETTING_KEYS) for key in declared if key not in _SETTING_KEYS]
    kind: Any = declared.get("kind", _kind_of_default(declared.get("default")))
    if kind not in get_args(Kind):
        wrong.append(f"kind: {shown(kind)} is not one of {', '.join(get_args(Kind))}")
    wrong += [
        f"{key}: {shown(declared[key])} is not a number"
        for key in ("min", "max")
        if key in declared and (isinstance(declared[key], bool) or not isinstance(declared[key], int | float))
    ]
    if wrong:
        raise InvalidPipeline("; ".join(wrong))
    default = declared.get("default")
    made = Setting(
        name,
        str(declared.get("doc", "")),
        kind,
        required=bool(declared.get("required", default is None)),
        minimum=declared.get("min", 0),
        maximum=declared.get("max", LARGEST),
        choices=tuple(map(str, declared.get("choices", ()))),
        may_change=bool(declared.get("may_change", False)),
    )
    return made if default is None else replace(made, default=made.parse(default))


def _kind_of_default(default: object) -> str:
    if isinstance(default, bool):
        return "flag"
    if isinstance(default, int):
        return "number"
    return "ratio" if isinstance(default, float) else "names" if isinstance(default, list) else "text"
