from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class ForwarderMessage(_message.Message):
    __slots__ = ("hello", "frame")
    HELLO_FIELD_NUMBER: _ClassVar[int]
    FRAME_FIELD_NUMBER: _ClassVar[int]
    hello: Hello
    frame: Frame
    def __init__(self, hello: _Optional[_Union[Hello, _Mapping]] = ..., frame: _Optional[_Union[Frame, _Mapping]] = ...) -> None: ...

class Hello(_message.Message):
    __slots__ = ("protocol", "forwarder", "node", "version")
    PROTOCOL_FIELD_NUMBER: _ClassVar[int]
    FORWARDER_FIELD_NUMBER: _ClassVar[int]
    NODE_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    protocol: int
    forwarder: str
    node: str
    version: str
    def __init__(self, protocol: _Optional[int] = ..., forwarder: _Optional[str] = ..., node: _Optional[str] = ..., version: _Optional[str] = ...) -> None: ...

class RankStart(_message.Message):
    __slots__ = ("epoch", "run", "attempt", "rank", "world_size", "local_rank", "node", "pid", "start_unix_ns", "start_monotonic_ns", "coordinates", "sources", "run_name", "framework", "ring_capacity")
    class CoordinatesEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    class SourcesEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    RUN_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    RANK_FIELD_NUMBER: _ClassVar[int]
    WORLD_SIZE_FIELD_NUMBER: _ClassVar[int]
    LOCAL_RANK_FIELD_NUMBER: _ClassVar[int]
    NODE_FIELD_NUMBER: _ClassVar[int]
    PID_FIELD_NUMBER: _ClassVar[int]
    START_UNIX_NS_FIELD_NUMBER: _ClassVar[int]
    START_MONOTONIC_NS_FIELD_NUMBER: _ClassVar[int]
    COORDINATES_FIELD_NUMBER: _ClassVar[int]
    SOURCES_FIELD_NUMBER: _ClassVar[int]
    RUN_NAME_FIELD_NUMBER: _ClassVar[int]
    FRAMEWORK_FIELD_NUMBER: _ClassVar[int]
    RING_CAPACITY_FIELD_NUMBER: _ClassVar[int]
    epoch: int
    run: str
    attempt: int
    rank: int
    world_size: int
    local_rank: int
    node: str
    pid: int
    start_unix_ns: int
    start_monotonic_ns: int
    coordinates: _containers.ScalarMap[str, int]
    sources: _containers.ScalarMap[str, str]
    run_name: str
    framework: str
    ring_capacity: int
    def __init__(self, epoch: _Optional[int] = ..., run: _Optional[str] = ..., attempt: _Optional[int] = ..., rank: _Optional[int] = ..., world_size: _Optional[int] = ..., local_rank: _Optional[int] = ..., node: _Optional[str] = ..., pid: _Optional[int] = ..., start_unix_ns: _Optional[int] = ..., start_monotonic_ns: _Optional[int] = ..., coordinates: _Optional[_Mapping[str, int]] = ..., sources: _Optional[_Mapping[str, str]] = ..., run_name: _Optional[str] = ..., framework: _Optional[str] = ..., ring_capacity: _Optional[int] = ...) -> None: ...

class RankEnd(_message.Message):
    __slots__ = ("epoch", "how", "records_written", "unix_ns")
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    HOW_FIELD_NUMBER: _ClassVar[int]
    RECORDS_WRITTEN_FIELD_NUMBER: _ClassVar[int]
    UNIX_NS_FIELD_NUMBER: _ClassVar[int]
    epoch: int
    how: str
    records_written: int
    unix_ns: int
    def __init__(self, epoch: _Optional[int] = ..., how: _Optional[str] = ..., records_written: _Optional[int] = ..., unix_ns: _Optional[int] = ...) -> None: ...

class OpDescriptor(_message.Message):
    __slots__ = ("epoch", "op", "op_key", "kind", "name", "module", "group", "members", "dtype", "size_class", "backend")
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    OP_FIELD_NUMBER: _ClassVar[int]
    OP_KEY_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    MODULE_FIELD_NUMBER: _ClassVar[int]
    GROUP_FIELD_NUMBER: _ClassVar[int]
    MEMBERS_FIELD_NUMBER: _ClassVar[int]
    DTYPE_FIELD_NUMBER: _ClassVar[int]
    SIZE_CLASS_FIELD_NUMBER: _ClassVar[int]
    BACKEND_FIELD_NUMBER: _ClassVar[int]
    epoch: int
    op: int
    op_key: int
    kind: str
    name: str
    module: str
    group: str
    members: _containers.RepeatedScalarFieldContainer[int]
    dtype: str
    size_class: int
    backend: str
    def __init__(self, epoch: _Optional[int] = ..., op: _Optional[int] = ..., op_key: _Optional[int] = ..., kind: _Optional[str] = ..., name: _Optional[str] = ..., module: _Optional[str] = ..., group: _Optional[str] = ..., members: _Optional[_Iterable[int]] = ..., dtype: _Optional[str] = ..., size_class: _Optional[int] = ..., backend: _Optional[str] = ...) -> None: ...

class Slice(_message.Message):
    __slots__ = ("epoch", "first_record", "records")
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    FIRST_RECORD_FIELD_NUMBER: _ClassVar[int]
    RECORDS_FIELD_NUMBER: _ClassVar[int]
    epoch: int
    first_record: int
    records: bytes
    def __init__(self, epoch: _Optional[int] = ..., first_record: _Optional[int] = ..., records: _Optional[bytes] = ...) -> None: ...

class OpenCell(_message.Message):
    __slots__ = ("epoch", "thread", "op", "step", "start_monotonic_ns", "seen_unix_ns")
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    THREAD_FIELD_NUMBER: _ClassVar[int]
    OP_FIELD_NUMBER: _ClassVar[int]
    STEP_FIELD_NUMBER: _ClassVar[int]
    START_MONOTONIC_NS_FIELD_NUMBER: _ClassVar[int]
    SEEN_UNIX_NS_FIELD_NUMBER: _ClassVar[int]
    epoch: int
    thread: int
    op: int
    step: int
    start_monotonic_ns: int
    seen_unix_ns: int
    def __init__(self, epoch: _Optional[int] = ..., thread: _Optional[int] = ..., op: _Optional[int] = ..., step: _Optional[int] = ..., start_monotonic_ns: _Optional[int] = ..., seen_unix_ns: _Optional[int] = ...) -> None: ...

class Metric(_message.Message):
    __slots__ = ("node", "device", "name", "unix_ns", "value")
    NODE_FIELD_NUMBER: _ClassVar[int]
    DEVICE_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    UNIX_NS_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    node: str
    device: str
    name: str
    unix_ns: _containers.RepeatedScalarFieldContainer[int]
    value: _containers.RepeatedScalarFieldContainer[float]
    def __init__(self, node: _Optional[str] = ..., device: _Optional[str] = ..., name: _Optional[str] = ..., unix_ns: _Optional[_Iterable[int]] = ..., value: _Optional[_Iterable[float]] = ...) -> None: ...

class Gap(_message.Message):
    __slots__ = ("epoch", "reason", "first_record", "last_record", "count")
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    FIRST_RECORD_FIELD_NUMBER: _ClassVar[int]
    LAST_RECORD_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    epoch: int
    reason: str
    first_record: int
    last_record: int
    count: int
    def __init__(self, epoch: _Optional[int] = ..., reason: _Optional[str] = ..., first_record: _Optional[int] = ..., last_record: _Optional[int] = ..., count: _Optional[int] = ...) -> None: ...

class Frame(_message.Message):
    __slots__ = ("frame", "starts", "ops", "slices", "cells", "metrics", "gaps", "ends", "sent_unix_ns")
    FRAME_FIELD_NUMBER: _ClassVar[int]
    STARTS_FIELD_NUMBER: _ClassVar[int]
    OPS_FIELD_NUMBER: _ClassVar[int]
    SLICES_FIELD_NUMBER: _ClassVar[int]
    CELLS_FIELD_NUMBER: _ClassVar[int]
    METRICS_FIELD_NUMBER: _ClassVar[int]
    GAPS_FIELD_NUMBER: _ClassVar[int]
    ENDS_FIELD_NUMBER: _ClassVar[int]
    SENT_UNIX_NS_FIELD_NUMBER: _ClassVar[int]
    frame: int
    starts: _containers.RepeatedCompositeFieldContainer[RankStart]
    ops: _containers.RepeatedCompositeFieldContainer[OpDescriptor]
    slices: _containers.RepeatedCompositeFieldContainer[Slice]
    cells: _containers.RepeatedCompositeFieldContainer[OpenCell]
    metrics: _containers.RepeatedCompositeFieldContainer[Metric]
    gaps: _containers.RepeatedCompositeFieldContainer[Gap]
    ends: _containers.RepeatedCompositeFieldContainer[RankEnd]
    sent_unix_ns: int
    def __init__(self, frame: _Optional[int] = ..., starts: _Optional[_Iterable[_Union[RankStart, _Mapping]]] = ..., ops: _Optional[_Iterable[_Union[OpDescriptor, _Mapping]]] = ..., slices: _Optional[_Iterable[_Union[Slice, _Mapping]]] = ..., cells: _Optional[_Iterable[_Union[OpenCell, _Mapping]]] = ..., metrics: _Optional[_Iterable[_Union[Metric, _Mapping]]] = ..., gaps: _Optional[_Iterable[_Union[Gap, _Mapping]]] = ..., ends: _Optional[_Iterable[_Union[RankEnd, _Mapping]]] = ..., sent_unix_ns: _Optional[int] = ...) -> None: ...

class CollectorMessage(_message.Message):
    __slots__ = ("welcome", "ack", "command")
    WELCOME_FIELD_NUMBER: _ClassVar[int]
    ACK_FIELD_NUMBER: _ClassVar[int]
    COMMAND_FIELD_NUMBER: _ClassVar[int]
    welcome: Welcome
    ack: Ack
    command: Command
    def __init__(self, welcome: _Optional[_Union[Welcome, _Mapping]] = ..., ack: _Optional[_Union[Ack, _Mapping]] = ..., command: _Optional[_Union[Command, _Mapping]] = ...) -> None: ...

class Welcome(_message.Message):
    __slots__ = ("collector", "max_message_bytes", "flush_interval_ms", "reconnect_window_ms")
    COLLECTOR_FIELD_NUMBER: _ClassVar[int]
    MAX_MESSAGE_BYTES_FIELD_NUMBER: _ClassVar[int]
    FLUSH_INTERVAL_MS_FIELD_NUMBER: _ClassVar[int]
    RECONNECT_WINDOW_MS_FIELD_NUMBER: _ClassVar[int]
    collector: str
    max_message_bytes: int
    flush_interval_ms: int
    reconnect_window_ms: int
    def __init__(self, collector: _Optional[str] = ..., max_message_bytes: _Optional[int] = ..., flush_interval_ms: _Optional[int] = ..., reconnect_window_ms: _Optional[int] = ...) -> None: ...

class Ack(_message.Message):
    __slots__ = ("frame", "frame_sent_unix_ns", "received_unix_ns", "answered_unix_ns")
    FRAME_FIELD_NUMBER: _ClassVar[int]
    FRAME_SENT_UNIX_NS_FIELD_NUMBER: _ClassVar[int]
    RECEIVED_UNIX_NS_FIELD_NUMBER: _ClassVar[int]
    ANSWERED_UNIX_NS_FIELD_NUMBER: _ClassVar[int]
    frame: int
    frame_sent_unix_ns: int
    received_unix_ns: int
    answered_unix_ns: int
    def __init__(self, frame: _Optional[int] = ..., frame_sent_unix_ns: _Optional[int] = ..., received_unix_ns: _Optional[int] = ..., answered_unix_ns: _Optional[int] = ...) -> None: ...

class Command(_message.Message):
    __slots__ = ("id", "epoch", "verb", "arguments")
    class ArgumentsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    ID_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    VERB_FIELD_NUMBER: _ClassVar[int]
    ARGUMENTS_FIELD_NUMBER: _ClassVar[int]
    id: str
    epoch: int
    verb: str
    arguments: _containers.ScalarMap[str, str]
    def __init__(self, id: _Optional[str] = ..., epoch: _Optional[int] = ..., verb: _Optional[str] = ..., arguments: _Optional[_Mapping[str, str]] = ...) -> None: ...
