"""The worker that empties the outbox: at least once, the same id in every try, opened before resolved."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from random import Random

from sqlalchemy import Engine, select, update
from sqlalchemy.exc import SQLAlchemyError

from analytics.notify.channel import Channel, Message, Outcome, Result
from analytics.notify.message import OPENED
from collector.store.records import Delivery
from collector.store.records.delivery import DEAD, PENDING, SENT
from collector.store.records.session import UnitOfWork

logger = logging.getLogger(__name__)

# Seconds before the next try after the 1st, 2nd, ... failed one. Standard Webhooks' table with a shorter start, because
# a page that comes five minutes late is late; it spans about a day. Kept as a plain table and in the store, not in a
# retry library's process: the ladder must survive a restart.
LADDER_SECONDS = (5, 30, 120, 600, 1_800, 7_200, 18_000, 36_000)
JITTER = 0.2  # each wait is drawn from 1 to 1 + JITTER times its rung
LEASE_SECONDS = 60.0  # a try that has not reported back is taken for lost; well above a channel's own timeout
BATCH = 50
IDLE_SECONDS = 0.5


@dataclass(frozen=True, slots=True)
class Claim:
    """A delivery that this worker alone may send until the lease ends; `attempt` counts from 1."""

    message: Message
    channel: str
    attempt: int


class Outbox:
    """Sends due deliveries through their channels.

    Args:
        records: the records store.
        channels: by the name that deliveries carry.
        clock: gives aware UTC times.
        random: draws the jitter.
    """

    def __init__(
        self,
        records: Engine,
        channels: Mapping[str, Channel],
        *,
        clock: Callable[[], datetime],
        random: Random | None = None,
    ) -> None:
        self._records = records
        self._channels = dict(channels)
        self._clock = clock
        self._random = random or Random()  # noqa: S311 - jitter, no secret
        self._gone: dict[str, str] = {}

    def run(self, stop: threading.Event) -> None:
        """Deliver until `stop` is set; a records store that is away is waited for."""
        is_away = False
        while not stop.wait(IDLE_SECONDS):
            try:
                while self.deliver_due() and not stop.is_set():
                    pass
                if is_away:
                    logger.info("outbox: the records store is back")
                is_away = False
            except SQLAlchemyError as error:
                if not is_away:
                    logger.warning("outbox: the records store does not answer, will retry: %s", error)
                is_away = True
            except Exception:
                logger.exception("outbox: a pass failed; the next one follows")

    def deliver_due(self) -> int:
        """Try what is due, oldest first, and return how many tries were made."""
        tries = 0
        for delivery_id in self._due():
            claim = self._claim(delivery_id)
            if claim is None:
                continue
            self._settle(claim, self._try(claim))
            tries += 1
        return tries

    def _due(self) -> list[str]:
        """Return ids of due deliveries that have no earlier pending one of the same incident and channel."""
        with UnitOfWork(self._records) as work:
            rows = work.session.execute(
                select(Delivery.id, Delivery.incident_id, Delivery.channel, Delivery.next_attempt_at)
                .where(Delivery.state == PENDING)
                .order_by(Delivery.created_at, Delivery.event, Delivery.id)
            ).all()
        now = self._clock()
        first: dict[tuple[str, str], str] = {}
        for row in rows:
            first.setdefault((row.incident_id, row.channel), row.id)
        heads = set(first.values())
        return [row.id for row in rows if row.id in heads and row.next_attempt_at <= now][:BATCH]

    def _claim(self, delivery_id: str) -> Claim | None:
        """Count the try and lease the delivery before it is sent: a crash in the middle costs a wait, not an alert."""
        now = self._clock()
        with UnitOfWork(self._records, writing=True) as work:
            claimed = work.session.execute(
                update(Delivery)
                .where(Delivery.id == delivery_id, Delivery.state == PENDING, Delivery.next_attempt_at <= now)
                .values(attempts=Delivery.attempts + 1, next_attempt_at=now + timedelta(seconds=LEASE_SECONDS))
                .returning(Delivery.id, Delivery.event, Delivery.body, Delivery.channel, Delivery.attempts)
            ).first()
        if claimed is None:
            return None
        return Claim(Message(claimed.id, claimed.event, claimed.body), claimed.channel, claimed.attempts)

    def _try(self, claim: Claim) -> Outcome:
        channel = self._channels.get(claim.channel)
        if channel is None:
            return Outcome(Result.FAILED, f"no channel {claim.channel!r} is configured")
        if claim.channel in self._gone:
            return Outcome(Result.GONE, self._gone[claim.channel])
        try:
            return channel.send(claim.message)
        except Exception as error:
            logger.exception("channel %s broke on %s", claim.channel, claim.message.id)
            return Outcome(Result.FAILED, f"{type(error).__name__}: {error}")

    def _settle(self, claim: Claim, outcome: Outcome) -> None:
        now = self._clock()
        with UnitOfWork(self._records, writing=True) as work:
            delivery = work.session.get(Delivery, claim.message.id)
            if delivery is None or delivery.state != PENDING:
                return
            delivery.last_error = outcome.problem[:1_000]
            if outcome.result is Result.SENT:
                delivery.state, delivery.sent_at = SENT, now
                return
            is_dead = outcome.result is Result.GONE or claim.attempt > len(LADDER_SECONDS)
            if not is_dead:
                delivery.next_attempt_at = now + timedelta(seconds=self._wait_seconds(claim.attempt, outcome))
                return
            delivery.state = DEAD
            if delivery.event == OPENED:
                # nobody heard of it, so nobody is told that it is over
                work.session.execute(
                    update(Delivery)
                    .where(
                        Delivery.incident_id == delivery.incident_id,
                        Delivery.channel == delivery.channel,
                        Delivery.state == PENDING,
                        Delivery.id != delivery.id,
                    )
                    .values(state=DEAD, last_error="its opening was never delivered")
                )
        logger.error("delivery %s through %s is given up: %s", claim.message.id, claim.channel, outcome.problem)
        if outcome.result is Result.GONE and claim.channel not in self._gone:
            logger.error("channel %s is switched off until the next start: %s", claim.channel, outcome.problem)
            self._gone[claim.channel] = outcome.problem

    def _wait_seconds(self, attempt: int, outcome: Outcome) -> float:
        rung = LADDER_SECONDS[attempt - 1] * (1 + JITTER * self._random.random())
        return max(rung, outcome.wait_seconds)
