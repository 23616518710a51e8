"""Settings come from the environment, and a wrong one is a clear error."""

from __future__ import annotations

from pathlib import Path

import pytest

from collector.settings import Settings
from flightwatch.errors import FlightwatchError


def test_records_lie_in_the_data_folder_unless_told_otherwise(tmp_path: Path) -> None:
    default = Settings.from_environment({"FLIGHTWATCH_DATA": str(tmp_path)})
    told = Settings.from_environment({"FLIGHTWATCH_RECORDS_URL": "postgresql+psycopg://db/records"})

    assert f"sqlite:///{tmp_path / 'records.sqlite'}" == default.records_url
    assert told.records_url == "postgresql+psycopg://db/records"


def test_secret_is_read_from_its_file_and_stripped(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("whsec_abc\n")

    settings = Settings.from_environment({"FLIGHTWATCH_WEBHOOK_SECRET_FILE": str(secret)})

    assert settings.webhook_secret == "whsec_abc"


def test_missing_secret_file_is_named(tmp_path: Path) -> None:
    missing = tmp_path / "nowhere"

    with pytest.raises(FlightwatchError, match=f"{missing} cannot be read: No such file"):
        Settings.from_environment({"FLIGHTWATCH_WEBHOOK_SECRET_FILE": str(missing)})
