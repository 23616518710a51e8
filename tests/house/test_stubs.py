"""The generated stubs say what flightwatch.proto says."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from google.protobuf import descriptor_pb2

from flightwatch.wire import flightwatch_pb2, flightwatch_pb2_grpc

REPOSITORY = Path(__file__).parents[2]
PROTO = "flightwatch/wire/flightwatch.proto"


@pytest.fixture(scope="module")
def declared(tmp_path_factory: pytest.TempPathFactory) -> descriptor_pb2.FileDescriptorProto:
    pytest.importorskip("grpc_tools", reason="grpcio-tools compiles the .proto; `make setup` installs it")
    out = tmp_path_factory.mktemp("wire") / "descriptors"
    command = [sys.executable, "-m", "grpc_tools.protoc", "-I", "agent", f"--descriptor_set_out={out}", PROTO]
    subprocess.run(command, cwd=REPOSITORY, check=True)
    return descriptor_pb2.FileDescriptorSet.FromString(out.read_bytes()).file[0]


def test_messages_in_the_stubs_are_those_of_the_proto(declared: descriptor_pb2.FileDescriptorProto) -> None:
    generated = descriptor_pb2.FileDescriptorProto()
    flightwatch_pb2.DESCRIPTOR.CopyToProto(generated)
    for message in declared.message_type:
        for field in (field for each in (message, *message.nested_type) for field in each.field):
            field.ClearField("json_name")  # protoc writes the default out, the stubs leave it away

    assert generated.package == declared.package
    assert list(generated.message_type) == list(declared.message_type)
    assert list(generated.service) == list(declared.service)


def test_the_service_stub_offers_every_method(declared: descriptor_pb2.FileDescriptorProto) -> None:
    methods = [method.name for service in declared.service for method in service.method]

    assert methods
    assert [name for name in methods if not hasattr(flightwatch_pb2_grpc.TelemetryServicer, name)] == []
