"""Creates the topics with the settings that the topic contract needs, and reads their partitions and end offsets."""

from __future__ import annotations

import concurrent.futures
import logging
import time
from collections.abc import Callable, Collection, Sequence

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import AlterConfigOpType, ConfigEntry, ConfigResource
from confluent_kafka.cimpl import NewTopic

from cdc_consumer.errors import BrokerUnavailable, TopicUnfit
from cdc_consumer.settings import ConsumerSettings
from cdc_consumer.sinks.failures import diagnose_kafka, kafka_error
from cdc_consumer.sinks.topic_settings import (
    MESSAGE_BYTES,
    PRODUCER_LIMIT,
    find_compaction,
    find_risks,
    mending_command,
)
from shared_schema.errors import SettingsError
from shared_schema.table_schema import TableId
from shared_schema.topics import (
    BROKER_TIME,
    beats_topic,
    control_topic,
    progress_topic,
    schemas_topic,
    table_topic,
)

log = logging.getLogger(__name__)

ADMIN_TIMEOUT_S = 20.0
"""Longer than a leader election, short enough for a person who waits."""

ASK_TIMEOUT_S = 5.0
"""Timeout of one request that is repeated if it fails."""

PROGRESS_COMPACTION_LAG_MS = 600_000
"""A reader that lags by less than this still sees every progress record."""

COMPACTED = {
    "cleanup.policy": "compact",
    "segment.ms": "600000",
    "segment.bytes": str(32 * 1024 * 1024),
    "min.cleanable.dirty.ratio": "0.1",
}
"""A broker never compacts the segment that is being written, and by default that one lasts a week or 1 GiB."""

CONTROL_RETENTION_MS = 7 * 24 * 3_600_000
"""Log messages and schema changes are read as they come; nobody needs those of last month."""

BEATS_RETENTION = {"retention.ms": "600000", "segment.ms": "600000", "segment.bytes": "1048576"}
"""Only the last beat counts; the older ones are some 200 bytes a second."""

_REFUSED = {
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
    KafkaError.CLUSTER_AUTHORIZATION_FAILED,
    KafkaError.SASL_AUTHENTICATION_FAILED,
    KafkaError._AUTHENTICATION,
}
"""Errors for which a retry cannot help."""


def client_options(settings: ConsumerSettings) -> dict[str, str | int | float | bool]:
    """Return the options that every Kafka client of the consumer uses."""
    return {
        "client.id": "pg-trickle-cdc",
        "log_level": 2,
        **settings.kafka_options,
        "bootstrap.servers": settings.kafka_bootstrap,
    }


class Topics:
    """The topics of one prefix."""

    def __init__(self, settings: ConsumerSettings) -> None:
        self._settings = settings
        reading = {"group.id": f"pg-trickle-cdc-{settings.slot}", "isolation.level": "read_uncommitted"}
        try:
            self._admin = AdminClient(client_options(settings))
            self._reader = Consumer({**client_options(settings), **reading})
        except KafkaException as exception:
            raise SettingsError(
                f"librdkafka rejects the Kafka settings: {kafka_error(exception).str()}",
                hint="check PG_TRICKLE_KAFKA_OPTIONS and PG_TRICKLE_KAFKA_BOOTSTRAP",
            ) from exception
        self._partitions: dict[str, int] = {}
        self._made: set[str] = set()
        """Topics that this object created and for which `is_used` was not called yet."""
        self._compacted: set[str] = set()

    def ensure_control(self) -> None:
        """Create the progress, the schemas, the control and the beats topic if they are missing."""
        prefix, kept_ms = self._settings.topic_prefix, self._settings.topic_retention_ms
        control_ms = CONTROL_RETENTION_MS if kept_ms < 0 else min(kept_ms, CONTROL_RETENTION_MS)
        lag = {"min.compaction.lag.ms": str(PROGRESS_COMPACTION_LAG_MS)}
        configs = {
            progress_topic(prefix): COMPACTED | lag,
            schemas_topic(prefix): COMPACTED,
            control_topic(prefix): {"retention.ms": str(control_ms)},
            beats_topic(prefix): BEATS_RETENTION,
        }
        for name, config in configs.items():
            self._create(name, 1, config)
        self._correct({name: config for name, config in configs.items() if name not in self._made})

    def look(self) -> None:
        """Read which topics of tables exist, all at once, and warn of settings that lose or reject rows."""
        prefix = self._settings.topic_prefix
        try:
            found = self._admin.list_topics(timeout=ADMIN_TIMEOUT_S).topics
        except KafkaException as exception:
            raise diagnose_kafka(kafka_error(exception), "looking at the topics") from exception
        partitions = {
            name: len(topic.partitions)
            for name, topic in found.items()
            if topic.error is None and name.startswith(f"{prefix}.") and name.count(".") == prefix.count(".") + 2
        }
        self._partitions |= partitions
        largest = int(self._settings.kafka_options.get(PRODUCER_LIMIT, MESSAGE_BYTES))
        for name, present in self._describe(partitions).items():
            if find_compaction(present):
                self._compacted.add(name)
            for problem, setting in find_risks(present, self._settings.topic_retention_ms, largest):
                hint = mending_command(name, setting)
                log.warning(
                    "settings of a topic are dangerous", extra={"topic": name, "problem": problem, "hint": hint}
                )

    def ensure_table(self, table: TableId) -> str:
        """Create a table's topic if it is missing -> its name."""
        name = table_topic(self._settings.topic_prefix, table)
        if name in self._compacted:
            raise TopicUnfit(
                f"topic {name} is compacted, so Kafka deletes change rows",
                hint=f"{mending_command(name, 'cleanup.policy=delete')}; then start again: the table is copied",
                table=table,
            )
        self._create(name, self._settings.topic_partitions, self._table_config)
        return name

    def create_tables(self, tables: Sequence[TableId]) -> None:
        """Create the missing topics of tables with one request; what fails is reported by `ensure_table`."""
        names = [table_topic(self._settings.topic_prefix, table) for table in tables]
        new = [
            self._new_topic(name, self._settings.topic_partitions, self._table_config)
            for name in names
            if name not in self._partitions
        ]
        if not new:
            return
        for name, created in self._admin.create_topics(new, request_timeout=ADMIN_TIMEOUT_S).items():
            try:
                created.result(ADMIN_TIMEOUT_S + 5)
            except (KafkaException, concurrent.futures.TimeoutError):
                continue
            self._partitions[name] = self._settings.topic_partitions
            self._made.add(name)

    @property
    def _table_config(self) -> dict[str, str]:
        return {"retention.ms": str(self._settings.topic_retention_ms)}

    def partitions(self, topic: str) -> int:
        """Return the number of partitions of an existing topic; the broker is asked once."""
        known = self._partitions.get(topic)
        if known is None:
            known = self._partitions[topic] = self._count(topic)
        return known

    def end_offset(self, topic: str, partition: int) -> int:
        """Return the offset of the partition's next record, counting uncommitted records."""

        def ask() -> int:
            # Not the admin client's list_offsets: it may fail permanently right after a leader election.
            # The metadata of this client may also be older than the election, so it is refreshed first.
            self._reader.list_topics(topic, timeout=ASK_TIMEOUT_S)
            found = self._reader.get_watermark_offsets(TopicPartition(topic, partition), timeout=ASK_TIMEOUT_S)
            if found is None:
                raise KafkaException(KafkaError(KafkaError._TIMED_OUT))
            return found[1]

        return self._retry(ask, f"looking at topic {topic}")

    def probe(self) -> None:
        """Test whether a broker answers; raises if none does."""
        try:
            self._reader.list_topics(progress_topic(self._settings.topic_prefix), timeout=ASK_TIMEOUT_S)
        except KafkaException as exception:
            raise diagnose_kafka(kafka_error(exception), "testing whether a broker answers") from exception

    def is_used(self, topic: str) -> bool:
        """Return whether anything was ever written to the topic; called before the first row is written."""
        if topic in self._made:
            self._made.remove(topic)
            return False
        return any(self.end_offset(topic, partition) for partition in range(self.partitions(topic)))

    def _count(self, topic: str) -> int:
        def ask() -> int:
            found = self._admin.list_topics(topic, timeout=ADMIN_TIMEOUT_S).topics[topic]
            if found.error is not None:
                raise KafkaException(found.error)
            return len(found.partitions)

        return self._retry(ask, f"looking at topic {topic}")

    def _retry(self, ask: Callable[[], int], doing: str) -> int:
        """Repeat a request until it succeeds: a topic that was just created has no leader for a moment."""
        deadline = time.monotonic() + ADMIN_TIMEOUT_S
        while True:
            try:
                return ask()
            except KafkaException as exception:
                error = kafka_error(exception)
                if error.code() in _REFUSED or time.monotonic() >= deadline:
                    raise diagnose_kafka(error, doing) from exception
                time.sleep(0.02)

    def _correct(self, configs: dict[str, dict[str, str]]) -> None:
        """Give existing topics the settings that the contract needs: an earlier version may have created them."""
        try:
            for name, present in self._describe(configs).items():
                differing = {n: v for n, v in configs[name].items() if present.get(n) != v}
                if differing:
                    self._alter(name, differing)
        except (KafkaException, concurrent.futures.TimeoutError) as error:
            # The role may lack the right. Everything works, but the topic takes more room and time.
            log.warning("settings of a topic could not be corrected", extra={"problem": str(error)})

    def _describe(self, names: Collection[str]) -> dict[str, dict[str, str | None]]:
        """Return the settings of topics; none if the role may not read them."""
        resources = [ConfigResource(ConfigResource.Type.TOPIC, name) for name in names]
        try:
            found = self._admin.describe_configs(resources, request_timeout=ADMIN_TIMEOUT_S) if resources else {}
            return {
                resource.name: {name: entry.value for name, entry in described.result(ADMIN_TIMEOUT_S + 5).items()}
                for resource, described in found.items()
            }
        except (KafkaException, concurrent.futures.TimeoutError) as error:
            log.warning("settings of topics could not be read", extra={"problem": str(error)})
            return {}

    def _alter(self, name: str, differing: dict[str, str]) -> None:
        entries = [ConfigEntry(n, value, incremental_operation=AlterConfigOpType.SET) for n, value in differing.items()]
        changed = ConfigResource(ConfigResource.Type.TOPIC, name, incremental_configs=entries)
        for done in self._admin.incremental_alter_configs([changed], request_timeout=ADMIN_TIMEOUT_S).values():
            done.result(ADMIN_TIMEOUT_S + 5)
        log.info("settings of a topic corrected", extra={"topic": name, "settings": ", ".join(sorted(differing))})

    def _create(self, name: str, partitions: int, config: dict[str, str]) -> None:
        if name in self._partitions:
            return
        topic = self._new_topic(name, partitions, config)
        try:
            self._admin.create_topics([topic], request_timeout=ADMIN_TIMEOUT_S)[name].result(ADMIN_TIMEOUT_S + 5)
        except KafkaException as exception:
            if kafka_error(exception).code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise diagnose_kafka(kafka_error(exception), f"creating topic {name}") from exception
            self._partitions[name] = self._count(name)
        except concurrent.futures.TimeoutError as error:
            raise BrokerUnavailable(f"no Kafka broker answered while creating topic {name}") from error
        else:
            self._partitions[name] = partitions
            self._made.add(name)

    def _new_topic(self, name: str, partitions: int, config: dict[str, str]) -> NewTopic:
        return NewTopic(
            name,
            num_partitions=partitions,
            replication_factor=self._settings.replication_factor,
            config=config | BROKER_TIME,
        )
