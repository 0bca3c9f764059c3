"""A client above a limit of its own, over TLS: what came in one record rests as what came in one packet does."""

from __future__ import annotations

from conf.sections.limits import AddressLimits, LimitsConfig
from tests.simulation.wire import producer_idl
from tests.tls.conftest import Certificates
from tests.tls.world import TlsWorld


def test_frames_of_one_record_wait_while_their_connection_rests(certificates: Certificates) -> None:
    """Decrypted frames lie here, not in the kernel: they are handled no sooner for that, and none is lost."""
    world = TlsWorld(certificates)
    line = AddressLimits.model_validate({"networks": ["10.0.0.0/8"], "requests_per_second": 10})
    world.node.parts.limiter.configure(LimitsConfig(addresses=[line]))
    client = world.open("producer").raw
    message = producer_idl.Message(topic="orders", body=b"x", hashId=0, partitionId=-1)
    frame = client.codec.call("sendSync", 1, message=message, timeout=50)
    client.transport.write(frame * 14)
    world.run(0.03)
    codes = [each.value.code for each in client.replies]
    assert codes[:11] == [0] * 10 + [15]
    assert len(codes) <= 12
    world.run(1.0)
    assert len(client.replies) == 14
