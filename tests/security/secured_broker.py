"""Starts a broker that accepts only TLS with authentication (SCRAM), with a certificate created for it."""

from __future__ import annotations

from pathlib import Path

from deploy.local import process
from deploy.local.kafka import Kafka
from tests.security.tls_front import certificate

USER, PASSWORD = "trickle", "hush-hush"


class SecuredKafka(Kafka):
    """Like the embedded broker, except for its listener."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.certificate, self._key = certificate(folder, "broker")

    @property
    def client_options(self) -> dict[str, str]:
        """Return the options for librdkafka, as an operator writes them."""
        return {
            "security.protocol": "sasl_ssl",
            "sasl.mechanisms": "SCRAM-SHA-256",
            "sasl.username": USER,
            "sasl.password": PASSWORD,
            "ssl.ca.location": str(self.certificate),
        }

    def _write_properties(self, name: str, data: Path) -> Path:
        path = super()._write_properties(name, data)
        text = (
            path.read_text().replace("PLAINTEXT://", "SASL_SSL://").replace("PLAINTEXT:PLAINTEXT", "SASL_SSL:SASL_SSL")
        )
        pem = {"ssl.keystore.key": self._key, "ssl.keystore.certificate.chain": self.certificate}
        text += "inter.broker.listener.name=SASL_SSL\nsasl.enabled.mechanisms=SCRAM-SHA-256\n"
        text += "sasl.mechanism.inter.broker.protocol=SCRAM-SHA-256\nssl.keystore.type=PEM\nssl.truststore.type=PEM\n"
        text += "".join(f"{key}={_one_line(file)}\n" for key, file in pem.items())
        text += f"ssl.truststore.certificates={_one_line(self.certificate)}\n"
        module = "org.apache.kafka.common.security.scram.ScramLoginModule required"
        text += f'listener.name.sasl_ssl.scram-sha-256.sasl.jaas.config={module} username="broker" password="broker";\n'
        path.write_text(text)
        return path

    def _format_arguments(self) -> list[str]:
        return [
            "--add-scram=SCRAM-SHA-256=[name=broker,password=broker]",
            f"--add-scram=SCRAM-SHA-256=[name={USER},password={PASSWORD}]",
        ]

    def _answers(self) -> bool:
        from confluent_kafka import KafkaException
        from confluent_kafka.admin import AdminClient

        if not process.port_open(self._broker_port):
            return False
        try:
            client = AdminClient({"bootstrap.servers": self.bootstrap, **self.client_options})
            return bool(client.list_topics(timeout=5).brokers)
        except KafkaException:
            return False


def _one_line(file: Path) -> str:
    return file.read_text().replace("\n", "\\n")
