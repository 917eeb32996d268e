"""Where the configuration comes from."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from goqueue.cli.settings.config_loader import LoadedConfig, env_name, load_config, setting_specs
from goqueue.model.config import Config
from goqueue.model.errors import InvalidConfiguration


@pytest.fixture(autouse=True)
def in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def write(text: str, name: str = "goqueue.toml") -> str:
    Path(name).write_text(text, encoding="utf-8")
    return name


def problems(**sources: object) -> list[str]:
    with pytest.raises(InvalidConfiguration) as caught:
        load_config(**sources)  # type: ignore[arg-type]
    return [line.strip() for line in str(caught.value).splitlines()[1:]]


def test_without_any_source_every_setting_is_its_default() -> None:
    loaded = load_config()
    assert loaded.config == Config()
    assert set(loaded.sources) == set(setting_specs())
    assert set(loaded.sources.values()) == {"default"}


def test_a_later_source_wins_and_is_named() -> None:
    write('[http]\nport = 1\nhost = "a"\nkeep_alive_ms = "2s"\n')
    loaded = load_config(
        environ={"GOQUEUE_HTTP_PORT": "2", "GOQUEUE_HTTP_HOST": "b"},
        flags={"http.port": "3"},
    )
    assert (loaded.config.http.port, loaded.config.http.host, loaded.config.http.keep_alive_ms) == (3, "b", 2_000)
    assert loaded.sources["http.port"] == "flag"
    assert loaded.sources["http.host"] == "env GOQUEUE_HTTP_HOST"
    assert loaded.sources["http.keep_alive_ms"] == "file goqueue.toml"
    assert loaded.sources["http.max_body_bytes"] == "default"


def test_every_section_can_be_set_from_a_file() -> None:
    write(
        '[storage]\npath = "/d"\n[topic]\nretention_ms = "unlimited"\n[http]\nport = 0\n'
        '[limits]\nmax_topics = 5\n[log]\nformat = "json"\n'
    )
    config = load_config().config
    assert config.storage.path == "/d"
    assert config.topic.retention_ms is None
    assert (config.http.port, config.limits.max_topics, config.log.format) == (0, 5, "json")


@pytest.mark.parametrize("setting", list(setting_specs()))
def test_every_setting_can_be_set_by_its_variable_and_by_a_flag(setting: str) -> None:
    text = setting_specs()[setting].format(load_config().value(setting))
    from_environment = load_config(environ={env_name(setting): text})
    from_flag = load_config(flags={setting: text})
    assert from_environment.config == from_flag.config == Config()
    assert from_environment.sources[setting] == f"env {env_name(setting)}"
    assert from_flag.sources[setting] == "flag"


def test_no_two_settings_share_a_variable() -> None:
    names = [env_name(setting) for setting in setting_specs()]
    assert len(set(names)) == len(names)
    assert "GOQUEUE_CONFIG" not in names


def test_a_named_file_goes_before_the_one_of_the_environment_and_that_before_the_default() -> None:
    write("[http]\nport = 1\n")
    write("[http]\nport = 2\n", "env.toml")
    write("[http]\nport = 3\n", "flag.toml")
    environ = {"GOQUEUE_CONFIG": "env.toml"}
    assert load_config(path="flag.toml", environ=environ).config.http.port == 3
    assert load_config(environ=environ).config.http.port == 2
    assert load_config(environ={"GOQUEUE_CONFIG": ""}).config.http.port == 1


def test_a_file_may_begin_with_a_byte_order_mark() -> None:
    Path("goqueue.toml").write_bytes(b"\xef\xbb\xbf[http]\nport = 1\n")
    assert load_config().config.http.port == 1


def test_every_problem_of_every_source_is_reported_at_once() -> None:
    write('[http]\nport = "x"\nprot = 1\n[htpp]\n')
    assert problems(
        environ={"GOQUEUE_HTTP_PORT": "70000", "GOQUEUE_LOG_LEVEL": "loud"},
        flags={"topic.fsync": "maybe", "topic.fsink": "always"},
    ) == [
        "goqueue.toml:http.port: 'x' is not a number; allowed: 0 to 65535",
        "goqueue.toml:http.prot: no such setting; did you mean 'port'?",
        "goqueue.toml:htpp: no such section; did you mean 'http'?",
        "GOQUEUE_HTTP_PORT: '70000' is out of bounds; allowed: 0 to 65535",
        "GOQUEUE_LOG_LEVEL: 'loud' is not one of debug, info, warning, error",
        "flag topic.fsync: 'maybe' is not one of always, interval, never",
        "flag topic.fsink: no such setting; did you mean 'topic.fsync'?",
    ]


def test_a_named_file_that_is_not_there_is_a_problem() -> None:
    assert problems(path="no.toml") == ["no.toml: there is no such file; --config must name a TOML file"]
    assert problems(environ={"GOQUEUE_CONFIG": "no.toml"}) == [
        "no.toml: there is no such file; GOQUEUE_CONFIG must name a TOML file"
    ]


def test_a_file_that_cannot_be_read_is_a_problem() -> None:
    Path("goqueue.toml").mkdir()
    [line] = problems()
    assert line.startswith("goqueue.toml: cannot be read: Is a directory")


@pytest.mark.parametrize(
    "content",
    [
        b"[http\nport = 1",
        b"\xff\xfe",
        b"[http]\nport = " + b"9" * 5_000,
        b"a = " + b"[" * 100_000,
        b"[http]\nport = 1\nport = 2",
    ],
    ids=["syntax", "encoding", "digits", "depth", "twice"],
)
def test_a_file_that_is_not_toml_is_a_problem_beside_the_others(content: bytes) -> None:
    Path("goqueue.toml").write_bytes(content)
    first, second = problems(flags={"http.port": "x"})
    assert first.startswith("goqueue.toml: is not TOML: ")
    assert second.startswith("flag http.port: ")


def test_a_section_that_is_not_a_table_is_a_problem() -> None:
    write("http = 8080\n[[log]]\nlevel = 'info'\n")
    first, second = problems()
    assert first == "goqueue.toml:http: 8080 is not a table; write [http], and its settings below"
    assert second.startswith("goqueue.toml:log: ")
    assert second.endswith("is not a table; write [log], and its settings below")


def test_a_setting_outside_of_its_section_is_told_where_it_belongs() -> None:
    write("max_open_files = 5\n")
    assert problems() == ["goqueue.toml:max_open_files: no such section; max_open_files belongs below [storage]"]


def test_an_unknown_section_that_resembles_none_is_told_which_there_are() -> None:
    write("[zzz]\n")
    assert problems() == [
        "goqueue.toml:zzz: no such section; there are storage, topic, group, http, grpc, native, limits, log, schemas, "
        "transactions, trace, metrics"
    ]


def test_a_name_in_a_file_cannot_forge_a_line() -> None:
    write('"x\\nerror: forged" = 1\n[http]\n"y\\nerror: forged" = 1\n')
    assert len(problems()) == 2


@pytest.mark.parametrize(
    ("variable", "closest"),
    [
        ("GOQUEUE_HTTP_PROT", "GOQUEUE_HTTP_PORT"),
        ("GOQUEUE_HTPP_PORT", "GOQUEUE_HTTP_PORT"),
        ("GOQUEUE_TOPICS_FSYNC", "GOQUEUE_TOPIC_FSYNC"),
        ("GOQUEUE_STORAGE_DATA_PATH", "GOQUEUE_STORAGE_PATH"),
    ],
)
def test_an_unknown_variable_that_looks_like_a_setting_is_told_the_closest(variable: str, closest: str) -> None:
    assert problems(environ={variable: "1"}) == [f"{variable}: no such setting; the closest is {closest}"]


@pytest.mark.parametrize(
    "variable",
    ["GOQUEUE_SERVICE_HOST", "GOQUEUE_PORT", "GOQUEUE_PORT_8080_TCP_ADDR", "GOQUEUE_", "PATH", "goqueue_http_port"],
)
def test_a_variable_that_was_not_meant_for_the_broker_is_left_alone(variable: str) -> None:
    assert load_config(environ={variable: "tcp://10.0.0.1:80"}).config == Config()


def test_an_empty_host_is_refused_since_it_would_listen_everywhere() -> None:
    assert problems(environ={"GOQUEUE_HTTP_HOST": ""}) == [
        "GOQUEUE_HTTP_HOST: the text has 0 characters; allowed: 1 to 255 printable characters"
    ]


def test_what_is_loaded_cannot_be_assigned_to() -> None:
    loaded: LoadedConfig = load_config()
    with pytest.raises(dataclasses.FrozenInstanceError):
        loaded.config = Config()  # type: ignore[misc]


def test_no_more_spans_a_second_than_a_broker_can_make_beside_its_work() -> None:
    assert load_config(environ={"GOQUEUE_TRACE_EXPORT_PER_SECOND": "50000"}).config.trace.export_per_second == 50_000
    (problem,) = problems(environ={"GOQUEUE_TRACE_EXPORT_PER_SECOND": "50001"})
    assert "'50001' is out of bounds; allowed: 1 to 50000" in problem
