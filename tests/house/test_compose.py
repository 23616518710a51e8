"""docker-compose.yml is whole, pinned, and open to this machine alone."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import tomllib
import yaml

from flightwatch.cli import SERVER_VERBS

REPOSITORY = Path(__file__).parents[2]
OURS = ("analytics", "collector", "dashboard", "migrate")


@pytest.fixture(scope="module")
def compose() -> dict[str, Any]:
    loaded: dict[str, Any] = yaml.safe_load((REPOSITORY / "docker-compose.yml").read_text())
    return loaded


def test_has_the_server_and_both_production_stores(compose: dict[str, Any]) -> None:
    assert sorted(compose["services"]) == sorted([*OURS, "clickhouse", "postgres"])


def test_every_image_is_pinned(compose: dict[str, Any]) -> None:
    images = [service["image"] for service in compose["services"].values()]

    assert [image for image in images if ":" not in image or image.endswith(":latest")] == []


def test_our_image_has_the_version_of_the_distribution(compose: dict[str, Any]) -> None:
    version = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]["version"]

    assert {compose["services"][name]["image"] for name in OURS} == {f"flightwatch-server:{version}"}


def test_no_port_is_published_beyond_loopback(compose: dict[str, Any]) -> None:
    ports = [port for service in compose["services"].values() for port in service.get("ports", ())]

    assert ports
    assert [port for port in ports if not port.startswith("127.0.0.1:")] == []


def test_our_containers_run_verbs_that_exist(compose: dict[str, Any]) -> None:
    assert [name for name in OURS if compose["services"][name]["command"][0] not in SERVER_VERBS] == []


def test_whoever_is_waited_for_says_when_it_is_ready(compose: dict[str, Any]) -> None:
    services = compose["services"]
    waited = {
        (name, other)
        for name, service in services.items()
        for other, how in service.get("depends_on", {}).items()
        if how["condition"] == "service_healthy"
    }

    assert {other for _, other in waited} == {"clickhouse", "postgres"}
    assert [other for _, other in waited if "healthcheck" not in services[other]] == []


def test_every_process_waits_for_the_migration(compose: dict[str, Any]) -> None:
    waiting = {"migrate": {"condition": "service_completed_successfully"}}

    assert [name for name in OURS if name != "migrate" and compose["services"][name]["depends_on"] != waiting] == []


def test_named_volumes_and_mounted_files_exist(compose: dict[str, Any]) -> None:
    mounts = [mount for service in compose["services"].values() for mount in service.get("volumes", ())]
    sources = [mount.split(":")[0] for mount in mounts if not mount.startswith("${")]

    missing = [
        source
        for source in sources
        if not ((REPOSITORY / source).exists() if source.startswith("./") else source in compose["volumes"])
    ]
    assert missing == []


def test_docker_compose_takes_it() -> None:
    command = _compose_command()
    if command is None:
        pytest.skip("neither `docker compose` nor `docker-compose` is installed")

    done = subprocess.run(
        [*command, "-f", "docker-compose.yml", "config", "--quiet"], cwd=REPOSITORY, capture_output=True, text=True
    )

    assert (done.returncode, done.stderr) == (0, "")


def _compose_command() -> list[str] | None:
    for command in (["docker", "compose"], ["docker-compose"]):
        if shutil.which(command[0]) and subprocess.run([*command, "version"], capture_output=True).returncode == 0:
            return command
    return None
