"""The list of places that bring something to the disk: what is on it, and what is said when the source is another."""

from __future__ import annotations

import pytest

import disk_sites
from disk_sites import complaints, in_source, listed, module_of, places_in, shown_by, written_anew

SAMPLE = """
class Journal:
    async def submit(self, events):
        if not events:
            await self.settled()
        self.propose(events)
        await self.settled()

    def waits(self):
        return [self._commits.durable(log, log.end_offset) for log in self._logs]

def write(files, path):
    file = files.open(path)
    file.sync()
    run_in_a_thread(files.sync_dir, path.parent)
    os.fsync(1)
    settings.fsync = "always"
"""
SITES = [
    "broker/x.py  Journal.submit  await settled  1",
    "broker/x.py  Journal.submit  await settled  2",
    "broker/x.py  Journal.waits  durable  1",
    "broker/x.py  write  fsync  1",
    "broker/x.py  write  sync  1",
    "broker/x.py  write  sync_dir  1",
]


def sites(text: str) -> list[str]:
    return sorted(place.site for place in places_in("broker/x.py", text))


def test_a_site_is_known_by_its_function_its_call_and_its_number_there() -> None:
    assert sites(SAMPLE) == SITES


def test_a_site_keeps_its_name_when_lines_move() -> None:
    assert sites("import os\n\n\nGREETING = 1\n" + SAMPLE) == SITES


def test_the_list_tells_what_is_in_the_source() -> None:
    assert list(complaints(listed(), in_source())) == []


def test_there_are_sites_of_storage_broker_and_api() -> None:
    assert {"storage", "broker", "api", "cli", "spark"} == {module_of(site).partition("/")[0] for site in in_source()}


def without_line(text: str, line: int) -> str:
    """The text without what stands on one line."""
    lines = text.splitlines()
    lines[line - 1] = lines[line - 1][: len(lines[line - 1]) - len(lines[line - 1].lstrip())] + "pass"
    return "\n".join(lines)


@pytest.mark.parametrize(
    "place", [each for each in places_in("broker/x.py", SAMPLE) if each.call != "durable"], ids=str
)
def test_a_line_that_is_taken_out_fails_the_build(place: disk_sites.Place) -> None:
    known = dict.fromkeys(SITES, "groups")
    [complaint] = complaints(known, sites(without_line(SAMPLE, place.first_line)))
    assert "not in the source" in complaint
    assert "put it back" in complaint


def test_a_wait_that_is_no_longer_awaited_fails_the_build() -> None:
    left = sites(
        SAMPLE.replace("        self.propose(events)\n        await self", "        self.propose(events)\n        self")
    )
    assert len(list(complaints(dict.fromkeys(SITES, "groups"), left))) == 2


def test_a_line_that_is_new_fails_the_build_until_it_is_listed_with_what_shows_that_it_is_needed() -> None:
    known = dict.fromkeys(SITES, "groups")
    more = sites(SAMPLE + "    file.sync()\n")
    [complaint] = complaints(known, more)
    assert "broker/x.py  write  sync  2: is in the source and not in" in complaint
    assert "make disk-sites" in complaint
    assert list(complaints(listed(written_anew(known, more)), more)) == []


def test_a_new_module_is_asked_for_what_shows_that_its_sites_are_needed() -> None:
    text = written_anew({}, SITES)
    assert len(list(complaints(listed(text), SITES))) == len(SITES)
    assert all("what shows that it is needed?" in each for each in complaints(listed(text), SITES))


def test_writing_the_list_anew_keeps_what_was_known_and_drops_what_is_gone() -> None:
    known = {SITES[0]: "schemas", SITES[1]: "groups", "broker/gone.py  f  sync  1": "delays"}
    assert listed(written_anew(known, SITES[:2])) == {SITES[0]: "schemas", SITES[1]: "groups"}


@pytest.mark.parametrize("suite", sorted(disk_sites.SUITES))
def test_every_suite_has_sites_to_take_out(suite: str) -> None:
    assert shown_by(suite)
