"""A real Kafka with TLS and users: what it takes from whom, by listeners of its own."""

from __future__ import annotations

import subprocess
from pathlib import Path

from tests.conftest import need_program
from tests.kafka.server import KafkaServer
from tests.patient import quiet_ports

USER = "pyddmq"
PASSWORDS = {"PLAIN": "plain-sesame-1", "SCRAM-SHA-512": "scram-sesame-2"}
_SECURITY = "org.apache.kafka.common.security"
_DAYS = ("-days", "2")


def _openssl(*words: object) -> None:
    command = [need_program("openssl", "apt install openssl"), *map(str, words)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=240)
    assert not done.returncode, done.stderr


def authority(folder: Path, name: str) -> Path:
    """Make an authority; its certificate, beside which its key is."""
    key, certificate = folder / f"{name}.key", folder / f"{name}.pem"
    _openssl(
        "req", "-x509", "-newkey", "rsa:2048", "-nodes", *_DAYS, "-subj", f"/CN={name}", "-keyout", key,
        "-out", certificate,
    )  # fmt: skip
    return certificate


def keystore(folder: Path, name: str, by: Path, alternative: str) -> Path:
    """Make a key with a certificate for a name, signed by an authority, in the one file that Kafka reads."""
    key, wish, certificate, more = (folder / f"{name}.{each}" for each in ("key", "csr", "crt", "ext"))
    _openssl("req", "-newkey", "rsa:2048", "-nodes", "-subj", f"/CN={name}", "-keyout", key, "-out", wish)
    more.write_text(f"subjectAltName={alternative}\n")
    _openssl(
        "x509", "-req", "-in", wish, "-out", certificate, *_DAYS, "-CA", by, "-CAkey", by.with_suffix(".key"),
        "-CAcreateserial", "-extfile", more,
    )  # fmt: skip
    store = folder / f"{name}.store.pem"
    store.write_text(key.read_text() + certificate.read_text())
    return store


class SecuredKafka(KafkaServer):
    """A broker that asks on one listener for a user behind TLS, and on another shows a certificate of another host.

    Attributes:
        address: The open one, for what tests prepare.
        secure: With TLS and a user, by PLAIN, SCRAM-SHA-512 or OAUTHBEARER (unsecured tokens).
        elsewhere: With TLS, by a certificate that is not for this host.
        ca: File with the authority that both are of.
    """

    def __init__(self, folder: Path, jars: Path) -> None:
        keys = folder.parent / f"{folder.name}-keys"
        keys.mkdir(parents=True)
        self.ca = authority(keys, "ca")
        secure, elsewhere = quiet_ports(2)
        self.secure, self.elsewhere = f"127.0.0.1:{secure}", f"127.0.0.1:{elsewhere}"
        plain = f'{_SECURITY}.plain.PlainLoginModule required user_{USER}="{PASSWORDS["PLAIN"]}";'
        oauth = f'{_SECURITY}.oauthbearer.OAuthBearerLoginModule required unsecuredLoginStringClaim_sub="broker";'
        stores = {
            "secure": keystore(keys, "here", self.ca, "IP:127.0.0.1"),
            "elsewhere": keystore(keys, "there", self.ca, "DNS:kafka.example"),
        }
        more = {
            "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-512,OAUTHBEARER",
            "listener.name.secure.plain.sasl.jaas.config": plain,
            "listener.name.secure.scram-sha-512.sasl.jaas.config": f"{_SECURITY}.scram.ScramLoginModule required;",
            "listener.name.secure.oauthbearer.sasl.jaas.config": oauth,
        }
        for listener, store in stores.items():
            more[f"listener.name.{listener}.ssl.keystore.type"] = "PEM"
            more[f"listener.name.{listener}.ssl.keystore.location"] = str(store)
        super().__init__(folder, jars, more=more, listeners={
            "SECURE": ("SASL_SSL", self.secure), "ELSEWHERE": ("SSL", self.elsewhere),
        })  # fmt: skip

    def start(self) -> None:
        """Start it, with its user of SCRAM."""
        from confluent_kafka import admin

        super().start()
        client = admin.AdminClient({"bootstrap.servers": self.address})
        wish = admin.UserScramCredentialUpsertion(
            USER,
            admin.ScramCredentialInfo(admin.ScramMechanism.SCRAM_SHA_512, 4096),
            PASSWORDS["SCRAM-SHA-512"].encode(),
        )
        for future in client.alter_user_scram_credentials([wish]).values():
            future.result(60)
