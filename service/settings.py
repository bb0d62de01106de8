"""Settings of the server, from ``RGRL_*`` variables or arguments; nothing else of the server reads the environment,
but the log NO_COLOR.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Literal
from urllib.parse import urlsplit

from pydantic import Field, SecretStr, field_validator, model_validator
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from preprocessing.errors import UsageError

__all__ = ["ServiceSettings"]


def _jobs_api() -> str | None:
    """``RAY_ADDRESS`` where it is a dashboard's URL; an address of another form is for the stages' own Ray."""
    address = os.environ.get("RAY_ADDRESS", "")
    return address if urlsplit(address).scheme in {"http", "https"} else None


def _ray_token() -> SecretStr | None:
    """As Ray finds it: ``RAY_AUTH_TOKEN``, else the file that ``RAY_AUTH_TOKEN_PATH`` names."""
    token = os.environ.get("RAY_AUTH_TOKEN")
    path = os.environ.get("RAY_AUTH_TOKEN_PATH")
    if not token and path:
        try:
            token = Path(path).read_text(encoding="ascii").strip()
        except (OSError, ValueError) as error:
            raise UsageError(
                f"the cluster's token cannot be read: {error}",
                given=path,
                expected="a file that holds it (RAY_AUTH_TOKEN_PATH)",
                remedy="correct the path, or give the token as RGRL_RAY_AUTH_TOKEN",
            ) from error
    return SecretStr(token) if token else None


class ServiceSettings(BaseSettings):
    """One server: where it lives, what it may read, and how much it takes on."""

    model_config = SettingsConfigDict(env_prefix="RGRL_", frozen=True, extra="forbid")

    home: Path = Field(Path("rgrl-home"), description="Job store, artefacts and logs of this server.")
    host: str = "127.0.0.1"
    port: int = Field(8000, ge=0, le=65535)
    insecure: bool = Field(False, description="Serve other addresses than loopback although there is no API key.")
    first_key_file: Path | None = Field(
        None,
        description="File that an admin key is written to when the server starts on a store that never had a key; "
        "default: none is made.",
    )
    data_roots: Annotated[list[Path], NoDecode] = Field(
        [], description="Folders that requests may name paths under; several are joined by ':'."
    )
    data_uris: Annotated[list[str], NoDecode] = Field(
        [], description="URIs that requests may name tables below, as s3://bucket/graphs; several are joined by spaces."
    )
    database_url: str | None = Field(None, description="Default: SQLite in the home.")
    log_level: str = "info"
    log_format: Literal["auto", "text", "json"] = Field(
        "auto",
        description="Lines for people or for programs; auto: text on a terminal. NO_COLOR takes its colours off.",
    )

    ray_address: str | None = Field(
        default_factory=_jobs_api,
        description="URL of a Ray cluster's dashboard: jobs run there, and home is on storage that its machines mount "
        "under the same path. Default: RAY_ADDRESS if that is a URL, else jobs are processes of this machine.",
    )
    ray_auth_token: SecretStr | None = Field(
        default_factory=_ray_token,
        description="The cluster's token, if it asks for one; default: as Ray finds it, by RAY_AUTH_TOKEN or "
        "RAY_AUTH_TOKEN_PATH.",
    )
    ray_python: str = Field(
        "python", min_length=1, description="Python of the cluster's machines, with rgrl installed."
    )

    max_running: int = Field(16, ge=1, description="Jobs at a time, if there are cores, GPUs and memory for them.")
    max_cores: int | None = Field(None, ge=1, description="Cores for all jobs together; default: the machine's.")
    max_gpus: int | None = Field(None, ge=0, description="GPUs for all jobs together; default: the machine's.")
    max_memory_bytes: int | None = Field(
        None, ge=1, description="Memory for all jobs together; default: the machine's, or its control group's."
    )
    max_queued: int = Field(1000, ge=1, description="Jobs that may wait; past it submitting answers 429.")
    max_attempts: int = Field(
        3, ge=1, description="Attempts at a job that fail in a way that may pass before it fails."
    )
    retry_after_s: float = Field(
        10.0, ge=0, description="Seconds before the second attempt; doubled for every later one."
    )
    poll_s: float = Field(0.25, gt=0, description="Seconds between two looks at the jobs.")
    silent_after_s: float = Field(
        900.0, gt=0, description="Seconds without a report after which a running job is told to be silent."
    )
    stalled_after_s: float | None = Field(
        None, gt=0, description="Seconds without a report after which an attempt is ended as failed; default: never."
    )
    cancel_grace_s: float = Field(20.0, ge=0, description="Seconds between SIGTERM and SIGKILL.")
    job_log_bytes: int = Field(16 * 2**20, ge=4096, description="Most that is kept of a job's log.")

    max_connections: int = Field(
        1000,
        ge=1,
        description="Open connections at a time, half of the files that the process may open at most; past it 503.",
    )
    max_body_bytes: int = Field(32 * 2**20, ge=1024)
    max_bodies_bytes: int = Field(
        2**30, ge=1024, description="Bytes of the bodies of all requests in work; past it 429."
    )
    body_timeout_s: float = Field(
        60.0,
        gt=0,
        description="Seconds that a request's head, and then its body, may take, past it 408; and that an answer may "
        "stand without being read on, past it the connection is closed.",
    )
    max_lookup_ids: int = Field(10_000, ge=1)
    max_lookup_ids_arrow: int = Field(100_000, ge=1)
    max_k: int = Field(1000, ge=1)
    max_queries: int = Field(256, ge=1)
    max_embed_nodes: int = Field(1000, ge=1, description="New nodes that one call embeds.")
    max_embed_edges: int = Field(
        200_000, ge=1, description="Edges that one call reads around its new nodes, their own among them."
    )
    max_exports: int = Field(8, ge=1, description="Exports of whole sets at a time; past them 429.")
    max_searches: int = Field(
        default_factory=lambda: os.cpu_count() or 1, ge=1, description="Neighbour searches at a time; others wait."
    )
    search_wait_s: float = Field(10.0, ge=0, description="Seconds a search may wait for its turn; past it 429.")
    open_embeddings: int = Field(8, ge=1, description="Embedding sets held open at a time.")

    @field_validator("data_roots", mode="before")
    @classmethod
    def _split(cls, value: object) -> object:
        return [part for part in value.split(os.pathsep) if part] if isinstance(value, str) else value

    @field_validator("data_uris", mode="before")
    @classmethod
    def _split_uris(cls, value: object) -> object:
        return value.split() if isinstance(value, str) else value

    @field_validator("data_uris")
    @classmethod
    def _of_a_place(cls, value: list[str]) -> list[str]:
        for uri in value:
            if urlsplit(uri).scheme in ("", "file") or not urlsplit(uri).netloc:
                raise ValueError(f"{uri!r} is no URI such as s3://bucket/graphs; folders belong into data_roots")
        return value

    @field_validator("ray_address")
    @classmethod
    def _of_a_dashboard(cls, value: str | None) -> str | None:
        if value is not None and (urlsplit(value).scheme not in {"http", "https"} or not urlsplit(value).hostname):
            raise ValueError("expected the URL of the cluster's dashboard, as http://127.0.0.1:8265")
        return value

    @field_validator("home")
    @classmethod
    def _one_spelling(cls, value: Path) -> Path:
        return value.expanduser().resolve()

    @field_validator("data_roots")
    @classmethod
    def _real(cls, value: list[Path]) -> list[Path]:
        return [root.expanduser().resolve() for root in value]

    @model_validator(mode="after")
    def _room_for_one_body(self) -> ServiceSettings:
        if self.max_bodies_bytes < self.max_body_bytes:
            raise ValueError(f"max_bodies_bytes is less than max_body_bytes, {self.max_body_bytes}")
        return self

    @property
    def database(self) -> str:
        """The store's SQLAlchemy URL."""
        return self.database_url or f"sqlite:///{self.home / 'rgrl.sqlite'}"

    @property
    def jobs(self) -> Path:
        """Folder of the jobs' working directories."""
        return self.home / "jobs"

    @property
    def graphs(self) -> Path:
        """Folder of the bundles this server made."""
        return self.home / "graphs"

    @property
    def verified(self) -> Path:
        """Folder of what is known of the artefacts' files."""
        return self.home / "verified"

    @property
    def embeddings(self) -> Path:
        """Folder of the embedding sets this server made."""
        return self.home / "embeddings"
