"""Whether a part answers."""

from __future__ import annotations

import urllib.error
import urllib.request

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

TIMEOUT_SECONDS = 2.0


def answers_http(url: str) -> bool:
    """Return whether a GET of `url`, one of our own on this machine, gives 200."""
    # Not through a proxy: the environment may name one for the outside world.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(url, timeout=TIMEOUT_SECONDS) as response:
            return bool(response.status == 200)
    except (OSError, urllib.error.HTTPError):
        return False


def serves_grpc(address: str) -> bool:
    """Return whether the gRPC health service at `address` says SERVING."""
    with grpc.insecure_channel(address, options=[("grpc.enable_http_proxy", 0)]) as channel:
        try:
            answer = health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest(), timeout=TIMEOUT_SECONDS)
        except grpc.RpcError:
            return False
    return bool(answer.status == health_pb2.HealthCheckResponse.SERVING)
