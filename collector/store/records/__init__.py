"""The records store: runs, ranks, nodes, incidents, findings, deliveries. One mapped class per file."""

from collector.store.records.base import Base
from collector.store.records.delivery import Delivery
from collector.store.records.finding import StoredFinding
from collector.store.records.incident import Incident
from collector.store.records.node import Node
from collector.store.records.rank import Rank
from collector.store.records.run import Run

__all__ = ["Base", "Delivery", "Incident", "Node", "Rank", "Run", "StoredFinding"]
