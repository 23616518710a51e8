"""The first schema: runs with their ranks and nodes, incidents with findings and deliveries.

Names of constraints and indexes are those of collector.store.records.base.NAMING_CONVENTION.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

TIME = sa.DateTime(timezone=True)


def upgrade() -> None:
    """Create all tables, referred ones first."""
    _create_nodes_and_runs()
    _create_ranks()
    _create_incidents()
    _create_findings()
    _create_deliveries()


def downgrade() -> None:
    """Drop all tables, with their indexes, referring ones first."""
    for table in ("deliveries", "findings", "incidents", "ranks", "runs", "nodes"):
        op.drop_table(table)


def _create_nodes_and_runs() -> None:
    op.create_table(
        "nodes",
        sa.Column("name", sa.String(253), nullable=False),
        sa.Column("first_seen_at", TIME, nullable=False),
        sa.Column("last_seen_at", TIME, nullable=False),
        sa.PrimaryKeyConstraint("name", name="pk_nodes"),
    )
    op.create_table(
        "runs",
        sa.Column("id", sa.String(200), nullable=False),
        sa.Column("name", sa.String(200), nullable=False),
        sa.Column("state", sa.String(20), nullable=False),
        sa.Column("world_size", sa.Integer(), nullable=False),
        sa.Column("started_at", TIME, nullable=False),
        sa.Column("last_seen_at", TIME, nullable=False),
        sa.Column("ended_at", TIME, nullable=True),
        sa.Column("last_step", sa.BigInteger(), nullable=False),
        sa.Column("revision", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_runs"),
    )
    op.create_index("ix_runs_state", "runs", ["state"])
    op.create_index("ix_runs_last_seen_at", "runs", ["last_seen_at"])


def _create_ranks() -> None:
    op.create_table(
        "ranks",
        sa.Column("epoch", sa.String(16), nullable=False),
        sa.Column("run_id", sa.String(200), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("rank", sa.Integer(), nullable=False),
        sa.Column("world_size", sa.Integer(), nullable=False),
        sa.Column("local_rank", sa.Integer(), nullable=False),
        sa.Column("node", sa.String(253), nullable=False),
        sa.Column("pid", sa.BigInteger(), nullable=False),
        sa.Column("coordinates", sa.JSON(), nullable=False),
        sa.Column("sources", sa.JSON(), nullable=False),
        sa.Column("framework", sa.String(100), nullable=False),
        sa.Column("clock_offset_ns", sa.BigInteger(), nullable=False),
        sa.Column("started_at", TIME, nullable=False),
        sa.Column("ended_at", TIME, nullable=True),
        sa.Column("end", sa.String(20), nullable=False),
        sa.Column("records_written", sa.BigInteger(), nullable=True),
        sa.PrimaryKeyConstraint("epoch", name="pk_ranks"),
        sa.ForeignKeyConstraint(["run_id"], ["runs.id"], name="fk_ranks_run_id_runs", ondelete="CASCADE"),
    )
    op.create_index("ix_ranks_run_rank", "ranks", ["run_id", "rank"])


def _create_incidents() -> None:
    op.create_table(
        "incidents",
        sa.Column("id", sa.String(26), nullable=False),
        sa.Column("run_id", sa.String(200), nullable=False),
        sa.Column("state", sa.String(20), nullable=False),
        sa.Column("kind", sa.String(40), nullable=False),
        sa.Column("cause", sa.String(40), nullable=False),
        sa.Column("entity", sa.String(300), nullable=False),
        sa.Column("severity", sa.String(20), nullable=False),
        sa.Column("opened_at", TIME, nullable=False),
        sa.Column("updated_at", TIME, nullable=False),
        sa.Column("resolved_at", TIME, nullable=True),
        sa.Column("opened_step", sa.BigInteger(), nullable=False),
        sa.Column("resolved_step", sa.BigInteger(), nullable=True),
        sa.Column("first_step", sa.BigInteger(), nullable=False),
        sa.Column("last_step", sa.BigInteger(), nullable=False),
        sa.Column("ranks", sa.JSON(), nullable=False),
        sa.Column("nodes", sa.JSON(), nullable=False),
        sa.Column("summary", sa.String(), nullable=False),
        sa.Column("confidence", sa.Double(), nullable=False),
        sa.Column("slowdown", sa.Double(), nullable=False),
        sa.Column("finding", sa.JSON(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_incidents"),
        sa.ForeignKeyConstraint(["run_id"], ["runs.id"], name="fk_incidents_run_id_runs", ondelete="CASCADE"),
    )
    op.create_index("ix_incidents_run_state", "incidents", ["run_id", "state"])
    op.create_index("ix_incidents_updated_at", "incidents", ["updated_at"])


def _create_findings() -> None:
    op.create_table(
        "findings",
        sa.Column("id", sa.String(26), nullable=False),
        sa.Column("run_id", sa.String(200), nullable=False),
        sa.Column("incident_id", sa.String(26), nullable=True),
        sa.Column("created_at", TIME, nullable=False),
        sa.Column("body", sa.JSON(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_findings"),
        sa.ForeignKeyConstraint(["run_id"], ["runs.id"], name="fk_findings_run_id_runs", ondelete="CASCADE"),
        sa.ForeignKeyConstraint(
            ["incident_id"], ["incidents.id"], name="fk_findings_incident_id_incidents", ondelete="CASCADE"
        ),
    )
    op.create_index("ix_findings_run_id", "findings", ["run_id"])
    op.create_index("ix_findings_incident_id", "findings", ["incident_id"])


def _create_deliveries() -> None:
    op.create_table(
        "deliveries",
        sa.Column("id", sa.String(40), nullable=False),
        sa.Column("incident_id", sa.String(26), nullable=False),
        sa.Column("event", sa.String(40), nullable=False),
        sa.Column("channel", sa.String(40), nullable=False),
        sa.Column("body", sa.Text(), nullable=False),
        sa.Column("state", sa.String(20), nullable=False),
        sa.Column("attempts", sa.Integer(), nullable=False),
        sa.Column("created_at", TIME, nullable=False),
        sa.Column("next_attempt_at", TIME, nullable=False),
        sa.Column("sent_at", TIME, nullable=True),
        sa.Column("last_error", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_deliveries"),
        sa.ForeignKeyConstraint(
            ["incident_id"], ["incidents.id"], name="fk_deliveries_incident_id_incidents", ondelete="CASCADE"
        ),
    )
    op.create_index("ix_deliveries_incident_id", "deliveries", ["incident_id"])
    op.create_index("ix_deliveries_state_next_attempt_at", "deliveries", ["state", "next_attempt_at"])
