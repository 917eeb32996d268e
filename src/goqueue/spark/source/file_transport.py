"""Transport that reads the segment files of a data folder directly, beside a running broker or without one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from goqueue.model.errors import DataFolderLocked, OffsetOutOfRange
from goqueue.model.ids import TopicId
from goqueue.spark.source.positions import Bounds, Range, TopicPartition
from goqueue.spark.source.transports import BrokerTransport, Split
from goqueue.storage.reader.reader import FolderReader, LogReader, read_runs
from goqueue.wire.batch import FrameRun

_RUN_BYTES = 1 << 20
"""Size of a run of frames: comparing its checksums is a tenth faster while it fits the processor's cache."""


class FileTransport:
    """Reads a data folder. With ``brokers``, the broker reports how far may be read; without, no broker may be using
    the folder, else ``DataFolderLocked`` is raised."""

    def __init__(
        self, path: Path, brokers: tuple[str, ...] | None, *, uncommitted: bool, fail_on_data_loss: bool
    ) -> None:
        self._folder = FolderReader(path)
        self._uncommitted = uncommitted
        self._fail_on_data_loss = fail_on_data_loss
        self._broker = None
        if brokers:
            self._broker = BrokerTransport(brokers, uncommitted=uncommitted, fail_on_data_loss=fail_on_data_loss)
        elif self._folder.is_in_use():
            raise DataFolderLocked(
                f"a broker is using {path}, so only it knows how far its files may be read; give its address in the "
                "option brokers as well, or read a copy of the folder"
            )
        self._logs: dict[TopicPartition, LogReader] = {}

    def topics(self) -> list[str]:
        # The folder may still contain deleted topics.
        return self._broker.topics() if self._broker else [topic.name for topic in self._folder.topics()]

    def bounds(self, topics: Iterable[str]) -> dict[TopicPartition, Bounds]:
        found: dict[TopicPartition, Bounds] = {}
        for name in topics:
            info = self._broker.describe(name) if self._broker is not None else None
            on_disk = self._folder.topic(name, TopicId(info.id) if info else None)
            # A partition that was just added may be known to only one of the two.
            for number in range(min(on_disk.partitions, len(info.partitions)) if info else on_disk.partitions):
                tp = TopicPartition(on_disk.name, number)
                log = self._logs.get(tp)
                if log is None or log.folder.parent != on_disk.folder:
                    log = self._logs[tp] = self._folder.log(on_disk, number)
                log.refresh()
                earliest, end = log.start_offset, log.end_offset if self._uncommitted else log.stable_end
                if info is not None:
                    partition = info.partitions[number]
                    earliest = max(earliest, partition.earliest_offset)
                    end = min(end, partition.latest_offset if self._uncommitted else partition.stable_end)
                found[tp] = Bounds(earliest, max(earliest, end), log.size_bytes, on_disk.topic_id)
        return found

    def offset_at(self, tp: TopicPartition, instant_ns: int) -> int:
        return self._logs[tp].offset_at(instant_ns)

    def split(self, part: Range) -> Split:
        log = self._logs[part.tp]
        aborted = () if self._uncommitted else tuple(log.aborted(part.low, part.high))
        return FileSplit(log.folder, part, aborted, self._uncommitted, self._fail_on_data_loss)


@dataclass(frozen=True)
class FileSplit(Split):
    """An offset range that a task reads from the partition's folder."""

    folder: Path
    range: Range
    aborted: tuple[tuple[int, int], ...]
    uncommitted: bool
    fail_on_data_loss: bool

    def read(self) -> Iterator[FrameRun]:
        tp, low, high = self.range
        while low < high:
            try:
                runs = read_runs(
                    self.folder, low, high, aborted=self.aborted, uncommitted=self.uncommitted, max_bytes=_RUN_BYTES
                )
                for run in runs:
                    low = run.offset_at(-1) + 1
                    yield run
                self._check_end(low)
                return
            except OffsetOutOfRange as error:
                if self.fail_on_data_loss:
                    raise OffsetOutOfRange(
                        f"messages of {tp} were removed by retention while they were read: {error}. Set "
                        "failOnDataLoss=false to go on without them"
                    ) from None
                low = LogReader(self.folder).start_offset

    def _check_end(self, low: int) -> None:
        """Raise if the files end before ``high``, as on a mount that lags behind.

        If they do not, the rest of the range holds only frames that readers never see, such as aborted ones.
        """
        tp, _, high = self.range
        if self.fail_on_data_loss and low < high and (end := LogReader(self.folder).end_offset) < high:
            raise OffsetOutOfRange(
                f"{tp} was to be read up to offset {high}, and its files end at {end} as they are seen by this "
                "executor: do all see the same folder? Set failOnDataLoss=false to go on without what is missing"
            )
