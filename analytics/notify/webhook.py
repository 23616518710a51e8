"""The signed webhook: Standard Webhooks 1.0.0 (https://github.com/standard-webhooks/standard-webhooks/blob/main/spec)."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

import httpx2
from standardwebhooks.webhooks import Webhook

from analytics.notify.channel import Message, Outcome, Result
from flightwatch.errors import FlightwatchError

WEBHOOK = "webhook"
# Standard Webhooks: "a reasonable timeout is 15 to 30 s"; an alert is worth the shorter one.
TIMEOUT_SECONDS = 15.0
SECRET_PREFIX = "whsec_"  # noqa: S105 - the prefix is public
SECRET_BYTES = range(24, 65)  # Standard Webhooks, "Signature scheme"
LONGEST_WAIT_SECONDS = 24 * 3600.0  # what a receiver may ask for; more would outlive the news
GONE_STATUS = 410
THROTTLED = (429, 503)


class WebhookSettingsError(FlightwatchError):
    """The webhook's address or secret cannot be used."""


class WebhookChannel:
    """Posts messages to one address, signed with one secret.

    Args:
        url: http or https.
        secret: whsec_ and the base64 of 24 to 64 bytes.
        clock: gives aware UTC times; receivers refuse timestamps more than minutes off.

    Raises:
        WebhookSettingsError: url or secret is malformed.
    """

    def __init__(
        self,
        url: str,
        secret: str,
        *,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
        timeout_seconds: float = TIMEOUT_SECONDS,
    ) -> None:
        self.name = WEBHOOK
        self._url = _checked_url(url)
        self._signer = Webhook(_checked_secret(secret))
        self._clock = clock
        self._client = httpx2.Client(timeout=timeout_seconds, follow_redirects=False)

    def send(self, message: Message) -> Outcome:
        """Post once. A status of 2xx is success; redirects are not followed: they would carry the news elsewhere."""
        now = self._clock()
        headers = {
            "content-type": "application/json",
            "user-agent": "flightwatch",
            "webhook-id": message.id,
            "webhook-timestamp": str(int(now.timestamp())),
            "webhook-signature": self._signer.sign(message.id, now.astimezone(UTC), message.body),
        }
        try:
            # streamed, so that what the receiver answers is never read: its status says all
            with self._client.stream("POST", self._url, content=message.body.encode(), headers=headers) as response:
                return self._outcome(response)
        except httpx2.TimeoutException:
            return Outcome(Result.FAILED, "no answer in time")
        except httpx2.HTTPError as error:
            return Outcome(Result.FAILED, f"{type(error).__name__}: {error}")

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    def _outcome(self, response: httpx2.Response) -> Outcome:
        if response.is_success:
            return Outcome(Result.SENT)
        problem = f"HTTP {response.status_code}"
        if response.status_code == GONE_STATUS:
            return Outcome(Result.GONE, f"{problem}: the receiver wants no more")
        if response.is_redirect:
            problem += " redirects, which is not followed"
        wait = self._asked_wait(response) if response.status_code in THROTTLED else 0.0
        return Outcome(Result.FAILED, problem, wait)

    def _asked_wait(self, response: httpx2.Response) -> float:
        """Return the seconds of Retry-After (RFC 9110 10.2.3: seconds, or a date), 0 where it says nothing usable."""
        text = response.headers.get("retry-after", "").strip()
        if text.isascii() and text.isdigit():
            return min(float(text), LONGEST_WAIT_SECONDS)
        try:
            until = parsedate_to_datetime(text)
        except ValueError:
            return 0.0
        if until.tzinfo is None:
            until = until.replace(tzinfo=UTC)
        return min(max((until - self._clock()).total_seconds(), 0.0), LONGEST_WAIT_SECONDS)


def _checked_url(url: str) -> str:
    try:
        parsed = httpx2.URL(url)
    except httpx2.InvalidURL as error:
        raise WebhookSettingsError(f"FLIGHTWATCH_WEBHOOK_URL {url!r} is not a URL: {error}") from None
    if parsed.scheme not in ("http", "https") or not parsed.host:
        raise WebhookSettingsError(f"FLIGHTWATCH_WEBHOOK_URL {url!r} must be http://... or https://...")
    return url


def _checked_secret(secret: str) -> str:
    problem = (
        f"the webhook's secret must be {SECRET_PREFIX} and the base64 of {SECRET_BYTES[0]} to {SECRET_BYTES[-1]} bytes"
    )
    if not secret:
        raise WebhookSettingsError(f"{problem}; name a file that holds it in FLIGHTWATCH_WEBHOOK_SECRET_FILE")
    if not secret.startswith(SECRET_PREFIX):
        raise WebhookSettingsError(f"{problem}; this one does not begin with {SECRET_PREFIX}")
    try:
        raw = base64.b64decode(secret.removeprefix(SECRET_PREFIX) + "==", validate=False)
    except (binascii.Error, ValueError):
        raise WebhookSettingsError(f"{problem}; this one is not base64") from None
    if len(raw) not in SECRET_BYTES:
        raise WebhookSettingsError(f"{problem}; this one has {len(raw)} bytes")
    return secret
