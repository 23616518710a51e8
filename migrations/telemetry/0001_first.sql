-- fsync: an insert that has returned is on disk (3 ms each).

-- Records of ranks, as they left the rings. What arrives twice collapses on the key; readers that must count say FINAL.
-- Step before op: everybody asks for the newest steps, and a run has hundreds of ops (each group's collectives are its own).
-- Measured on 1,024 ranks x 43 records x 240 steps, unmerged: four steps of all phases cost 0.035 s of CPU, op before step
-- 0.69 s; one op over all steps 0.047 s against 0.019 s; 96 MiB against 81 MiB.
CREATE TABLE IF NOT EXISTS ops (
    run     LowCardinality(String),
    op      UInt64,                              -- op_names.op
    step    UInt32,
    rank    UInt32,
    epoch   UInt64 CODEC(ZSTD(1)),
    record  UInt64 CODEC(Delta, ZSTD(1)),        -- record number within the epoch
    start_ns Int64 CODEC(DoubleDelta, ZSTD(1)),  -- unix ns: the epoch's fixed offset added to its monotonic clock
    value   Int64 CODEC(T64, ZSTD(1)),           -- duration ns; bytes of an issue; bits of an f64 of a sample
    seq     UInt32 CODEC(Delta, ZSTD(1)),
    micro   UInt32 CODEC(T64, ZSTD(1))
) ENGINE = ReplacingMergeTree
PARTITION BY toDate(fromUnixTimestamp64Nano(start_ns))
ORDER BY (run, step, op, rank, epoch, record)
SETTINGS fsync_after_insert = 1, fsync_part_directory = 1;

CREATE TABLE IF NOT EXISTS op_names (
    run     LowCardinality(String),
    op      UInt64,
    kind    LowCardinality(String),
    name    String,
    module  String,
    process_group String,
    members Array(UInt32),
    dtype   LowCardinality(String),
    size_class UInt8,
    backend LowCardinality(String)
) ENGINE = ReplacingMergeTree
ORDER BY (run, op)
SETTINGS fsync_after_insert = 1, fsync_part_directory = 1;

-- What each thread was doing when its forwarder looked, about once a second.
CREATE TABLE IF NOT EXISTS cells (
    run     LowCardinality(String),
    rank    UInt32,
    epoch   UInt64,
    thread  UInt64,
    seen_ns Int64 CODEC(DoubleDelta, ZSTD(1)),
    op      UInt64,                              -- 0: between ops
    step    UInt32,
    start_ns Int64
) ENGINE = ReplacingMergeTree
PARTITION BY toDate(fromUnixTimestamp64Nano(seen_ns))
ORDER BY (run, rank, epoch, thread, seen_ns)
TTL toDateTime(fromUnixTimestamp64Nano(seen_ns)) + INTERVAL 2 DAY
SETTINGS fsync_after_insert = 1, fsync_part_directory = 1;

CREATE TABLE IF NOT EXISTS metrics (
    node    LowCardinality(String),
    device  LowCardinality(String),
    metric  LowCardinality(String),
    time_ns Int64 CODEC(DoubleDelta, ZSTD(1)),
    value   Float64 CODEC(Gorilla, ZSTD(1))
) ENGINE = ReplacingMergeTree
PARTITION BY toDate(fromUnixTimestamp64Nano(time_ns))
ORDER BY (node, metric, device, time_ns)
SETTINGS fsync_after_insert = 1, fsync_part_directory = 1;

CREATE TABLE IF NOT EXISTS gaps (
    run     LowCardinality(String),
    rank    UInt32,
    epoch   UInt64,
    reason  LowCardinality(String),
    first_record UInt64,
    last_record  UInt64,
    count   UInt64,
    seen_ns Int64
) ENGINE = ReplacingMergeTree
ORDER BY (run, rank, epoch, reason, first_record)
SETTINGS fsync_after_insert = 1, fsync_part_directory = 1;
