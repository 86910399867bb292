"""The device's side of the service: what leaves is a message of the ledger's, whose bytes are the same at every retry."""

from __future__ import annotations

from veil.client.answers import Accepted, JobStatus, RemoteMap, RemotePose
from veil.client.client import Client
from veil.client.connection import ServerError, Unreachable

__all__ = ["Accepted", "Client", "JobStatus", "RemoteMap", "RemotePose", "ServerError", "Unreachable"]
