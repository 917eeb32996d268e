from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path

import pytest

from goqueue.model.config import TraceConfig
from goqueue.model.errors import InvalidConfiguration
from goqueue.observe.exporters import span_exporters
from goqueue.observe.otlp import collector_endpoint, collector_headers
from goqueue.observe.spans import Span
from goqueue.observe.stdout import line_of


def made(exporters: str) -> list[tuple[str, str]]:
    found = span_exporters(TraceConfig(exporters=exporters), "n")
    for _, exporter in found:
        exporter.close()
    return [(name, type(exporter).__name__) for name, exporter in found]


@pytest.mark.parametrize(
    ("exporters", "expected"),
    [
        ("", []),
        (" , ,", []),
        ("file", []),
        ("stdout", [("stdout", "StdoutExporter")]),
        (
            " otlp ,FILE,jaeger, stdout",
            [("otlp", "OtlpExporter"), ("jaeger", "JaegerExporter"), ("stdout", "StdoutExporter")],
        ),
        ("jaeger,file,jaeger", [("jaeger", "JaegerExporter")]),
    ],
)
def test_exporters_are_made_as_named(exporters: str, expected: list[tuple[str, str]]) -> None:
    assert made(exporters) == expected


def test_an_unknown_exporter_is_refused_with_those_that_there_are() -> None:
    with pytest.raises(InvalidConfiguration) as caught:
        made("file,oltp,zipkin")
    first, second = str(caught.value).splitlines()
    assert first == (
        "trace.exporters: there is no 'oltp'; use some of file, stdout, otlp, jaeger, separated by commas, "
        "or nothing; did you mean 'otlp'?"
    )
    assert "'zipkin'" in second
    assert "did you mean" not in second


def test_an_exporter_that_cannot_be_made_says_which_setting_is_wrong() -> None:
    with pytest.raises(InvalidConfiguration, match=r"^trace.otlp_endpoint: 'collector:4317' is not an address"):
        span_exporters(TraceConfig(exporters="jaeger,otlp", otlp_endpoint="collector:4317"), "n")


@pytest.mark.parametrize(
    ("endpoint", "protocol", "expected"),
    [
        ("http://127.0.0.1:4317", "grpc", "http://127.0.0.1:4317"),
        ("http://127.0.0.1:4317/", "grpc", "http://127.0.0.1:4317"),
        ("https://otel.example", "grpc", "https://otel.example:443"),
        ("http://otel.example", "grpc", "http://otel.example:80"),
        ("http://[::1]:4317", "grpc", "http://[::1]:4317"),
        ("http://h:4318", "http", "http://h:4318/v1/traces"),
        ("http://h:4318/", "http", "http://h:4318/v1/traces"),
        ("https://h/otlp/v1/traces", "http", "https://h/otlp/v1/traces"),
    ],
)
def test_an_endpoint_is_completed(endpoint: str, protocol: str, expected: str) -> None:
    assert collector_endpoint(endpoint, protocol) == expected


@pytest.mark.parametrize(
    ("endpoint", "protocol", "complaint"),
    [
        ("localhost:4317", "grpc", "not an address"),
        ("4317", "grpc", "not an address"),
        ("ftp://h:4317", "http", "not an address"),
        ("http://", "http", "not an address"),
        ("http://h:0", "grpc", "not an address"),
        ("http://h h:4317", "grpc", "not an address"),
        ("http://h:4317\n", "grpc", "not an address"),
        ("http://h:99999", "grpc", "out of range"),
        ("http://h:port", "grpc", "port"),
        ("http://[::1:4317", "grpc", "IPv6"),
        ("http://h:4317/v1/traces", "grpc", "trace.otlp_protocol to http"),
        ("http://h:4318/?token=1", "http", "query"),
    ],
)
def test_an_endpoint_that_is_none_is_refused(endpoint: str, protocol: str, complaint: str) -> None:
    with pytest.raises(InvalidConfiguration, match=complaint) as caught:
        collector_endpoint(endpoint, protocol)
    assert str(caught.value).startswith("trace.otlp_endpoint")


def test_a_password_in_an_endpoint_is_refused_and_not_shown() -> None:
    with pytest.raises(InvalidConfiguration, match=r"trace\.otlp_headers") as caught:
        collector_endpoint("http://me:hidden@h:4318", "http")
    assert "hidden" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", {}),
        (" , ", {}),
        ("Authorization=Bearer%20a%2Cb", {"authorization": "Bearer a,b"}),
        (" a = 1 ,b=x=y==,c=", {"a": "1", "b": "x=y==", "c": ""}),
        ("rate=50%", {"rate": "50%"}),
    ],
)
def test_headers_are_read(text: str, expected: dict[str, str]) -> None:
    assert collector_headers(text) == expected


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("a=1,hidden", "entry 2 has no '='"),
        ("=hidden", "entry 1: '' is not a header's name"),
        ("a b=hidden", "'a b' is not a header's name"),
        ("a=hidden%0d%0ax: y", "value of a may have printable"),
        ("a=hidden%c3%a9", "value of a may have printable"),
        ("a=hidden,A=hidden", "entry 2: a is given twice"),
        ("content-type=hidden", "content-type cannot be set"),
        ("grpc-timeout=hidden", "grpc-timeout cannot be set"),
        ("x-bin=hidden", "x-bin cannot be set"),
    ],
)
def test_headers_that_are_none_are_refused_and_their_values_not_shown(text: str, complaint: str) -> None:
    with pytest.raises(InvalidConfiguration, match=complaint) as caught:
        collector_headers(text)
    assert str(caught.value).startswith("trace.otlp_headers, entry ")
    assert "hidden" not in str(caught.value)


PAGE = (Path(__file__).parents[3] / "docs" / "exporters.md").read_text()


@pytest.mark.parametrize("block", re.findall(r"^```toml\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL))
def test_every_configuration_that_the_documentation_shows_works(block: str) -> None:
    settings = tomllib.loads(block)["trace"]
    found = span_exporters(TraceConfig(**settings), "n")
    for _, exporter in found:
        exporter.close()
    assert {"file", *(name for name, _ in found)} >= set(settings["exporters"].split(","))


def test_the_documentation_shows_a_span_as_it_is_written() -> None:
    (block,) = re.findall(r"^```json\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    shown = json.loads(block)
    assert json.loads(line_of(Span(**shown))) == shown
    assert list(shown) == list(json.loads(line_of(Span(**shown))))
