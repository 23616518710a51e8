from __future__ import annotations

import gzip
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from collector.errors import DamagedFileError, UnknownFileKindError
from collector.ingest.kinds import read_path
from tests.analytics.pipeline_trace import columns, write

NOBODY = 65534


@contextmanager
def without_privileges() -> Iterator[None]:
    user = os.geteuid()
    if user == 0:
        os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(user)


def test_a_folder_yields_its_recordings_and_what_it_passed_over(tmp_path: Path) -> None:
    for name in ("b", "a"):
        write(tmp_path / f"{name}.parquet", columns(n_steps=1))
    (tmp_path / "meta-a.yaml").write_text("dp_size: 2")
    (tmp_path / "log.gz").write_bytes(gzip.compress(b"text"))
    (tmp_path / "nothing").touch()
    (tmp_path / "subfolder").mkdir()
    pq.write_table(pa.table({"a": [1]}), tmp_path / "other.parquet")

    found = read_path(tmp_path)

    assert [recording.name for _, recording in found.recordings] == ["a", "b"]
    assert [path.name for path in found.skipped] == ["log.gz", "meta-a.yaml", "nothing", "other.parquet"]


def test_a_damaged_recording_in_a_folder_is_an_error_that_names_it(tmp_path: Path) -> None:
    whole = write(tmp_path / "a.parquet", columns(n_steps=1)).read_bytes()
    (tmp_path / "b.parquet").write_bytes(whole[:-100])

    with pytest.raises(DamagedFileError, match=r"b\.parquet: truncated"):
        read_path(tmp_path)


@pytest.mark.parametrize("content", [{}, {"meta.yaml": b"dp_size: 2"}, {"a.gz": gzip.compress(b"text"), "empty": b""}])
def test_a_folder_without_any_known_file_says_which_kinds_are_known(tmp_path: Path, content: dict[str, bytes]) -> None:
    for name, text in content.items():
        (tmp_path / name).write_bytes(text)

    with pytest.raises(UnknownFileKindError, match="no file of a known kind in this folder; known kinds: straggler-"):
        read_path(tmp_path)


def test_paths_that_are_no_file_are_named_so(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")

    with pytest.raises(UnknownFileKindError, match="no such file or folder"):
        read_path(tmp_path / "absent")
    with pytest.raises(UnknownFileKindError, match="neither a file nor a folder"):
        read_path(tmp_path / "pipe")
    with pytest.raises(DamagedFileError, match=r"cannot be read \(File name too long\)"):
        read_path(tmp_path / ("a" * 5000))


@pytest.mark.parametrize("closed", ["file", "folder", "parent"])
def test_what_may_not_be_read_is_named_with_the_reason(tmp_path: Path, closed: str) -> None:
    folder = tmp_path / "parent" / "folder"
    folder.mkdir(parents=True)
    file = write(folder / "t.parquet", columns(n_steps=1))
    shut = {"file": file, "folder": folder, "parent": folder.parent}[closed]
    for above in (tmp_path, *tmp_path.parents[:2]):
        if above.stat().st_uid == os.geteuid():
            above.chmod(above.stat().st_mode | 0o011)
    mode = shut.stat().st_mode
    shut.chmod(0)

    try:
        with without_privileges(), pytest.raises(DamagedFileError, match=r"cannot be read \(Permission denied\)"):
            read_path(file if closed == "file" else folder)
    finally:
        shut.chmod(mode)
