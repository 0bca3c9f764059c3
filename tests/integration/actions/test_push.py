"""AsyncHttp over real sockets: what a receiver does, and what becomes of the message."""

from __future__ import annotations

import asyncio
import ssl
import subprocess
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from actions.http.client import PushFailed
from actions.http.signature import sign
from actions.http.targets import Health
from pyddmq.actions import Failed, RetryLater, Status, Unprocessable
from tests.conftest import need_program
from tests.push_tools import HandContext, HandHistory, HandJob, Receiver, push, pusher, serving

Story = Callable[[], Awaitable[None]]


async def hang(request: web.BaseRequest) -> web.StreamResponse:
    """Never answer."""
    await asyncio.Event().wait()
    raise AssertionError


async def reset(request: web.BaseRequest) -> web.StreamResponse:
    """Cut the connection."""
    assert request.transport is not None
    request.transport.abort()
    await asyncio.sleep(0)
    return web.Response()


async def endless(request: web.BaseRequest) -> web.StreamResponse:
    """Send a body that has no end."""
    reply = web.StreamResponse()
    await reply.prepare(request)
    while True:
        await reply.write(b"x" * 4096)


async def packed(request: web.BaseRequest) -> web.StreamResponse:
    """Send a body that says it is compressed."""
    return web.Response(body=b"\x1f\x8b" + bytes(100), headers={"Content-Encoding": "gzip"})


async def raw(request: web.BaseRequest, answer: bytes) -> web.StreamResponse:
    """Send bytes that are no HTTP."""
    assert request.transport is not None
    request.transport.write(answer)
    request.transport.close()
    await asyncio.sleep(0)
    return web.Response()


def garbage(answer: bytes) -> Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]:
    """Return a handler that sends these bytes."""
    return lambda request: raw(request, answer)


def redirect(where: str) -> web.Response:
    """A redirect."""
    return web.Response(status=302, headers={"Location": where})


async def one(answer: Any, **options: Any) -> tuple[Status | Exception, HandContext, Receiver]:
    """Push one message to a receiver that answers so."""
    receiver, context = Receiver(answer), HandContext(timeout_ms=options.pop("timeout_ms", 2000))
    async with serving(receiver):
        action = pusher(context, urls=[receiver.url], **options)
        answered = await push(action, HandJob().form(("params", "1")))
        await action.close()
    return answered, context, receiver


@pytest.mark.parametrize(
    ("answer", "expected", "event"),
    [
        ("", Status.FINISH, None),
        ('{"errno": 0}', Status.FINISH, None),
        ('{"errno": 1000000}', Status.FINISH, "slow_down_without_rate"),
        ('{"errno": 1000001}', Status.FINISH, "given_up"),
        ('{"errno": 1000002}', RetryLater, "retry_asked"),
        ('{"errno": 9, "errmsg": "no stock"}', Failed, None),
        ('{"errno": "x"}', Failed, None),
        (201, Status.FINISH, None),
        (204, Status.FINISH, None),
        (400, PushFailed, None),
        (429, PushFailed, "url_failed"),
        (500, PushFailed, "url_failed"),
        (reset, PushFailed, "url_failed"),
        (endless, PushFailed, "url_failed"),
        (garbage(b"SSH-2.0-x\r\n"), PushFailed, "url_failed"),
        (garbage(b"HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\nshort"), PushFailed, "url_failed"),
        (garbage(b"HTTP/1.1 200 OK\r\nX: " + b"x" * 70_000), PushFailed, "url_failed"),
        (garbage(b"HTTP/1.1 200 OK\r\nContent-Length: 99999999999\r\n\r\n"), PushFailed, "url_failed"),
        (packed, PushFailed, "reply_unreadable"),
        ('{"errno": 9', PushFailed, "reply_unreadable"),
        (web.Response(body='{"errno": 9}'.encode("utf-16"), content_type="text/plain", charset="utf-16"), Failed, None),
    ],
)
def test_what_a_receiver_does_decides(answer: Any, expected: Any, event: str | None) -> None:
    """The table of docs/actions-push.md."""
    answered, context, _ = asyncio.run(one(answer))
    assert answered is expected if isinstance(expected, Status) else type(answered) is expected
    assert not context.events or event in context.events


def test_success_may_be_200_alone() -> None:
    """`success: 200` is DDMQ's rule (W62); by default every 2xx is one, and a redirect never."""
    assert isinstance(asyncio.run(one(204, success="200"))[0], PushFailed)
    assert isinstance(asyncio.run(one(redirect("/x")))[0], PushFailed)


def test_receiver_says_when_to_come_again() -> None:
    """Retry-After goes along with the failure; the group waits at least so long."""
    answered, _, _ = asyncio.run(one(web.Response(status=503, headers={"Retry-After": "30"})))
    assert isinstance(answered, PushFailed)
    assert answered.delay_ms == 30_000


def test_silence_ends_at_the_subscriptions_timeout() -> None:
    """And not before; the time is the subscription's."""
    answered, _, _ = asyncio.run(one(hang, timeout_ms=50))
    assert str(answered).endswith("/hook: no reply within 50 ms")


def test_reason_names_the_url_and_what_it_said() -> None:
    """It stands in the dead letter."""
    answered, _, receiver = asyncio.run(one(web.Response(status=503, text="maintenance\nuntil 5")))
    assert str(answered) == f"{receiver.url}: status 503: maintenance?until 5"
    answered, _, _ = asyncio.run(one('{"errno": 9, "errmsg": "no stock"}'))
    assert str(answered).endswith("answered errno 9: no stock")


@pytest.mark.parametrize("where", ["/other", "http://169.254.169.254/", "//10.0.0.1/", "file:///etc/passwd", "\r\n"])
def test_redirect_is_not_followed(where: str) -> None:
    """It is a status other than 200."""
    receiver = Receiver(redirect(where.strip() or "/x"))

    async def story() -> None:
        async with serving(receiver):
            action = pusher(urls=[receiver.url])
            answered = await push(action)
            assert isinstance(answered, PushFailed)
            assert "status 302" in str(answered)
            await action.close()

    asyncio.run(story())
    assert [each.path for each in receiver.seen] == ["/hook"]


def test_proxies_of_the_environment_are_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever sets the environment does not decide where messages go."""
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:1/")
    answered, _, receiver = asyncio.run(one(""))
    assert answered is Status.FINISH
    assert len(receiver.seen) == 1


def test_cookies_of_one_reply_go_with_no_other_request() -> None:
    """Messages of different people share the pool."""
    reply = web.Response(text="", headers={"Set-Cookie": "session=1; Path=/"})
    receiver = Receiver(reply, "")

    async def story() -> None:
        async with serving(receiver):
            action = pusher(urls=[receiver.url.replace("127.0.0.1", "localhost")])
            assert await push(action) is Status.FINISH
            assert await push(action) is Status.FINISH
            await action.close()

    asyncio.run(story())
    assert "cookie" not in receiver.seen[1].headers


def test_request_is_signed_as_it_was_sent() -> None:
    """What the receiver sees is what the signature is over."""
    receiver = Receiver("")

    async def story(monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("PUSH_SECRET", "s3cret")
        async with serving(receiver):
            action = pusher(urls=[receiver.url + "?own=1"], signature={"keyId": "k1", "secret": {"env": "PUSH_SECRET"}})
            job = HandJob(data=b"body \xff")
            job.outgoing.query.append(("a", "b c"))
            assert await push(action, job) is Status.FINISH
            assert await push(action, HandJob().form(("params", "\u00e9"))) is Status.FINISH
            await action.close()

    with pytest.MonkeyPatch.context() as monkeypatch:
        asyncio.run(story(monkeypatch))
    for seen, query in zip(receiver.seen, ("own=1&a=b+c", "own=1"), strict=True):
        assert seen.query == query
        headers = seen.headers
        assert headers["pyddmq-signature"] == sign(
            b"s3cret",
            time_s=int(headers["pyddmq-time"]),
            key_id=headers["pyddmq-key-id"],
            topic=headers["pyddmq-topic"],
            query=seen.query,
            body=seen.body,
        )


def test_url_that_fails_goes_out_and_the_others_take_its_messages() -> None:
    """Rotation on errors, the breaker, a probe, and in again."""
    bad, good = Receiver(500), Receiver("")
    context = HandContext()

    async def story() -> None:
        async with serving(bad, good):
            urls, breaker = [bad.url, good.url], {"failures": 3, "openMs": 60_000, "openMsMax": 60_000}
            action = pusher(context, urls=urls, breaker=breaker)
            answers = [await push(action, HandJob(offset=offset)) for offset in range(60)]
            failed = [answer for answer in answers if answer is not Status.FINISH]
            assert len(failed) == 3
            assert len(bad.seen) == 3
            [first, _] = action.view().urls
            assert (first.state, first.failures, first.reason) == ("open", 3, "status 500")
            assert [event for event, _ in context.notes] == ["push_url_out"]
            bad.answers = [""]
            context.ahead = 61.0
            answers = [await push(action, HandJob(offset=offset)) for offset in range(20)]
            assert set(answers) == {Status.FINISH}
            assert action.targets.all[0].health is Health.CLOSED
            await action.close()

    asyncio.run(story())
    assert context.events["url_in"] == 1


def test_where_all_urls_are_out_a_message_waits_uncounted() -> None:
    """Nothing was asked of anybody, so nothing is counted against maxRetry."""
    bad = Receiver(500)
    context = HandContext()

    async def story() -> None:
        async with serving(bad):
            action = pusher(context, urls=[bad.url], breaker={"failures": 1, "openMs": 60_000, "openMsMax": 60_000})
            assert isinstance(await push(action), PushFailed)
            waits = [await push(action) for _ in range(10)]
            for wait in waits:
                assert isinstance(wait, RetryLater)
                assert 50_000 <= wait.delay_ms <= 66_001
                assert "status 500" in str(wait)
            assert len({wait.delay_ms for wait in waits if isinstance(wait, RetryLater)}) > 1
            await action.close()

    asyncio.run(story())
    assert len(bad.seen) == 1
    assert context.events["all_urls_out"] == 10


def test_status_that_is_about_the_message_does_not_put_the_url_out() -> None:
    """A poison message is no outage."""
    receiver = Receiver(400)

    async def story() -> None:
        async with serving(receiver):
            action = pusher(urls=[receiver.url], breaker={"failures": 2})
            for _ in range(6):
                assert isinstance(await push(action), PushFailed)
            assert action.view().urls[0].state == "closed"
            await action.close()

    asyncio.run(story())


def test_drain_lets_requests_end_and_begins_none() -> None:
    """What is out is answered; what waits for a connection, for the rate or for its jitter comes again."""

    async def story() -> None:
        arrived, released = asyncio.Event(), asyncio.Event()

        async def slow(request: web.BaseRequest) -> web.StreamResponse:
            arrived.set()
            await released.wait()
            return web.Response()

        receiver = Receiver(slow)
        async with serving(receiver):
            action = pusher(HandContext(), urls=[receiver.url], connections=1)
            out = asyncio.ensure_future(push(action))
            queued = asyncio.ensure_future(push(action))
            jitter = asyncio.ensure_future(push(action, HandJob(history=HandHistory(errors=8))))
            await arrived.wait()
            paced = pusher(HandContext(tps_max=0.001), urls=[receiver.url])
            held = asyncio.ensure_future(push(paced))
            await asyncio.sleep(0)
            assert paced.view().held == 1
            action.drain()
            paced.drain()
            released.set()
            assert await out is Status.FINISH
            for each in (queued, jitter, held):
                again = await each
                assert isinstance(again, RetryLater)
                assert again.delay_ms == 0
            await action.close()
            await paced.close()
            assert len(receiver.seen) == 1

    asyncio.run(story())


def test_callback_url_is_ignored_until_there_is_a_list() -> None:
    """Off by default: the message goes where the configuration says (W62)."""
    answered, context, receiver = asyncio.run(one_with_callback(None))
    assert answered is Status.FINISH
    assert context.events["callback_ignored"] == 1
    assert len(receiver.seen) == 1


def test_callback_url_of_the_list_takes_the_place_of_the_configured_ones() -> None:
    """A private address by its block."""
    listed = {"origins": ["http://127.0.0.1:*"], "networks": ["127.0.0.1/32"]}
    answered, _, receiver = asyncio.run(one_with_callback(listed))
    assert answered is Status.FINISH
    assert len(receiver.seen) == 1


@pytest.mark.parametrize(
    "listed", [{"origins": ["http://127.0.0.1:*"]}, {"origins": ["https://*"], "networks": ["127.0.0.0/8"]}]
)
def test_callback_url_that_is_not_allowed_dead_letters_the_message(listed: dict[str, Any]) -> None:
    """It is not sent elsewhere instead."""
    answered, context, receiver = asyncio.run(one_with_callback(listed))
    assert isinstance(answered, Unprocessable)
    assert context.events["callback_refused"] == 1
    assert not receiver.seen


async def one_with_callback(listed: dict[str, Any] | None) -> tuple[Status | Exception, HandContext, Receiver]:
    """Push a message that names the receiver; the configuration names it, too, only where there is no list."""
    receiver, context = Receiver(""), HandContext()
    async with serving(receiver):
        configured = receiver.url if listed is None else "http://127.0.0.1:1/never"
        action = pusher(context, urls=[configured], callback=listed)
        answered = await push(action, HandJob(properties={"carrera_http_callback_url": receiver.url}))
        await action.close()
    return answered, context, receiver


@pytest.fixture
def certificates(tmp_path: Path) -> tuple[Path, Path]:
    """An authority, and a server's key and certificate for `localhost` that it signed."""
    openssl = need_program("openssl")

    def run(*args: str) -> None:
        subprocess.run([openssl, *args], check=True, capture_output=True, cwd=tmp_path, timeout=60)

    new = ("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "3650")
    run(*new, "-keyout", "ca.key", "-out", "ca.pem", "-subj", "/CN=Authority of a test")
    run(*new, "-keyout", "other.key", "-out", "other.pem", "-subj", "/CN=Another authority")
    signed = ("-CA", "ca.pem", "-CAkey", "ca.key", "-addext", "subjectAltName=DNS:localhost")
    run(*new, *signed, "-keyout", "server.key", "-out", "server.crt", "-subj", "/CN=localhost")
    server = tmp_path / "server.pem"
    server.write_bytes((tmp_path / "server.key").read_bytes() + (tmp_path / "server.crt").read_bytes())
    return tmp_path / "ca.pem", server


def test_https_is_checked_by_an_authority_of_ones_own(certificates: tuple[Path, Path]) -> None:
    """With it the reply counts; without it, or under another name, nothing is sent."""
    authority, server = certificates
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(server)
    receiver = Receiver("")

    async def story() -> None:
        async with serving(receiver, ssl=context):
            url = f"https://localhost:{receiver.port}/hook"
            for urls, tls, fine in (
                ([url], {"caFile": str(authority)}, True),
                ([url], {}, False),
                ([url.replace("localhost", "127.0.0.1")], {"caFile": str(authority)}, False),
            ):
                action = pusher(urls=urls, tls=tls)
                answered = await push(action)
                if fine:
                    assert answered is Status.FINISH
                else:
                    assert isinstance(answered, PushFailed)
                    assert "ertificate" in str(answered)
                await action.close()
                await asyncio.sleep(0)

    asyncio.run(story())
    assert len(receiver.seen) == 1


def test_changed_authorities_are_read_again_when_a_certificate_is_refused(
    certificates: tuple[Path, Path], tmp_path: Path
) -> None:
    """The message is sent within the same attempt; while the file is as it was, or damaged, nothing is sent."""
    authority, server = certificates
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(server)
    receiver, file = Receiver(""), tmp_path / "trusted.pem"
    file.write_bytes(authority.with_name("other.pem").read_bytes())

    async def story() -> None:
        async with serving(receiver, ssl=context):
            action = pusher(urls=[f"https://localhost:{receiver.port}/hook"], tls={"caFile": str(file)})
            assert isinstance(await push(action), PushFailed)
            file.write_text("half of it")
            assert isinstance(await push(action), PushFailed)
            file.write_bytes(authority.read_bytes())
            assert await push(action) is Status.FINISH
            await action.close()
            await asyncio.sleep(0)

    asyncio.run(story())
    assert len(receiver.seen) == 1


def test_authorities_that_cannot_be_read_stop_the_subscription(tmp_path: Path) -> None:
    """Nothing is pushed unchecked."""

    async def story() -> None:
        for file in (tmp_path / "none.pem", tmp_path):
            with pytest.raises(OSError, match=r"tls\.caFile"):
                pusher(urls=["https://localhost/"], tls={"caFile": str(file)})

    asyncio.run(story())


@pytest.mark.parametrize("status", [401, 403])
def test_rotated_secret_is_read_again_when_a_receiver_refuses_it(tmp_path: Path, status: int) -> None:
    """The request is sent once more with the secret of this moment; an unchanged one is refused as before."""
    file = tmp_path / "token"
    file.write_text("old-token")
    accepted = ["old-token"]

    async def check(request: web.BaseRequest) -> web.StreamResponse:
        given = request.headers["Authorization"]
        return web.Response(status=200 if given == accepted[0] else status, text="" if given == accepted[0] else given)

    receiver, context = Receiver(check), HandContext()

    async def story() -> list[Any]:
        async with serving(receiver):
            headers = {"Authorization": {"file": str(file)}}
            action = pusher(context, headers=headers, urls=[receiver.url])
            answers = [await push(action)]
            accepted[0] = "new-token"
            answers.append(await push(action))
            file.write_text("new-token")
            answers += await asyncio.gather(*(push(action, HandJob(offset=n)) for n in range(3)))
            accepted[0] = "none"
            answers.append(await push(action))
            file.unlink()
            answers.append(await push(action))
            await action.close()
            return answers

    answers = asyncio.run(story())
    assert [each is Status.FINISH for each in answers] == [True, False, True, True, True, False, False]
    assert "-token" not in "".join(map(str, answers))
    assert context.events["secret_renewed"] == 1
