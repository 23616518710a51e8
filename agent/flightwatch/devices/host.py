"""The host's own telemetry, from /proc and /sys: CPU, memory, pressure, disks, network, temperature."""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import Callable, Iterable
from pathlib import Path

SECTOR_BYTES = 512  # of /proc/diskstats, whatever the disk's own
# Partitions and stacked devices would be counted twice: their traffic is their disk's.
_WHOLE_DISK = re.compile(r"(sd[a-z]+|vd[a-z]+|xvd[a-z]+|hd[a-z]+|nvme\d+n\d+|mmcblk\d+)")
_UNCOUNTED_INTERFACE = re.compile(r"(lo|veth.*|docker.*|br-.*|cni.*|flannel.*|cali.*|virbr.*)")
_CPU_SENSORS = ("coretemp", "k10temp", "zenpower", "cpu_thermal", "x86_pkg_temp", "acpitz", "soc_thermal")
_PRESSURES = (("cpu", "some"), ("io", "some"), ("io", "full"), ("memory", "some"), ("memory", "full"))

MAX_LABEL = 100  # characters; a collector takes names of 253, ours have two labels

Readings = dict[tuple[str, str], float]


class Host:
    """Reads the host. Rates and ratios are means since the last `read`, so that the first one has none of them.

    A file that is missing (no pressure in the kernel, no sensor in a virtual machine) means a metric that is missing.

    Args:
        proc, sys: roots to read from.
        clock: monotonic seconds.
    """

    def __init__(
        self, proc: Path = Path("/proc"), sys: Path = Path("/sys"), *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._proc = proc
        self._sys = sys
        self._clock = clock
        self._before: Readings = {}
        self._read_at = 0.0
        self._sensors: list[tuple[str, Path]] | None = None

    def read(self) -> Readings:
        """Return the readings by (device, metric); device "" is the whole host."""
        now = self._clock()
        totals = _gather(self._cpu_totals, self._pressure_totals, self._disk_totals, self._network_totals)
        readings = _gather(self._load, self._memory, self._temperatures)
        if self._before:
            grown = {key: total - self._before[key] for key, total in totals.items() if key in self._before}
            readings |= _ratios_and_rates(grown, now - self._read_at)
        self._before, self._read_at = totals, now
        return readings

    def _lines(self, name: str) -> list[str]:
        try:
            return (self._proc / name).read_text(errors="replace").splitlines()
        except OSError:
            return []

    def _cpu_totals(self) -> Readings:
        for line in self._lines("stat"):
            if line.startswith("cpu "):
                ticks = [int(word) for word in line.split()[1:9]]  # guest time is within user time
                idle, stolen = ticks[3] + ticks[4], ticks[7] if len(ticks) > 7 else 0
                return {
                    ("", "cpu_ticks"): float(sum(ticks)),
                    ("", "cpu_busy_ticks"): float(sum(ticks) - idle),
                    ("", "cpu_steal_ticks"): float(stolen),
                }
        return {}

    def _load(self) -> Readings:
        lines = self._lines("loadavg")
        return {("", "load_1m"): float(lines[0].split()[0])} if lines else {}

    def _memory(self) -> Readings:
        sizes = {}
        for line in self._lines("meminfo"):
            name, _, rest = line.partition(":")
            sizes[name] = float(rest.split()[0]) * 1024
        readings = {}
        if "MemTotal" in sizes and "MemAvailable" in sizes:
            readings["", "memory_available_bytes"] = sizes["MemAvailable"]
            readings["", "memory_used_bytes"] = sizes["MemTotal"] - sizes["MemAvailable"]
        if "SwapTotal" in sizes and "SwapFree" in sizes:
            readings["", "swap_used_bytes"] = sizes["SwapTotal"] - sizes["SwapFree"]
        return readings

    def _pressure_totals(self) -> Readings:
        """Return the microseconds for which tasks stalled."""
        totals = {}
        for resource, kind in _PRESSURES:
            for line in self._lines(f"pressure/{resource}"):
                if line.startswith(f"{kind} "):
                    totals["", f"pressure_{resource}_{kind}_us"] = float(line.rpartition("total=")[2])
        return totals

    def _disk_totals(self) -> Readings:
        totals = {}
        for line in self._lines("diskstats"):
            words = line.split()
            if len(words) >= 10 and _WHOLE_DISK.fullmatch(words[2]):
                totals[words[2], "disk_read_bytes"] = float(words[5]) * SECTOR_BYTES
                totals[words[2], "disk_written_bytes"] = float(words[9]) * SECTOR_BYTES
        return totals

    def _network_totals(self) -> Readings:
        totals = {}
        for line in self._lines("net/dev"):
            name, colon, rest = line.partition(":")
            words = rest.split()
            if colon and len(words) >= 16 and not _UNCOUNTED_INTERFACE.fullmatch(name.strip()):
                totals[name.strip(), "network_received_bytes"] = float(words[0])
                totals[name.strip(), "network_sent_bytes"] = float(words[8])
        return totals

    def _temperatures(self) -> Readings:
        if self._sensors is None:
            self._sensors = list(_find_sensors(self._sys))
        readings = {}
        for device, path in self._sensors:
            try:
                readings[device, "temperature_celsius"] = int(path.read_text()) / 1000.0
            except (OSError, ValueError):  # sensors come and go, and some answer with an error while they are busy
                continue
        return readings


def _find_sensors(sys: Path) -> Iterable[tuple[str, Path]]:
    """Yield (device, file with millidegrees) of the CPU's own sensors; the thermal zones only where hwmon has none."""
    found = False
    for chip in sorted(sys.glob("class/hwmon/hwmon*")):
        name = _text(chip / "name")
        if name in _CPU_SENSORS:
            for path in sorted(chip.glob("temp*_input")):
                label = _text(path.with_name(path.name.replace("_input", "_label")))
                found = True
                yield f"{name} {label or path.name.removesuffix('_input')}", path
    if not found:
        for zone in sorted(sys.glob("class/thermal/thermal_zone*")):
            name = _text(zone / "type")
            if name in _CPU_SENSORS:
                yield name, zone / "temp"


def _gather(*sources: Callable[[], Readings]) -> Readings:
    """Return all readings; of a file whose form is not known (containers put their own in place) there are none."""
    readings: Readings = {}
    for source in sources:
        with contextlib.suppress(ValueError, IndexError):
            readings |= source()
    return readings


def _text(path: Path) -> str:
    try:
        return path.read_text(errors="replace").strip()[:MAX_LABEL]
    except OSError:
        return ""


def _ratios_and_rates(grown: Readings, seconds: float) -> Readings:
    """Return what totals that grew by `grown` within `seconds` mean; one that went backwards was reset: left out."""
    readings: Readings = {}
    ticks = grown.get(("", "cpu_ticks"), 0.0)
    for (device, name), amount in grown.items():
        if amount < 0 or seconds <= 0:
            continue
        if name in ("cpu_busy_ticks", "cpu_steal_ticks"):
            if ticks > 0:
                readings[device, name.replace("_ticks", "_ratio")] = min(amount / ticks, 1.0)
        elif name.endswith("_us"):
            readings[device, name.replace("_us", "_ratio")] = min(amount / 1e6 / seconds, 1.0)
        elif name.endswith("_bytes"):
            readings[device, f"{name}_per_second"] = amount / seconds
    return readings
