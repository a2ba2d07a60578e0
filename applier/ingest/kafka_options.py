"""Options of librdkafka -> options of Kafka's Java client, which Spark uses. Pure, except that it reads PEM files.

Operators write one set of options for both programs, but the two clients have different names for users, passwords and
certificates.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from shared_schema.errors import SettingsError

_LOGIN = {
    "PLAIN": "org.apache.kafka.common.security.plain.PlainLoginModule",
    "SCRAM-SHA-256": "org.apache.kafka.common.security.scram.ScramLoginModule",
    "SCRAM-SHA-512": "org.apache.kafka.common.security.scram.ScramLoginModule",
}

_RENAMED = {"sasl.mechanisms": "sasl.mechanism"}

_TRANSLATED = frozenset(
    [
        "sasl.username",
        "sasl.password",
        "ssl.ca.location",
        "ssl.ca.pem",
        "ssl.certificate.location",
        "ssl.certificate.pem",
        "ssl.key.location",
        "ssl.key.pem",
        "enable.ssl.certificate.verification",
    ]
)


def java_options(options: Mapping[str, str]) -> dict[str, str]:
    """Return the options of Spark's reader for the same broker and user; SettingsError if one has no equivalent."""
    given = {_RENAMED.get(name, name): value for name, value in options.items()}
    out = {name: value for name, value in given.items() if name not in _TRANSLATED}
    if "security.protocol" in given:
        out["security.protocol"] = given["security.protocol"].upper()
    if out.get("ssl.endpoint.identification.algorithm") == "none":
        out["ssl.endpoint.identification.algorithm"] = ""
    if given.get("enable.ssl.certificate.verification", "true").lower() == "false":
        raise SettingsError(
            "kafka_options: Spark cannot read from a broker whose certificate is not verified",
            hint="set ssl.ca.location to its certificate authority, remove enable.ssl.certificate.verification=false",
        )
    return out | _login_options(given) | _trust_options(given) | _certificate_options(given)


def _login_options(given: Mapping[str, str]) -> dict[str, str]:
    if "sasl.username" not in given or "sasl.jaas.config" in given:
        return {}
    mechanism = given.get("sasl.mechanism", "").upper()
    if mechanism not in _LOGIN:
        raise SettingsError(
            f"kafka_options: sasl.mechanism {mechanism or 'is missing'}",
            hint=f"set it to one of {', '.join(_LOGIN)}, or set sasl.jaas.config for another mechanism",
        )
    user, password = (_quote(given.get(f"sasl.{part}", "")) for part in ("username", "password"))
    return {"sasl.jaas.config": f"{_LOGIN[mechanism]} required username={user} password={password};"}


def _quote(value: str) -> str:
    return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _trust_options(given: Mapping[str, str]) -> dict[str, str]:
    if (text := _read_pem(given, "ssl.ca")) is None:
        return {}
    return {"ssl.truststore.type": "PEM", "ssl.truststore.certificates": text}


def _certificate_options(given: Mapping[str, str]) -> dict[str, str]:
    certificate, key = _read_pem(given, "ssl.certificate"), _read_pem(given, "ssl.key")
    if certificate is None or key is None:
        return {}
    return {"ssl.keystore.type": "PEM", "ssl.keystore.certificate.chain": certificate, "ssl.keystore.key": key}


def _read_pem(given: Mapping[str, str], name: str) -> str | None:
    """Return the PEM text, given directly or as a file."""
    if f"{name}.pem" in given:
        return given[f"{name}.pem"]
    if f"{name}.location" not in given:
        return None
    path = Path(given[f"{name}.location"])
    try:
        if path.is_dir():
            return "\n".join(file.read_text() for file in sorted(path.glob("*.pem")))
        return path.read_text()
    except OSError as error:
        raise SettingsError(
            f"kafka_options: {name}.location cannot be read: {error.strerror}", hint=str(path)
        ) from None
