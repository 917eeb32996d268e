"""The generated reference pages."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from goqueue.cli.settings.config_loader import env_name, setting_specs
from goqueue.client.connection.config import ClientConfig, ConsumerConfig, ProducerConfig
from goqueue.model.errors import error_table
from goqueue.model.fields import specs
from make_settings_pages import PAGES, _row, configuration_page, errors_page, main, stale_pages

REPOSITORY = Path(__file__).parents[3]


def test_the_pages_in_the_repository_are_fresh() -> None:
    result = subprocess.run(
        [sys.executable, "tools/make_settings_pages.py", "--check"], cwd=REPOSITORY, capture_output=True, text=True
    )
    assert (result.returncode, result.stderr) == (0, "")


def test_what_was_written_is_fresh(tmp_path: Path) -> None:
    assert main([], tmp_path / "docs") == 0
    assert main(["--check"], tmp_path / "docs") == 0


@pytest.mark.parametrize("name", list(PAGES))
def test_a_stale_page_is_named_and_left_alone(tmp_path: Path, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    main([], tmp_path)
    (tmp_path / name).write_text("old")
    assert main(["--check"], tmp_path) == 1
    assert capsys.readouterr().err == f"{tmp_path / name} is stale; run: python tools/make_settings_pages.py\n"
    assert (tmp_path / name).read_text() == "old"


def test_a_missing_page_is_stale(tmp_path: Path) -> None:
    assert stale_pages(tmp_path) == [tmp_path / name for name in PAGES]


def test_an_unknown_argument_is_refused(tmp_path: Path) -> None:
    assert main(["--chek"], tmp_path) == 2
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("setting", list(setting_specs()))
def test_every_setting_has_a_row_with_its_variable_and_its_meaning(setting: str) -> None:
    [row] = [line for line in configuration_page().splitlines() if f"`{env_name(setting)}` |" in line]
    assert row.startswith(f"| `{setting.partition('.')[2]}` |")
    assert setting_specs()[setting].doc in row


@pytest.mark.parametrize("kind", [ClientConfig, ProducerConfig, ConsumerConfig])
def test_every_option_of_a_client_has_a_row_with_its_default_and_its_meaning(kind: type) -> None:
    rows = configuration_page().splitlines()
    for name, spec in specs(kind).items():
        default = spec.format(getattr(kind(), name))
        assert f"| `{name}` | `{default}` | {spec.bounds()} | {spec.doc} |" in rows


def test_the_page_says_which_settings_cannot_be_changed() -> None:
    fixed = {setting for setting, spec in setting_specs().items() if spec.fixed}
    assert fixed == {"topic.partitions", "group.kind", "group.mode", "group.ordering"}
    page = configuration_page()
    assert "Once a topic exists, these of its settings **cannot be changed**: `partitions`." in page
    assert "Once a group exists, these of its settings **cannot be changed**: `mode`, `ordering`." in page


def test_every_error_has_a_row_with_its_statuses_and_its_remedy() -> None:
    rows = [line for line in errors_page().splitlines() if line.startswith("| `")]
    for kind, row in zip(error_table(), rows, strict=True):
        assert row.startswith(f"| `{kind.code}` | {kind.http_status} | `{kind.grpc_status}` | ")
        assert row.endswith(f" | {kind.remedy} |")


def test_a_bar_in_a_cell_does_not_end_the_cell() -> None:
    assert _row(["a|b", "c"]) == "| a\\|b | c |"
