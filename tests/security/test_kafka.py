"""Kafka with TLS and SCRAM: one set of options serves librdkafka and Spark, and nothing works without it."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from pyspark.sql import SparkSession

from applier.ingest import stream
from applier.ingest.kafka_options import java_options
from applier.ingest.pieces import read_pieces
from applier.ingest.start_offsets import find_start_offsets
from applier.settings import ApplierSettings
from shared_schema.errors import SettingsError
from shared_schema.lsn import ORIGIN
from shared_schema.progress import Progress
from tests.fixtures import choice
from tests.security.secured_broker import SecuredKafka


@pytest.fixture(scope="module")
def broker() -> Iterator[SecuredKafka]:
    if choice.stack_choice() != choice.EMBEDDED or shutil.which("openssl") is None:
        pytest.skip("the secured broker is embedded and needs openssl")
    with choice.server_folder("secured") as folder:
        kafka = SecuredKafka(folder)
        kafka.start()
        yield kafka
        kafka.stop()


def test_spark_reads_what_librdkafka_wrote(broker: SecuredKafka, spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(KafkaException):
        AdminClient({"bootstrap.servers": broker.bootstrap, "log_level": 0}).list_topics(timeout=3)
    settings = ApplierSettings(
        database_url="postgresql://nobody@127.0.0.1/none",  # type: ignore[arg-type]
        kafka_bootstrap=broker.bootstrap,
        kafka_options=broker.client_options,
    )
    options = stream.client_options(settings)
    admin = AdminClient(options)
    for future in admin.create_topics([NewTopic("trickle.progress", 1, 1)]).values():
        future.result(30)
    producer = Producer(options)
    record = Progress("other", "", 0, ORIGIN, ORIGIN, {})
    producer.produce("trickle.progress", key=record.key, value=record.encode())
    assert producer.flush(30) == 0
    arrived: list[pa.Table] = []
    query = stream.start(
        spark,
        settings,
        find_start_offsets(settings, {}, ORIGIN).offsets,
        str(tmp_path / "c"),
        lambda batch: arrived.extend(read_pieces(batch, 1_000_000, options)),
    )
    try:
        deadline = time.monotonic() + 60
        while not any(batch.num_rows for batch in arrived):
            assert query.isActive and time.monotonic() < deadline, query.exception()
            time.sleep(0.1)
    finally:
        query.stop()
    batch = pa.concat_tables(arrived)
    assert (batch["topic"].to_pylist(), batch["value"].to_pylist()) == (["trickle.progress"], [record.encode()])


def test_what_spark_cannot_have_is_refused_without_telling_secrets(tmp_path: Path) -> None:
    for options in (
        {"sasl.username": "u", "sasl.password": "hush"},
        {"sasl.username": "u", "sasl.password": "hush", "sasl.mechanism": "GSSAPI"},
        {"enable.ssl.certificate.verification": "false", "sasl.password": "hush"},
        {"ssl.ca.location": str(tmp_path / "none"), "sasl.password": "hush"},
    ):
        with pytest.raises(SettingsError) as refused:
            java_options(options)
        assert "hush" not in f"{refused.value.problem} {refused.value.hint}"
    login = java_options({"sasl.username": "u", "sasl.password": 'a"\\', "sasl.mechanism": "PLAIN"})["sasl.jaas.config"]
    assert login.endswith(r'PlainLoginModule required username="u" password="a\"\\";')
    certificate = tmp_path / "own.pem"
    certificate.write_text("PEM")
    assert java_options({"ssl.certificate.location": str(certificate), "ssl.key.pem": "KEY", "client.id": "x"}) == {
        "client.id": "x",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.certificate.chain": "PEM",
        "ssl.keystore.key": "KEY",
    }
