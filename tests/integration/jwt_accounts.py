"""Operator, account and user JWTs for a nats-server with decentralised authentication (NATS ADR-14)."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import nkeys  # type: ignore[import-untyped]


def _base64url(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


class Key:
    def __init__(self, prefix: int) -> None:
        self.seed = nkeys.encode_seed(os.urandom(32), prefix).decode()
        self._pair = nkeys.from_seed(bytearray(self.seed, "ascii"))
        self.public = bytes(self._pair.public_key).decode()

    def sign(self, kind: str, subject: str, *, expires: int | None = None, **claims: Any) -> str:
        body: dict[str, Any] = {
            "iat": int(time.time()),
            "iss": self.public,
            "sub": subject,
            "name": kind,
            "nats": {"type": kind, "version": 2, **claims},
        }
        if expires is not None:
            body["exp"] = expires
        body["jti"] = hashlib.sha256(json.dumps(body).encode()).hexdigest()
        head = _base64url(json.dumps({"typ": "JWT", "alg": "ed25519-nkey"}).encode())
        signed = f"{head}.{_base64url(json.dumps(body).encode())}"
        return f"{signed}.{_base64url(bytes(self._pair.sign(signed.encode())))}"


@dataclass
class Accounts:
    """One operator with one account."""

    operator: Key
    account: Key

    @classmethod
    def create(cls) -> Accounts:
        return cls(Key(nkeys.PREFIX_BYTE_OPERATOR), Key(nkeys.PREFIX_BYTE_ACCOUNT))

    def server_config(self) -> str:
        unlimited = {"subs": -1, "data": -1, "payload": -1, "conn": -1, "leaf": -1, "imports": -1, "exports": -1}
        account = self.operator.sign("account", self.account.public, limits={**unlimited, "wildcards": True})
        return "\n".join(
            [
                f'operator: "{self.operator.sign("operator", self.operator.public)}"',
                "resolver: MEMORY",
                f'resolver_preload: {{ {self.account.public}: "{account}" }}',
            ]
        )

    def write_credentials(self, path: Path, *, lifetime_s: int) -> None:
        """A creds file for a new user, good for a whole number of seconds."""
        user = Key(nkeys.PREFIX_BYTE_USER)
        jwt = self.account.sign(
            "user", user.public, expires=int(time.time()) + lifetime_s, subs=-1, data=-1, payload=-1, pub={}, sub={}
        )
        path.write_text(
            f"-----BEGIN NATS USER JWT-----\n{jwt}\n------END NATS USER JWT------\n\n"
            f"-----BEGIN USER NKEY SEED-----\n{user.seed}\n------END USER NKEY SEED------\n"
        )
