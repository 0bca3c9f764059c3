"""Where exported files are: a folder of this machine, or whatever pyarrow's file systems reach by a URL."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from typing import Any

from broker.runtime.disk import RealDisk
from lag.export.names import TABLES, ExportFile, LiveFile, live_files, shown_place
from lag.export.tables import arrow

_HIDDEN = "_unfinished."
"""Begin of a file's name while it is written, where it shows before it is whole; Spark passes such files over."""


class ExportFailed(Exception):
    """The place of an export cannot be reached, read or written; the text says which and why."""


class ExportPlace:
    """One folder of exported files, which several nodes share.

    Args:
        url: A path, or a URL such as `s3://bucket/lag`.

    Attributes:
        url: The same, as texts may show it.

    Raises:
        ExportUnavailable: pyarrow is missing.
        ExportFailed: The URL is none that pyarrow knows.
    """

    def __init__(self, url: str) -> None:
        self._fs_module = arrow().fs
        self.url = shown_place(url)
        try:
            if "://" in url:
                self._fs, base = self._fs_module.FileSystem.from_uri(url)
            else:
                self._fs, base = self._fs_module.LocalFileSystem(), url
        except (OSError, ValueError) as error:
            said = str(error).replace(url, self.url)
            raise ExportFailed(f"{self.url} is not a valid place for an export: {said}") from None
        self._base = base.rstrip("/")
        self._is_local = self._fs.type_name == "local"
        self._disk = RealDisk()

    def names(self, table: str) -> list[str]:
        """Return the paths of all files of a table, below this place. Raises ExportFailed."""
        selector = self._fs_module.FileSelector(f"{self._base}/{table}", allow_not_found=True, recursive=True)
        try:
            found = self._fs.get_file_info(selector)
        except OSError as error:
            raise ExportFailed(f"{self.url} cannot be listed: {error}") from error
        start = len(self._base) + 1
        return sorted(each.path[start:] for each in found if each.type == self._fs_module.FileType.File)

    def live(self, table: str) -> list[LiveFile]:
        """Return the files of a table that count. Raises ExportFailed."""
        assert table in TABLES, "a table of the export"
        return live_files(self.names(table))

    def write(self, file: ExportFile, data: Any) -> None:
        """Write one file, whole or not at all as far as readers see. Raises ExportFailed.

        Object stores show a file when it is whole. A folder shows it at once, so there it gets its name at the end.
        """
        path = f"{self._base}/{file.name}"
        folder, _, name = path.rpartition("/")
        written = f"{folder}/{_HIDDEN}{name}" if self._is_local else path
        try:
            self._fs.create_dir(folder, recursive=True)
            with self._fs.open_output_stream(written) as stream:
                stream.write(data)
            if not self._is_local:
                return
            # What is deleted because this file has it must not be all that a power loss takes.
            with closing(self._disk.open(written)) as opened:
                opened.sync()
            self._disk.replace(written, path)
            for each in (folder, folder.rpartition("/")[0]):
                self._disk.sync_folder(each)
        except OSError as error:
            raise ExportFailed(f"{self.url} cannot be written: {error}") from error

    def read(self, live: LiveFile, coded: Sequence[str] = ()) -> Any:
        """Return those rows of a file that count, as a pyarrow table. Raises ExportFailed.

        Args:
            live: The file.
            coded: Columns of texts that become numbers, with a list of the texts.
        """
        path = f"{self._base}/{live.file.name}"
        try:
            # Not `read_table`, which brings the datasets of pyarrow, and with them pandas.
            with arrow().parquet.ParquetFile(self._fs.open_input_file(path), read_dictionary=list(coded)) as file:
                table = file.read()
        except (OSError, ValueError) as error:
            raise ExportFailed(f"{self.url}/{live.file.name} cannot be read: {error}") from error
        if live.is_whole:
            return table
        kept = [live.first <= each <= live.last for each in table.column("sequence").to_pylist()]
        return table.filter(arrow().array(kept, arrow().bool_()))

    def rows(self, file: ExportFile) -> int:
        """Return how many rows a file has. Raises ExportFailed."""
        try:
            return int(arrow().parquet.read_metadata(f"{self._base}/{file.name}", filesystem=self._fs).num_rows)
        except (OSError, ValueError) as error:
            raise ExportFailed(f"{self.url}/{file.name} cannot be read: {error}") from error

    def remove(self, file: ExportFile) -> None:
        """Delete one file. Raises ExportFailed."""
        try:
            self._fs.delete_file(f"{self._base}/{file.name}")
        except OSError as error:
            raise ExportFailed(f"{self.url}/{file.name} cannot be deleted: {error}") from error
