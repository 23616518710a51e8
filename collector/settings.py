"""What the server's processes read from the environment, once, at their start."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from flightwatch.errors import FlightwatchError

DEFAULT_COLLECTOR = "127.0.0.1:7460"
DEFAULT_STORE_URL = "http://127.0.0.1:8124"
DEFAULT_DASHBOARD = "127.0.0.1:8460"


@dataclass(frozen=True, slots=True)
class Settings:
    """Where the server's parts stand and what they talk to. Every field has a default that works on one laptop."""

    data_dir: Path
    store_url: str = DEFAULT_STORE_URL
    records_url: str = ""
    collector: str = DEFAULT_COLLECTOR
    dashboard: str = DEFAULT_DASHBOARD
    insecure_listen: bool = False
    public_url: str = ""
    webhook_url: str = ""
    webhook_secret: str = ""

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] | None = None) -> Settings:
        """Return the settings that FLIGHTWATCH_* variables give, defaults elsewhere."""
        env = os.environ if environment is None else environment
        home = Path(env.get("XDG_DATA_HOME") or Path(env.get("HOME", "~")).expanduser() / ".local" / "share")
        data_dir = Path(env.get("FLIGHTWATCH_DATA") or home / "flightwatch")
        dashboard = env.get("FLIGHTWATCH_DASHBOARD", DEFAULT_DASHBOARD)
        return cls(
            data_dir=data_dir,
            store_url=env.get("FLIGHTWATCH_STORE_URL", DEFAULT_STORE_URL),
            records_url=env.get("FLIGHTWATCH_RECORDS_URL", f"sqlite:///{data_dir / 'records.sqlite'}"),
            collector=env.get("FLIGHTWATCH_COLLECTOR", DEFAULT_COLLECTOR).split(",")[0],
            dashboard=dashboard,
            insecure_listen=env.get("FLIGHTWATCH_INSECURE_LISTEN") == "1",
            public_url=env.get("FLIGHTWATCH_PUBLIC_URL", f"http://{dashboard}"),
            webhook_url=env.get("FLIGHTWATCH_WEBHOOK_URL", ""),
            webhook_secret=_read_secret(env.get("FLIGHTWATCH_WEBHOOK_SECRET_FILE", "")),
        )


def _read_secret(path: str) -> str:
    if not path:
        return ""
    try:
        return Path(path).read_text().strip()
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "not text"
        raise FlightwatchError(f"FLIGHTWATCH_WEBHOOK_SECRET_FILE {path} cannot be read: {reason}") from error
