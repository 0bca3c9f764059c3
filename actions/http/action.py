"""AsyncHttp: pushes each message to a URL and takes the reply for the answer (R52-R61); docs/actions-push.md.

Nothing of a retry is kept here: what failed is raised, and comes again by the subscription's own schedule, in its key's
place, journaled as any attempt (W15, W19). What is kept is what no message has: which URLs are out (`targets`), the
rate (`pace`), and connections.

One attempt: a URL that is not out, or the wait until one may be probed -> a token of the rate -> one of the URL's
connections, and a look whether it is still in -> the request, whose time runs from here -> what the reply means.
"""

from __future__ import annotations

import asyncio
import re
import zlib
from typing import TYPE_CHECKING, ClassVar

from actions.client_factories import OutsideAction
from actions.http import callback
from actions.http.client import Client, HttpReply, PushFailed
from actions.http.connection_options import AddressRefused, HttpWish
from actions.http.options import AsyncHttpOptions, SignatureOptions
from actions.http.pace import Pace
from actions.http.reply import RETRY_MS, ReplyMeaning, ReplyVerdict, judge, printable, retry_after_ms
from actions.http.request import Composer, HttpRequest, Pairs, joined, signed
from actions.http.signature import KEY_ID, SIGNATURE
from actions.http.targets import Health, Targets, Ticket
from conf.secrets import Secret, SecretUnreadable
from pyddmq.actions import Failed, Job, RetryLater, Status, Unprocessable
from upstream.views import PushView, TargetView

if TYPE_CHECKING:
    from yarl import URL

_CHARSET = re.compile(r"""charset\s*=\s*["']?([A-Za-z0-9_.:-]{1,40})""", re.IGNORECASE)
JITTER = 0.1
"""A repeat after an error comes later by up to this share of its wait, so that those that failed together part."""
ERROR_WAIT_MS = 1000
ERROR_DOUBLINGS_MAX = 7
"""The subscription's waits after errors (R55)."""
LIMIT_MS = 86_400_000
HIDDEN_CHARACTERS_MIN = 4
"""A shorter secret is not looked for in what a receiver writes: it would stand in any text."""
HIDDEN_MAX = 64
"""Secrets that are looked for, the newest ones."""
HIDDEN_IN = 4096
"""Bytes of a reply in which secrets are looked for, before the text is cut to a line."""


class AsyncHttp(OutsideAction):
    """Pushes messages over HTTP."""

    may_be_last: ClassVar[bool] = True
    options_model = AsyncHttpOptions
    # Its time limit is the request's, the subscription's `timeout`: the wait for a token does not count.
    time_limit_ms = LIMIT_MS
    options: AsyncHttpOptions
    _open = False

    def open(self) -> None:
        """Make the client; raises what makes a push impossible: SecretUnreadable, OSError for the authorities."""
        from yarl import URL

        self._url_of = URL
        options, context = self.options, self.context
        self._signature = options.signature
        self._hidden: list[str] = []
        self._secrets = 0
        self._take_secrets(*self._read_secrets())
        self._urls = [URL(url) for url in options.urls]
        self.targets = Targets([str(url) for url in self._urls], options.breaker)
        self._slots = [asyncio.Semaphore(options.connections) for _ in self._urls]
        self.pace = Pace(self._rate, context.monotonic)
        self._ending = asyncio.Event()
        self._out = 0
        ca_file = options.tls.ca_file
        wish = HttpWish(connections_max=options.connections * len(self._urls), ca_file=ca_file)
        self._client = Client(self.outside, wish, options.reply_bytes_max)
        self._callback_client: Client | None = None
        if options.callback is not None:
            self._origins, self._networks = options.callback.parsed_origins, options.callback.parsed_networks
            self._callback_slots = asyncio.Semaphore(options.connections)
            guarded = HttpWish(connections_max=options.connections, ca_file=ca_file, allowed=self._networks, keep=False)
            self._callback_client = Client(self.outside, guarded, options.reply_bytes_max)
        self._open = True

    def _read_secrets(self) -> tuple[Pairs, bytes]:
        """Return the headers of every request and the key of signatures. Raises SecretUnreadable."""
        given = self.options.headers.items()
        static = [(name, value.read() if isinstance(value, Secret) else value) for name, value in given]
        return static, b"" if self._signature is None else self._signature.secret.read().encode()

    def _take_secrets(self, static: Pairs, secret: bytes) -> None:
        """Use secrets from now on; those before stay hidden in what receivers write."""
        self._static, self._secret = static, secret
        self._secrets += 1
        self._composer = Composer(self.options, static, is_intact=self.is_intact)
        texts = [text for name, text in static if isinstance(self.options.headers[name], Secret)]
        new = [each for each in (*texts, secret.decode()) if len(each) >= HIDDEN_CHARACTERS_MIN]
        self._hidden = [*new, *(each for each in self._hidden if each not in new)][:HIDDEN_MAX]

    def _have_changed(self, used: int) -> bool:
        """Whether secrets changed since a request that a receiver refused; reads them again.

        Args:
            used: `_secrets` when the request was made.
        """
        if self._secrets != used:
            return True
        try:
            static, secret = self._read_secrets()
        except SecretUnreadable as error:
            self.context.note("push_secret_unreadable", error=str(error))
            return False
        if (static, secret) == (self._static, self._secret):
            return False
        self._take_secrets(static, secret)
        self.context.count("secret_renewed")
        return True

    def preview(self, job: Job) -> list[str]:
        """Return the request of a message: its first line, headers and body; secrets and what they sign as `***`."""
        from yarl import URL

        options = self.options
        static = [(name, "***" if isinstance(value, Secret) else value) for name, value in options.headers.items()]
        request = Composer(options, static, is_intact=self.is_intact).compose(job)
        urls = options.urls
        if options.callback is not None and callback.PROPERTY in job.message.properties:
            urls = callback.split(job.message.properties[callback.PROPERTY])
        lines = []
        for url in urls:
            query = joined(URL(url).raw_query_string, request.query)
            lines.append(f"{options.http_method} {url.partition('?')[0]}{'?' if query else ''}{query}")
        lines += [f"{name}: {value}" for name, value in request.headers]
        if options.signature is not None:
            lines += [f"{SIGNATURE}: ***", f"{KEY_ID}: {options.signature.key_id}"]
        return [*lines, request.body.decode("utf-8", "backslashreplace")] if request.body else lines

    def drain(self) -> None:
        """Let requests that are out end, and begin none."""
        self._ending.set()
        self.pace.end()

    async def close(self) -> None:
        """Close all connections."""
        self.drain()
        for client in (self._client, self._callback_client):
            if client is not None:
                await client.close()

    async def act(self, job: Job) -> Status:
        """Push one message.

        Raises:
            PushFailed: An error: no reply in time, or one that is none of success.
            Failed: The receiver refuses the message.
            RetryLater: It asks for the message later, or no URL is in.
            Unprocessable: No request can be made of the message.
        """
        history = job.history
        if history is not None and history.errors:
            await self._part(history.errors + history.timeouts)
        request = self._compose(job)
        wanted = job.message.properties.get(callback.PROPERTY)
        client = self._callback_client
        if wanted is not None and client is None:
            self.context.count("callback_ignored")
        if wanted is None or client is None:
            reply, url = await self._push(job, request)
        else:
            reply, url = await self._push_back(client, job, request, wanted)
        return self._answer(reply, url)

    def _compose(self, job: Job) -> HttpRequest:
        composer = self._composer
        ignored, traces = composer.headers_ignored, composer.traces_ignored
        request = composer.compose(job)
        if composer.headers_ignored > ignored:
            self.context.count("headers_ignored", composer.headers_ignored - ignored)
        if composer.traces_ignored > traces:
            self.context.count("traceparent_ignored")
        return request

    async def _part(self, errors: int) -> None:
        """Wait for the jitter of a repeat."""
        wait_ms = (ERROR_WAIT_MS << min(errors - 1, ERROR_DOUBLINGS_MAX)) * JITTER * self.outside.random.random()
        try:
            await asyncio.wait_for(self._ending.wait(), wait_ms / 1000)
        except TimeoutError:
            return
        raise _ended()

    async def _push(self, job: Job, request: HttpRequest) -> tuple[HttpReply, str]:
        """Push to one of the configured URLs; returns its reply, and the URL for people."""
        errors = job.history.errors if job.history is not None else 0
        start = zlib.crc32(b"%b %d" % (job.qid.encode(), job.offset)) + errors
        paid = False
        while True:
            ticket = self.targets.pick(start, self.context.monotonic())
            if ticket is None:
                raise self._all_out()
            done = False
            try:
                if not paid and not self.pace.try_take():
                    self.context.count("held_by_rate")
                    if not await self.pace.take():
                        raise _ended()
                paid = True
                target = ticket.target
                async with self._slots[target.place]:
                    if self._ending.is_set():
                        raise _ended()
                    if not ticket.is_probe and target.health is not Health.CLOSED:
                        # It went out while this message waited.
                        done = True
                        continue
                    reply = await self._send(job, request, self._urls[target.place], ticket)
                    done = True
                    return reply, target.url
            except PushFailed:
                done = True
                raise
            finally:
                if not done:
                    self.targets.given_up(ticket, self.context.monotonic())

    async def _send(self, job: Job, request: HttpRequest, url: URL, ticket: Ticket) -> HttpReply:
        """Send to a configured URL and note what that says of it."""
        try:
            reply = await self._exchange(self._client, job, request, url)
            self._check_status(reply)
        except PushFailed as failure:
            if failure.counts:
                self._failed(ticket, str(failure))
            else:
                self._ok(ticket)
            raise PushFailed(f"{ticket.target.url}: {failure}", delay_ms=failure.delay_ms) from None
        self._ok(ticket)
        return reply

    async def _push_back(self, client: Client, job: Job, request: HttpRequest, wanted: str) -> tuple[HttpReply, str]:
        """Push to a URL that the message names."""
        errors = job.history.errors if job.history is not None else 0
        try:
            urls = [callback.check(url, self._origins, self._networks) for url in callback.split(wanted)]
            url = self._url_of(urls[errors % len(urls)], encoded=True)
            url.host  # noqa: B018 - a URL that cannot be read is refused here
        except ValueError as error:
            raise self._refused(str(error)) from None
        if not self.pace.try_take() and not await self.pace.take():
            raise _ended()
        async with self._callback_slots:
            if self._ending.is_set():
                raise _ended()
            shown = f"{url.scheme}://{url.raw_host}:{url.port} of the message"
            try:
                reply = await self._exchange(client, job, request, url)
                self._check_status(reply)
            except AddressRefused as error:
                raise self._refused(str(error)) from None
            except PushFailed as failure:
                raise PushFailed(f"{shown}: {failure}", delay_ms=failure.delay_ms) from None
            return reply, shown

    async def _exchange(self, client: Client, job: Job, request: HttpRequest, url: URL) -> HttpReply:
        """Send a request; once more where it is refused and a secret has changed. Returns the reply of any status."""
        used = self._secrets
        reply = await self._sent(client, job, request, url)
        if reply.status not in (401, 403) or not self._have_changed(used):
            return reply
        return await self._sent(client, job, self._compose(job), url)

    async def _sent(self, client: Client, job: Job, request: HttpRequest, url: URL) -> HttpReply:
        """Send a request and count it."""
        headers = request.headers
        if request.query:
            front = str(url).partition("?")[0]
            url = self._url_of(f"{front}?{joined(url.raw_query_string, request.query)}", encoded=True)
        if self._signature is not None:
            headers = list(headers)
            self._sign(self._signature, headers, request, url.raw_query_string, job.topic)
        self._out += 1
        try:
            return await client.send(self.options.http_method, url, headers, request.body, self.context.timeout_ms)
        finally:
            self._out -= 1

    def _sign(self, signature: SignatureOptions, headers: Pairs, request: HttpRequest, query: str, topic: str) -> None:
        time_s = self.context.wall_ms() // 1000
        key_id = signature.key_id
        signed(headers, request, query, key_id=key_id, secret=self._secret, topic=topic, time_s=time_s)

    def _check_status(self, reply: HttpReply) -> None:
        """Raise PushFailed unless the status is one of success (R55)."""
        status = reply.status
        if status == 200 or (self.options.success == "2xx" and 200 <= status <= 299):
            return
        said = printable(self._hide(reply.body[:HIDDEN_IN].decode("utf-8", "replace")))
        text = f"status {status}" + (f": {said}" if said else "")
        wish = reply.headers.get("Retry-After", "")
        raise PushFailed(
            text, counts=status == 429 or status >= 500, delay_ms=retry_after_ms(wish, self.context.wall_ms())
        )

    def _answer(self, reply: HttpReply, url: str) -> Status:
        """Say what a reply of success means for the message (R56)."""
        meaning, reason = (ReplyMeaning.CONSUMED, "") if not reply.body else self._judged(reply)
        if meaning is ReplyMeaning.SLOW_DOWN:
            self.context.count("slow_down" if self.pace.slow_down() else "slow_down_without_rate")
        elif meaning is ReplyMeaning.GIVEN_UP:
            self.context.count("given_up")
            self.context.note("push_given_up", url=url)
        elif meaning is ReplyMeaning.RETRY:
            self.context.count("retry_asked")
            raise RetryLater(RETRY_MS, f"{url} requests a retry (errno 1000002)")
        elif meaning is ReplyMeaning.FAILED:
            raise Failed(f"{url} answered {reason}")
        elif meaning is ReplyMeaning.UNREADABLE:
            self.context.count("reply_unreadable")
            raise PushFailed(f"{url} answered {reason}", counts=False)
        return Status.FINISH

    def _judged(self, reply: HttpReply) -> ReplyVerdict:
        headers = reply.headers
        charset = _CHARSET.search(headers.get("Content-Type", ""))
        return judge(
            reply.body,
            self._hide,
            charset=charset[1].lower() if charset else "",
            coding=headers.get("Content-Encoding", "").strip().lower(),
            bytes_max=self.options.reply_bytes_max,
        )

    def _hide(self, text: str) -> str:
        """Return what a receiver wrote without the secrets that it was sent: its text goes to logs and dead letters."""
        for secret in self._hidden:
            text = text.replace(secret, "***")
        return text

    def _ok(self, ticket: Ticket) -> None:
        if self.targets.ok(ticket):
            self.context.count("url_in")
            self.context.note("push_url_in", url=ticket.target.url)

    def _failed(self, ticket: Ticket, reason: str) -> None:
        self.context.count("url_failed")
        if self.targets.failed(ticket, reason, self.context.monotonic()):
            self.context.count("url_out")
            self.context.note("push_url_out", url=ticket.target.url, error=reason)

    def _all_out(self) -> RetryLater:
        """Say when it is worth to come again; not all at once."""
        self.context.count("all_urls_out")
        wait_ms = self.targets.wait_ms(self.context.monotonic())
        return RetryLater(
            round(wait_ms * (1 + JITTER * self.outside.random.random())) + 1,
            f"every URL is excluded after failures; the last failure: {self.targets.last_reason}",
        )

    def _refused(self, reason: str) -> Unprocessable:
        self.context.count("callback_refused")
        self.context.note("push_callback_refused", reason=reason)
        return Unprocessable(f"the message's callback URL is refused: {reason}")

    def _rate(self) -> float | None:
        own = self.options.http_max_tps
        return own if own > 0 else self.context.tps_max

    def view(self) -> PushView:
        """Return what an operator is shown; of an action that is not open yet its name alone."""
        if not self._open:
            return PushView(action=self.name)
        now, wall_ms = self.context.monotonic(), self.context.wall_ms()

        def wall(moment: float | None) -> int | None:
            return None if moment is None else wall_ms + round((moment - now) * 1000)

        return PushView(
            action=self.name,
            out=self._out,
            rate=self._rate(),
            slow=self.pace.slow,
            held=self.pace.waiting,
            held_since_ms=wall(self.pace.waiting_since),
            urls=[
                TargetView(
                    url=each.url,
                    state=each.health.value,
                    failures=each.failures,
                    failed_total=each.failed_total,
                    since_ms=wall(each.since),
                    probe_ms=wall(each.due) if each.health is Health.OPEN else None,
                    reason=each.reason or None,
                )
                for each in self.targets.all
            ],
        )


def _ended() -> RetryLater:
    """What becomes of a message whose turn did not come before the node drains: the next generation has it at once."""
    return RetryLater(0, "the subscription ends")
