"""The table of file kinds: a new reader is one new file and one line here. Content, not the name, tells a file's
kind.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from collector.errors import DamagedFileError, UnknownFileKindError
from collector.ingest import straggler_trace
from collector.ingest.straggler_trace import StragglerTrace

HEAD_BYTES = 4096

Recording = StragglerTrace  # the union of what readers return; grows with the table


@dataclass(frozen=True, slots=True)
class Reader:
    """How one kind of file is recognised and read."""

    kind: str
    recognises: Callable[[bytes], bool]
    read: Callable[[Path], Recording]


READERS = (Reader(straggler_trace.KIND, straggler_trace.recognises, straggler_trace.read),)


@dataclass(frozen=True, slots=True)
class Found:
    """What a path held: recordings by kind, and the files that no reader knows."""

    recordings: tuple[tuple[str, Recording], ...]
    skipped: tuple[Path, ...]


def read_path(path: Path) -> Found:
    """Return every recording in a file, or in all files of a folder (not of its subfolders).

    In a folder, files of unknown kinds are passed over and listed; a damaged one of a known kind is an error there too.

    Raises:
        UnknownFileKindError: nothing there, or nothing that a reader knows.
        DamagedFileError: a file of a known kind cannot be read.
    """
    try:
        if path.is_dir():
            return _read_folder(path, sorted(entry for entry in path.iterdir() if entry.is_file()))
        is_file, exists = path.is_file(), path.exists()
    except OSError as error:
        raise _unreadable(path, error) from error
    if not is_file:
        raise UnknownFileKindError(f"{path}: {'neither a file nor a folder' if exists else 'no such file or folder'}")
    reader = _reader_of(path)
    if reader is None:
        raise UnknownFileKindError(f"{path}: unknown file kind; known kinds: {_known_kinds()}")
    return Found(((reader.kind, reader.read(path)),), ())


def _read_folder(path: Path, files: list[Path]) -> Found:
    recordings: list[tuple[str, Recording]] = []
    skipped: list[Path] = []
    for file in files:
        reader = _reader_of(file) if file.stat().st_size else None
        try:
            if reader is not None:
                recordings.append((reader.kind, reader.read(file)))
                continue
        except UnknownFileKindError:
            pass  # its first bytes promised more than its content holds: another table in parquet
        skipped.append(file)
    if not recordings:
        raise UnknownFileKindError(f"{path}: no file of a known kind in this folder; known kinds: {_known_kinds()}")
    return Found(tuple(recordings), tuple(skipped))


def _reader_of(path: Path) -> Reader | None:
    try:
        with path.open("rb") as file:
            head = file.read(HEAD_BYTES)
    except OSError as error:
        raise _unreadable(path, error) from error
    if not head:
        raise DamagedFileError(f"{path}: the file is empty")
    return next((reader for reader in READERS if reader.recognises(head)), None)


def _unreadable(path: Path, error: OSError) -> DamagedFileError:
    return DamagedFileError(f"{path}: cannot be read ({error.strerror})")


def _known_kinds() -> str:
    return ", ".join(reader.kind for reader in READERS)
