"""Exit 0 when the collector at HOST:PORT says over gRPC that it serves."""

import sys

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

with grpc.insecure_channel(sys.argv[1]) as channel:
    answer = health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest(), timeout=3)
sys.exit(answer.status != health_pb2.HealthCheckResponse.SERVING)
