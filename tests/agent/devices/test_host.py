from __future__ import annotations

from pathlib import Path

import pytest

from flightwatch.devices.host import Host


class _Clock:
    def __init__(self) -> None:
        self.seconds = 100.0

    def __call__(self) -> float:
        return self.seconds


class _Machine:
    """A canned /proc and /sys in the formats of proc(5) and the kernel's hwmon and PSI documents."""

    def __init__(self, root: Path) -> None:
        self.proc, self.sys = root / "proc", root / "sys"
        self.clock = _Clock()
        self.host = Host(self.proc, self.sys, clock=self.clock)

    def put(self, path: str, text: str) -> None:
        target = self.proc.parent / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text)

    def after(self, seconds: float) -> dict[tuple[str, str], float]:
        self.clock.seconds += seconds
        return self.host.read()


@pytest.fixture
def machine(tmp_path: Path) -> _Machine:
    return _Machine(tmp_path)


def test_cpu_busy_ratio_is_the_share_of_ticks_that_were_not_idle(machine: _Machine) -> None:
    machine.put("proc/stat", "cpu  100 0 100 800 0 0 0 0 0 0\ncpu0 50 0 50 400 0 0 0 0 0 0\n")
    machine.host.read()
    machine.put("proc/stat", "cpu  160 0 115 820 5 0 0 0 0 0\ncpu0 80 0 60 410 2 0 0 0 0 0\n")

    assert machine.after(1.0)["", "cpu_busy_ratio"] == pytest.approx(75 / 100)


def test_first_reading_has_no_rates(machine: _Machine) -> None:
    machine.put("proc/stat", "cpu  100 0 100 800 0 0 0 0 0 0\n")
    machine.put("proc/loadavg", "1.50 1.20 1.00 3/400 12345\n")

    assert machine.host.read() == {("", "load_1m"): 1.5}


def test_memory_and_swap_are_in_bytes(machine: _Machine) -> None:
    machine.put(
        "proc/meminfo",
        "MemTotal:       1000 kB\nMemFree:  100 kB\nMemAvailable:    400 kB\nSwapTotal: 50 kB\nSwapFree: 20 kB\n",
    )

    readings = machine.host.read()

    assert readings["", "memory_available_bytes"] == 400 * 1024
    assert readings["", "memory_used_bytes"] == 600 * 1024
    assert readings["", "swap_used_bytes"] == 30 * 1024


def test_pressure_is_the_share_of_time_that_tasks_stalled(machine: _Machine) -> None:
    machine.put("proc/pressure/io", "some avg10=1.0 avg60=1.0 avg300=1.0 total=1000000\nfull avg10=0 total=500000\n")
    machine.host.read()
    machine.put("proc/pressure/io", "some avg10=1.0 avg60=1.0 avg300=1.0 total=1500000\nfull avg10=0 total=600000\n")

    readings = machine.after(2.0)

    assert readings["", "pressure_io_some_ratio"] == pytest.approx(0.25)
    assert readings["", "pressure_io_full_ratio"] == pytest.approx(0.05)
    assert ("", "pressure_memory_some_ratio") not in readings


def test_whole_disks_are_counted_and_their_partitions_are_not(machine: _Machine) -> None:
    def disks(sectors: int) -> str:
        return "".join(
            f"   8  0 {name} 10 0 {sectors} 5 20 0 {2 * sectors} 6 0 7 8\n"
            for name in ("sda", "sda1", "nvme0n1", "dm-0")
        )

    machine.put("proc/diskstats", disks(0))
    machine.host.read()
    machine.put("proc/diskstats", disks(1000))

    readings = machine.after(2.0)

    assert readings["sda", "disk_read_bytes_per_second"] == 1000 * 512 / 2
    assert readings["nvme0n1", "disk_written_bytes_per_second"] == 2000 * 512 / 2
    assert {device for device, name in readings if name.startswith("disk")} == {"sda", "nvme0n1"}


def test_network_is_counted_per_interface_but_not_loopback(machine: _Machine) -> None:
    def network(received: int) -> str:
        row = f"{received} 1 0 0 0 0 0 0 {3 * received} 1 0 0 0 0 0 0"
        return f"Inter-|   Receive\n face |bytes\n    lo: {row}\n  eth0: {row}\n"

    machine.put("proc/net/dev", network(0))
    machine.host.read()
    machine.put("proc/net/dev", network(4000))

    readings = machine.after(2.0)

    assert readings["eth0", "network_received_bytes_per_second"] == 2000
    assert readings["eth0", "network_sent_bytes_per_second"] == 6000
    assert not any(device == "lo" for device, _ in readings)


def test_counter_that_went_backwards_is_left_out(machine: _Machine) -> None:
    machine.put("proc/diskstats", "   8  0 sda 10 0 5000 5 20 0 5000 6 0 7 8\n")
    machine.host.read()
    machine.put("proc/diskstats", "   8  0 sda 10 0 100 5 20 0 6000 6 0 7 8\n")

    readings = machine.after(1.0)

    assert ("sda", "disk_read_bytes_per_second") not in readings
    assert readings["sda", "disk_written_bytes_per_second"] == 1000 * 512


def test_cpu_sensors_are_read_with_their_labels(machine: _Machine) -> None:
    machine.put("sys/class/hwmon/hwmon0/name", "nvme\n")
    machine.put("sys/class/hwmon/hwmon0/temp1_input", "40000\n")
    machine.put("sys/class/hwmon/hwmon1/name", "coretemp\n")
    machine.put("sys/class/hwmon/hwmon1/temp1_input", "67500\n")
    machine.put("sys/class/hwmon/hwmon1/temp1_label", "Package id 0\n")

    assert machine.host.read() == {("coretemp Package id 0", "temperature_celsius"): 67.5}


def test_thermal_zone_serves_where_there_is_no_sensor_chip(machine: _Machine) -> None:
    machine.put("sys/class/thermal/thermal_zone0/type", "x86_pkg_temp\n")
    machine.put("sys/class/thermal/thermal_zone0/temp", "51000\n")
    machine.put("sys/class/thermal/thermal_zone1/type", "iwlwifi_1\n")
    machine.put("sys/class/thermal/thermal_zone1/temp", "30000\n")

    assert machine.host.read() == {("x86_pkg_temp", "temperature_celsius"): 51.0}


def test_machine_that_tells_nothing_gives_nothing(machine: _Machine) -> None:
    machine.host.read()

    assert machine.after(1.0) == {}


def test_this_very_machine_can_be_read() -> None:
    readings = Host().read()

    assert readings["", "memory_available_bytes"] > 0


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("proc/loadavg", " \n"),
        ("proc/meminfo", "MemTotal:\n"),
        ("proc/stat", "cpu  1 2\n"),
        ("proc/pressure/cpu", "some nothing\n"),
        ("proc/net/dev", "eth0: a b c d e f g h i j k l m n o p\n"),
    ],
)
def test_file_of_another_form_costs_only_its_own_metrics(machine: _Machine, path: str, text: str) -> None:
    machine.put("proc/diskstats", "   8       0 sda 10 0 100 0 5 0 200 0 0 0 0\n")
    machine.put(path, text)
    machine.host.read()

    assert ("sda", "disk_read_bytes_per_second") in machine.after(1.0)


def test_names_that_are_no_text_are_read_all_the_same(machine: _Machine) -> None:
    machine.put("proc/loadavg", "0.5 0.4 0.3 1/2 3\n")
    (machine.proc / "net").mkdir(parents=True)
    (machine.proc / "net" / "dev").write_bytes(b"\xff\xfe: 1 0 0 0 0 0 0 0 2 0 0 0 0 0 0 0\n")
    machine.host.read()

    assert {name for _, name in machine.after(1.0)} >= {"load_1m", "network_sent_bytes_per_second"}
